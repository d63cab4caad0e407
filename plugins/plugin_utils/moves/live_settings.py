# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that live migrations begin with, from the options of an action."""

from __future__ import annotations

import typing as t

from ansible import constants, context

from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.flows.attachments import life
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import live
from ...module_utils.ledger.storage.attachments import Connector
from ..run import host_settings, host_variables, inventory_hosts, time_limits
from ..run.ledger_action import LedgerAction
from ..settings import scheduler_settings
from ..volumes import attached_volumes

AT_ONCE = 120.0  # seconds in which a host begins to send guests when nothing delays it
_LONG = 1_000_000.0


def wanted(action: LedgerAction, selection: Selection, to_host: str | None = None) -> live.Wanted:
    """:arg to_host: None: the scheduler chooses"""
    hosts = action.compute_hosts()
    variables = scheduler_settings.variables_of_hosts(action)
    backends = {h: host_settings.disk_place(HOST.read(variables[h])) for h in hosts}
    return live.Wanted(selection, frozenset(hosts), backends, to_host, inventory_hosts.all_of(action))


def connectors(action: LedgerAction, hosts: t.Collection[str]) -> life.Connectors:
    """Return a function that gives the connector of each of ``hosts``. The settings are read now, so that no transaction waits for a template.

    The returned function raises HostLacksHardware for a host that cannot.
    """
    connector_of = attached_volumes.connectors_of(action.task_vars["hostvars"], hosts)

    def connector(host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        host_connector = connector_of(host, facts)
        attached_volumes.check_host(host, host_connector.kind, facts)
        return host_connector

    return connector


def address_of(action: LedgerAction, host: str, reported: str | None) -> str:
    """Return the address at which other hosts reach ``host``: bootflow_copy_address, else as it reported, else where Ansible does."""
    variables = host_variables.of_host(action.task_vars["hostvars"], host)
    return str(HOST.read(variables).copy_address or reported or variables.get("ansible_host") or host)


def patience(action: LedgerAction, sources: t.Sequence[str], destinations: t.Sequence[str]) -> float:
    """Seconds in which the first word of a guest reaches a host that is prepared, if the run lives.

    The other new hosts are prepared before, each within its limits, as many at a time as there are forks. Where more hosts than that send
    guests, some begin only when others have ended.
    """
    forks = max(1, int(context.CLIARGS.get("forks") or constants.DEFAULT_FORKS))
    if len(sources) > forks:
        return _LONG
    if len(destinations) <= 1:
        return AT_ONCE
    limits = host_settings.values(action, TIME_LIMITS)
    seconds_per_host = 5 * (limits.work_timeout + time_limits.GRACE)  # networks, volumes, disks
    return float(AT_ONCE + seconds_per_host * -(-len(destinations) // forks))
