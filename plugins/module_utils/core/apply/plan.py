# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes that bring instances to the state of their file: a plan, as data and as people read it.

Pure: the file's instances and the existing ones, as plain data, in; a list of changes out. Applying a plan and planning again yields no change
that is done.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, replace

from ..instances import power_states, power_sync, states
from ..interfaces.entries import WantedInterface, take_met
from ..model import NetworkRequest
from ..networks.network_info import PortRecord
from ..request import expand
from . import fields
from .fields import INTERFACES, LIVE, NEVER, REBUILD, RESIZE, RESTART, VOLUMES

# Kinds of changes in addition to the kinds of fields.py.
BOOT = "boot"
REPLACE = "replace"  # never ran: deleted, then booted as the file has it
DELETE = "delete"
LOCK = "lock"
STATE = "state"
ATTACH = "attach"
DETACH = "detach"
ATTACH_INTERFACE = "attach_interface"
DETACH_INTERFACE = "detach_interface"

#: state of an entry -> vm_state
VM_STATES = {
    "running": states.ACTIVE,
    "stopped": states.STOPPED,
    "paused": states.PAUSED,
    "suspended": states.SUSPENDED,
}
_WORDS = {vm_state: word for word, vm_state in VM_STATES.items()}
#: vm_state -> the operation that leads from there to a guest that runs; from error only an allowed one does
UP = {states.ACTIVE: "", states.STOPPED: "start", states.PAUSED: "unpause", states.SUSPENDED: "resume"}
#: vm_state -> the operation that leads there from a guest that runs
DOWN = {states.ACTIVE: "", states.STOPPED: "stop", states.PAUSED: "pause", states.SUSPENDED: "suspend"}
#: power_state of a guest -> the word for it
GUESTS = {
    power_states.RUNNING: "running",
    power_states.POWER_PAUSED: "paused",
    power_states.POWER_SUSPENDED: "suspended",
    power_states.SHUTDOWN: "stopped",
    power_states.CRASHED: "stopped",
}
HARD_REBOOT = "reboot"
CONFIRM = "confirm_resize"
#: In this order: first operations that start guests.
OPERATIONS = ("start", "unpause", "resume", HARD_REBOOT, REBUILD, RESIZE, CONFIRM, "stop", "pause", "suspend")

_OTHERWISE = {
    states.RESCUED: "it is rescued: unrescue it first",
    states.RESIZED: "its resize waits to be confirmed or reverted",
    states.ERROR: "it is in error: write state: running, or delete it",
    states.SHELVED: "it is shelved: unshelve it first",
    states.SHELVED_OFFLOADED: "it is shelved: unshelve it first",
}

_MAY_BE_LOST = "the host is down: revert_resize brings the instance back with the disks that it left, confirm_resize gives those up"
_UNSEEN = "the host does not have the guest, or has not reported it: revert_resize brings the instance back"
_GONE = "the domain is gone from the host: a hard reboot defines it again"
_BEING_DELETED = "it is being deleted, and has its name until bootflow.compute.delete ends that"
NOT_BOOTED = "is not booted"
NEVER_RAN = "it never ran, and the file has another definition now"
#: What does not need the domain of an instance.
_WITHOUT_DOMAIN = (REBUILD, "update_instance_metadata")

Key = t.Tuple[str, str]  # project and name


@dataclass(frozen=True)
class Wanted:
    """An instance as the file has it."""

    name: str
    project: str
    digest: t.Mapping[str, t.Any]  # core.request.expand.request_digest
    state: str | None = None  # None: its state is left alone
    locked: bool | None = None
    locked_reason: str = ""
    allow: frozenset[str] = frozenset()  # of fields.ALLOWABLE


@dataclass(frozen=True)
class Present:
    """An instance that exists."""

    uuid: str
    name: str
    project: str
    vm_state: str
    digest: t.Mapping[str, t.Any]
    launched: bool = True  # whether it ever ran
    power_state: int = power_states.NOSTATE  # of the guest, as last reported
    away: bool = False  # its host is down
    domain_missing: bool = False  # its host answers, and does not have its domain
    torn: bool = False  # a rebuild of it, or an evacuation, did not end: its disks may be missing
    deleting: bool = False  # its deletion has begun, and has not ended
    renamed: bool = False  # never ran, its definition is another one now, and so is its name
    locked: bool = False
    locked_reason: str = ""
    locked_by_another: str = ""  # another user than the one who applies the file
    config_drive: bool = True
    volumes: tuple[str, ...] = ()  # ids of the volumes attached to it
    on_the_way: tuple[str, ...] = ()  # ids of volumes that a run began to attach or to detach
    ports: tuple[PortRecord, ...] = ()  # its interfaces
    leaving: tuple[PortRecord, ...] = ()  # ports that a run began to detach
    half_attached: bool = (
        False  # the last run that attached interfaces to it did not come to its end: the guest may lack them
    )


@dataclass(frozen=True)
class Change:
    """One difference between the file and an instance. ``done``: it is to be done; otherwise ``how`` says why it is not."""

    kind: str
    name: str
    project: str
    uuid: str | None = None
    what: str = ""
    how: str = ""
    done: bool = True
    later: bool = False  # not done because another operation is under way: the same run again may do it
    field: str = ""
    needs: str = ""  # of fields.ALLOWABLE: it is done where this is allowed
    steps: tuple[str, ...] = ()  # operations, in order
    early: bool = False  # its rebuild comes before volumes and interfaces: its guest has none to give them to
    volume: t.Mapping[str, t.Any] = dataclasses.field(
        default_factory=dict
    )  # to attach or detach, in the form of bootflow_attachments
    interface: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # the same of bootflow_interfaces
    # Interfaces of its network that the instance has and keeps: each has its entry when one more is attached, or it would meet that one's.
    existing_interfaces: tuple[t.Mapping[str, t.Any], ...] = ()

    def line(self, hosts: t.Mapping[str, str] | None = None) -> str:
        """As people read it. :arg hosts: name -> where it would be booted"""
        where = (hosts or {}).get(self.name, "")
        if self.kind == BOOT and self.done:
            return "+ %s boot%s%s" % (self.name, where and " " + where, self.how and ", " + self.how)
        if self.kind == REPLACE and self.done:
            return "+ %s boot again%s: %s" % (self.name, where and " " + where, self.how)
        if self.kind == DELETE and self.done:
            return "- %s: delete%s" % (self.name, self.how and ", " + self.how)
        sign = "~" if self.done else "!"
        return "%s %s %s%s" % (sign, self.name, self.what, ": " + self.how if self.how else "")

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "project": self.project,
            "uuid": self.uuid,
            "field": self.field or None,
            "what": self.what,
            "how": self.how,
            "needs": self.needs or None,
            "done": self.done,
            "steps": list(self.steps),
        }


@dataclass(frozen=True)
class Plan:
    changes: tuple[Change, ...] = ()
    kept_names: tuple[str, ...] = ()  # names of what the file does not have, and is not deleted
    drift: tuple[
        tuple[tuple[str, ...], tuple[str, ...]], ...
    ] = ()  # (what the catalogue changed, the instances that keep what they have)
    leaving: tuple[str, ...] = ()  # names of what the file does not have, and whose deletion has begun
    same: int = 0  # instances that are as the file has them

    @property
    def to_do(self) -> list[Change]:
        return [c for c in self.changes if c.done]

    @property
    def unfinished(self) -> list[Change]:
        """Return the changes to do, now or as soon as nothing else is under way."""
        return [c for c in self.changes if c.done or c.later]

    def lines(self, hosts: t.Mapping[str, str] | None = None) -> list[str]:
        """The plan as people read it, with the totals last. :arg hosts: see Change.line()"""
        texts = [change.line(hosts) for change in self.changes]
        for words, names in self.drift:
            verb, they = ("keeps", "it was") if len(names) == 1 else ("keep", "they were")
            texts.append(
                "= %s %s the catalogue entries with which %s booted; changed since then: %s"
                % (", ".join(names), verb, they, "; ".join(words))
            )
        if self.kept_names:
            texts.append("= not in the file, kept without bootflow_prune: %s" % ", ".join(self.kept_names))
        if self.leaving:
            texts.append(
                "= not in the file, being deleted (bootflow.compute.delete ends it): %s" % ", ".join(self.leaving)
            )
        return [*texts, self.totals()]

    def totals(self) -> str:
        done: dict[str, set[Key]] = {"boot": set(), "change": set(), "delete": set()}
        for change in self.to_do:
            kind = "boot" if change.kind in (BOOT, REPLACE) else "delete" if change.kind == DELETE else "change"
            done[kind].add((change.project, change.name))
        open_changes = [c for c in self.changes if not c.done]
        asks = [c for c in open_changes if c.needs]
        waits = [c for c in open_changes if c.later]
        words = ["%d to %s" % (len(keys), kind) for kind, keys in done.items() if keys] or ["nothing to do"]
        if asks:
            words.append("%d not allowed" % len(asks))
        if waits:
            words.append("%d to be tried again" % len(waits))
        if len(open_changes) > len(asks) + len(waits):
            words.append("%d cannot be changed" % (len(open_changes) - len(asks) - len(waits)))
        if self.kept_names:
            words.append("%d not in the file" % len(self.kept_names))
        if self.leaving:
            words.append("%d being deleted" % len(self.leaving))
        return "%s; %d as the file has %s." % (", ".join(words), self.same, "it" if self.same == 1 else "them")


def plan(
    wanted: t.Iterable[Wanted],
    present: t.Iterable[Present],
    prune: bool = False,
    allow: t.Collection[str] = (),
    ids: t.Mapping[str, str] | None = None,
    names: t.Mapping[str, str] | None = None,
) -> Plan:
    """Return the changes to do. The order of ``wanted`` and ``present`` does not matter.

    :arg present: the living instances of the file's projects.
    :arg prune: delete what the file does not have. :arg allow: bootflow_apply_allow.
    :arg ids: the file's words for volumes -> their ids. :arg names: of ids, for people.
    """
    targets = {(w.project, w.name): w for w in wanted}
    present_by_key = {(p.project, p.name): p for p in present}
    changes: list[Change] = []
    surplus_names: list[str] = []
    leaving: list[str] = []
    drift: dict[tuple[str, ...], list[str]] = {}
    same = 0
    for key in sorted({*targets, *present_by_key}, key=lambda k: (k[0], _natural(k[1]))):
        target, instance = targets.get(key), present_by_key.get(key)
        if target is None:
            surplus = t.cast(Present, instance)
            removal = _surplus(surplus, prune)
            changes += removal
            if not removal:
                (leaving if surplus.deleting else surplus_names).append(key[1])
            continue
        if instance is None:
            changes.append(Change(BOOT, target.name, target.project, how=_after_boot(target)))
            continue
        planner = _Planner(instance, target, {*allow, *target.allow}, ids or {}, names or {})
        changes_of_instance = planner.changes()
        changes += changes_of_instance
        same += not changes_of_instance
        if planner.drift:
            drift.setdefault(planner.drift, []).append(target.name)
    by_words = tuple((words, tuple(instance_names)) for words, instance_names in sorted(drift.items()))
    return Plan(tuple(changes), tuple(surplus_names), by_words, tuple(leaving), same)


def _natural(name: str) -> tuple[str, int, str]:
    """web-2 comes before web-10."""
    base, _dash, number = name.rpartition("-")
    return (base, int(number), name) if number.isascii() and number.isdigit() else (name, 0, name)


def _after_boot(target: Wanted) -> str:
    """Return what follows on the boot of the target."""
    steps = (DOWN[VM_STATES[target.state or "running"]], "lock" if target.locked else "")
    return ", ".join("then " + step for step in steps if step)


def _surplus(instance: Present, prune: bool) -> list[Change]:
    if not prune and not instance.renamed:
        return []
    change = Change(DELETE, instance.name, instance.project, instance.uuid, "delete", NEVER_RAN * instance.renamed)
    if instance.locked_by_another:
        return [not_done(change, "locked by %s" % instance.locked_by_another)]
    return [change]


def not_done(change: Change, why: str, later: bool = False) -> Change:
    """``change``, which is not to be done."""
    return replace(change, how=why, done=False, later=later, needs="", steps=())


class _Planner:
    """The changes of one instance."""

    def __init__(
        self,
        instance: Present,
        target: Wanted,
        allowed: t.Collection[str],
        ids: t.Mapping[str, str],
        names: t.Mapping[str, str],
    ):
        self.instance, self.target = instance, target
        self.allowed = allowed
        self.ids, self.names = ids, names
        self.differing, drift = expand.differing(instance.digest, target.digest, names)
        self.drift = tuple(d.words("%s: was %s, is %s") for d in drift)
        self.now = self._after_confirm()
        self.rebuilt = self._is_rebuilt()
        # A rebuild defines it again.
        self.domain_missing = instance.domain_missing and self.now in UP and not self.rebuilt

    def _is_rebuilt(self) -> bool:
        """Whether a field is changed by a rebuild, before all else that is done with it on its host."""
        first = self.now == states.ERROR or (
            self.instance.domain_missing and self.now in (states.ACTIVE, states.STOPPED)
        )
        return first and REBUILD in self.allowed and any(self._rebuilds(d.field) for d in self.differing)

    def _rebuilds(self, field: str) -> bool:
        return fields.rule(field).how == REBUILD and (field not in fields.ON_DRIVE or self.instance.config_drive)

    def _after_confirm(self) -> str:
        """Its vm_state when its resize is confirmed, before anything else is done with it."""
        instance = self.instance
        if not self._confirms() or self._unconfirmed() or instance.locked_by_another:
            return instance.vm_state
        return states.STOPPED if instance.power_state in power_sync.OFF else states.ACTIVE

    def changes(self) -> list[Change]:
        instance = self.instance
        if instance.deleting:  # what is booted would be another one of its name
            return [not_done(self._change(BOOT, NOT_BOOTED), _BEING_DELETED, later=True)]
        if not instance.launched:
            return self._never_ran()
        changes = [*self._of_resize(), *self._of_fields()]
        changes += self._of_volumes()
        changes += self._of_interfaces()
        changes += self._of_state()
        if not instance.config_drive or any(c.kind == REBUILD and c.done for c in changes):  # a rebuild makes it again
            changes = [replace(c, how="") if c.how == fields.ON_OLD_DRIVE else c for c in changes]
        if instance.locked_by_another:
            who = "locked by %s" % instance.locked_by_another
            changes = [not_done(c, who) if c.done else c for c in changes]
        return changes + self._of_lock()

    def _change(self, kind: str, what: str = "", how: str = "", **more: t.Any) -> Change:
        return Change(kind, self.instance.name, self.instance.project, self.instance.uuid, what, how, **more)

    def _never_ran(self) -> list[Change]:
        """A boot that failed, or whose run died, is done again; as another one where the file has another one now."""
        if {d.field for d in self.differing} <= set(expand.IN_PLACE):
            change = self._change(BOOT, "boot", _after_boot(self.target))
        else:
            why = "; ".join(filter(None, (NEVER_RAN, _after_boot(self.target))))
            change = self._change(REPLACE, "boot again", why)
        who = self.instance.locked_by_another
        return [not_done(change, "locked by %s" % who) if who and (self.differing or self.drift) else change]

    def _of_fields(self) -> list[Change]:
        changes = []
        for difference in self.differing:
            rule = fields.rule(difference.field)
            if rule.how in (VOLUMES, INTERFACES) or self._has_drive(difference.field):
                continue
            what = difference.words("%s %s -> %s")
            if rule.how == LIVE:
                change = self._change(LIVE, what, rule.why, field=difference.field)
                # Both in the same states. source: Nova's ServerTagsController
                if difference.field in ("metadata", "tags"):
                    change = self._in_states(change, "update_instance_metadata")
                changes.append(change)
            elif rule.how == NEVER or (difference.field in fields.ON_DRIVE and not self.instance.config_drive):
                reason = rule.why or "the instance has no config drive"
                why = "cannot be changed, %s; delete it and boot it again" % reason
                changes.append(self._change(NEVER, what, why, done=False, field=difference.field))
            else:
                changes.append(self._allowed(rule.how, what, field=difference.field, steps=(rule.how,)))
        return changes

    def _has_drive(self, field: str) -> bool:
        """Whether only the request's word for its config drive differs: left out, it follows from settings and other fields."""
        return field == "config_drive" and self.target.digest[field] in (None, self.instance.config_drive)

    def _allowed(self, kind: str, what: str, **more: t.Any) -> Change:
        """A change that ends or restarts the guest."""
        cost = fields.COSTS[kind]
        if kind not in self.allowed:
            why = "needs %s in bootflow_apply_allow (%s)" % (kind, cost)
            return self._change(kind, what, why, done=False, needs=kind, **{**more, "steps": ()})
        if kind == REBUILD:
            more["early"] = self.rebuilt or self.now == states.ERROR
        change = self._change(kind, what, cost, **more)
        return self._in_states(change, kind) if kind != RESTART else change

    def _in_states(self, change: Change, action: str) -> Change:
        """``change``, not to be done where the instance is in no state for it: now, or when its guest was started for it."""
        allowed = states.ACTIONS[action].vm_states
        rises = self._rises()
        if self.domain_missing and not rises and action not in _WITHOUT_DOMAIN:
            return not_done(change, _GONE)
        reached = {self.now, *(() if not rises else (states.ACTIVE,))}
        if allowed is None or reached & allowed:
            return change
        return not_done(
            change, _OTHERWISE.get(self.instance.vm_state, "not while the instance is %s" % self.instance.vm_state)
        )

    def _rises(self) -> bool:
        """Whether the guest is started, or continues, on its way to its state."""
        if self.rebuilt:
            return True
        first = (self._steps() or ("",))[0]
        needed = {HARD_REBOOT: RESTART, REBUILD: REBUILD}.get(first)
        return needed in self.allowed if needed else first in UP.values() and first != ""

    def _of_resize(self) -> list[Change]:
        """Return the confirmation of a resize that the file requested, and that is not confirmed: its run died in between."""
        if not self._confirms():
            return []
        what = "resize to %s" % (self.target.digest["flavor"] or {}).get("name")
        change = self._change(CONFIRM, what, "confirm", field="flavor", steps=(CONFIRM,))
        why = self._unconfirmed()
        return [not_done(change, why) if why else change]

    def _unconfirmed(self) -> str:
        """Why its resize cannot be confirmed now."""
        if self.instance.away:
            return _MAY_BE_LOST
        return _UNSEEN if self.instance.power_state == power_states.NOSTATE else ""

    def _confirms(self) -> bool:
        resized = self.instance.vm_state == states.RESIZED and not any(d.field == "flavor" for d in self.differing)
        return resized and RESIZE in self.allowed

    # --- its state ----------------------------------------------------------------------------------------------------

    def _steps(self) -> tuple[str, ...] | None:
        """The operations that lead to its state, or out of error, or back to a domain; None: none do. What self.rebuilt says comes before them."""
        now = self.now
        unsaid = states.ACTIVE if now == states.ERROR else now
        target = VM_STATES.get(self.target.state or "", unsaid)
        again = states.undone(now, self.instance.power_state)
        if now == target and self.target.state is not None and again is not None:
            return (again,)
        if now == states.RESIZED and self._confirms():  # what it is after that is seen by the next run
            return ()
        if (
            self.domain_missing
            and target in DOWN
            and (target != states.STOPPED or now in (states.PAUSED, states.SUSPENDED))
        ):
            return tuple(s for s in (HARD_REBOOT, DOWN[target]) if s)  # a stop takes it for off
        if now == target:
            return ()
        up = UP.get(now)
        if now == states.ERROR:
            if target == states.STOPPED and not self.instance.torn:
                return (DOWN[target],)
            up = "" if self.rebuilt else REBUILD if self.instance.torn else HARD_REBOOT
        return None if up is None else tuple(s for s in (up, DOWN[target]) if s)

    def _of_state(self) -> list[Change]:
        steps = self._steps()
        if steps == ():
            return []
        now = self.now
        otherwise = now == VM_STATES.get(self.target.state or "")  # only its guest is
        is_now = _WORDS.get(now, now)
        if self.domain_missing:
            is_now += " (its domain is gone from its host)"
        elif otherwise:
            is_now = GUESTS[self.instance.power_state]
        unsaid = _WORDS.get(now, "running") if self.domain_missing else "running"
        what = "state %s -> %s" % (is_now, self.target.state or unsaid)
        if steps is None:
            why = _OTHERWISE.get(now, "not while the instance is %s" % now)
            return [self._change(STATE, what, why, done=False, field="state")]
        for step, kind in ((HARD_REBOOT, RESTART), (REBUILD, REBUILD)):
            if step in steps:
                change = self._allowed(kind, what, field="state", steps=steps)
                then = ", then ".join((change.how, *(s for s in steps if s != step)))
                return [replace(change, how=then) if change.done else change]
        return [self._change(STATE, what, ", then ".join(steps), field="state", steps=steps)]

    # --- its lock -----------------------------------------------------------------------------------------------------

    def _of_lock(self) -> list[Change]:
        instance, target = self.instance, self.target
        if target.locked is None:
            return []
        reason = target.locked_reason if target.locked else ""
        if instance.locked == target.locked and (not reason or reason == instance.locked_reason):
            return []
        what = "lock" if target.locked else "unlock"
        if target.locked and instance.locked and not instance.locked_by_another:
            what = "lock: %s" % reason
        change = self._change(LOCK, what, field="locked")
        if not instance.locked_by_another:
            return [change]
        return [not_done(change, "locked by %s" % instance.locked_by_another)]

    # --- its volumes --------------------------------------------------------------------------------------------------

    def _of_volumes(self) -> list[Change]:
        """Return the changes that attach and detach existing volumes; volumes that are made with the instance stay.

        A volume that is attached and was never in the file is left alone.
        """
        old, new = (
            _Devices(list(d.get("block_device_mapping") or ()), self.ids)
            for d in (self.instance.digest, self.target.digest)
        )
        changes: list[Change] = []
        if old.others != new.others:
            words = expand.Differing(
                "", "block_device_mapping", *(expand.shown(d.others, self.names) for d in (old, new))
            )
            why = "cannot be changed, %s" % fields.rule("block_device_mapping").why
            changes.append(
                self._change(NEVER, words.words("%s %s -> %s"), why, done=False, field="block_device_mapping")
            )
        attached_volumes = set(self.instance.volumes)
        for volume, device in sorted(new.volumes.items()):
            before = old.volumes.get(volume)
            if volume not in attached_volumes:
                changes.append(self._volume(ATTACH, volume, device))
            elif before is not None and {**before, "uuid": ""} != {**device, "uuid": ""}:
                why = "stays attached as it is: take it out of the file, apply, and put it in again"
                changes.append(not_done(self._volume(NEVER, volume, device, "volume %s"), why))
        for volume, device in sorted(old.volumes.items()):
            if volume not in new.volumes and volume in attached_volumes.union(self.instance.on_the_way):
                changes.append(self._volume(DETACH, volume, device))
        return changes

    def _volume(self, kind: str, volume: str, device: t.Mapping[str, t.Any], words: str = "") -> Change:
        entry = {"instance": self.instance.uuid, "volume": volume}
        if kind == ATTACH:
            # Names of fields as in bootflow_attachments.
            given = {n: device.get(n) for n in ("disk_bus", "tag", "delete_on_termination")}
            given["device"] = device.get("device_name")
            entry.update({n: v for n, v in given.items() if v})
        name = self.names.get(volume, str(device.get("uuid")))
        change = self._change(kind, (words or kind + " volume %s") % name, field="block_device_mapping", volume=entry)
        return change if kind == NEVER else self._in_states(change, kind + "_volume")

    # --- its interfaces -----------------------------------------------------------------------------------------------

    def _of_interfaces(self) -> list[Change]:
        """Interfaces are attached and detached. What was attached and was never in the file is left alone."""
        old, new = (_interfaces_of(d) for d in (self.instance.digest, self.target.digest))
        met = take_met(new, self.instance.ports)
        changes: list[Change] = []
        attached = {
            number: wanted
            for number, wanted in enumerate(new)
            if number not in met or (self.instance.half_attached and wanted in _without(new, old))
        }
        for wanted in attached.values():
            network = wanted.request.network
            same_network = [new[n].request for n in met if n not in attached and new[n].request.network == network]
            change = self._interface(ATTACH_INTERFACE, wanted.request, _given(wanted.request))
            changes.append(
                replace(
                    change,
                    existing_interfaces=tuple(
                        {"instance": self.instance.uuid, **_given(request)} for request in same_network
                    ),
                )
            )
        unmatched_ports = [port for port in self.instance.ports if port not in met.values()]
        removed = _without(old, new)
        for ports in (self.instance.leaving, unmatched_ports):
            ports_of_removed = take_met(removed, ports)
            for number, port in sorted(ports_of_removed.items()):
                changes.append(self._interface(DETACH_INTERFACE, removed[number].request, {"port_id": port.id}))
            removed = [interface for number, interface in enumerate(removed) if number not in ports_of_removed]
        return changes

    def _interface(self, kind: str, request: NetworkRequest, given: t.Mapping[str, t.Any]) -> Change:
        place = self.names.get(str(request.network), request.network)
        if request.port is not None:
            place = "port %s" % request.port
        words = " ".join(filter(None, (place, request.fixed_ip)))
        what = "%s %s" % (kind.replace("_", " "), words)
        change = self._change(kind, what, field="networks", interface={"instance": self.instance.uuid, **given})
        return self._in_states(change, kind)


def _given(request: NetworkRequest) -> dict[str, t.Any]:
    return {name: value for name, value in dataclasses.asdict(request).items() if value is not None}


def _interfaces_of(digest: t.Mapping[str, t.Any]) -> list[WantedInterface]:
    return [WantedInterface("", "", NetworkRequest(**network)) for network in digest.get("networks") or ()]


def _without(some: t.Sequence[WantedInterface], others: t.Sequence[WantedInterface]) -> list[WantedInterface]:
    """``some`` without as many of each kind as ``others`` has."""
    unmatched = list(others)
    surplus = []
    for interface in some:
        if interface in unmatched:
            unmatched.remove(interface)
        else:
            surplus.append(interface)
    return surplus


class _Devices:
    """The block devices of a digest: data volumes that exist by id, and all others."""

    def __init__(self, devices: t.Sequence[t.Mapping[str, t.Any]], ids: t.Mapping[str, str]):
        self.volumes: dict[str, t.Mapping[str, t.Any]] = {}
        self.others: list[t.Mapping[str, t.Any]] = []
        for device in devices:
            if is_data_volume(device):
                self.volumes[ids.get(str(device["uuid"]), str(device["uuid"]))] = device
            else:
                self.others.append(device)


def is_data_volume(device: t.Mapping[str, t.Any]) -> bool:
    """Whether a block device of a digest is a volume that exists, and not the root disk."""
    return bool(
        device.get("source_type") == "volume"
        and device.get("destination_type") == "volume"
        and not device.get("no_device")
        and device.get("boot_index") != 0
    )
