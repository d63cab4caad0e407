# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every difference between the hosts and the ledger, and its repair.

Nothing is changed here. A host's answer is older than the ledger, so rows changed since the host was asked are ignored,
and so is the work of live runs.
source: Nova's update_available_resource
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass

from ..instances import dead_builds, states
from ..instances.moves import Seen, migration_completed
from .evidence import DhcpNetwork, Domain, Evidence, Reservation, Snapshot, Unplugged, guests_of_others
from .ledger_state import Amounts, Claim, Instance, Ledger, Node

# --- repairs ---
RECOUNT = "recount"  # usage is corrected
RECORD = "record"  # the host's report is stored
MARK = "mark"  # the host is down until it answers
RELEASE = "release"
CLAIM = "claim"  # a lost claim is entered again
CORRECT = "correct"
ADOPT = dead_builds.ADOPT  # a build has ended on its host: the instance is active
KEEP = dead_builds.KEEP  # the same, and something of it is missing: it ends in ERROR, and nothing is removed
CLEAN = "clean"  # the host is cleaned, then its claims and addresses are released
END = "end"  # ends in ERROR without the host
FINISH = "finish"  # a deletion is finished
SETTLE = "settle"  # an operation is over: the instance gets the state that its host reports
FORGET = "forget"
REMOVE = "remove"  # orphans, if the user allows it
RESERVE = "reserve"  # the host's DHCP server gets the reservation
WAIT = "wait"  # for a host that does not answer, or is still at it
REPORT = "report"  # a person has to look at it

#: These change nothing.
IDLE = (WAIT, REPORT)

# --- differences ---
USAGE = "usage"
HOST_FACTS = "host_facts"
HOST_UNREACHABLE = "host_unreachable"
DEAD_BUILD = "dead_build"
DEAD_DELETE = "dead_delete"
DEAD_OPERATION = "dead_operation"
MOVE_STATUS = "move_status"  # of a move: it contradicts the instance
CLEANUP = "cleanup"
STALE_CLAIM = "stale_claim"
OF_MOVE = "move"  # key of a claim
MISSING_CLAIM = "missing_claim"
WRONG_CLAIM = "wrong_claim"
DEVICE_CLAIM = "device_claim"
PORT = "port"
ADDRESS = "address"
SERVER_GROUP = "server_group"
ORPHAN_DOMAIN = "orphan_domain"
FOREIGN_DOMAIN = "foreign_domain"
POWER_STATE = "power_state"  # of a guest
OTHER_LEDGER = "other_ledger"  # guests of another ledger on the same host
ORPHAN_FOLDER = "orphan_folder"
ORPHAN_DISK = "orphan_disk"
INSTANCE_WITHOUT_DOMAIN = "instance_without_domain"
INSTANCE_ELSEWHERE = "instance_elsewhere"
VOLUME = "volume"
ATTACHMENT = "attachment"
ORPHAN_VOLUME = "orphan_volume"
MISSING_VOLUME = "missing_volume"
ORPHAN_TARGET = "orphan_target"
MISSING_TARGET = "missing_target"
ORPHAN_SESSION = "orphan_session"
ORPHAN_SECRET = "orphan_secret"
OTHER_DISKS = "other_disks"  # a guest writes to disks that are not the instance's
MISSING_RESERVATION = "missing_reservation"  # of an address of a guest, on the host's DHCP server
ORPHAN_RESERVATION = "orphan_reservation"
UNPLUGGED = "unplugged_interface"  # of a running guest: its network or bridge ended, and came again without it
UNREAD = "unread"  # a part that a reachable host could not read

USAGE_COLUMNS = ("memory_mb_used", "local_gb_used", "vcpus_used", "num_instances")
RESERVED_COLUMNS = ("reserved_memory_mb", "reserved_disk_gb", "reserved_vcpus")

#: Instances in these states have a domain on their host, running or not.
WITH_DOMAIN = (
    states.ACTIVE,
    states.PAUSED,
    states.SUSPENDED,
    states.STOPPED,
    states.RESCUED,
    states.RESIZED,
    states.SOFT_DELETED,
    states.SHELVED,
)

_RESERVE = (
    "Guests of another ledger are left alone, but claims do not count them. Reserve what both ledgers need of %s:"
    " bootflow_reserved_memory_mb, bootflow_reserved_disk_gb and bootflow_reserved_vcpus."
)

_OFF = (states.NOSTATE, states.SHUTDOWN, states.CRASHED)
_REBOOTABLE = (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED)
_REBOOT = (
    "The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again. If its disks are gone too,"
    " rebuild it, or delete it and boot it again."
)
_DEFINE = "The domain is gone from the host. Delete the instance and boot it again, or define its domain again."
#: vm_state -> the operations that repair an instance whose domain is gone.
_DEFINES = {
    **dict.fromkeys(_REBOOTABLE, _REBOOT),
    states.RESCUED: "The domain is gone from the host: bootflow.compute.unrescue defines it again.",
    states.SHELVED: (
        "The domain is gone from the host. Run bootflow.compute.shelve_offload, then bootflow.compute.unshelve, which builds the instance from its image"
        " or its root volume."
    ),
    states.SOFT_DELETED: "The domain is gone from the host: bootflow.compute.restore defines it again, bootflow.compute.force_delete deletes the instance.",
    states.RESIZED: (
        "The domain is gone from the host. bootflow.compute.revert_resize brings the instance back to its former host, with the disks that it left there;"
        " what it wrote since is lost."
    ),
}

_UNSEEN = " If the ledger was restored from a backup, see first that no host that did not answer runs the guest: %s."

_OTHER_DISKS = (
    "Domain %s on %s writes to a disk that is not the instance's, so that the instance is neither migrated nor resized nor rescued. Where it stands for a"
    " volume, the instance is neither rebooted hard nor rebuilt, and keeps the volume. If it is the overlay of an external snapshot,"
    " merge it: virsh blockcommit DOMAIN DISK --active --shallow --pivot --wait (without --shallow virsh would write to the base"
    " image); else copy it back, or detach it, with virsh."
)

_BUILDS = {
    ADOPT: "The build had ended when its run died, or the ledger is older than the host: the instance is active.",
    KEEP: "The build had ended when its run died, or the ledger is older than the host. bootflow.compute.show tells what is missing.",
    CLEAN: "Run the same boot again.",
    WAIT: "The host has not said yet what becomes of the build: run the audit again.",
}
_COMPLETE = (
    "The build of the instance has ended on %s, which did not answer when its run died: nothing is removed there. Save what is needed of its disks. Then"
    " delete the instance, or run the same boot again: both have it removed."
)

_MOVE_STATUS = (
    "The instance is %s with task_state %s on %s, and no run leaves a move with this status then: the ledger was changed by hand. Nothing settles the move"
    " until the status fits: UPDATE migrations SET status = '%s' WHERE id = %d"
)

_HALF_DETACHED = (
    "A run began to detach this interface, whose addresses stay taken. If that run has ended, run bootflow.compute.detach_interface"
    " with port_id: %s."
)

MOST_NAMED = 10  # hosts in a remedy


@dataclass(frozen=True)
class Finding:
    """One difference. ``key``: its key in the ledger (an id, or a name)."""

    kind: str
    host: t.Optional[str]
    instance: t.Optional[str]
    what: str
    old: t.Any
    new: t.Any
    action: str
    remedy: str = ""
    key: t.Any = None
    node_id: t.Optional[int] = None

    @property
    def changes(self) -> bool:
        return self.action not in IDLE

    def as_dict(self) -> dict[str, t.Any]:
        same = {name: getattr(self, name) for name in ("kind", "host", "instance", "what", "action", "remedy")}
        return {**same, "from": self.old, "to": self.new}


def plan(ledger: Ledger, evidence: Evidence) -> list[Finding]:
    """Every difference between the ledger and the hosts, and inside the ledger, sorted by host.

    Usage has to be the reserved amounts plus the sum of the claims. The memory of domains that are not instances is
    reported (see foreign_memory), not counted, as in Nova's libvirt driver.
    """
    findings = _Plan(ledger, evidence).findings
    return sorted(findings, key=lambda f: (f.host is None, f.host or "", f.kind, f.instance or "", f.what))


def foreign_memory(findings: t.Iterable[Finding]) -> dict[str, int]:
    """host -> MB of its domains that are not instances of the ledger."""
    memory_by_host: dict[str, int] = {}
    for finding in findings:
        if finding.kind in (ORPHAN_DOMAIN, FOREIGN_DOMAIN, OTHER_LEDGER) and finding.host is not None:
            memory_by_host[finding.host] = memory_by_host.get(finding.host, 0) + int(finding.old.get("memory_mb", 0))
    return memory_by_host


def runs_of_dead_builds(findings: t.Iterable[Finding]) -> dict[str, str]:
    """Return the builds of runs that died: instance -> the run."""
    return {str(f.instance): str(f.key) for f in findings if f.kind == DEAD_BUILD}


class _Plan:
    def __init__(self, ledger: Ledger, evidence: Evidence):
        self.ledger = ledger
        self.evidence = evidence
        self.findings: list[Finding] = []
        self.nodes = {n.id: n for n in ledger.nodes}
        self.node_of = {(n.host, n.node): n for n in ledger.nodes}
        self.to_clean = {(c.host, c.instance) for c in ledger.cleanups}
        self.domains = {h: {d.uuid for d in s.domains} for h, s in evidence.snapshots.items()}
        self.somewhere = {uuid for domains in self.domains.values() for uuid in domains}
        self._hosts()
        self._moves()
        self._runs()
        self._cleanups()
        self._claims()
        self._addresses()
        for snapshot in evidence.snapshots.values():
            self._orphans(snapshot)
        self._without_domain()
        self._reservations()

    def add(
        self,
        kind: str,
        host: str | None,
        instance: str | None,
        what: str,
        old: t.Any,
        new: t.Any,
        action: str,
        remedy: str = "",
        key: t.Any = None,
        node_id: int | None = None,
    ) -> None:
        if self.evidence.hosts is None or host in self.evidence.hosts:
            self.findings.append(Finding(kind, host, instance, what, old, new, action, remedy, key, node_id))

    def _reach(self, host: str) -> str:
        """clean, end (the host does not answer) or wait (it was not asked)."""
        if host in self.evidence.snapshots:
            return CLEAN
        return END if host in self.evidence.unreachable or host in self.evidence.strangers else WAIT

    # --- hosts ----------------------------------------------------------------------------------------------------------

    def _hosts(self) -> None:
        for host, snapshot in self.evidence.snapshots.items():
            row = self.node_of.get((host, snapshot.node))
            if row is None:
                former = ", ".join(n.node for n in self.ledger.nodes if n.host == host) or None
                self.add(HOST_FACTS, host, None, "compute_node", former, snapshot.node, RECORD)
                continue
            for name, value in snapshot.columns.items():
                if row.columns.get(name) != value:
                    self.add(HOST_FACTS, host, None, name, row.columns.get(name), value, RECORD, node_id=row.id)
            reason = row.columns.get("unreachable_reason")
            if reason is not None:
                self.add(HOST_FACTS, host, None, "unreachable_reason", reason, None, RECORD, node_id=row.id)
        for host, reason in self.evidence.unreachable.items():
            rows = [n for n in self.ledger.nodes if n.host == host]
            fresh = [n for n in rows if n.columns.get("unreachable_reason") is None]
            remedy = "Bring the host back, or disable it: run bootflow.compute.host with bootflow_host_state: disabled."
            before = None if fresh or not rows else rows[0].columns.get("unreachable_reason")
            self.add(
                HOST_UNREACHABLE,
                host,
                None,
                "unreachable_reason",
                before,
                reason,
                MARK if fresh else REPORT,
                remedy,
                key=reason,
                node_id=fresh[0].id if fresh else None,
            )

    # --- moves ----------------------------------------------------------------------------------------------------------

    def _moves(self) -> None:
        for move in self.ledger.moves:
            instance = self.ledger.instances[move.instance]
            remedy = _MOVE_STATUS % (
                instance.vm_state,
                instance.task_state or "none",
                instance.host,
                move.statuses[-1],
                move.id,
            )
            what = "status of move %d" % move.id
            self.add(MOVE_STATUS, instance.host, instance.uuid, what, move.status, move.status, REPORT, remedy)

    # --- runs that died -------------------------------------------------------------------------------------------------

    def _runs(self) -> None:
        contradicted = {move.instance for move in self.ledger.moves}
        hosts_of: dict[str, set[str]] = defaultdict(set)
        for cleanup in self.ledger.cleanups:
            hosts_of[cleanup.instance].add(cleanup.host)
        for instance in self.ledger.instances.values():
            if instance.deleted or not instance.run_dead:
                continue
            if instance.task_state == states.DELETING:
                hosts = hosts_of[instance.uuid] | ({instance.host} if instance.host else set())
                reachable = all(self._reach(h) == CLEAN for h in hosts)
                remedy = (
                    "" if reachable else "Bring %s back, or delete with bootflow_delete_force: true." % ", ".join(hosts)
                )
                self.add(
                    DEAD_DELETE,
                    instance.host,
                    instance.uuid,
                    "task_state",
                    states.DELETING,
                    states.DELETED if reachable else states.DELETING,
                    FINISH if reachable else WAIT,
                    remedy,
                )
            elif instance.vm_state == states.BUILDING:
                self._build(instance)
            elif instance.operation and instance.uuid not in contradicted:
                self._operation(instance)

    def _build(self, instance: Instance) -> None:
        """The run that built it is dead; its host knows whether the build has ended there."""
        snapshot = self.evidence.snapshots.get(instance.host or "")
        action = END if instance.host is None else self._reach(instance.host)
        remedy = "Run the same boot again." if action != WAIT else "Let the instance's host report, too."
        if snapshot is not None:
            seen = snapshot.seen.get(instance.uuid, dead_builds.Seen())
            action = dead_builds.verdict(seen, instance.in_ledger)
            if instance.touched_at >= snapshot.began_at:
                action = WAIT
            remedy = _BUILDS[action]
        was = "%s/%s" % (instance.vm_state, instance.task_state or "none")
        then = {WAIT: instance.vm_state, ADOPT: states.ACTIVE}.get(action, states.ERROR)
        self.add(DEAD_BUILD, instance.host, instance.uuid, "vm_state", was, then, action, remedy, key=instance.run)

    def _live_migration(self, instance: Instance) -> None:
        """The run that migrated it is dead; libvirt knows where the guest is."""
        at_source, at_destination = self._seen(instance, instance.host or ""), self._seen(instance, instance.goes_to)
        over = migration_completed(at_source, at_destination)
        now = "%s on %s" % (instance.vm_state, instance.host)
        then, waits = now, ""
        if over is None:
            waits = "The migration is not over, or one of %s and %s did not answer: run the audit again."
            waits %= (instance.host, instance.goes_to)
        elif over:
            then = "%s on %s" % (instance.vm_state, instance.goes_to)
        elif at_source is not None and not at_source.goes_on:
            then = "%s on %s" % (states.STOPPED, instance.host)
        where = (DEAD_OPERATION, instance.host, instance.uuid, "state", "%s, migrating" % now)
        self.add(*where, then, WAIT if waits else SETTLE, waits, key=instance.run)

    def _seen(self, instance: Instance, host: str) -> Seen | None:
        snapshot = self.evidence.snapshots.get(host)
        if snapshot is None or instance.touched_at >= snapshot.began_at:
            return None
        domain = next((d for d in snapshot.domains if d.uuid == instance.uuid), None)
        return Seen() if domain is None else Seen(domain.power_state, domain.moving)

    def _operation(self, instance: Instance) -> None:
        if instance.goes_to:
            self._live_migration(instance)
            return
        snapshot = self.evidence.snapshots.get(instance.host or "")
        if snapshot is not None and instance.touched_at >= snapshot.began_at:
            return
        power_states = {d.uuid: d.power_state for d in snapshot.domains} if snapshot is not None else {}
        power_state = power_states.get(instance.uuid)
        rescued = snapshot is not None and any(d.rescued for d in snapshot.domains if d.uuid == instance.uuid)
        waits = "" if snapshot is not None else "The operation is settled when the host answers."
        if not states.is_over(instance.operation, power_state):
            waits = "libvirt still writes the memory of the guest: run the audit again."
        elif snapshot is not None and instance.uuid in snapshot.at_work:
            waits = "The module of the dead run still works on the guest: run the audit again."
        now = "%s/%s" % (instance.vm_state, instance.task_state)
        self.add(
            DEAD_OPERATION,
            instance.host,
            instance.uuid,
            "state",
            now,
            now if waits else _settled(instance, power_state, rescued, instance.host in self.evidence.restarted),
            WAIT if waits else SETTLE,
            waits,
            key=instance.run,
        )

    def _cleanups(self) -> None:
        for cleanup in self.ledger.cleanups:
            instance = self.ledger.instances.get(cleanup.instance)
            if instance is not None and not instance.deleted:
                if instance.task_state == states.DELETING and not instance.run_dead:
                    continue  # the run that deletes it also does this
                if instance.host == cleanup.host and instance.task_state != states.DELETING and not cleanup.of_a_part:
                    continue  # the instance is there: nothing of it may be removed
            reachable = self._reach(cleanup.host) == CLEAN
            cleanup_finding = (CLEANUP, cleanup.host, cleanup.instance, "leftovers", cleanup.reason)
            if reachable and cleanup.unfinished and cleanup.instance in self.evidence.snapshots[cleanup.host].complete:
                self.add(*cleanup_finding, cleanup.reason, REPORT, _COMPLETE % cleanup.host)
            elif reachable:
                self.add(*cleanup_finding, None, CLEAN)
            else:
                self.add(*cleanup_finding, cleanup.reason, WAIT, "The repair is done when the host answers again.")

    # --- claims and usage -----------------------------------------------------------------------------------------------

    def _claims(self) -> None:
        now: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        then: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        guests_now: dict[int, set[str]] = defaultdict(set)
        guests_then: dict[int, set[str]] = defaultdict(set)
        held: dict[str, int] = defaultdict(int)
        for claim in self.ledger.claims:
            held[claim.instance] += 1
        places: set[tuple[str, int]] = set()
        restored: set[tuple[str, int]] = set()
        for claim in self.ledger.claims:
            _add(now[claim.node_id], claim.amounts)
            guests_now[claim.node_id].add(claim.instance)
            if not claim.of_move:
                places.add((claim.instance, claim.node_id))
            amounts = self._amounts_to_keep(claim, alone=held[claim.instance] == 1)
            if amounts is not None:
                _add(then[claim.node_id], amounts)
                guests_then[claim.node_id].add(claim.instance)
        for instance in self.ledger.instances.values():
            node = self._node_of(instance)
            if node is None or (instance.uuid, node.id) in places or not _holds(instance):
                continue
            restored.add((instance.uuid, node.id))
            _add(then[node.id], instance.wanted)
            guests_then[node.id].add(instance.uuid)
            self.add(
                MISSING_CLAIM,
                node.host,
                instance.uuid,
                "claim",
                None,
                _shown(instance.wanted),
                CLAIM,
                key=instance.wanted,
                node_id=node.id,
            )
        for device in self.ledger.devices:
            if (device.instance, device.node_id) not in restored:
                host = self.nodes[device.node_id].host if device.node_id in self.nodes else None
                self.add(
                    DEVICE_CLAIM,
                    host,
                    device.instance,
                    "%s %s" % (device.kind, device.device),
                    device.device,
                    None,
                    RELEASE,
                    key=device.id,
                    node_id=device.node_id,
                )
        for node in self.ledger.nodes:
            reserved = [int(node.columns[c]) for c in RESERVED_COLUMNS] + [0]
            real = [a + b for a, b in zip(reserved, [*now[node.id], len(guests_now[node.id])])]
            right = [a + b for a, b in zip(reserved, [*then[node.id], len(guests_then[node.id])])]
            for column, has, is_now, is_then in zip(
                USAGE_COLUMNS, (node.columns[c] for c in USAGE_COLUMNS), real, right
            ):
                if has not in (is_now, is_then):  # the latter is right once the claims above are
                    self.add(USAGE, node.host, None, column, has, is_then, RECOUNT, key=node.id, node_id=node.id)

    def _node_of(self, instance: Instance) -> Node | None:
        if instance.deleted or instance.host is None or instance.node is None:
            return None
        return self.node_of.get((instance.host, instance.node))

    def _amounts_to_keep(self, claim: Claim, alone: bool) -> Amounts | None:
        """Return the amounts to keep of a claim, None for nothing."""
        node = self.nodes.get(claim.node_id)
        host = node.host if node is not None else None
        instance = self.ledger.instances.get(claim.instance)
        if (host, claim.instance) in self.to_clean or (claim.open and instance is not None and not instance.deleted):
            return claim.amounts
        if (
            instance is None
            or instance.deleted
            or self._node_of(instance) is not node
            or (instance.vm_state in states.ALLOW_RESOURCE_REMOVAL and not instance.comes_back)
            or claim.of_move
        ):
            self.add(
                STALE_CLAIM,
                host,
                claim.instance,
                "claim of a move" if claim.of_move else "claim",
                _shown(claim.amounts),
                None,
                RELEASE,
                node_id=claim.node_id,
                key=OF_MOVE if claim.of_move else None,
            )
            return None
        if claim.amounts == instance.wanted or not alone or instance.busy:
            return claim.amounts
        self.add(
            WRONG_CLAIM,
            host,
            claim.instance,
            "claim",
            _shown(claim.amounts),
            _shown(instance.wanted),
            CORRECT,
            key=(claim.id, instance.wanted),
            node_id=claim.node_id,
        )
        return instance.wanted

    # --- addresses and groups -------------------------------------------------------------------------------------------

    def _addresses(self) -> None:
        for port in self.ledger.ports:
            instance = self.ledger.instances.get(port.instance)
            lives = instance is not None and not instance.deleted
            if lives and port.leaving:
                has = list(port.addresses)
                self.add(
                    PORT, port.host, port.instance, "port %s" % port.id, has, has, REPORT, _HALF_DETACHED % port.id
                )
                continue
            if (port.held and (port.host, port.instance) in self.to_clean) or (lives and not port.held):
                continue
            self.add(
                PORT, port.host, port.instance, "port %s" % port.id, list(port.addresses), None, RELEASE, key=port.id
            )
        for row_id, address in self.ledger.lost_addresses:
            self.add(ADDRESS, None, None, address, address, None, RELEASE, key=row_id)
        for group in self.ledger.groups:
            self.add(SERVER_GROUP, None, None, group.name, group.id, None, FORGET, key=(group.id, group.project))

    # --- orphans of hosts -----------------------------------------------------------------------------------------------

    def _orphans(self, snapshot: Snapshot) -> None:
        host = snapshot.host
        for ledger, has in guests_of_others(snapshot.domains, self.ledger.id).items():
            self.add(OTHER_LEDGER, host, None, "guests of ledger %s" % ledger, has, has, REPORT, _RESERVE % host)
        for domain in snapshot.domains:
            if domain.ledger in ("", self.ledger.id) and self._is_orphan(snapshot, domain.uuid):
                self._domain(host, domain)
            elif domain.other_disks:
                disks_finding = (
                    OTHER_DISKS,
                    host,
                    domain.uuid,
                    "disks",
                    list(domain.other_disks),
                    list(domain.other_disks),
                )
                self.add(*disks_finding, REPORT, _OTHER_DISKS % (domain.name, host))
        for uuid in snapshot.folders:
            if uuid not in self.domains[host] and self._is_orphan(snapshot, uuid):
                hint = "Run bootflow.compute.audit with bootflow_audit_remove_orphans: true to remove the leftover."
                self._orphan(ORPHAN_FOLDER, host, uuid, "folder", uuid, uuid, hint)
        for uuid, names in snapshot.volumes.items():
            # They are removed with the domain or folder, if there is one.
            if uuid not in self.domains[host] and uuid not in snapshot.folders and self._is_orphan(snapshot, uuid):
                self._disks(host, uuid, list(names))

    def _disks(self, host: str, uuid: str, names: list[str]) -> None:
        instance = self.ledger.instances.get(uuid)
        if instance is not None and not instance.deleted and not self._has_it_at_home(instance):
            remedy = (
                "The ledger has the instance on %s, where it was not found: these may be its disks. Check both hosts."
                % (instance.host)
            )
            self.add(ORPHAN_DISK, host, uuid, "logical volumes", names, names, REPORT, remedy)
        else:
            hint = "Run bootflow.compute.audit with bootflow_audit_remove_orphans: true to wipe and remove them."
            self._orphan(ORPHAN_DISK, host, uuid, "logical volumes", names, uuid, hint)

    def _orphan(self, kind: str, host: str, uuid: str, what: str, has: t.Any, key: str, hint: str) -> None:
        """:arg hint: the remedy where orphans are not removed."""
        if self.evidence.remove_orphans:
            self.add(kind, host, uuid, what, has, None, REMOVE, key=key)
        else:
            self.add(kind, host, uuid, what, has, has, REPORT, hint, key=key)

    def _is_orphan(self, snapshot: Snapshot, uuid: str) -> bool:
        """Whether the ledger has no instance with this UUID on the host, nor had one recently."""
        if (snapshot.host, uuid) in self.to_clean:
            return False
        instance = self.ledger.instances.get(uuid)
        if instance is None:
            return True
        if instance.touched_at >= snapshot.began_at:
            return False
        return instance.deleted or not (instance.host in self._names_of(snapshot) or instance.busy)

    def _names_of(self, snapshot: Snapshot) -> set[str]:
        """The host, and other names that its machine answered by: what it has there is no copy."""
        if not snapshot.machine:
            return {snapshot.host}
        same_uuid = [s for s in self.evidence.snapshots.values() if s.machine == snapshot.machine]
        return {
            s.host for s in same_uuid if s.node == snapshot.node or (bool(s.boot_id) and s.boot_id == snapshot.boot_id)
        }

    def _domain(self, host: str, domain: Domain) -> None:
        has = {"name": domain.name, "memory_mb": domain.memory_mb}
        instance = self.ledger.instances.get(domain.uuid)
        if instance is not None and not instance.deleted and not self._has_it_at_home(instance):
            self.add(
                INSTANCE_ELSEWHERE,
                host,
                domain.uuid,
                "host",
                instance.host,
                host,
                REPORT,
                "The ledger has the instance on %s, which does not have it or was not asked. If the instance is there too, find out which of the two has the"
                " data, and remove the other; else bring the domain and the folder back there. Until then a start, hard reboot or rebuild may run the"
                " guest twice." % instance.host,
            )
        elif domain.ours and domain.power_state not in _OFF and self._is_at_home(domain.uuid):
            home = self.ledger.instances[domain.uuid].host
            remedy = (
                "%s and %s both report the domain of the instance, and %s reports that it runs there. Find out which of the two has the instance's data, then"
                " destroy and undefine the other domain with virsh. Until then the instance is not started. If the report of %s is wrong, force that host"
                " down (bootflow.compute.host): its report does not count then."
            )
            said = remedy % (home, host, host, host)
            self.add(INSTANCE_ELSEWHERE, host, domain.uuid, "host", home, host, REPORT, said)
        elif not domain.ours:
            remedy = (
                "The domain is left alone. Take it into the ledger (bootflow.compute.adopt), or add its memory to the host's"
                " bootflow_reserved_memory_mb."
            )
            self.add(FOREIGN_DOMAIN, host, domain.uuid, "domain", has, has, REPORT, remedy)
        else:
            hint = "If the domain is not needed, run bootflow.compute.audit with bootflow_audit_remove_orphans: true to remove it."
            self._orphan(ORPHAN_DOMAIN, host, domain.uuid, "domain", has, domain.name, hint)

    def _is_at_home(self, uuid: str) -> bool:
        """Whether the ledger has the instance on a host, which has its domain."""
        instance = self.ledger.instances.get(uuid)
        return instance is not None and not instance.deleted and uuid in self.domains.get(instance.host or "", ())

    def _has_it_at_home(self, instance: Instance) -> bool:
        """Whether a domain on another host is superfluous: the instance has its own domain, or has no host."""
        return instance.host is None or instance.uuid in self.domains.get(instance.host, ())

    def _without_domain(self) -> None:
        silent = sorted({node.host for node in self.ledger.nodes} - set(self.evidence.snapshots))
        unseen = _UNSEEN % ", ".join(silent[:MOST_NAMED]) if silent else ""
        for instance in self.ledger.instances.values():
            snapshot = self.evidence.snapshots.get(instance.host or "")
            if (
                snapshot is None
                or instance.deleted
                or instance.task_state is not None
                or instance.uuid in self.somewhere
            ):
                continue
            if instance.vm_state not in WITH_DOMAIN or instance.touched_at >= snapshot.began_at:
                continue
            self.add(
                INSTANCE_WITHOUT_DOMAIN,
                instance.host,
                instance.uuid,
                "domain",
                instance.vm_state,
                instance.vm_state,
                REPORT,
                _DEFINES.get(instance.vm_state, _DEFINE) + unseen,
                key=instance.name,
            )

    # --- DHCP -----------------------------------------------------------------------------------------------------------

    def _reservations(self) -> None:
        for host, snapshot in self.evidence.snapshots.items():
            error = snapshot.networks_error
            if error is not None:
                text = error["message"]
                self.add(UNREAD, host, None, "libvirt networks", text, text, REPORT, error.get("remedy") or "")
            for tap in snapshot.unplugged:
                if tap.uuid in self.ledger.instances:
                    self._unplugged(host, tap)
            for name, network in (snapshot.networks or {}).items():
                for reservation in network.reservations if network.ours else ():
                    if not reservation.used:
                        self._unused(host, name, reservation)
        for uuid, needed in self.ledger.reservations.items():
            instance = self.ledger.instances[uuid]
            seen = self.evidence.snapshots.get(instance.host or "")
            if seen is None or seen.networks is None or instance.touched_at >= seen.began_at:
                continue
            if uuid in self.domains[seen.host]:
                for wanted in needed:
                    self._reservation(seen.host, seen.networks, uuid, wanted)

    def _unplugged(self, host: str, tap: Unplugged) -> None:
        what = "%s (%s) in %s" % (tap.mac, tap.device, tap.source)
        if tap.bridge:
            remedy = "The guest has no network. Plug it in on the host: ip link set dev %s master %s"
            remedy %= (tap.device, tap.bridge)
        else:
            remedy = "The guest has no network. Start the network on the host (virsh net-start %s; a boot does so with manage: true, and plugs"
            remedy += " the guest in), then audit again."
            remedy %= tap.source
        self.add(UNPLUGGED, host, tap.uuid, what, None, None, REPORT, remedy)

    def _reservation(
        self, host: str, networks: t.Mapping[str, DhcpNetwork], uuid: str, wanted: t.Mapping[str, str]
    ) -> None:
        name, address, mac = wanted["network"], wanted["address"], wanted["mac"].lower()
        network = networks.get(name)
        reservations = network.reservations if network is not None else ()
        if any(r.mac == mac and r.address == address and r.complete for r in reservations):
            return
        what = "%s in network %s" % (mac, name)
        has = ", ".join(r.address for r in reservations if r.mac == mac and r.complete) or None
        others = [r.mac for r in reservations if r.address == address and r.mac != mac]
        if network is None:
            remedy = "The next boot in libvirt network %s on %s defines it again, with the reservations, and plugs its guests in."
            self.add(MISSING_RESERVATION, host, uuid, what, has, has, REPORT, remedy % (name, host))
        elif others:
            remedy = "Address %s in libvirt network %s on %s is reserved for %s. Find out who did that, and remove the reservation."
            remedy %= (address, name, host, ", ".join(others))
            self.add(MISSING_RESERVATION, host, uuid, what, has, has, REPORT, remedy)
        else:
            self.add(MISSING_RESERVATION, host, uuid, what, has, address, RESERVE)

    def _unused(self, host: str, network: str, reservation: Reservation) -> None:
        """It does no harm: it ends when the ledger gives its address to another guest."""
        what = "%s in network %s" % (reservation.mac, network)
        xml = "<host mac='%s' ip='%s'/>" % (reservation.mac, reservation.address)
        remedy = 'If nothing else needs it: virsh net-update %s delete ip-dhcp-host "%s" --live --config' % (
            network,
            xml,
        )
        self.add(ORPHAN_RESERVATION, host, None, what, reservation.address, reservation.address, REPORT, remedy)


def _settled(instance: Instance, power_state: int | None, rescued: bool, restarted: bool) -> str:
    if instance.operation == "evacuate":
        runs = power_state == states.RUNNING and instance.vm_state != states.STOPPED
        return states.ACTIVE if runs else states.ERROR
    if instance.operation in ("resize", "revert_resize"):
        if instance.over and (instance.operation == "resize" or power_state is not None):
            return states.RESIZED  # its new host has all of it
        return states.ACTIVE if power_state == states.RUNNING else states.STOPPED
    return states.settled(instance.operation, instance.vm_state, power_state, rescued, restarted)


def _holds(instance: Instance) -> bool:
    has_resources = instance.vm_state not in states.ALLOW_RESOURCE_REMOVAL or instance.comes_back
    return has_resources and instance.task_state != states.DELETING


def _add(total: list[int], amounts: Amounts) -> None:
    for number, amount in enumerate(amounts):
        total[number] += amount


def _shown(amounts: Amounts) -> dict[str, int]:
    return dict(zip(("memory_mb", "disk_gb", "vcpus"), amounts))
