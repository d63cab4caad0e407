# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.ledger."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import MAINTENANCE, PLAYBOOKS, RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.times import utc
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import dead_runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import backup, commits, sqlite_file
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import sqlite_path
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.identity import ledger_id
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils import ahead, host_settings, tables, variable_names
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import RUN_LIMIT, LedgerAction

ahead.load_action_after_the_first()


class _Found(t.NamedTuple):
    """A ledger as the first task of a playbook finds it; of one that has to be upgraded only what is to be done."""

    todo: list[dict[str, str]]
    revision: str | None
    complete: bool = False
    old_marks: bool = False
    held: frozenset[str] = frozenset()  # hosts that have to report before anything begins
    id: str | None = None


def _found(tx: Transaction, url: str) -> _Found:
    todo = runner.plan(tx, url)
    if todo:
        return _Found(todo, runner.current_revision(tx))
    complete = runner.check_complete(tx, url)
    held = dead_runs.hosts_to_ask(tx).union(attachments.hosts_to_clean_first(tx))
    return _Found(todo, runner.HEAD, complete, complete and commits.any_old(tx), frozenset(held), ledger_id(tx))


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "state": {"type": "str", "choices": ["migrated", "backup", "purged"], "default": "migrated"},
        **MAINTENANCE.options(),
        **RUN.options("print_table"),
        "use_reserve": {"type": "bool", "default": False},
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        result: dict[str, t.Any] = {"ledger": str(self.options["ledger_url"])}
        result.update(getattr(self, "_" + self.options["state"])())
        return result

    # --- migrated ---------------------------------------------------------------------------------------------------

    def _migrated(self) -> dict[str, t.Any]:
        self._check_settings()
        self.ports.remember_database(self.options["ledger_url"])
        shown = str(self.options["ledger_url"])
        before = its_id = None
        clean_first: list[str] = []
        if self.options["use_reserve"] and self._reserve(sqlite_file.use_reserve):
            self._display.warning(
                "The disk of the ledger is full: its reserve of %d MiB was given up for this run. Free space there."
                % (sqlite_file.RESERVE // 1024**2)
            )
        try:
            # Not patient: the first task of every playbook reports at once if the server does not answer.
            ledger = self.open_ledger(create=not self.check_mode, check_revision=False, patient=False)
        except errors.LedgerMissing:
            if not self.check_mode:
                raise
            todo = [{"revision": r, "description": runner.description(r)} for r in runner.REVISIONS]
        else:
            found = ledger.inspect(_found, shown)
            todo, before = found.todo, found.revision
            if not self.check_mode:
                if not found.complete:
                    applied = ledger.migrate()
                    todo = [step for step in todo if step["revision"] in applied]
                    found = ledger.inspect(_found, shown)
                self._reserve(sqlite_file.keep_reserve)
                if found.old_marks:
                    ledger.transact(commits.forget_old)
                clean_first = [host for host in self.within_limit(self.compute_hosts()) if host in found.held]
            if not (self.check_mode and todo):
                its_id = found.id
            ledger.close()
        if self.check_mode and todo:
            lines = ["Would bring %s to revision %s:" % (shown, todo[-1]["revision"])]
            lines += ["  %(revision)s  %(description)s" % step for step in todo]
            self._show(lines)
        after = todo[-1]["revision"] if todo else runner.HEAD
        return {
            "changed": bool(todo),
            "ledger_id": its_id,
            "revision": after,
            "applied": [step["revision"] for step in todo],
            "plan": todo,
            "clean_first": clean_first,
            "run_limit": list(self.task_vars["ansible_play_hosts_all"]) if self.options["run_limit"] else None,
            "diff": {
                "before": "revision: %s\n" % before,
                "after": "revision: %s\n" % after,
                "before_header": shown,
                "after_header": shown,
            },
        }

    def _reserve(self, work: t.Callable[[str], bool]) -> bool:
        path = sqlite_path(self.options["ledger_url"].url)
        if path is not None and not self.check_mode:
            with contextlib.suppress(OSError):
                return work(path)
        return False

    def _check_settings(self) -> None:
        """The first task of a playbook: checks variables that it reads directly, and unknown names.

        :raises InvalidRequest: a wrong value
        """
        problems = Problems()
        PLAYBOOKS.check(host_settings.Variables(self), "", problems)
        problems.raise_if_any()
        variable_names.warn(self)

    # --- backup -----------------------------------------------------------------------------------------------------

    def _backup(self) -> dict[str, t.Any]:
        dest = self.options["dest"]
        if not dest:
            raise errors.InvalidInput(
                reason="a backup needs dest", remedy="Name a new file with dest or bootflow_ledger_backup."
            )
        backup.check(self.options["ledger_url"].url, dest)
        ledger = self.open_ledger(check_revision=False)
        try:
            if self.check_mode:
                self._show(["Would copy %s to %s." % (self.options["ledger_url"], dest)])
                return {"changed": True, "dest": dest}
            size = backup.backup(ledger, dest)
            self._show(["Copied %s to %s, %d bytes." % (self.options["ledger_url"], dest, size)])
            return {"changed": True, "dest": dest, "size": size}
        finally:
            ledger.close()

    # --- purged -----------------------------------------------------------------------------------------------------

    def _purged(self) -> dict[str, t.Any]:
        days = self.options["history_retention_days"]
        before = purge.cutoff(time.time(), days)
        if before is None:
            kept = "Nothing is purged: bootflow_history_retention_days is 0, which keeps history for ever."
            self._show([kept])
            return {"changed": False, "purged": {}, "msg": kept}
        ledger = self.open_ledger()
        try:
            counts = ledger.inspect(purge.plan, before) if self.check_mode else purge.purge(ledger, before)
        finally:
            ledger.close()
        lines = ["%s what is older than %s:" % ("Would purge" if self.check_mode else "Purged", utc(before))]
        lines += ["  %8d %s" % (count, name) for name, count in counts.items()] or ["  nothing"]
        self._show(lines)
        return {"changed": bool(counts), "purged": counts}

    def _show(self, lines: t.Sequence[str]) -> None:
        if self.options["print_table"]:
            tables.show(self._display, lines)
