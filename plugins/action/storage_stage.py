# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.storage_stage."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.request import CATALOGUE
from ..module_utils.flows.attachments import exports
from ..module_utils.flows.volumes import work as volume_work
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.volumes import storage_exports, storage_volumes

# What this run made of a volume that was deleted meanwhile goes in a second turn; a third would be another run's doing.
MOST_TURNS = 3


class ActionModule(LedgerAction):
    ARGUMENTS = CATALOGUE.options("images")

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown before."}
        self.host = self.task_vars["inventory_hostname"]
        self.ledger = self.open_ledger()
        self.result: dict[str, t.Any] = {
            "changed": False,
            "unexported": [],
            "done": [],
            "failed_items": {},
            "rescheduled": [],
            "exported": [],
            "export_errors": {},
        }
        # In this order: a volume goes after its target, and is exported after it was made.
        self._end_exports()
        self._volumes()
        self._make_exports()
        return self.result

    def _end_exports(self) -> None:
        ending = self.ledger.transact(exports.to_unexport, self.host)
        if not ending:
            return
        with lease_kept(self):
            ended = storage_exports.end_exports(self, ending)
        self.ledger.transact(exports.unexported, self.host, ended)
        self.result["unexported"] = sorted(i for i, problem in ended.items() if problem is None)
        self._tell(ended)

    def _volumes(self) -> None:
        for _turn in range(MOST_TURNS):
            works = self.ledger.transact(volume_work.begin, self.host)
            if not works:
                return
            with lease_kept(self):
                results = storage_volumes.work_on(self, works)
            finished = self.ledger.transact(volume_work.finish, self.host, results)
            self.result["changed"] = True
            self.result["done"] += finished.done
            self.result["rescheduled"] += finished.rescheduled
            self.result["failed_items"].update({i: e.as_dict() for i, e in finished.failed.items()})
            for work in works:
                problem = results[work.backend].error
                if problem is not None:
                    self._display.warning("%s, backend %s: %s" % (self.host, work.backend, problem.message))
            if not finished.lost_items:
                return

    def _make_exports(self) -> None:
        wanted = self.ledger.transact(exports.to_export, self.host)
        if not wanted:
            return
        with lease_kept(self):
            made = storage_exports.make_exports(self, wanted)
        self.ledger.transact(exports.exported, self.host, made)
        problems = {i: r for i, r in made.items() if isinstance(r, errors.BootflowError)}
        self.result["exported"] = sorted(set(made) - set(problems))
        self._tell(problems)

    def _tell(self, problems: t.Mapping[str, errors.BootflowError | None]) -> None:
        self.result["changed"] = True
        for attachment_id, problem in sorted(problems.items()):
            if problem is not None:
                self.result["export_errors"][attachment_id] = problem.as_dict()
                self._display.warning("%s, attachment %s: %s" % (self.host, attachment_id, problem.message))
