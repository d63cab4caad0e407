# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet that follows its file: the ledger's part of the playbook apply.

What a file asks of its projects is planned from the ledger (core.apply.plan), rehearsed, and changed in the ledger as far as no host has a
part in it. Deletions, boots, operations and volumes are done by the playbooks that do them otherwise, for what begin() names.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.amounts import and_volumes, counted
from ...core.apply import plan as planning
from ...core.apply.fields import LIVE, REBUILD, RESIZE
from ...core.apply.plan import (
    ATTACH,
    ATTACH_INTERFACE,
    BOOT,
    DELETE,
    DETACH,
    DETACH_INTERFACE,
    LOCK,
    REPLACE,
    Change,
    Key,
    Plan,
    Present,
    Wanted,
)
from ...core.instances import states
from ...core.instances.request import ServerRequest
from ...core.interfaces.entries import WantedInterface
from ...core.model import Flavor, NetworkRequest
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.volumes.states import ATTACHED
from ...ledger.compute import history, instances, ports, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volumes
from ..attachments import life
from ..boot import accept
from ..instances import attach, delete, interfaces, lock, operation, redefine
from ..instances.operations import find
from ..moves import cold
from ..moves.cold_life import RESIZE as RESIZING
from ..moves.confirm import CONFIRM, is_reported, silent_hosts
from ..moves.evacuate_life import EVACUATE
from ..moves.place import Mover

BLOCK_DEVICES, NETWORKS = "block_device_mapping", "networks"
#: Actions that make the disks of an instance again: where one failed, they may be missing.
OF_DISKS = (REBUILD, EVACUATE.action)
#: Names without a row of the operations, by the kind of a change or by its step.
_KINDS = {
    DELETE: delete.DELETE,
    ATTACH: attach.ATTACH,
    DETACH: attach.DETACH,
    ATTACH_INTERFACE: interfaces.ATTACH,
    DETACH_INTERFACE: interfaces.DETACH,
    RESIZE: RESIZING,
    planning.CONFIRM: CONFIRM,
}
#: Operations that the playbook does before volumes and interfaces come and go: the guest runs by then.
BEFORE_DEVICES = (planning.CONFIRM, "unpause", "resume", planning.HARD_REBOOT)
#: The rebuilds that it does before them, too.
REBUILD_EARLY = "rebuild_early"
#: Fields that are compared with what an instance has, not with what its request said.
RECORDED = (BLOCK_DEVICES, "config_drive", NETWORKS)


@dataclass(frozen=True)
class File:
    """The file that is applied."""

    requests: t.Sequence[ServerRequest]
    options: accept.AcceptOptions
    default_project: str = "default"  # of a file without entries
    prune: bool = False
    prune_max: int = 10
    allow: t.Collection[str] = ()  # bootflow_apply_allow
    moves: cold.Wanted | None = None  # what resizes are judged by; None: they are not
    inventory: t.Collection[str] | None = (
        None  # the hosts where something can be deleted; None: what others have is forgotten
    )

    @property
    def projects(self) -> list[str]:
        return sorted({r.project for r in self.requests}) or [self.default_project]


@dataclass
class Begun:
    """The begun changes, for the hosts that have a part in them."""

    plan: Plan = Plan()  # that was begun
    changed: bool = False  # something was written
    operations: dict[str, list[str]] = field(default_factory=dict)  # operation -> uuids
    attach: list[dict[str, t.Any]] = field(default_factory=list)  # in the form of bootflow_attachments
    detach: list[dict[str, t.Any]] = field(default_factory=list)
    attach_interfaces: list[dict[str, t.Any]] = field(default_factory=list)  # in the form of bootflow_interfaces
    detach_interfaces: list[dict[str, t.Any]] = field(default_factory=list)
    flavors: dict[str, str] = field(default_factory=dict)  # uuid -> flavor of those to be resized


@dataclass
class _Read:
    plan: Plan
    rows: dict[Key, Instance]
    entries: dict[Key, int]  # of the file
    digests: list[dict[str, t.Any]]
    movers: dict[str, Mover] = field(default_factory=dict)  # uuid -> what is resized


class Looked(t.NamedTuple):
    """The fleet as it was looked at: the hosts to ask first, or the plan."""

    ask: list[str]
    plan: Plan = Plan()
    unrecorded: bool = False  # see record()


def look(
    tx: Transaction, file: File, known: t.Collection[str] | None = None, clean_first: t.Sequence[str] = ()
) -> Looked:
    """Rehearse the plan, unless hosts have to be asked before. The instances are read once for both. See rehearse() for its errors.

    :arg known: the hosts that can be asked; None: none is asked. :arg clean_first: hosts that have to be asked in any case.
    """
    everything = _all_rows(tx, file)
    asked = [h for h in _hosts_to_ask(file, _not_kept(everything)) if h in known] if known else []
    ask = list(dict.fromkeys([*clean_first, *asked]))
    return Looked(ask) if ask else _rehearse(tx, file, everything)


def hosts_to_ask(tx: Transaction, file: File) -> list[str]:
    """Return the hosts of the instances whose state the file sets: their guests may have changed it.

    Also of instances that no host is known to have: a domain may be back, and without it a resize is not confirmed.
    """
    return _hosts_to_ask(file, _rows(tx, file))


def _hosts_to_ask(file: File, rows: t.Mapping[Key, Instance]) -> list[str]:
    entries, _digests = _names(file, rows)
    followed = [rows[k] for k, index in entries.items() if k in rows and file.requests[index].state is not None]
    followed += [rows[k] for k in entries if k in rows and _is_built(rows[k]) and not is_reported(rows[k])]
    return sorted({r.host for r in followed if r.host is not None})


def rehearse(tx: Transaction, file: File) -> Plan:
    """The plan, after all that it deletes and boots was tried out in ``tx``, which is rolled back.

    :raises PruneRefused: it deletes too many. :raises InvalidRequest: see accept.accept(). :raises OverQuota: of what it resizes.
    :raises InstanceIsLocked, InstanceBusy: what has to be deleted.
    """
    return _rehearse(tx, file, _all_rows(tx, file)).plan


def _rehearse(tx: Transaction, file: File, everything: t.Mapping[Key, Instance]) -> Looked:
    planned = _read(tx, file, everything)
    plan = planned.plan
    unrecorded = bool(_unrecorded(planned))
    pruned = [c for c in plan.to_do if c.kind == DELETE and c.how != planning.NEVER_RAN]
    if len(pruned) > file.prune_max:
        raise errors.PruneRefused(
            instances=counted(len(pruned), "instances"),
            most=file.prune_max,
            names=operation.some([c.name for c in pruned]),
        )
    _check_volumes(tx, file, planned)
    if file.moves is not None:
        cold.check_quota(
            tx, dataclasses.replace(file.moves, flavors=_flavors(file, planned)), [*planned.movers.values()]
        )
    for uuid, mover in planned.movers.items():  # they count with their new flavor for the quota of what is booted
        instances.write(tx, [uuid], **{n: mover.spec["flavor"][n] for n in ("vcpus", "memory_mb")})
    plan = _with_volumes(tx, plan)
    changes = _with_addresses(tx, file, plan.changes)  # as it is done: what is deleted and booted comes later
    delete.rehearse(tx, instances_to_delete(plan))
    if not _has_builds(file, planned):
        return Looked([], dataclasses.replace(plan, changes=tuple(changes)), unrecorded)
    accepted = accept.accept(tx, file.requests, dataclasses.replace(file.options, keep_built_instances=True))
    rows = instances.select_live(tx, uuids=[*accepted.created, *accepted.resumed])
    fit = {(r.project, r.display_name) for r in rows}
    booted = [c for c in plan.to_do if c.kind in (BOOT, REPLACE)]
    changes = [_no_quota(c) if c in booted and (c.project, c.name) not in fit else c for c in changes]
    return Looked([], dataclasses.replace(plan, changes=tuple(changes)), unrecorded)


def _has_builds(file: File, planned: _Read) -> bool:
    """Whether the boot has something to do, or to refuse: it leaves alone what was built, and a name may be requested once."""
    once = len(planned.entries) == sum(request.max_count for request in file.requests)
    return not once or any(k not in planned.rows or not _is_built(planned.rows[k]) for k in planned.entries)


def _with_volumes(tx: Transaction, plan: Plan) -> Plan:
    """The plan whose deletions name the volumes that are deleted with the instances."""
    doomed = life.deleted_with(tx, instances_to_delete(plan))
    changes = [
        dataclasses.replace(c, how=", ".join(filter(None, (c.how, and_volumes(doomed[str(c.uuid)])))))
        if c.done and c.kind == DELETE and c.uuid in doomed
        else c
        for c in plan.changes
    ]
    return dataclasses.replace(plan, changes=tuple(changes))


def _wanted_interface(path: str, entry: t.Mapping[str, t.Any]) -> WantedInterface:
    asked = {name: value for name, value in entry.items() if name != "instance"}
    return WantedInterface(path, str(entry["instance"]), NetworkRequest(**asked))


def _existing_interfaces(changes: t.Iterable[Change]) -> list[t.Mapping[str, t.Any]]:
    """Return the interfaces in addition to the attached ones, each once. They come first: existing interfaces are theirs."""
    of_networks = {(c.uuid, c.interface.get("network")): c.existing_interfaces for c in changes}
    return [entry for entries in of_networks.values() for entry in entries]


def _with_addresses(tx: Transaction, file: File, changes: t.Sequence[Change]) -> list[Change]:
    """Return the changes without interfaces that cannot be attached now, so that they do not stop the others."""
    attached = {i: c for i, c in enumerate(changes) if c.done and c.kind == ATTACH_INTERFACE}
    if not attached:
        return list(changes)
    wanted = [_wanted_interface("", entry) for entry in _existing_interfaces(attached.values())]
    wanted += [_wanted_interface(str(i), c.interface) for i, c in attached.items()]
    risen = [str(c.uuid) for c in changes if c.done and c.steps and (c.steps[0] in BEFORE_DEVICES or c.early)]
    if risen:
        instances.write(tx, risen, vm_state=states.ACTIVE)
    leaving_ports = [str(c.interface["port_id"]) for c in changes if c.done and c.kind == DETACH_INTERFACE]
    if leaving_ports:  # their places in the quota, and their addresses, are free by then
        ports.begin_leaving(tx, leaving_ports)
        ports.end_leaving(tx, leaving_ports)
    known_hosts = file.moves.known_hosts if file.moves is not None else None
    options = file.options
    try:
        begun = interfaces.begin_attach(tx, wanted, options.networks, None, known_hosts, options.quotas)
        why = {r.request.path: r.error.paragraph for r in begun.refused}
    except errors.InvalidRequest as e:
        why = {str(problem["path"]): "%s %s" % (problem["message"], problem["remedy"]) for problem in e.errors}
    return [planning.not_done(c, why[str(i)], later=True) if str(i) in why else c for i, c in enumerate(changes)]


def _check_volumes(tx: Transaction, file: File, planned: _Read) -> None:
    """:raises InvalidRequest: volumes to attach that do not exist."""
    problems = Problems()
    wanted = [c for c in planned.plan.to_do if c.kind == ATTACH]
    known = {v.id for v in volumes.select(tx, ids={str(c.volume["volume"]) for c in wanted})} if wanted else set()
    for change in wanted:
        with problems.collect("instances[%d].block_device_mapping" % planned.entries[change.project, change.name]):
            if change.volume["volume"] not in known:
                raise errors.VolumeNotFound(
                    volume_id=change.volume["volume"], remedy="volume_list shows the volumes of the project."
                )
    problems.raise_if_any()


def _no_quota(change: Change) -> Change:
    what = "no more than min_count of its entry fit the quota"
    return dataclasses.replace(change, kind="quota", what=planning.NOT_BOOTED, how=what, done=False)


def instances_to_delete(plan: Plan) -> list[str]:
    """The instances that are deleted before the boot."""
    return [str(c.uuid) for c in plan.to_do if c.kind in (DELETE, REPLACE)]


def begin(tx: Transaction, file: File) -> Begun:
    """Change what the ledger alone has, and say what hosts have to do. Boots and deletions are not among it.

    :raises InstanceIsLocked: another user has locked one of them meanwhile.
    """
    runs.renew(tx)
    planned = _read(tx, file, _all_rows(tx, file, locked=True))
    begun = Begun(planned.plan)
    fields: dict[Key, list[str]] = {}
    for change in planned.plan.to_do:
        key = (change.project, change.name)
        if change.kind == LIVE:
            fields.setdefault(key, []).append(change.field)
        elif change.kind == LOCK:
            _lock(tx, file.requests[planned.entries[key]], planned.rows[key])
        elif change.kind == ATTACH:
            begun.attach.append(dict(change.volume))
        elif change.kind == DETACH:
            begun.detach.append(dict(change.volume))
        elif change.kind == DETACH_INTERFACE:
            begun.detach_interfaces.append(dict(change.interface))
        for step in change.steps if change.uuid is not None else ():
            uuids = begun.operations.setdefault(REBUILD_EARLY if step == REBUILD and change.early else step, [])
            uuids += [] if change.uuid in uuids else [str(change.uuid)]
        begun.changed = begun.changed or change.kind in (LIVE, LOCK)
    attached = [c for c in planned.plan.to_do if c.kind == ATTACH_INTERFACE]
    begun.attach_interfaces = [
        dict(entry) for entry in (*_existing_interfaces(attached), *(c.interface for c in attached))
    ]
    begun.flavors = {uuid: flavor.name for uuid, flavor in _flavors(file, planned).items()}
    _redefine(tx, file, planned, fields)
    return begun


def resizes(tx: Transaction, file: File) -> dict[str, str]:
    """Return uuid -> flavor of the instances to resize, except the ones whose volumes are detached first. Writes nothing."""
    return {u: flavor.name for u, flavor in resize_flavors(tx, file).items()}


def resize_flavors(tx: Transaction, file: File) -> dict[str, Flavor]:
    """Return the same with the flavors themselves."""
    planned = _read(tx, file, _all_rows(tx, file))
    detached = {c.uuid for c in planned.plan.to_do if c.kind == DETACH}
    return {u: flavor for u, flavor in _flavors(file, planned).items() if u not in detached}


def _flavors(file: File, planned: _Read) -> dict[str, Flavor]:
    """uuid -> flavor of the instances that are resized."""
    resize_changes = [c for c in planned.plan.to_do if c.kind == RESIZE]
    return {str(c.uuid): file.requests[planned.entries[c.project, c.name]].flavor for c in resize_changes}


def record(tx: Transaction, file: File) -> bool:
    """Write the volumes and config drives of the file, for instances that are as the file has them. Returns whether that was news.

    A volume that was attached by hand and never was in the file is not detached: see core.apply.plan.
    """
    runs.renew(tx)
    planned = _read(tx, file, _all_rows(tx, file, locked=True))
    fields = _unrecorded(planned)
    _redefine(tx, file, planned, fields)
    return bool(fields)


def _unrecorded(planned: _Read) -> dict[Key, list[str]]:
    """Return what record() has to write: the fields by instance."""
    differing = {(c.project, c.name) for c in planned.plan.changes}
    return {
        k: changed_fields
        for k, index in planned.entries.items()
        if k in planned.rows and k not in differing and _is_built(planned.rows[k])
        if (changed_fields := [f for f in RECORDED if planned.rows[k].digest.get(f) != planned.digests[index][f]])
    }


def _is_built(row: Instance) -> bool:
    return row.launched_at is not None


def _is_lost(row: Instance) -> bool:
    """Whether its host has said last that it does not have its domain."""
    return _is_built(row) and row.vm_state in planning.UP and not is_reported(row)


def _redefine(tx: Transaction, file: File, planned: _Read, fields: t.Mapping[Key, t.Iterable[str]]) -> None:
    redefine.write(
        tx,
        [
            redefine.New(
                planned.rows[k],
                planned.entries[k],
                file.requests[planned.entries[k]],
                planned.digests[planned.entries[k]],
                tuple(sorted(set(names))),
            )
            for k, names in sorted(fields.items())
        ],
    )


def _lock(tx: Transaction, request: ServerRequest, row: Instance) -> None:
    selection = operation.Selection(uuids=[row.uuid])
    if request.locked:
        lock.lock(tx, selection, request.locked_reason)
    else:
        lock.unlock(tx, selection)


# --- the plan, from the ledger ------------------------------------------------------------------------------------------


def _read(tx: Transaction, file: File, everything: t.Mapping[Key, Instance]) -> _Read:
    """:arg everything: the living instances of the file's projects, and the ones that were deleted and can be restored"""
    rows = _not_kept(everything)
    entries, digests = _names(file, rows)
    replaced = _replaced(tx, file, rows, entries, digests)
    if replaced:  # what is booted in their place has the names that it has without them
        entries, digests = _names(file, {k: r for k, r in rows.items() if k not in replaced})
    ids, names = _volumes(tx, digests, rows.values())
    names.update(accept.names_of_ids(file.options.networks))
    names.update({r.server_group.id: r.server_group.name for r in file.requests if r.server_group is not None})
    plan = planning.plan(
        [_wanted(file.requests[index], digests[index], key) for key, index in entries.items()],
        _present(tx, rows, [rows[key].uuid for key in entries if key in rows], replaced.difference(entries)),
        file.prune,
        file.allow,
        ids,
        names,
    )
    plan = _nameable(plan, everything)
    plan = _attachable(tx, file, _able(tx, file, plan, rows.values()), rows)
    return _judged(tx, file, _Read(plan, rows, entries, digests))


def _nameable(plan: Plan, rows: t.Mapping[Key, Instance]) -> Plan:
    """Drop boots of instances whose names soft-deleted instances still have, so they do not block the rest of the plan."""
    changes = [
        dataclasses.replace(
            planning.not_done(c, accept.kept_error(rows[c.project, c.name]).paragraph, later=True),
            what=planning.NOT_BOOTED,
        )
        if c.kind == BOOT and c.uuid is None and (c.project, c.name) in rows
        else c
        for c in plan.changes
    ]
    return dataclasses.replace(plan, changes=tuple(changes))


def _able(tx: Transaction, file: File, plan: Plan, rows: t.Iterable[Instance]) -> Plan:
    """Drop changes that cannot start, because another change of the instance is under way or its host is not in the inventory, so they do not block
    the rest."""
    known = file.moves.known_hosts if file.moves is not None else None
    doubtful = {
        r.uuid: r
        for r in rows
        if r.task_state is not None
        or r.vm_state == states.BUILDING
        or (_is_built(r) and known is not None and r.host not in known)
    }
    dead = runs.dead_among(tx, [r.run_id for r in doubtful.values()]) if doubtful else set()
    changes = list(plan.changes) if doubtful else []
    for number, change in enumerate(changes):
        row, first_operation = doubtful.get(str(change.uuid)), _begins(change)
        if row is None or not change.done:
            continue
        if change.kind in (BOOT, REPLACE) and accept.is_another_runs(tx, row, dead) and not accept.is_deleted(row):
            busy = runs.locked_error(tx, row.display_name, row.run_id)
            changes[number] = dataclasses.replace(
                planning.not_done(change, busy.paragraph, later=True), what=planning.NOT_BOOTED
            )
        if first_operation is None:
            continue
        try:
            operation.check(tx, first_operation, row, dead, known if change.kind != DELETE else None)
        except (errors.InstanceBusy, errors.InstanceInvalidState, errors.ComputeHostNotFound) as e:
            if row.task_state is not None or isinstance(e, errors.ComputeHostNotFound):
                changes[number] = planning.not_done(change, e.paragraph, later=True)
    plan = dataclasses.replace(plan, changes=tuple(changes)) if doubtful else plan
    return _deletable(tx, file, plan, rows)


def _deletable(tx: Transaction, file: File, plan: Plan, rows: t.Iterable[Instance]) -> Plan:
    """Drop deletions of instances whose hosts are not in the inventory, so they do not block the rest."""
    wanted = {str(c.uuid) for c in plan.to_do if c.kind in (DELETE, REPLACE)}
    if not wanted or file.inventory is None:
        return plan
    having = delete.hosts_having(tx, [r for r in rows if r.uuid in wanted])
    strange = {uuid: sorted(hosts.difference(file.inventory)) for uuid, hosts in having.items()}
    changes = [
        planning.not_done(c, delete.strangers_error(strange[str(c.uuid)]).paragraph, later=True)
        if c.done and str(c.uuid) in wanted and strange.get(str(c.uuid))
        else c
        for c in plan.changes
    ]
    return dataclasses.replace(plan, changes=tuple(changes))


def _attachable(tx: Transaction, file: File, plan: Plan, rows: t.Mapping[Key, Instance]) -> Plan:
    """Drop volumes that cannot be attached or detached now, so they do not block the rest."""
    why: dict[int, errors.BootflowError | None] = {}

    def wanted(kind: str) -> dict[int, tuple[Instance, t.Mapping[str, t.Any]]]:
        pending = {i: c for i, c in enumerate(plan.changes) if c.done and c.kind == kind}
        return {i: (rows[c.project, c.name], c.volume) for i, c in pending.items()}

    detached, attached = wanted(DETACH), wanted(ATTACH)
    if detached:
        why.update(zip(detached, attach.refused_detach(tx, list(detached.values()))))
    if attached:
        first = {str(entry["volume"]) for i, (_row, entry) in detached.items() if why[i] is None}
        in_zones = file.options.volumes.cross_az_attach
        why.update(zip(attached, attach.refused_attach(tx, list(attached.values()), in_zones, first)))
    changes = [
        planning.not_done(c, e.paragraph, later=True) if (e := why.get(i)) is not None else c
        for i, c in enumerate(plan.changes)
    ]
    return dataclasses.replace(plan, changes=tuple(changes)) if any(why.values()) else plan


def _begins(change: Change) -> operation.Operation | None:
    """The operation with which a change begins; None: it is a matter of the ledger alone."""
    if change.kind in _KINDS:
        return _KINDS[change.kind]
    if not change.steps:
        return None
    step = change.steps[0]
    return _KINDS.get(step) or find(step, "HARD")


def _judged(tx: Transaction, file: File, planned: _Read) -> _Read:
    """Drop resizes that are not possible, so they do not block the rest."""
    flavors = _flavors(file, planned)
    if not flavors or file.moves is None:
        return planned
    rows = [r for r in planned.rows.values() if r.uuid in flavors]
    detached = {str(c.uuid) for c in planned.plan.to_do if c.kind == DETACH}
    wanted = dataclasses.replace(file.moves, flavors=flavors)
    movers, refused = cold.judge(tx, wanted, rows, detached)
    why = {uuid: "cannot be resized, %s" % e.message for uuid, e in refused.items()}
    changes = [
        planning.not_done(c, why[c.uuid]) if c.kind == RESIZE and c.uuid in why else c for c in planned.plan.changes
    ]
    return dataclasses.replace(planned, plan=dataclasses.replace(planned.plan, changes=tuple(changes)), movers=movers)


def _rows(tx: Transaction, file: File) -> dict[Key, Instance]:
    """The living instances of the file's projects."""
    return _not_kept(_all_rows(tx, file))


def _not_kept(rows: t.Mapping[Key, Instance]) -> dict[Key, Instance]:
    """Leave out instances that were deleted and can be restored."""
    return {k: r for k, r in rows.items() if r.vm_state != states.SOFT_DELETED}


def _all_rows(tx: Transaction, file: File, locked: bool = False) -> dict[Key, Instance]:
    rows = [r for project in file.projects for r in instances.select_live(tx, project=project, lock=locked)]
    return {(r.project, r.display_name): r for r in rows}


def _names(file: File, rows: t.Mapping[Key, Instance]) -> tuple[dict[Key, int], list[dict[str, t.Any]]]:
    """(project and name of each instance of the file -> the number of its entry, the entries' digests)."""
    made: dict[Key, set[str]] = {}  # project and name of an entry -> its instances
    for row in rows.values():
        made.setdefault((row.project, row.digest["name"]), set()).add(row.display_name)
    names = expand.Names.expand(file.requests).with_existing(made)
    entries: dict[Key, int] = {}
    for index, (request, named) in enumerate(zip(file.requests, names.by_request)):
        entries.update({(request.project, name): index for name in named})
    return entries, [expand.request_digest(r) for r in file.requests]


def _wanted(request: ServerRequest, digest: t.Mapping[str, t.Any], key: Key) -> Wanted:
    return Wanted(
        name=key[1],
        project=key[0],
        digest=digest,
        state=request.state,
        locked=request.locked,
        locked_reason=request.locked_reason,
        allow=frozenset(request.allow),
    )


def _replaced(
    tx: Transaction,
    file: File,
    rows: t.Mapping[Key, Instance],
    entries: t.Mapping[Key, int],
    digests: t.Sequence[t.Mapping[str, t.Any]],
) -> set[Key]:
    """Return the instances that never ran and are deleted, as their definition is another one now."""
    known = accept.names_of_ids(file.options.networks)
    others = {
        k: rows[k]
        for k, index in entries.items()
        if k in rows
        and not _is_built(rows[k])
        and not accept.is_deleted(rows[k])
        and not operation.is_locked(tx, rows[k])
        and expand.difference(rows[k].digest, digests[index], known).requested
    }
    dead = runs.dead_among(tx, [r.run_id for r in others.values()]) if others else set()
    return {k for k, r in others.items() if not accept.is_another_runs(tx, r, dead)}


def _present(
    tx: Transaction, rows: t.Mapping[Key, Instance], followed: t.Collection[str], renamed: t.Collection[Key]
) -> list[Present]:
    """:arg followed: instances that the file has. :arg renamed: see Present"""
    attached = attachments.of_instances(tx, [r.uuid for r in rows.values()])
    in_error = [r.uuid for r in rows.values() if r.vm_state == states.ERROR]
    torn = history.whose_last_failed(tx, in_error, OF_DISKS)
    has, loses = (ports.ports_of(tx, sorted(followed), leaving=is_leaving) for is_leaving in (False, True))
    half_attached = history.whose_last_failed(tx, sorted(followed), (interfaces.ATTACH.action,))
    unsure = any(r.vm_state == states.RESIZED or _is_lost(r) for r in rows.values())
    away = silent_hosts(tx) if unsure else set()
    return [
        Present(
            uuid=row.uuid,
            name=row.display_name,
            project=row.project,
            vm_state=row.vm_state,
            power_state=row.power_state,
            digest=row.digest,
            launched=row.launched_at is not None,
            away=row.host in away,
            domain_missing=_is_lost(row) and row.host not in away,
            torn=row.uuid in torn,
            config_drive=bool(row.config_drive),
            deleting=row.task_state in (states.DELETING, states.SOFT_DELETING),
            renamed=key in renamed,
            locked=row.locked_by is not None,
            locked_reason=row.locked_reason or "",
            locked_by_another=str(row.locked_by) if operation.is_locked(tx, row) else "",
            volumes=tuple(a.volume_id for a in attached.get(row.uuid, ()) if a.attach_status == ATTACHED),
            on_the_way=tuple(a.volume_id for a in attached.get(row.uuid, ()) if a.attach_status != ATTACHED),
            ports=tuple(port for port, _network in has.get(row.uuid, ())),
            leaving=tuple(port for port, _network in loses.get(row.uuid, ())),
            half_attached=row.uuid in half_attached,
        )
        for key, row in rows.items()
    ]


def _volumes(
    tx: Transaction, digests: t.Sequence[t.Mapping[str, t.Any]], rows: t.Iterable[Instance]
) -> tuple[dict[str, str], dict[str, str]]:
    """(word of the file or of an instance's request -> id, id -> name) of the data volumes that exist."""
    by_project: dict[str, set[str]] = {}
    for digest in (*digests, *(r.digest for r in rows)):
        words = {str(d["uuid"]) for d in digest.get(BLOCK_DEVICES) or () if planning.is_data_volume(d)}
        if words:
            by_project.setdefault(digest["project"], set()).update(words)
    volume_by_word = {
        w: v for p, words in sorted(by_project.items()) for w, v in volumes.find(tx, sorted(words), p).items()
    }
    return {word: v.id for word, v in volume_by_word.items()}, {v.id: v.name for v in volume_by_word.values() if v.name}
