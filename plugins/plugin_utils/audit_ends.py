# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removing unowned targets of a storage host, and unowned sessions and secrets of a compute host, after an audit.

Each is first looked up in the ledger again, and its volume is held meanwhile.
"""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import storage_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.database import Ledger
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import item_errors

Ends = t.Sequence[t.Mapping[str, t.Any]]
Outcomes = t.Dict[str, t.Optional[errors.BootflowError]]  # target -> None, or why it is still there


def unplug(action: LedgerAction, ledger: Ledger, sessions: Ends, secrets: Ends) -> Outcomes:
    """End these sessions of the current host, a compute host, with their records, and take these secrets from its libvirt."""
    found: Outcomes = {}
    host = action.task_vars["inventory_hostname"]
    free = ledger.transact(storage_audit.hold, host, storage_audit.COMPUTE, sessions) if sessions else []
    while free:  # the module takes a volume once: two targets of one have different prefixes
        now = {end["volume_id"]: end for end in reversed(free)}.values()
        free = [end for end in free if end not in now]
        connections = [{**end, "state": "disconnected"} for end in now]
        arguments = {"connections": connections, "workers": host_settings.workers(action, len(connections))}
        found.update(_run(action, "iscsi_initiator", arguments, {e["volume_id"]: e["iqn"] for e in now}))
    free = ledger.transact(storage_audit.hold, host, storage_audit.COMPUTE, secrets) if secrets else []
    if free:
        absent = [{"iqn": end["iqn"], "state": "absent"} for end in free]
        arguments = {**host_settings.libvirt_arguments(action), "secrets": absent}
        for iqn, problem in _run(action, "iscsi_secret", arguments, {e["iqn"]: e["iqn"] for e in free}).items():
            found[iqn] = found.get(iqn) or problem
    return found


def end_targets(action: LedgerAction, ledger: Ledger, targets: Ends) -> Outcomes:
    """Take these targets from the current host, a storage host."""
    found: Outcomes = {}
    host = action.task_vars["inventory_hostname"]
    free = ledger.transact(storage_audit.hold, host, storage_audit.STORAGE, targets) if targets else []
    for kind, prefix in sorted({(e["target"], e["iqn_prefix"]) for e in free}):
        mine = [e for e in free if (e["target"], e["iqn_prefix"]) == (kind, prefix)]
        arguments = {
            "target": kind,
            "iqn_prefix": prefix,
            "exports": [{"volume_id": e["volume_id"], "state": "absent"} for e in mine],
        }
        found.update(_run(action, "iscsi_target", arguments, {e["volume_id"]: e["iqn"] for e in mine}))
    return found


def _run(action: LedgerAction, module: str, arguments: t.Mapping[str, t.Any], keys: t.Mapping[str, str]) -> Outcomes:
    """:arg keys: key of the module's outcomes -> the target."""
    try:
        problems = item_errors(action.run_module(module, arguments), keys)
    except errors.BootflowError as e:
        problems = dict.fromkeys(keys, e)
    return {iqn: problems.get(key) for key, iqn in keys.items()}
