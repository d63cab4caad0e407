# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose local disks are in a pool that other hosts reach, and what cannot be done with these disks."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.stores.registry import SHARED
from ...module_utils.core.settings.hosts import HOST
from ..run import host_settings, host_variables
from ..run.host_settings import OnHost
from ..settings import scheduler_settings

if t.TYPE_CHECKING:
    from ...module_utils.ledger.compute.instances import Instance
    from ..run.ledger_action import LedgerAction


def hosts_with(action: OnHost, hosts: t.Iterable[str]) -> set[str]:
    """Return the hosts whose disks are in a pool, as their settings say."""
    hostvars = action.task_vars["hostvars"]
    wanted = HOST.named("disk_backend")
    return {
        host
        for host in set(hosts)
        if host in hostvars and wanted.read(host_variables.of_host(hostvars, host).get(wanted.variable)) in SHARED
    }


def places(action: LedgerAction) -> dict[str, str]:
    """Return host -> the word for where its local disks are (host_settings.disk_place()), of hosts with disks in a pool; empty where none has."""
    hosts = action.compute_hosts()
    if not hosts_with(action, hosts):
        return {}
    variables = scheduler_settings.variables_of_hosts(action)
    return {host: host_settings.disk_place(HOST.read(variables[host])) for host in hosts}


def refuse(action: OnHost, rows: t.Iterable[Instance], method: str) -> None:
    """Refuse a work with local disks of these instances. :raises NotSupportedYet: one has them in a pool"""
    rows = list(rows)
    shared = hosts_with(action, {str(r.host) for r in rows if r.host})
    refused = [r for r in rows if r.host in shared]
    if refused:
        raise errors.NotSupportedYet(
            feature="%s of instance %s, whose disks are in Ceph," % (method, refused[0].display_name),
            remedy="Nothing was changed. docs/ceph.md names what can be done with local disks in Ceph.",
        )
