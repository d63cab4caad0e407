# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine of actions that a playbook calls once for each stage: on the controller, and on hosts between.

The controller begins, hosts do their parts, one task a host and stage, and the controller ends. A stage leaves its result in the folder of the run,
where later stages read it. An instance that fails never fails the others of its host, nor the play.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.verdicts.answer import Answer, silence
from ...module_utils.ledger.compute import history
from ...module_utils.ledger.db.transaction import Transaction
from . import tables
from .firewall import filter_handover
from .lease import lease_kept
from .ledger_action import RUN_SECRET, LedgerAction
from .results import outcome
from .stage_results import CONTROLLER, StageResults, shown

Result = t.Dict[str, t.Any]  # of a task
Item = t.Dict[str, t.Any]
Items = t.Sequence[t.Mapping[str, t.Any]]
Outcomes = t.Dict[str, t.Dict[str, t.Any]]
Failed = t.Mapping[str, errors.BootflowError]


class Stages:
    """The stages of an action. A subclass has their work.

    :arg family: the name of the action, which its stages share
    """

    called = ""  # the operation, for people: as its playbook is called
    event = ""  # the event of the journal that gets tracebacks; "": none
    begins = "begin"  # the stage that returns the instances
    #: Stages whose tasks return their whole results, which people read.
    returns: t.Collection[str] = ("finish",)
    #: Stage of the controller -> the stage whose result it replaces.
    replaces: t.Mapping[str, str] = {}
    #: Stage of hosts -> the field of an item that names the host that answers in it.
    answered_by: t.Mapping[str, str] = {}
    rehearses_on_hosts = False  # hosts are asked in check mode, too
    #: Stage of the controller -> the field of its result with the hosts that may start guests, or plug interfaces in, before its next stage.
    starts: t.Mapping[str, str] = {}
    keeps_lease = True  # hosts work on what the run owns in the ledger

    def __init__(self, action: LedgerAction, family: str):
        self.action = action
        self.options = action.options
        self.results = StageResults(action, family)

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        """The stages of the controller."""
        return {}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        """The stages of hosts. Each gets the name of its host."""
        return {}

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        stage = self.options["phase"]
        on_controller = self.on_controller()
        if stage in on_controller:
            return self._run_on_controller(stage, on_controller[stage])
        if self.action.check_mode and not self.rehearses_on_hosts:
            return {"changed": False, "skipped": True}
        host = self.action.task_vars["inventory_hostname"]
        with lease_kept(self.action) if self.keeps_lease else contextlib.nullcontext():
            done = self.on_hosts()[stage](host)
        self.results.leave(stage, host, {**done, **self.mark(stage)})
        return shown({"changed": True, **done})

    def _run_on_controller(self, stage: str, work: t.Callable[[], Result]) -> Result:
        filter_handover.collect(self.action)
        if stage == self.begins:
            done = self.results.begin(stage, work)
        else:
            done = work()
            self.results.leave(self.replaces.get(stage, stage), CONTROLLER, done)
        if stage in self.starts:
            filter_handover.give(self.action, done.get(self.starts[stage]) or ())
        return done if stage in self.returns else shown(done)

    # --- results of earlier stages --------------------------------------------------------------------------------------

    def result(self, stage: str, host: str = CONTROLLER) -> t.Mapping[str, t.Any]:
        """Return the result of ``stage`` on ``host``; empty where a host has none, or nothing was begun.

        :raises InvalidInput: a stage of the controller has none: its task was left out
        """
        if stage == self.begins:
            return self.results.begun(stage)
        result = self.results.read(stage, host)
        if result is None and host == CONTROLLER and not self.begin_failed():
            raise self.results.missing(stage)
        return result or {}

    def begin_failed(self) -> bool:
        """Whether the first stage failed, and the playbook continued."""
        return bool(self.result(self.begins).get("failed"))

    def items(self) -> dict[str, Item]:
        """Return the items of the first stage by the instances' UUIDs."""
        return {i["uuid"]: i for i in self.result(self.begins).get("instances") or []}

    def items_on(self, host: str, field: str) -> list[Item]:
        """Return the items whose ``field`` names ``host``."""
        return [i for i in self.items().values() if i[field] == host]

    def attempt(self) -> int:
        """Return the number of the round in which instances are tried on hosts, from 1."""
        return int(self.result(self.begins).get("attempt", 1))

    def mark(self, stage: str) -> dict[str, t.Any]:
        """Return the fields that distinguish the result of a host from results of other stages and rounds."""
        return {"phase": stage, "attempt": self.attempt()}

    def is_current(self, result: t.Mapping[str, t.Any], stage: str) -> bool:
        """Whether a host's result is of this stage and round."""
        return result.get("phase") == stage and result.get("attempt", 1) == self.attempt()

    def answers(self, stage: str, items: t.Mapping[str, Item] | None = None) -> dict[str, Answer]:
        """Return what hosts answered of items in ``stage``, by UUID: silence() where a host answered nothing. :arg items: None: all"""
        if items is None:
            items = self.items()
        field = self.answered_by[stage]
        results = {host: self.result(stage, host) for host in sorted({str(i[field]) for i in items.values()})}
        outcomes = {h: r.get("outcomes") or {} for h, r in results.items() if self.is_current(r, stage)}
        return {u: outcomes.get(i[field], {}).get(u) or silence(i[field]) for u, i in items.items()}

    # --- the ledger -----------------------------------------------------------------------------------------------------

    def lost_in(self, tx: Transaction, uuids: t.Collection[str]) -> Failed:
        """Return why instances are no longer this run's, by UUID."""
        return {}

    def find_lost(self, uuids: t.Iterable[str]) -> Failed:
        """Return why instances are no longer this run's, by UUID: nothing is done with them."""
        wanted = sorted(uuids)
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(self.lost_in, wanted) if wanted else {}

    def token(self, purpose: str) -> str:
        """Return a token that only processes of this run can make, for this run and operation only."""
        return hmac.new(RUN_SECRET, ("%s of %s" % (self.called, purpose)).encode(), hashlib.sha256).hexdigest()

    def guarded(self, uuids: t.Sequence[str], work: t.Callable[[], tuple[t.Mapping[str, t.Any], Failed]]) -> Outcomes:
        """Do ``work`` for instances: where it fails they fail, never the play.

        :arg work: returns the outcomes of instances and the errors of instances, by UUID
        Returns the outcomes, with the errors in them. Tracebacks of unexpected errors are in the journal.
        """
        outcomes: t.Mapping[str, t.Any] = {}
        failed: Failed = {}
        try:
            if uuids:
                outcomes, failed = work()
        except errors.BootflowError as e:
            failed = dict.fromkeys(uuids, e)
        except Exception as e:
            failed = dict.fromkeys(uuids, self.action.unexpected(e))
        self.journal_tracebacks(failed)
        return {**outcomes, **{u: {**outcomes.get(u, {}), "error": e.as_dict()} for u, e in failed.items()}}

    def journal_tracebacks(self, failed: Failed) -> None:
        """Write the tracebacks of unexpected errors to the journal."""
        frames = {u: e.details["traceback"] for u, e in failed.items() if e.details.get("traceback")}
        if frames and self.event and not self.action.check_mode:
            with contextlib.suppress(errors.BootflowError), contextlib.closing(self.action.open_ledger()) as ledger:
                ledger.transact(history.note, frames, self.event)

    # --- the end --------------------------------------------------------------------------------------------------------

    def table(self, head: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]], more: t.Sequence[str] = ()) -> None:
        """Print the table of the instances, if the person wants one. :arg more: lines below it"""
        if not self.options["print_table"]:
            return
        lines = ["%s: no instance is selected." % self.called]
        if rows:
            title = "Would %s (nothing is touched):" if self.action.check_mode else "%s:"
            lines = [title % self.called, *tables.table(head, rows), *more]
        elif self.begin_failed():  # its error was reported, and the playbook continued
            return
        tables.show(self.action.ports.display, lines)

    def finish(
        self, items: Items, shown: Items | None = None, host: str = "host", changed: bool | None = None
    ) -> Result:
        """Return the result of the last task, which failed if an instance did.

        :arg shown: the instances of the result; None: ``items``. :arg host: the field of an item that names its host
        :arg changed: None: whether an instance did not fail
        """
        failed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i[host]) for i in items if i["error"]]
        error = errors.OperationFailed(failed, len(items), operation=self.called)
        is_changed = len(failed) < len(items) if changed is None else changed
        return outcome(error, changed=is_changed, instances=list(items if shown is None else shown))
