# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What live migrations are begun with, from the options of an action."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import live
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector
from ansible_collections.bootflow.compute.plugins.plugin_utils import attached_volumes, scheduler_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


def wanted(action: LedgerAction, selection: Selection, to_host: str | None = None) -> live.Wanted:
    """:arg to_host: None: the scheduler chooses"""
    hosts = action.compute_hosts()
    variables = scheduler_settings.variables_of_hosts(action)
    return live.Wanted(selection, frozenset(hosts), {h: HOST.of(variables[h]).disk_backend for h in hosts}, to_host)


def connectors(action: LedgerAction, hosts: t.Collection[str]) -> life.Connectors:
    """How each of ``hosts`` reaches volumes. The settings are read now, so that no transaction waits for a template.

    The returned function raises HostLacksHardware for a host that cannot.
    """
    found = attached_volumes.connectors_of(action.task_vars["hostvars"], hosts)

    def connector(host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        its = found(host, facts)
        attached_volumes.check_host(host, its.kind, facts)
        return its

    return connector


def address_of(action: LedgerAction, host: str, reported: str | None) -> str:
    """Where other hosts reach ``host``: bootflow_copy_address, else as it reported, else where Ansible does."""
    variables = action.task_vars["hostvars"][host]
    return str(HOST.of(variables).copy_address or reported or variables.get("ansible_host") or host)
