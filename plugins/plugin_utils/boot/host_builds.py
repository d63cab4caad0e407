# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builds of a boot on a host.

One task per host for any number of instances; a build that fails never fails its neighbours, and a host that fails
or cannot be reached never fails the play: its builds are failed, undone and rescheduled instead.

Where one module does all of a build, the ledger learns of the stages afterwards; else it learns of a stage before it begins.
"""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.request.guest_data import SecretsOfRequest
from ...module_utils.flows.boot import builds as ledger_builds
from ...module_utils.flows.boot.builds import BLOCK_DEVICE_MAPPING, NETWORKING, Build, Stage
from ...module_utils.flows.boot.failure import Failed
from ...module_utils.flows.instances.cleanup import left_behind
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_work, handover
from ..builds.build_parts import image_of
from ..operations.cleaning import clean_host
from ..relay import boot_images
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction

Result = t.Dict[str, t.Any]  # of a task


class _Boot(build_work.BuildWork):
    """Builds of a boot, whose stages are in the ledger."""

    def run(self) -> None:
        refused = boot_images.collect(self.action)
        unusable = {b.uuid: refused[image_of(b)] for b in self.builds.values() if image_of(b) in refused}
        self._fail(unusable, BLOCK_DEVICE_MAPPING)
        super().run()

    def reach(self, stage: Stage, uuids: t.Collection[str]) -> t.Collection[str]:
        hosts = dict.fromkeys(uuids, self.host)
        return self.action.open_ledger().transact(ledger_builds.reach, stage, hosts, self.passed)


class HostBuilds:
    """The builds of the current host."""

    work: _Boot
    stage_of: dict[str, Stage]  # of builds, by UUID

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options
        self.host = action.task_vars["inventory_hostname"]

    def run(self) -> Result:
        """Build the instances, and undo failed builds. Returns the result of the task."""
        given = handover.take(self.action, self.host)
        builds = [] if given is None else given.builds
        failed: dict[str, Failed] = {}
        if given is None or given.more:
            begun, failed = self.action.open_ledger().transact(ledger_builds.begin, self.host)
            builds = builds + begun
        if not builds and not failed:
            return {"changed": False, "builds": [], "failed_builds": []}
        secrets_of = SecretsOfRequest(self.options["instances"], self.options["project"]).guest_secrets
        self.work = _Boot(self.action, builds, self.options["images"], secrets_of)
        self.stage_of = {**self.work.stage_of, **dict.fromkeys(failed, NETWORKING)}
        with lease_kept(self.action):
            if given is not None:
                self._leave_to_others(given)
            self.work.run()
            self.stage_of.update(self.work.stage_of)
            failed.update(self._undo([self.work.builds[uuid] for uuid in self.work.problems]))
            if given is not None and given.later and not failed and not self.work.lost_uuids:
                handover.leave(self.action, self.host, self.work.ended.values())
                return self._result({}, {})
            return self._result(self._write(failed), failed)

    def _leave_to_others(self, given: handover.Given) -> None:
        """Leave out builds that another run took over: they were handed over before this run stood still for longer than its lease."""
        if given.builds and not self.action.lease.holds(self.action.context().now, read_at=given.at):
            uuids = {b.uuid for b in given.builds}
            own = self.action.open_ledger().inspect(instances.working_on, uuids, NETWORKING.task_state)
            self.work.lost_uuids |= uuids - own

    def _result(self, outcomes: t.Mapping[str, str], failed: t.Mapping[str, Failed]) -> Result:
        names = {uuid: b.row.display_name for uuid, b in self.work.builds.items()}
        return {
            "changed": True,
            "builds": [
                {"uuid": u, "name": names[u], "stages": self.work.stage_seconds(u)}
                for u in self.work.ended
                if u not in self.work.lost_uuids
            ],
            "failed_builds": [
                {
                    "uuid": u,
                    "name": names.get(u, u),
                    "outcome": outcomes[u],
                    "stage": self.stage_of[u].name,
                    "error": failed[u].error.as_dict(),
                }
                for u in sorted(outcomes)
            ],
        }

    def _write(self, failed: t.Mapping[str, Failed]) -> dict[str, str]:
        """Write the outcomes of all builds. Returns the results of failed builds."""
        ledger = self.action.open_ledger()
        ended = list(self.work.ended.values())
        at = {uuid: self.stage_of[uuid] for uuid in failed}
        lost_uuids, outcomes = ledger.transact(ledger_builds.finish, self.host, ended, failed, at, self.work.passed)
        self.work.lost_uuids |= set(lost_uuids)
        if self.work.lost_uuids:
            # A delete or another run adopted it meanwhile, and may have checked the host before we made something there.
            late = [self.work.builds[uuid] for uuid in sorted(self.work.lost_uuids)]
            problems = self._clean(late)

            def remember(tx: Transaction) -> None:
                for build in late:
                    if build.uuid in problems:
                        left_behind(tx, build.uuid, self.host, problems[build.uuid].message)

            ledger.transact(remember)
        return outcomes

    # --- undo ---------------------------------------------------------------------------------------------------------

    def _undo(self, builds: list[Build]) -> dict[str, Failed]:
        """Clean the host of failed builds. Returns their failures."""
        if not builds:
            return {}
        problems = self._clean(builds)
        failures = {}
        for build in builds:
            problem, cause = problems.get(build.uuid), self.work.problems[build.uuid]
            away = isinstance(problem, (errors.HostUnreachable, errors.HypervisorUnavailable))
            away = away or isinstance(cause, errors.HostTimeout)  # it is left out of the next rounds
            failures[build.uuid] = Failed(
                cause,
                cleaned=problem is None,
                cleanup_reason=problem.message if problem else "",
                unreachable=away,
            )
        return failures

    def _clean(self, builds: list[Build]) -> dict[str, errors.BootflowError]:
        """Remove from the host all parts of these builds. Returns UUID -> why that failed."""
        # A build that failed before its guest ran has written nothing to its whole disks.
        return clean_host(
            self.action, [{"uuid": b.uuid, "name": b.row.domain_name, "ran": False} for b in builds]
        ).problems
