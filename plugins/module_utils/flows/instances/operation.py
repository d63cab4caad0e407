# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine of all operations on instances: their beginning and results, for many instances on all hosts of a run at once.

An operation is data (operations.py has the rows). It has three steps: begin() here, one transaction for all instances; the
host work, one task per host for all of its instances; finish() here, one transaction for all hosts. Between the two the
instances are in the operation's task_state and belong to the run. If the run dies, the same operation adopts them, or the
report of their host settles them (flows.recovery.operations).
source: Nova's compute.api.API and ComputeManager
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import operation_outcomes, quotas, states
from ...core.instances.operation_outcomes import Outcome
from ...core.reading.nearest import suggestion
from ...ledger import projects
from ...ledger.compute import history, instances, nodes, runs
from ...ledger.compute.instances import Instance, InstanceRow
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from . import elsewhere

__all__ = ["Outcome"]  # flows and actions find it here, too

MOST_NAMED = 5
WHOSE = "whose"  # the detail of an error that has the instance's name, where Nova's words have its UUID


@dataclass(frozen=True)
class Operation:
    """An operation on an instance. core.instances.states.ACTIONS[name] has the states in which it may begin, and its result."""

    name: str  # of its rule, and of its event in the journal
    notification: str = ""  # compute.instance.NOTIFICATION.start, .end and .error; empty: none
    #: On its hosts: a state of the module domain_power, or a name in plugin_utils/operations/works.py. Empty: the flow has its own stages.
    work: str = ""
    #: Volumes that a fault left without a connection are connected again, and the domain is defined again.
    recovers_volumes: bool = False
    fails_to: str | None = None  # vm_state after a failure whose guest does not run; None: always as before
    forced: str = ""  # the note that is printed for a guest that had to be forced
    #: The note for a guest without a domain, where that is as good as the result; empty: it is an error.
    missing_domain_note: str = ""
    details: t.Callable[[Instance], dict[str, t.Any]] = lambda row: {}  # details of one instance for the host
    ends: t.Callable[[float], dict[str, t.Any]] = (
        lambda now: {}
    )  # fields that its success writes in addition to the result
    counts_again: bool = False  # for the quota
    beyond: frozenset[str] = frozenset()  # vm_states to which its result leads by itself
    ends_shelving: bool = False  # what is kept of a shelved instance is forgotten when it succeeds

    @property
    def rule(self) -> states.Action:
        return states.ACTIONS[self.name]

    @property
    def called(self) -> str:
        """The playbook: soft and hard reboots are reboots."""
        return self.rule.known_as or self.name

    @property
    def action(self) -> str:
        """The action in the journal."""
        return self.rule.journalled or self.called

    @property
    def during(self) -> str | None:
        """The task_state while its host works. None: the instance keeps its own, and others run at the same time (attach_volume)."""
        return self.rule.at_work

    def is_begun(self, task_state: str | None) -> bool:
        """Whether ``task_state`` is the operation's own, and not one in which it may begin (as a hard reboot during another)."""
        own = task_state is not None and task_state == self.during
        return own and task_state not in (self.rule.task_states or ())

    def is_done(self, vm_state: str, power_state: int = states.NOSTATE) -> bool:
        """Whether ``vm_state`` is already the operation's result, and the guest is not otherwise; never for a reboot."""
        done = vm_state in (self.rule.result, *self.beyond) and vm_state not in (self.rule.vm_states or ())
        return done and power_state not in self.rule.undone_by

    def is_undone(self, vm_state: str, power_state: int) -> bool:
        """Whether the instance is the operation's result, and its guest is not: it was changed by other means."""
        return self.is_done(vm_state) and not self.is_done(vm_state, power_state)


@dataclass(frozen=True)
class Selection:
    """A selection of instances: all given conditions must hold."""

    names: t.Sequence[str] | None = None
    uuids: t.Sequence[str] | None = None
    reservations: t.Sequence[str] | None = None
    hosts: t.Sequence[str] | None = None
    project: str | None = None
    everything: bool = False  # of the project

    @classmethod
    def from_options(cls, options: t.Mapping[str, t.Any]) -> Selection:
        """As the settings INSTANCES give it."""
        return cls(
            names=options["names"],
            uuids=options["uuids"],
            reservations=options["reservation_ids"],
            hosts=options["hosts"],
            project=options["project"],
            everything=options["all"],
        )

    @property
    def is_empty(self) -> bool:
        """Whether no instances are selected. A project alone selects none: it may be the inventory's default."""
        conditions = (self.names, self.uuids, self.reservations, self.hosts)
        return all(c is None for c in conditions) and not (self.project is not None and self.everything)

    @property
    def is_by_name(self) -> bool:
        """Whether instances are named, and not all of a host or project meant."""
        return any(c is not None for c in (self.names, self.uuids, self.reservations))


@dataclass
class Begun:
    rows: list[Instance] = field(default_factory=list)  # owned by this run now
    unchanged: list[Instance] = field(default_factory=list)  # already as requested
    ask: set[str] = field(default_factory=set)  # hosts that have to be asked before anything begins


# --- begin --------------------------------------------------------------------------------------------------------------


def begin(
    tx: Transaction,
    operation: Operation,
    selection: Selection,
    known_hosts: t.Collection[str],
    limits: t.Mapping[str, t.Any] | None = None,
    ask: bool = False,
) -> Begun:
    """Begin the operation for the selected instances: for all of them, or with an error for none.

    :arg known_hosts: the inventory's hosts. :arg limits: bootflow_quotas.
    :arg ask: where hosts have to be asked before (see hosts_to_ask()), only these are returned, and nothing is begun.
    :raises InvalidInput: see select().
    :raises InstanceNotFound, ProjectNotFound: an unknown name, UUID or project.
    :raises InstanceIsLocked, InstanceInvalidState, InstanceBusy, ComputeHostNotFound: one of them cannot begin.
    :raises InstanceElsewhere: another host reported its guest, and a second one would run.
    :raises OverQuota: they count again, and are too many.
    """
    if operation.counts_again:  # take turns with others that add to the usage, before any row is locked
        take_turns(tx, "project", {r.project for r in select(tx, selection, lock=False)})
    rows = select(tx, selection, operation=operation)
    refuse_unknown(tx, rows, selection, known_hosts)
    hosts = _that_seem_done(operation, rows, known_hosts) if ask else set()
    if hosts:
        return Begun(ask=hosts)
    if operation.counts_again:
        check_quota(tx, [r for r in rows if not operation.is_done(r.vm_state, r.power_state)], limits)
    entered = enter(tx, operation, rows, known_hosts)
    history.start_events_on(tx, {r.uuid: r.host for r in entered.rows}, operation.name)
    return entered


def hosts_to_ask(
    tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str]
) -> set[str]:
    """The hosts of selected instances that by the ledger are already what the operation makes of them: their guests may not be.

    :raises InvalidInput: see select().
    """
    if not operation.rule.undone_by:
        return set()
    return _that_seem_done(operation, select(tx, selection, lock=False), known_hosts)


def _that_seem_done(operation: Operation, rows: t.Iterable[Instance], known_hosts: t.Collection[str]) -> set[str]:
    if not operation.rule.undone_by:
        return set()
    return {str(r.host) for r in rows if operation.is_done(r.vm_state) and r.host in known_hosts}


def select(
    tx: Transaction,
    selection: Selection,
    everything: str = "bootflow_all",
    lock: bool = True,
    operation: Operation | None = None,
) -> list[Instance]:
    """The rows of the selected instances, locked until the transaction ends. Renews the run's lease.

    :arg everything: the variable that selects all instances of a project.
    :arg lock: false: nothing is locked or written.
    :arg operation: who deleted an instance does not mean it by its host or project: soft-deleted ones that are not named, and that this operation
        does not begin with, are left out.
    :raises InvalidInput: an empty selection, or a name is in several projects and none is given.
    """
    if selection.is_empty:
        raise errors.InvalidInput(
            reason="no instance is selected",
            remedy="Give bootflow_names, bootflow_uuids%s; for a whole project bootflow_project and %s: true."
            % (
                ", bootflow_reservation_ids or bootflow_host"
                if everything == "bootflow_all"
                else " or bootflow_reservation_ids",
                everything,
            ),
        )
    if lock:
        runs.renew(tx)
    rows = instances.select_live(
        tx,
        names=selection.names,
        uuids=selection.uuids,
        reservations=selection.reservations,
        hosts=selection.hosts,
        project=selection.project,
        lock=lock,
    )
    if selection.project is None and selection.uuids is None:
        _refuse_ambiguous(rows, selection.names or ())
    if (
        operation is None
        or selection.is_by_name
        or operation.rule.vm_states is None
        or states.SOFT_DELETED in operation.rule.vm_states
    ):
        return rows
    return [r for r in rows if r.vm_state != states.SOFT_DELETED]


def _refuse_ambiguous(rows: t.Sequence[Instance], names: t.Collection[str]) -> None:
    projects: dict[str, set[str]] = {}
    for row in rows:
        if row.display_name in names:
            projects.setdefault(row.display_name, set()).add(row.project)
    several = {name: sorted(project_names) for name, project_names in projects.items() if len(project_names) > 1}
    if several:
        raise errors.InvalidInput(
            reason="; ".join("%s is in the projects %s" % (n, ", ".join(p)) for n, p in sorted(several.items())),
            remedy="Name the project with bootflow_project, or give the UUID.",
        )


def by_words(
    tx: Transaction, words: t.Iterable[str], project: str | None, lock: bool = True
) -> dict[str, list[Instance]]:
    """Name or UUID -> the instances that it may mean, locked in the order of their UUIDs."""
    wanted = sorted(set(words))
    if not wanted:
        return {}
    rows = instances.select_live(tx, names=wanted, project=project)
    rows += instances.select_live(tx, uuids=wanted, project=project)
    uuids = sorted({r.uuid for r in rows})
    rows_by_word: dict[str, list[Instance]] = {}
    for row in instances.select_live(tx, uuids=uuids, lock=lock):
        for word in {row.uuid, row.display_name} & set(wanted):
            rows_by_word.setdefault(word, []).append(row)
    return rows_by_word


def meant(
    tx: Transaction, rows_by_word: t.Mapping[str, t.Sequence[Instance]], word: str, project: str | None
) -> Instance:
    """The one of by_words() that is meant. :arg project: that by_words() looked at

    :raises InstanceNotFound: there is none. :raises InvalidInput: several projects have one.
    """
    rows = rows_by_word.get(word, ())
    if not rows:
        raise errors.InstanceNotFound(instance_id=word, remedy=_where(tx, word, project))
    if len(rows) > 1:
        raise errors.InvalidInput(
            reason="%s is in the projects %s" % (word, ", ".join(sorted(r.project for r in rows))),
            remedy="Name the project with bootflow_project, or give the UUID.",
        )
    return rows[0]


def _where(tx: Transaction, word: str, project: str | None) -> str | None:
    """Return a hint to an instance that ``project`` does not have: the project that has it, or the nearest name."""
    elsewhere = {r.project for rows in by_words(tx, [word], None, lock=False).values() for r in rows}
    if elsewhere:
        return "The instance is in project %s: set bootflow_project." % " and ".join(sorted(elsewhere))
    return suggestion(word, instances.names(tx, project), "The list of instances")


def refuse_unknown(
    tx: Transaction, rows: t.Sequence[InstanceRow], selection: Selection, known_hosts: t.Collection[str] = ()
) -> None:
    """Refuse a selection that names unknown instances, hosts or projects. The remedy has the nearest names.

    :arg known_hosts: the inventory's hosts.
    :raises InstanceNotFound: a named instance is not among ``rows``. :raises ComputeHostNotFound: an unknown host.
    :raises ProjectNotFound: all of a project that the ledger has no record of.
    """
    if selection.everything and selection.project is not None and not rows:
        projects.refuse_unknown(tx, selection.project)
    hosts = set(selection.hosts or ()) - {r.host for r in rows} - set(known_hosts)
    if hosts:
        reported = sorted({n.host for n in nodes.rows(tx, ("host",))})
        missing = sorted(hosts.difference(reported))
        if missing:
            known = suggestion(missing[0], reported, "The list of hosts that reported")
            raise errors.ComputeHostNotFound(host=", ".join(missing), remedy=known)
    names = sorted(set(selection.names or ()) - {r.display_name for r in rows})
    unknown = names + sorted(set(selection.uuids or ()) - {r.uuid for r in rows})
    unknown += sorted(set(selection.reservations or ()) - {r.reservation_id for r in rows})
    if not unknown:
        return
    near = _in_others(tx, selection, set(unknown)) or _nearest(tx, selection, names)
    raise errors.InstanceNotFound(instance_id=", ".join(unknown), remedy=near)


def _nearest(tx: Transaction, selection: Selection, names: t.Sequence[str]) -> str | None:
    """Return the probable meaning of the unknown project, or of the first of these names that no instance has."""
    used = instances.projects(tx)
    if selection.project is not None and selection.project not in used:
        return suggestion(selection.project, used, "The list of projects with instances")
    if not names:
        return None
    living = instances.names(tx, selection.project)
    strange = [n for n in names if n not in living]
    if strange:
        return suggestion(strange[0], living, "The list of instances")
    return "There are instances of these names that do not meet the other conditions; all of them must hold."


def _in_others(tx: Transaction, selection: Selection, unknown: set[str]) -> str | None:
    """Return the projects that have the named instances which the selected one lacks; None: none has."""
    if selection.project is None:
        return None
    named = {"names": selection.names, "uuids": selection.uuids, "reservations": selection.reservations}
    projects_of_word: dict[str, set[str]] = {}
    for condition, words in named.items():
        chosen: dict[str, t.Any] = {condition: sorted(unknown.intersection(words or ()))}
        for row in instances.select_live(tx, **chosen) if chosen[condition] else []:
            words_of_row = {"names": row.display_name, "uuids": row.uuid, "reservations": row.reservation_id}
            projects_of_word.setdefault(words_of_row[condition], set()).add(row.project)
    words_of: dict[str, list[str]] = {}
    for word, its_projects in sorted(projects_of_word.items()):
        if selection.project not in its_projects:
            words_of.setdefault(" and ".join(sorted(its_projects)), []).append(word)
    if not words_of:
        return None
    parts = ("%s %s in project %s" % (some(w), "is" if len(w) == 1 else "are", p) for p, w in words_of.items())
    return "%s: set bootflow_project." % "; ".join(parts)


def enter(
    tx: Transaction,
    operation: Operation,
    rows: t.Sequence[Instance],
    known_hosts: t.Collection[str] | None = None,
) -> Begun:
    """Begin the operation for these locked rows: rules, compare-and-swap, journal, notification.

    :arg known_hosts: see begin(); None: an instance without a host, or on an unknown one, can begin too.
    :raises BootflowError: see begin(); nothing is written then.
    """
    dead = dead_runs(tx, rows)
    begun = Begun()
    refused: list[errors.BootflowError] = []
    for row in rows:
        if row.task_state is None and operation.is_done(row.vm_state, row.power_state):
            begun.unchanged.append(row)
            continue
        try:
            check(tx, operation, row, dead, known_hosts)
        except errors.BootflowError as e:
            refused.append(e)
        begun.rows.append(row)
    refuse(refused)
    if operation.rule.brings_up:
        # Also of instances that seem to be as requested: the guest may run on another host.
        refuse(list(elsewhere.refusals(tx, [*begun.rows, *begun.unchanged]).values()))
    start(tx, operation, begun.rows)
    return begun


def dead_runs(tx: Transaction, rows: t.Iterable[Instance]) -> set[str]:
    """The dead ones of the runs that the task_states of these instances are of."""
    return runs.dead_among(tx, [r.run_id for r in rows if r.task_state is not None])


def check(
    tx: Transaction,
    operation: Operation,
    row: Instance,
    dead: t.Collection[str],
    known_hosts: t.Collection[str] | None = None,
) -> None:
    """Check whether the operation may begin with this instance, or continue where a dead run left it.

    :arg dead: dead_runs() of it.
    :raises InstanceIsLocked, InstanceInvalidState, InstanceIsAdopted, InstanceBusy, ComputeHostNotFound: it may not.
    """
    if row.spec.get("adopted") and operation.name not in states.ON_ADOPTED:
        raise adopted_error(operation, row)
    resumed = operation.is_begun(row.task_state)
    busy = row.task_state is not None and row.run_id not in (None, "", tx.run.id, *dead)
    if busy and resumed:
        raise runs.locked_error(tx, row.display_name, row.run_id)
    task_state = None if resumed else row.task_state
    # As Nova's force_stop: the guest is not what the instance is, so its vm_state does not prevent the operation.
    undone = operation.is_undone(row.vm_state, row.power_state)
    vm_state = min(operation.rule.vm_states or (row.vm_state,)) if undone else row.vm_state
    try:
        states.check_action(
            operation.name, vm_state, task_state, row.launched_at is not None, is_locked(tx, row), row.uuid
        )
    except errors.InstanceIsLocked:
        raise locked_error(row) from None
    except errors.InstanceInvalidState as e:
        if e.details.get("attr") == "task_state":
            if busy:
                raise runs.locked_error(tx, row.display_name, row.run_id) from e
            e.remedy = "The run that did this is dead: bootflow.compute.audit settles it."
        e.details[WHOSE] = row.display_name
        raise
    if known_hosts is not None and row.host not in known_hosts:
        raise errors.ComputeHostNotFound(
            host=row.host or "(none) of instance %s" % row.uuid,
            remedy="Put the host into the inventory, or delete the instance with bootflow_delete_force: true.",
        )


def is_locked(tx: Transaction, row: Instance) -> bool:
    """Whether another user locked the instance."""
    return row.locked_by not in (None, tx.actor)


def adopted_error(operation: Operation, row: Instance) -> errors.InstanceIsAdopted:
    """Return the refusal of an operation that would touch what other software made of the guest."""
    error = errors.InstanceIsAdopted(method=operation.called, instance=row.display_name)
    error.details[WHOSE] = row.display_name
    return error


def locked_error(row: Instance) -> errors.InstanceIsLocked:
    """Another user's lock. The message is Nova's; who locked it, and why, is in the remedy."""
    why = ": %s" % row.locked_reason if row.locked_reason else ""
    error = errors.InstanceIsLocked(
        instance_uuid=row.uuid,
        remedy="User %s locked it%s. Have it unlocked, or unlock it with bootflow_unlock_override: true."
        % (row.locked_by, why),
    )
    error.details[WHOSE] = row.display_name
    return error


def start(tx: Transaction, operation: Operation, rows: t.Sequence[Instance], moment: str = "start") -> None:
    """Write that the operation begins with these locked and checked instances: task_state, journal, notification.

    :arg moment: the end of the notification's name, where something comes before the operation's own ``start``: the instances are in
        its first task_state then, until go_on().
    """
    uuids = [r.uuid for r in rows]
    if operation.during is not None:
        before = sorted({r.task_state for r in rows}, key=str)
        on_change, rule = tx.context.notify_on_state_change, operation.rule
        first = moment != "start"
        values = {"task_state": rule.during if first else operation.during, "run_id": tx.run.id}
        passed = [s for s in (rule.during, *rule.then[:-1]) if s is not None] if rule.then and not first else []
        instances.swap(tx, uuids, before, None, on_change, passed, **values)
    _end_others(tx, operation, rows)
    for project in sorted({r.project for r in rows}):
        new = [r.uuid for r in rows if r.project == project and not operation.is_begun(r.task_state)]
        history.start_actions(tx, new, operation.action, tx.request_id, project, tx.actor)
    notify(tx, operation, {r.uuid: r.host for r in rows}, moment)


def go_on(tx: Transaction, operation: Operation, hosts: t.Mapping[str, str | None]) -> None:
    """The hosts of these instances begin to work: they are in the operation's last task_state, and its ``start`` is notified.

    :arg hosts: uuid -> the host of the instance
    """
    on_change, rule = tx.context.notify_on_state_change, operation.rule
    instances.swap(tx, sorted(hosts), [rule.during], tx.run.id, on_change, rule.then[:-1], task_state=operation.during)
    notify(tx, operation, hosts, "start")


def _end_others(tx: Transaction, operation: Operation, rows: t.Sequence[Instance]) -> None:
    """Close the journal of what is at work on these instances, where the operation takes its place (a hard reboot, a deletion)."""
    if operation.during is None:
        return
    places = operation.rule.task_states
    replaced = [
        r
        for r in rows
        if r.task_state is not None
        and (r.task_state in places if places is not None else not operation.is_begun(r.task_state))
    ]
    if replaced:
        end_others(tx, operation, replaced)


def end_others(tx: Transaction, operation: Operation, rows: t.Sequence[Instance]) -> None:
    """Close the journal of what is at work on these instances: the operation has taken its place."""
    for name, rule in states.ACTIONS.items():
        uuids = [r.uuid for r in rows if rule.is_in(r.task_state)]
        history.fail_events(tx, dict.fromkeys(uuids, "%s took its place" % operation.called), name)
        history.finish_actions(tx, uuids, rule.journalled or rule.known_as or name, history.ERROR)
    if any(rule.makes_image and rule.is_in(r.task_state) for rule in states.ACTIONS.values() for r in rows):
        from ..images import dead_images  # few runs die while they make images

        dead_images.end_dead(tx)


def notify(tx: Transaction, operation: Operation, hosts: t.Mapping[str, str | None], moment: str) -> None:
    """Notify of a moment of the operation, if it has notifications. :arg hosts: uuid -> the host where the instance is then"""
    if operation.notification:
        payloads = {u: {"host": host} for u, host in hosts.items()}
        history.notify_each(tx, payloads, "compute.instance.%s.%s" % (operation.notification, moment))


def check_quota(tx: Transaction, rows: t.Sequence[Instance], limits: t.Mapping[str, t.Any] | None) -> None:
    """Check that these instances, which do not count, may count again.

    :raises OverQuota: they are too many.
    """
    limited = {r.project for r in rows if quotas.limited(limits, r.project)}
    used = instances.usage(tx, limited) if limited else {}
    for project in sorted(limited):
        project_rows = [r for r in rows if r.project == project]
        needed = {
            "instances": len(project_rows),
            "cores": sum(r.vcpus for r in project_rows),
            "ram": sum(r.memory_mb for r in project_rows),
        }
        quotas.check_again(needed, used[project], quotas.limits_of(limits, project), project)


def refuse(refused: t.Sequence[errors.BootflowError]) -> None:
    """Raise the first, with the messages and remedies of the others of its kind; these have the names of their instances."""
    if not refused:
        return
    first = refused[0]
    if isinstance(first, errors.InvalidRequest):
        raise errors.InvalidRequest(_of_each([e for e in refused if isinstance(e, errors.InvalidRequest)]))
    alike = [e for e in refused if type(e) is type(first)]
    remedies: dict[str, list[str]] = {}
    for item in alike:
        remedies.setdefault(item.remedy, []).extend([item.details[WHOSE]] if WHOSE in item.details else [])
    remedy = " ".join("%s: %s" % (some(names), r) if names else r for r, names in remedies.items() if r)
    raise type(first)(message=some(list(dict.fromkeys(e.message for e in alike)), "; "), remedy=remedy)


def _of_each(refused: t.Sequence[errors.InvalidRequest]) -> list[dict[str, t.Any]]:
    """Their errors, each once, with the names of the instances that have it before what it is about."""
    names: dict[tuple[str, str], list[str]] = {}
    error_by_key: dict[tuple[str, str], dict[str, t.Any]] = {}
    for one in refused:
        for error in one.errors:
            key = (str(error.get("path") or ""), str(error["message"]))
            error_by_key.setdefault(key, dict(error))
            names.setdefault(key, []).extend([one.details[WHOSE]] if WHOSE in one.details else [])
    return [{**e, "path": ": ".join(filter(None, (some(names[key]), key[0])))} for key, e in error_by_key.items()]


def some(words: t.Sequence[str], comma: str = ", ") -> str:
    """The first of these words, and how many more there are."""
    more = ["and %d more" % (len(words) - MOST_NAMED)] if len(words) > MOST_NAMED else []
    return comma.join([*words[:MOST_NAMED], *more])


# --- finish -------------------------------------------------------------------------------------------------------------


def finish(tx: Transaction, operation: Operation, outcomes: t.Mapping[str, Outcome]) -> dict[str, errors.BootflowError]:
    """Write the results of all hosts. Returns uuid -> why it failed.

    A failed instance returns to its former state (see vm_state_after), with a fault. An instance that this run no longer
    owns (deleted, or adopted by a run that took this one for dead) is left alone.
    """
    runs.renew(tx)
    failed = {u: o.error for u, o in outcomes.items() if o.error is not None}
    ends: dict[tuple[bool, int, str], list[str]] = {}
    for uuid, outcome in outcomes.items():
        bad, vm_state = uuid in failed, vm_state_after(operation, outcome) or ""
        ends.setdefault((bad, 0 if bad and not vm_state else outcome.power_state, vm_state), []).append(uuid)
    ended: set[str] = set()
    for (bad, power_state, vm_state), uuids in sorted(ends.items()):
        values: dict[str, t.Any] = {} if bad and not vm_state else {"power_state": power_state}
        if vm_state:
            values["vm_state"] = vm_state
        if not bad:
            values.update(operation.ends(tx.now))
        ended |= leave(tx, operation, uuids, **values)
    lost_uuids = set(outcomes) - ended
    done = ended - set(failed)
    if operation.ends_shelving:
        end_shelving(tx, done)
    failed.update(instances.swap_errors(tx, lost_uuids, [operation.during]))
    hosts = instances.hosts_of(tx, {*done, *failed})
    history.add_faults(tx, {u: e for u, e in failed.items() if u not in lost_uuids}, hosts)
    journal(tx, operation, sorted(done), failed, hosts)
    return failed


def end_shelving(tx: Transaction, uuids: t.Collection[str]) -> None:
    """These instances are not shelved any more, if they were."""
    from . import shelved  # few operations end it

    shelved.end(tx, uuids)


def vm_state_after(operation: Operation, outcome: Outcome) -> str | None:
    """The vm_state that an instance gets by the operation; None: it keeps its own."""
    return operation_outcomes.vm_state_after(operation.rule, operation.fails_to, outcome)


def find_lost_instances(
    tx: Transaction, operation: Operation, uuids: t.Collection[str]
) -> dict[str, errors.BootflowError]:
    """uuid -> why this run works no longer on this instance. Writes nothing."""
    own_uuids = instances.working_on(tx, uuids, operation.during) if operation.during else instances.living(tx, uuids)
    return instances.swap_errors(tx, set(uuids) - own_uuids, [operation.during])


def leave(tx: Transaction, operation: Operation, uuids: t.Sequence[str], **values: t.Any) -> set[str]:
    """End the task_state of instances that this run still owns, with ``values`` for the rest of the row. Returns these.

    Where the operation has no task_state it changes nothing in the rows, and owns none.
    """
    if operation.during is None:
        return instances.living(tx, uuids)
    on_change = tx.context.notify_on_state_change
    at = [operation.during, operation.rule.during]
    return instances.swap(tx, uuids, at, tx.run.id, on_change, task_state=None, **values)


def journal(
    tx: Transaction,
    operation: Operation,
    done: t.Sequence[str],
    failed: t.Mapping[str, errors.BootflowError],
    hosts: t.Mapping[str, str | None],
) -> None:
    """Close action and event of these instances, and notify of their end."""
    history.finish_events(tx, done, operation.name, history.SUCCESS)
    history.fail_events(tx, {u: e.in_full for u, e in failed.items()}, operation.name)
    close(tx, operation, {u: hosts.get(u) for u in done}, sorted(failed))
    if operation.notification:
        faults = {u: {"host": hosts.get(u), "fault": e.as_dict()} for u, e in failed.items()}
        history.notify_each(tx, faults, "compute.instance.%s.error" % operation.notification)


def close(
    tx: Transaction, operation: Operation, done: t.Mapping[str, str | None], failed: t.Sequence[str] = ()
) -> None:
    """Close the action of these instances, and notify of the end of finished ones. :arg done: uuid -> host"""
    history.finish_actions(tx, list(done), operation.action)
    history.finish_actions(tx, failed, operation.action, history.ERROR)
    notify(tx, operation, done, "end")
