# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit of storage hosts, and of iSCSI on compute hosts: its questions, the answers as evidence, and what it removes there."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.audit.storage_evidence import (
    SNAPSHOT,
    VOLUME,
    Backend,
    CableSnapshot,
    LogicalVolume,
    Secret,
    Session,
    StorageEvidence,
    StorageSnapshot,
    Target,
    Unread,
)
from ...module_utils.core.instances.states import CRASHED, SHUTDOWN
from ...module_utils.core.volumes.drivers.registry import driver_of
from ...module_utils.flows.recovery import storage_audit
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.storage import backends as storage_backends
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..settings import storage_settings
from ..volumes import storage_reports

Answer = t.Mapping[str, t.Any]
Ends = t.Sequence[t.Mapping[str, t.Any]]
Outcomes = t.Dict[str, t.Optional[errors.BootflowError]]  # target -> None, or why it is still there

_OFF = (SHUTDOWN, CRASHED)
# Fields of a logical volume in the module's answer.
_FIELDS = ("kind", "id", "name", "size", "open", "origin", "pool")
# Fields of a target and of a session that core's Target and Session have, too.
_TARGET = ("iqn", "volume_id", "path", "sessions", "running", "ours")
_SESSION = ("iqn", "volume_id", "session", "luns", "portals", "in_use")


def ask(action: LedgerAction, ledger: Ledger, host: str) -> dict[str, t.Any]:
    """Ask the current host, a storage host, in one call. It never raises because of what the host did."""
    configurations = storage_settings.of_host(action, host)
    targets = ledger.inspect(storage_audit.targets_of, host)
    targets |= {(c["target"], c["iqn_prefix"]) for c in configurations if driver_of(c).has_portals}
    began_at = action.context().now
    try:
        answer = storage_reports.ask(action, ledger, configurations, targets)
    except errors.BootflowError as e:
        action._display.warning("%s did not answer: %s" % (host, e.paragraph))
        return {"inspected": False, "error": e.as_dict()}
    backends = []
    for configuration in configurations:
        facts = answer["backends"].get(configuration["name"])
        volumes = [{name: lv.get(name) for name in _FIELDS} for lv in (facts or {}).get("volumes") or ()]
        others = (facts or {}).get("other_ledgers") or {}
        backends.append({**storage_reports.backend_data(configuration, facts), "volumes": volumes, "others": others})
    return {"inspected": True, "began_at": began_at, "backends": backends, "targets": answer["targets"]}


def record(ledger: Ledger, answers: t.Mapping[str, Answer]) -> None:
    """Enter the answers of storage hosts as their reports."""
    for host, answer in answers.items():
        if answer["inspected"]:
            reports = [storage_reports.report_of(b, b["volumes"]) for b in answer["backends"]]
            ledger.transact(storage_backends.record_report, host, reports)
        else:
            why = storage_reports.why_silent(host, answer["error"]["message"])
            ledger.transact(storage_backends.record_unreachable, host, why)


def evidence(storage: t.Mapping[str, Answer], compute: t.Mapping[str, Answer]) -> StorageEvidence:
    """Both kinds of answers in the form of core's rules. :arg compute: the answers of compute hosts."""
    return StorageEvidence(
        storage={h: _storage(h, a) for h, a in storage.items() if a["inspected"]},
        unreachable={h: a["error"]["message"] for h, a in storage.items() if not a["inspected"]},
        compute={h: _cables(h, a) for h, a in compute.items() if a["inspected"] and a.get("iscsi")},
        off={
            d["uuid"]
            for a in compute.values()
            if a["inspected"]
            for d in (a.get("compute_node") or {}).get("domains") or ()
            if d.get("power_state") in _OFF
        },
    )


def _fields(item: Answer, names: t.Iterable[str]) -> dict[str, t.Any]:
    return {name: item[name] for name in names}


def _storage(host: str, answer: Answer) -> StorageSnapshot:
    read = [entry for entry in answer["targets"] if not entry["error"]]
    failed = [entry for entry in answer["targets"] if entry["error"]]
    return StorageSnapshot(
        host=host,
        began_at=answer["began_at"],
        backends=_backends(host, answer["backends"]),
        targets=[
            Target(kind=entry["target"], prefix=entry["iqn_prefix"], **_fields(e, _TARGET))
            for entry in read
            for e in entry["exports"]
        ],
        unread=[
            Unread(entry["target"], entry["iqn_prefix"], entry["error"]["message"], entry["error"].get("remedy") or "")
            for entry in failed
        ],
        prefixes={entry["iqn_prefix"] for entry in answer["targets"]},
    )


def _backends(host: str, backends: t.Sequence[Answer]) -> list[Backend]:
    """Return the backends, each with the logical volumes of its pool: a backend reports its whole volume group, which others may share."""
    pool_backends: list[Backend] = []
    for backend in backends:
        error = backend["error"] or {}
        group = _group(host, backend)
        others = [b for b in backends if not b["error"] and _group(host, b) == group]
        volumes = [
            LogicalVolume(lv["kind"], lv["id"], lv["name"], int(lv["size"]), bool(lv["open"]), lv["origin"] or "")
            for lv in backend["volumes"]
            # cached images have no owner, and are not orphans
            if lv["kind"] in (VOLUME, SNAPSHOT) and _owner(lv, others) is backend
        ]
        pool_backends.append(
            Backend(
                backend["pool_host"],
                volumes,
                error.get("message", ""),
                error.get("remedy") or "",
                group=group,
                others=backend.get("others") or {} if backend in others[:1] else {},
            )
        )
    return pool_backends


def _group(host: str, backend: Answer) -> str:
    """The same of all backends of one volume group, also of a host that is in the inventory twice."""
    uuid = (backend["capacity"] or {}).get("vg_uuid")
    return str(uuid or "%s/%s" % (host, driver_of(backend["configuration"]).place(backend["configuration"])))


def _owner(lv: Answer, backends: t.Sequence[Answer]) -> Answer:
    """The backend whose pool the logical volume is in, else the first."""
    pools = [b["configuration"].get("thin_pool") or "" for b in backends]
    return backends[pools.index(lv["pool"] or "") if (lv["pool"] or "") in pools else 0]


def _cables(host: str, answer: Answer) -> CableSnapshot:
    iscsi = answer["iscsi"]
    error = iscsi.get("error") or {}
    facts = answer.get("compute_node") or {}
    return CableSnapshot(
        host=host,
        began_at=answer["began_at"],
        sessions=[Session(**_fields(s, _SESSION)) for s in iscsi["sessions"]],
        secrets=[Secret(s["iqn"], s["volume_id"]) for s in iscsi["secrets"]],
        error=error.get("message", ""),
        remedy=error.get("remedy") or "",
        machine=(facts.get("hypervisor_hostname") or "", facts.get("host_uuid") or ""),
    )


# --- removing what nothing owns ------------------------------------------------------------------------------------
# Each is first looked up in the ledger again, and its volume is held meanwhile.


def unplug(action: LedgerAction, ledger: Ledger, sessions: Ends, secrets: Ends) -> Outcomes:
    """End these sessions of the current host, a compute host, with their records, and take these secrets from its libvirt."""
    outcomes: Outcomes = {}
    host = action.task_vars["inventory_hostname"]
    free = ledger.transact(storage_audit.hold, host, storage_audit.COMPUTE, sessions) if sessions else []
    while free:  # the module takes a volume once: two targets of one have different prefixes
        now = {end["volume_id"]: end for end in reversed(free)}.values()
        free = [end for end in free if end not in now]
        connections = [{**end, "state": "disconnected"} for end in now]
        arguments = {"connections": connections, "workers": host_settings.workers(action, len(connections))}
        outcomes.update(_run(action, "iscsi_initiator", arguments, {e["volume_id"]: e["iqn"] for e in now}))
    free = ledger.transact(storage_audit.hold, host, storage_audit.COMPUTE, secrets) if secrets else []
    if free:
        absent = [{"iqn": end["iqn"], "state": "absent"} for end in free]
        arguments = {**host_settings.libvirt_arguments(action), "secrets": absent}
        for iqn, problem in _run(action, "iscsi_secret", arguments, {e["iqn"]: e["iqn"] for e in free}).items():
            outcomes[iqn] = outcomes.get(iqn) or problem
    return outcomes


def end_targets(action: LedgerAction, ledger: Ledger, targets: Ends) -> Outcomes:
    """Take these targets from the current host, a storage host."""
    outcomes: Outcomes = {}
    host = action.task_vars["inventory_hostname"]
    free = ledger.transact(storage_audit.hold, host, storage_audit.STORAGE, targets) if targets else []
    for kind, prefix in sorted({(e["target"], e["iqn_prefix"]) for e in free}):
        group = [e for e in free if (e["target"], e["iqn_prefix"]) == (kind, prefix)]
        arguments = {
            "target": kind,
            "iqn_prefix": prefix,
            "exports": [{"volume_id": e["volume_id"], "state": "absent"} for e in group],
        }
        outcomes.update(_run(action, "iscsi_target", arguments, {e["volume_id"]: e["iqn"] for e in group}))
    return outcomes


def _run(action: LedgerAction, module: str, arguments: t.Mapping[str, t.Any], keys: t.Mapping[str, str]) -> Outcomes:
    """:arg keys: key of the module's outcomes -> the target."""
    try:
        problems = item_errors(action.run_module(module, arguments), keys)
    except errors.BootflowError as e:
        problems = dict.fromkeys(keys, e)
    return {iqn: problems.get(key) for key, iqn in keys.items()}
