# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What actions share that bring instances to other hosts: the choice of the hosts, stages on the controller and on hosts, and the report.

A playbook runs such an action once for each stage. The controller begins (``check``, ``begin``), hosts do their parts, one task a host, and the
controller ends (``finish``). A stage finds what the stages before it said in the variables that their tasks registered.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.core.instances.power_states import POWER_STATES
from ...module_utils.core.scheduler.columns import Fleet
from ...module_utils.flows.instances.operation import Operation
from ...module_utils.flows.moves.moving_instance import Moving
from ...module_utils.ledger.compute import cleanups, fleet, history, nodes
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.lease import lease_kept
from ..run.ledger_action import CONTROLLER, RUN_SECRET, LedgerAction
from ..run.results import outcome
from ..settings import host_reports, scheduler_settings

Item = t.Dict[str, t.Any]
Items = t.Sequence[t.Mapping[str, t.Any]]
Outcomes = t.Dict[str, t.Dict[str, t.Any]]
Failed = t.Mapping[str, errors.BootflowError]
Stages = t.Mapping[str, t.Callable[[], t.Dict[str, t.Any]]]
StagesOfHost = t.Mapping[str, t.Callable[[str], t.Dict[str, t.Any]]]

#: What to do after a resize or cold migration.
WHAT_NOW = (
    "%s: bootflow.compute.confirm_resize keeps this, bootflow.compute.revert_resize brings back what was. Until then the room of"
    " both is reserved."
)


# --- the choice of hosts ------------------------------------------------------------------------------------------------


def hosts_to_ask(action: LedgerAction, ledger: Ledger, away: t.Collection[str] = ()) -> list[str]:
    """The hosts that should report before hosts are chosen. The ledger gets the settings of the inventory's hosts, but not in check mode.

    :arg away: hosts that are not asked
    """
    configurations = scheduler_settings.configurations(action)
    if not action.check_mode and ledger.inspect(nodes.differing, configurations):
        ledger.transact(nodes.configure, configurations)
    hosts = [h for h in action.hosts_to_use() if h not in away]

    def stale(tx: Transaction) -> list[str]:
        to_clean = cleanups.hosts(tx)
        found = nodes.stale_hosts(tx, hosts, host_settings.facts_age(action.options))
        return found + [h for h in hosts if h in to_clean and h not in found]

    return ledger.inspect(stale)


class Candidates:
    """The hosts that the scheduler chooses from. What the inventory says of them is read before the transaction, for which others wait."""

    def __init__(self, action: LedgerAction):
        self.options = scheduler_settings.scheduler_options(action, action.context().now)
        self._hosts = action.hosts_to_use()
        self._aggregates = scheduler_settings.aggregates_of(action)
        self._variables = scheduler_settings.vars_for_filters(action)
        self._configurations = scheduler_settings.configurations(action) if action.check_mode else {}
        self._reports = host_reports.of_this_run(action) if action.check_mode else {}
        self._rehearses = action.check_mode

    def rehearse(self, tx: Transaction) -> None:
        """Check mode: what hosts reported is in the ledger, until ``tx`` is rolled back."""
        if self._rehearses:
            host_reports.rehearse(tx, self._reports, self._configurations)

    def read(self, tx: Transaction, needs: fleet.Needs) -> Fleet:
        return fleet.read(tx, self._hosts, self._aggregates, self._variables, needs)


# --- the report ---------------------------------------------------------------------------------------------------------


def as_it_is(row: Instance) -> Item:
    """An instance that the operation does nothing with, for the result of the stage ``begin``."""
    return {
        "name": row.display_name,
        "uuid": row.uuid,
        "host": row.host,
        "vm_state": row.vm_state,
        "power_state": row.power_state,
    }


def not_placed(rows: t.Mapping[str, Instance], failed: Failed) -> list[Item]:
    """Instances that no host was found for. :arg rows: of these, and of others"""
    return [{**as_it_is(rows[u]), "error": e.as_dict()} for u, e in failed.items()]


def line_of(unchanged: Item, why: str) -> tuple[t.Any, ...]:
    """A row of the table, for ``more`` of report(). :arg unchanged: see as_it_is()"""
    power = POWER_STATES.get(unchanged["power_state"])
    return unchanged["name"], unchanged["uuid"], None, unchanged["host"], unchanged["vm_state"], power, why


def report(
    action: LedgerAction,
    operation: Operation,
    shown: t.Sequence[Item],
    lost: Items,
    note_of: t.Callable[[Item], str] = lambda item: "",
    more: t.Sequence[t.Sequence[t.Any]] = (),
    back: bool = False,
    before: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """The result of the stage ``finish``, which failed if an instance did. People get its table, if they want one.

    :arg shown: each has its name, uuid, source, destination, host, vm_state, power_state and error. :arg lost: not_placed()
    :arg note_of: what the table says of one of ``shown`` that has no error. :arg more: further rows of it, see line_of()
    :arg back: the instances return to their sources. :arg before: uuid -> the vm_state that check mode tells, too
    """
    if action.options["print_table"]:
        rows: list[t.Sequence[t.Any]] = []
        for i in shown:
            note = i["error"]["code"] if i["error"] else note_of(i)
            ends = (i["destination"], i["source"]) if back else (i["source"], i["destination"])
            was = (before or {}).get(i["uuid"], i["vm_state"]) if action.check_mode else i["vm_state"]
            rows.append((i["name"], i["uuid"], *ends, tables.change(was, i["vm_state"]), _power(i), note))
        rows += [(i["name"], i["uuid"], i["host"], None, i["vm_state"], _power(i), i["error"]["code"]) for i in lost]
        if rows or more or not _is_refused(action):
            tables.show(action.ports.display, _lines(action, operation.name, [*rows, *more]))
    failed = [i for i in (*shown, *lost) if i["error"]]
    listed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i["host"]) for i in failed]
    total = len(shown) + len(lost)
    error = errors.OperationFailed(listed, total, operation=operation.name)
    return outcome(error, changed=len(listed) < total, instances=list(shown))


def _power(item: t.Mapping[str, t.Any]) -> str | None:
    return POWER_STATES.get(item["power_state"]) if item["power_state"] else None


def _is_refused(action: LedgerAction) -> bool:
    """Whether the beginning failed, and told why; the playbook went on."""
    return bool((action.task_vars["hostvars"][CONTROLLER].get("bootflow_move_begun") or {}).get("failed"))


def _lines(action: LedgerAction, name: str, rows: t.Sequence[t.Sequence[t.Any]]) -> list[str]:
    if not rows:
        return ["%s: no instance is selected." % name]
    head = ("INSTANCE", "UUID", "FROM", "TO", "VM_STATE", "POWER_STATE", "NOTE")
    title = "Would %s (nothing is touched):" if action.check_mode else "%s:"
    waiting = [row[0] for row in rows if row[4] == states.RESIZED and not action.check_mode]
    if action.options.get("follow_file"):  # apply confirms them itself
        waiting = []
    return [title % name, *tables.table(head, rows), *([WHAT_NOW % ", ".join(waiting)] if waiting else [])]


# --- stages -------------------------------------------------------------------------------------------------------------


class MoveAction(LedgerAction):
    """An action whose stages hosts take part in on both ends, one task a host and stage. An instance that fails never fails its neighbours."""

    operation: Operation
    begun_as: str  # the variable that the playbook registers what ``begin`` returned as

    def stage(self, on_controller: Stages, on_host: StagesOfHost) -> dict[str, t.Any]:
        """The stage that the task is for. Hosts do nothing in check mode."""
        phase = self.options["phase"]
        if phase in on_controller:
            return on_controller[phase]()
        if self.check_mode:
            return {"changed": False, "skipped": True}
        with lease_kept(self):
            done = on_host[phase](self.task_vars["inventory_hostname"])
            return {"changed": True, "phase": phase, "attempt": self.attempt(), **done}

    def registered(self, name: str, host: str = CONTROLLER) -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"][host].get(name) or {})

    def items(self) -> dict[str, Item]:
        """uuid -> what ``begin`` said of it."""
        return {i["uuid"]: i for i in self.registered(self.begun_as).get("instances", [])}

    def attempt(self) -> int:
        """The number of the round in which instances are tried on hosts, from 1."""
        return int(self.registered(self.begun_as).get("attempt", 1))

    def token(self, what: str) -> str:
        """One that only this run's processes can make, for this run and operation only."""
        return hmac.new(RUN_SECRET, ("%s of %s" % (self.operation.name, what)).encode(), hashlib.sha256).hexdigest()

    def said(self, registered: str, phase: str, host: str, uuid: str) -> dict[str, t.Any]:
        """What a host's task said of an instance; an error where it said nothing."""
        answer = self.registered(registered, host)
        of_now = answer.get("phase") == phase and answer.get("attempt", 1) == self.attempt()
        its = answer.get("outcomes", {}).get(uuid) if of_now else None
        silent = errors.HostUnreachable(host=host, reason="it returned no result")
        return its or {"error": silent.as_dict()}

    def guarded(self, uuids: t.Sequence[str], work: t.Callable[[], tuple[Outcomes, Failed]]) -> Outcomes:
        """uuid -> what ``work`` said of it, or {error}: they fail, never the play."""
        try:
            found, failed = work() if uuids else ({}, {})
        except errors.BootflowError as e:
            found, failed = {}, dict.fromkeys(uuids, e)
        except Exception as e:
            found, failed = {}, dict.fromkeys(uuids, self.unexpected(e))
        frames = {u: e.details["traceback"] for u, e in failed.items() if e.details.get("traceback")}
        if frames:
            with contextlib.suppress(errors.BootflowError), contextlib.closing(self.open_ledger()) as ledger:
                ledger.transact(history.note, frames, self.operation.name)
        return {**found, **{u: {**found.get(u, {}), "error": e.as_dict()} for u, e in failed.items()}}


def item_of(m: Moving) -> Item:
    """What all stages must know of an instance."""
    return {
        "uuid": m.uuid,
        "name": m.row.display_name,
        "domain": m.row.domain_name,
        "source": m.move.source_compute,
        "destination": m.move.dest_compute,
        "vm_state": m.row.vm_state,
        "made_for": m.made_for,
    }
