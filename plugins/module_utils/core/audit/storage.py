# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every difference between the ledger and storage hosts, and the sessions and secrets of compute hosts.

Nothing is changed here. Rows changed since a host was asked, and the work of live runs, are ignored: they are neither
missing nor orphans.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..amounts import GIB
from ..volumes import states
from ..volumes.names import normal_name
from . import plan as audit
from .plan import Finding
from .storage_evidence import (
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
)

#: Volumes in these states have a logical volume.
THERE = (
    states.AVAILABLE,
    states.RESERVED,
    states.ATTACHING,
    states.IN_USE,
    states.DETACHING,
    states.UPLOADING,
    states.ERROR_EXTENDING,
)
SNAPSHOT_THERE = (states.AVAILABLE,)

_OTHERS = "Volumes of another ledger are left alone. Free space is what LVM reports, so their size is counted."
REMOVES = "Run bootflow.compute.audit with bootflow_audit_remove_orphans: true to remove the leftover."
_ELSEWHERE = "The ledger has the volume %s %s. If that host was renamed, restore its name; otherwise check both."
#: The systemd unit that restores the saved targets.
SERVICES = {"lio": "rtslib-fb-targetctl", "tgt": "tgt"}
_START = (
    "The saved configuration of the host has the target: restart its service (systemctl restart %s). Initiators log in again by"
    " themselves, and running guests continue."
)
_RESTORE = (
    "The host's saved configuration lacks the target too, and its CHAP credentials are stored nowhere else. With that"
    " configuration from a backup (/etc/rtslib-fb-target/saveconfig.json, /etc/tgt/conf.d) running guests continue."
)
_REATTACH = " Otherwise detach the volume and attach it again: both ends get new credentials."
_LOSES = " The guest is running and loses unwritten data: stop it first if possible."
_NOTHING_LOST = " The guest is not running, so nothing is lost; do this before starting it."
_CLONE = (
    " Otherwise: a root disk cannot be detached. Make a volume from it (source_volid), boot another instance from that, and"
    " delete this one when it is no longer needed."
)
_AWAY = "Bring the host back: nothing is placed there until it reports."


# --- state of the ledger -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A volume or snapshot, live or deleted."""

    kind: str
    id: str
    name: str
    pool_host: t.Optional[str]
    status: str
    touched_at: float  # last written, or deleted
    deleted: bool = False
    made: bool = True
    worked_on: bool = False  # by a live run


@dataclass(frozen=True)
class Cable:
    """A live attachment."""

    id: str
    volume_id: str
    instance: str
    storage_host: t.Optional[str]
    attached_host: t.Optional[str]
    iqn: t.Optional[str] = None
    stands: bool = True  # attached and exported, and no run works on it
    since: float = 0.0
    root: bool = False  # the instance boots from it


@dataclass(frozen=True)
class StorageLedger:
    items: t.Mapping[t.Tuple[str, str], Item] = field(default_factory=dict)  # (kind, id)
    cables: t.Sequence[Cable] = ()
    cleanups: t.Collection[t.Tuple[str, str]] = ()  # (pool_host, id) of pending cleanups
    errors: t.Mapping[str, t.Optional[str]] = field(default_factory=dict)  # pool_host -> why it was not ready


def plan(
    ledger: StorageLedger,
    evidence: StorageEvidence,
    remove_orphans: bool = False,
    hosts: t.Optional[t.Collection[str]] = None,
) -> list[Finding]:
    """Every difference, sorted by host. :arg hosts: only differences on these; None: all."""
    findings = _Plan(ledger, evidence, remove_orphans).findings
    findings = [f for f in findings if hosts is None or f.host in hosts]
    return sorted(findings, key=lambda f: (f.host or "", f.kind, f.what))


def _missing_remedy(cable: Cable, off: bool) -> str:
    """The remedy for a target that exists nowhere any more."""
    if cable.root:
        return _RESTORE + _CLONE
    return _RESTORE + _REATTACH + (_NOTHING_LOST if off else _LOSES)


class _Plan:
    def __init__(self, ledger: StorageLedger, evidence: StorageEvidence, remove_orphans: bool):
        self.ledger = ledger
        self.evidence = evidence
        self.remove_orphans = remove_orphans
        self.findings: list[Finding] = []
        self.ending: dict[str, int] = {}  # iqn -> the number of its sessions that this audit ends
        # Several backends may share a volume group: its content belongs to each of their pools.
        self.groups: dict[str, set[str]] = {}  # pool_host -> the pool_hosts of its group
        self.items_by_pool_host: dict[str, set[tuple[str, str]]] = {}  # pool_host -> (kind, id) in its group
        backends = [b for s in evidence.storage.values() for b in s.backends if not b.error]
        for backend in backends:
            group = [b for b in backends if b is backend or (b.group and b.group == backend.group)]
            self.groups[backend.pool_host] = {b.pool_host for b in group}
            self.items_by_pool_host[backend.pool_host] = {(lv.kind, lv.id) for b in group for lv in b.volumes}
        self.cables: dict[str, list[Cable]] = {}
        for cable in ledger.cables:
            self.cables.setdefault(cable.volume_id, []).append(cable)
        # Sessions first: a target is removed after them, and a logical volume after its target.
        for cables in evidence.compute.values():
            self._compute(cables)
        for host, reason in evidence.unreachable.items():
            self._unreachable(host, reason)
        for snapshot in evidence.storage.values():
            self._storage(snapshot)

    def add(
        self,
        kind: str,
        host: str,
        what: str,
        old: t.Any,
        new: t.Any,
        action: str,
        remedy: str = "",
        key: t.Any = None,
        instance: t.Optional[str] = None,
    ) -> None:
        self.findings.append(Finding(kind, host, instance, what, old, new, action, remedy, key))

    def _orphan(self, kind: str, host: str, what: str, old: t.Any, why_not: str, key: t.Any) -> bool:
        """Add an orphan. Returns whether it is removed. :arg why_not: why it cannot be removed, or ""."""
        removed = self.remove_orphans and not why_not
        remedy = why_not or ("" if removed else REMOVES)
        action = audit.REMOVE if removed else audit.REPORT
        self.add(kind, host, what, old, None if removed else old, action, remedy, key)
        return removed

    def _is_moving(self, volume_id: str, began_at: float) -> bool:
        """Whether the volume changed since a host was asked, or a run works on it."""
        item = self.ledger.items.get((VOLUME, volume_id))
        return item is not None and (item.worked_on or item.touched_at >= began_at)

    # --- compute hosts --------------------------------------------------------------------------------------------------

    def _compute(self, snapshot: CableSnapshot) -> None:
        host = snapshot.host
        if snapshot.error:
            self._unread(host, "sessions and secrets", snapshot.error, snapshot.remedy)
        for session in snapshot.sessions:
            if not self._is_plugged(host, session, snapshot.began_at):
                self._session(host, session)
        for secret in snapshot.secrets:
            if not self._is_plugged(host, secret, snapshot.began_at):
                what = "secret of %s" % secret.iqn
                key = {"iqn": secret.iqn, "volume_id": secret.volume_id}
                why_not = self._is_elsewhere(secret.volume_id)
                self._orphan(audit.ORPHAN_SECRET, host, what, secret.iqn, why_not, key)

    def _is_plugged(self, host: str, end: t.Union[Session, Secret], began_at: float) -> bool:
        cables = self.cables.get(end.volume_id, ())
        # An instance without a host may still come here.
        names = {None, host, *self._names_of(host)}
        has_attachment = any(c.attached_host in names for c in cables)
        return has_attachment or self._is_moving(end.volume_id, began_at)

    def _names_of(self, host: str) -> set[str]:
        """The names by which the machine of a compute host answered."""
        machine = self.evidence.compute[host].machine
        return {
            h
            for h, evidence_of_host in self.evidence.compute.items()
            if machine[1] and evidence_of_host.machine == machine
        }

    def _is_elsewhere(self, volume_id: str) -> str:
        """Why a session or target may be the attachment's only one: its host in the ledger did not answer. Else ""."""
        away = {str(c.attached_host) for c in self.cables.get(volume_id, ())} - set(self.evidence.compute)
        return _ELSEWHERE % ("attached on", ", ".join(sorted(away))) if away else ""

    def _session(self, host: str, session: Session) -> None:
        why_not = self._is_elsewhere(session.volume_id)
        if session.in_use:
            why_not = "The disk is in use: %s. Stop its user first." % "; ".join(session.in_use)
        elif len(session.luns) > 1:
            why_not = "The target has several disks and is not ours. Check it (iscsiadm -m session -P 3)."
        key = {
            "volume_id": session.volume_id,
            "iqn": session.iqn,
            "lun": session.luns[0] if session.luns else 0,
            "portals": list(session.portals),
        }
        what = "%s %s" % ("session with" if session.session else "record of", session.iqn)
        if self._orphan(audit.ORPHAN_SESSION, host, what, list(session.portals), why_not, key) and session.session:
            iqn = normal_name(session.iqn)
            self.ending[iqn] = self.ending.get(iqn, 0) + 1

    def _unread(self, host: str, what: str, error: str, remedy: str) -> None:
        self.add(audit.UNREAD, host, what, error, error, audit.REPORT, remedy)

    # --- storage hosts --------------------------------------------------------------------------------------------------

    def _unreachable(self, host: str, reason: str) -> None:
        before = [error for pool_host, error in self.ledger.errors.items() if pool_host.partition("@")[0] == host]
        fresh = any(error is None for error in before)
        action = audit.MARK if fresh else audit.REPORT
        self.add(audit.HOST_UNREACHABLE, host, "backends", None if fresh else reason, reason, action, _AWAY)

    def _storage(self, snapshot: StorageSnapshot) -> None:
        host = snapshot.host
        for unread in snapshot.unread:
            self._unread(host, "targets of %s (%s)" % (unread.kind, unread.prefix), unread.error, unread.remedy)
        going = {t_.volume_id for t_ in snapshot.targets if self._target(snapshot, t_)}
        for backend in snapshot.backends:
            before = self.ledger.errors.get(backend.pool_host)
            if backend.error:
                action = audit.REPORT if before else audit.MARK
                self.add(audit.UNREAD, host, backend.pool_host, before, backend.error, action, backend.remedy)
                continue
            if before:
                self.add(audit.HOST_FACTS, host, "%s not ready" % backend.pool_host, before, None, audit.RECORD)
            for ledger, has in backend.others.items():
                what = "volumes of ledger %s at %s" % (ledger, backend.pool_host)
                self.add(audit.OTHER_LEDGER, host, what, has, has, audit.REPORT, _OTHERS)
            self._volumes(snapshot, backend, going)
            self._missing_volumes(snapshot, backend)
        self._missing_targets(snapshot)

    def _target(self, snapshot: StorageSnapshot, target: Target) -> bool:
        """Whether the target is an orphan that this audit removes."""
        homes = {c.storage_host for c in self.cables.get(target.volume_id, ())}
        if not target.ours or homes & {None, *self._same_machine(snapshot)}:
            return False
        if self._is_moving(target.volume_id, snapshot.began_at):
            return False
        why_not = ""
        unseen = sorted(str(home) for home in homes if normal_name(target.iqn) not in self._targets_of(home))
        if unseen:
            why_not = _ELSEWHERE % ("exported by", ", ".join(unseen))
        elif len(target.sessions) > self.ending.get(normal_name(target.iqn), 0):
            why_not = "%s is logged in. End its session first." % ", ".join(target.sessions)
        has = {"path": target.path, "sessions": list(target.sessions)}
        key = {
            "volume_id": target.volume_id,
            "iqn": target.iqn,
            "target": target.kind,
            "iqn_prefix": target.iqn[: -len("volume-" + target.volume_id)],
        }
        return self._orphan(audit.ORPHAN_TARGET, snapshot.host, "target %s" % target.iqn, has, why_not, key)

    def _same_machine(self, snapshot: StorageSnapshot) -> set[str]:
        """The names of its host in the inventory, recognised by volume groups."""
        groups = {b.group for b in snapshot.backends if b.group}
        others = self.evidence.storage.values()
        return {snapshot.host, *(o.host for o in others if groups & {b.group for b in o.backends})}

    def _targets_of(self, host: t.Optional[str]) -> set[str]:
        """The targets that initiators find on a storage host, as far as reported."""
        snapshot = self.evidence.storage.get(host or "")
        return {normal_name(target.iqn) for target in snapshot.targets if target.running} if snapshot else set()

    def _missing_targets(self, snapshot: StorageSnapshot) -> None:
        running = {normal_name(t_.iqn) for t_ in snapshot.targets if t_.running}
        unread = {u.prefix for u in snapshot.unread}
        asked = tuple(normal_name(p) for p in snapshot.prefixes if p not in unread)
        for cable in self.ledger.cables:
            if cable.storage_host != snapshot.host or not cable.stands or cable.since >= snapshot.began_at:
                continue
            iqn = normal_name(cable.iqn or "")
            if not iqn or not iqn.startswith(asked) or iqn in running:
                continue
            if self._is_moving(cable.volume_id, snapshot.began_at):
                continue
            saved = [t_.kind for t_ in snapshot.targets if normal_name(t_.iqn) == iqn]
            remedy = (
                _START % SERVICES[saved[0]] if saved else _missing_remedy(cable, cable.instance in self.evidence.off)
            )
            self.add(
                audit.MISSING_TARGET,
                snapshot.host,
                "target %s" % cable.iqn,
                "exported",
                "exported",
                audit.REPORT,
                remedy,
                key=cable.id,
                instance=cable.instance,
            )

    # --- logical volumes ------------------------------------------------------------------------------------------------

    def _volumes(self, snapshot: StorageSnapshot, backend: Backend, going: t.Collection[str]) -> None:
        removed: set[str] = set()  # names
        for lv in sorted(backend.volumes, key=lambda v: (v.kind != SNAPSHOT, v.name)):
            if not self._is_orphan(snapshot, backend, lv):
                continue
            snapshot_names = [v.name for v in backend.volumes if v.origin == lv.name and v.kind == SNAPSHOT]
            snapshot_names = sorted(set(snapshot_names) - removed)
            item = self.ledger.items.get((lv.kind, lv.id))
            why_not = ""
            if item is not None and not self._is_copy(item):
                why_not = (
                    "The ledger has the volume at %s, where it was not found: this may be the only copy. If the host or"
                    " the backend was renamed, restore the former name; otherwise check both." % item.pool_host
                )
            elif lv.kind == VOLUME and snapshot_names:
                why_not = "The volume has snapshots that are kept: %s." % ", ".join(snapshot_names)
            elif lv.open and not (lv.kind == VOLUME and lv.id in going):
                why_not = "The volume is open: a target exports it, or a program uses it. Stop its user first."
            has: dict[str, t.Any] = {"size_gb": round(lv.size / GIB, 2)}
            if item is not None:
                has["ledger"] = "deleted" if item.deleted else item.pool_host or "nowhere"
            what = "%s at %s" % (lv.name, backend.pool_host)
            if self._orphan(
                audit.ORPHAN_VOLUME, snapshot.host, what, has, why_not, (backend.pool_host, lv.kind, lv.id)
            ):
                removed.add(lv.name)

    def _is_copy(self, item: Item) -> bool:
        """Whether removing an orphan loses nothing: the item is deleted, was never made, or is where the ledger has it."""
        return (
            item.deleted
            or not item.made
            or (item.kind, item.id) in self.items_by_pool_host.get(item.pool_host or "", ())
        )

    def _is_orphan(self, snapshot: StorageSnapshot, backend: Backend, lv: LogicalVolume) -> bool:
        group = self.groups[backend.pool_host]
        if any((pool_host, lv.id) in self.ledger.cleanups for pool_host in group):
            return False
        item = self.ledger.items.get((lv.kind, lv.id))
        if item is None:
            return True
        if item.touched_at >= snapshot.began_at or item.worked_on:
            return False
        return item.deleted or item.pool_host not in group

    def _missing_volumes(self, snapshot: StorageSnapshot, backend: Backend) -> None:
        for key, item in self.ledger.items.items():
            if item.pool_host != backend.pool_host or item.deleted or key in self.items_by_pool_host[backend.pool_host]:
                continue
            if item.worked_on or item.touched_at >= snapshot.began_at or not item.made:
                continue
            if item.status not in (THERE if item.kind == VOLUME else SNAPSHOT_THERE):
                continue
            self.add(
                audit.MISSING_VOLUME,
                snapshot.host,
                "%s %s at %s" % (item.kind, item.id, backend.pool_host),
                item.status,
                item.status,
                audit.REPORT,
                "Check that all devices of the volume group are present (pvs, vgs). LVM may restore what it removed"
                " (vgcfgrestore); otherwise delete it here, and restore its content from a backup.",
                key=item.id,
            )
