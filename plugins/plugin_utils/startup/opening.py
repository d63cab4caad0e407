# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger as the first task of a playbook opens it: created or upgraded where that is due, the settings of the run checked."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.core.settings.run import PLAYBOOKS
from ...module_utils.flows.recovery import dead_runs
from ...module_utils.ledger.db import clocks, commits, sqlite_file
from ...module_utils.ledger.db.address import sqlite_path
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.migrations import runner
from ...module_utils.ledger.plans import plans
from ...module_utils.ledger.schema.identity import ledger_id
from ...module_utils.ledger.storage import attachments
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction
from ..run.run_lease import TRUSTED
from ..run.stage_results import CONTROLLER, StageResults
from ..settings import variable_names

NOTICED = 1.0  # second by which clocks differ


class _LedgerState(t.NamedTuple):
    """A ledger as the first task of a playbook finds it; of one that has to be upgraded only what is to be done."""

    todo: list[dict[str, str]]
    revision: str | None
    complete: bool = False
    old_marks: bool = False
    held: frozenset[str] = frozenset()  # hosts that have to report before anything begins
    id: str | None = None
    ahead: float = 0.0  # see clocks.ahead()
    expired_plans: bool = False  # plans whose time is over still hold their places


def _read_state(tx: Transaction, url: str) -> _LedgerState:
    ahead = clocks.ahead(tx)
    todo = runner.plan(tx, url)
    if todo:
        return _LedgerState(todo, runner.current_revision(tx), ahead=ahead)
    complete = runner.check_complete(tx, url)
    held = dead_runs.hosts_to_ask(tx).union(attachments.hosts_to_clean_first(tx))
    return _LedgerState(
        todo,
        runner.HEAD,
        complete,
        complete and commits.any_old(tx),
        frozenset(held),
        ledger_id(tx),
        ahead,
        plans.any_expired(tx),
    )


def opened(action: LedgerAction, use_reserve: bool = False) -> dict[str, t.Any]:
    """Return the result of the module bootflow.compute.ledger. In check mode nothing is written.

    :arg use_reserve: give up the file that keeps room for the ledger, if its disk is full.
    :raises InvalidRequest: a setting is wrong. :raises BootflowError: the ledger cannot be opened, or is of a newer version.
    """
    _check_settings(action)
    action.ports.remember_database(action.options["ledger_url"])
    plan_settings = host_settings.values(action, PLANS)
    with_plan = plan_settings.plan is not None or plan_settings.plan_out is not None
    if with_plan:
        from ..plans import chosen  # of few runs

        chosen.begin(action)
    shown = str(action.options["ledger_url"])
    before = its_id = None
    ask: list[str] = []
    if use_reserve and _of_file(action, sqlite_file.use_reserve):
        action.ports.display.warning(
            "The disk of the ledger is full: its reserve of %d MiB was given up for this run. Free space there."
            % (sqlite_file.RESERVE // 1024**2)
        )
    try:
        # Not patient: the first task of every playbook reports at once if the server does not answer.
        ledger = action.open_ledger(create=not action.check_mode, check_revision=False, patient=False)
    except errors.LedgerMissing:
        if not action.check_mode or with_plan:
            raise
        todo = runner.plan_of_new()
    else:
        state = ledger.inspect(_read_state, shown)
        _check_clock(action, state.ahead)
        todo, before = state.todo, state.revision
        if not action.check_mode:
            if not state.complete:
                applied = ledger.migrate()
                todo = [step for step in todo if step["revision"] in applied]
                state = ledger.inspect(_read_state, shown)
            if state.expired_plans:
                from ...module_utils.flows.plans import held as held_plans  # of few runs

                ledger.transact(held_plans.expire)
                state = ledger.inspect(_read_state, shown)
            _of_file(action, sqlite_file.keep_reserve)
            if state.old_marks:
                ledger.transact(commits.forget_old)
            ask = [host for host in action.within_limit(action.compute_hosts()) if host in state.held]
        if with_plan:
            of_plan = chosen.hosts_to_ask(action, ledger)
            ask += [host for host in of_plan if host not in ask]
        if not (action.check_mode and todo):
            its_id = state.id
        ledger.close()
    after = runner.HEAD
    if action.options["print_table"] and (todo or action.options.get("print_revision")):
        tables.show(action.ports.display, _lines(shown, before, after, todo, action.check_mode))
    limit = list(action.task_vars["ansible_play_hosts_all"]) if action.options["run_limit"] else None
    of_ledger = {"ledger": shown, "ledger_id": its_id}
    StageResults(action, "ledger").leave("open", CONTROLLER, {"ask": ask, "run_limit": limit, **of_ledger})
    return {
        "changed": bool(todo),
        "ledger_id": its_id,
        "revision": after,
        "applied": [step["revision"] for step in todo],
        "plan": todo,
        "ask": ask,
        "run_limit": limit,
        "diff": {
            "before": "revision: %s\n" % before,
            "after": "revision: %s\n" % after,
            "before_header": shown,
            "after_header": shown,
        },
    }


def _lines(
    shown: str, before: str | None, after: str, todo: t.Sequence[t.Mapping[str, str]], rehearsal: bool
) -> list[str]:
    """Return lines on what was done to the ledger, which is always named: a person may have meant another one."""
    if not todo:
        return ["The ledger %s is at revision %s, the newest." % (shown, after)]
    if before is None:
        return ["%s the ledger %s, revision %s." % ("Would create" if rehearsal else "Created", shown, after)]
    did = "Would upgrade" if rehearsal else "Upgraded"
    lines = ["%s the ledger %s from revision %s to %s:" % (did, shown, before, after)]
    return lines + ["  %(revision)s  %(description)s" % step for step in todo]


def _check_clock(action: LedgerAction, ahead: float) -> None:
    """:raises ClocksDiffer: by more than a run trusts what it read beyond its lease, unless nothing is written."""
    if abs(ahead) <= NOTICED:
        return
    which, allowed = "ahead of" if ahead > 0 else "behind", action.context().lease_seconds * TRUSTED
    if abs(ahead) > allowed and not action.check_mode:
        shown = str(action.options["ledger_url"])
        raise errors.ClocksDiffer(seconds=abs(ahead), which=which, url=shown, allowed=allowed)
    action.ports.display.warning(
        "The clock of this controller is %d s %s that of the ledger's server: what a host reports can be taken for older or newer than it is."
        " Synchronize both clocks." % (abs(ahead), which)
    )


def _of_file(action: LedgerAction, work: t.Callable[[str], bool]) -> bool:
    path = sqlite_path(action.options["ledger_url"].url)
    if path is not None and not action.check_mode:
        with contextlib.suppress(OSError):
            return work(path)
    return False


def _check_settings(action: LedgerAction) -> None:
    """Variables that playbooks read directly, and unknown names. :raises InvalidRequest: a wrong value"""
    problems = Problems()
    PLAYBOOKS.check(host_settings.Variables(action), "", problems)
    problems.raise_if_any()
    variable_names.warn(action)
