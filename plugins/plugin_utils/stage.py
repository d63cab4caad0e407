# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stage of the boot on one host: take its builds out of the ledger, work on them, write each outcome back.

One task per host whatever the number of instances; a build that fails never fails its neighbours, and a host that fails
or cannot be reached never fails the play: its builds are failed, undone and rescheduled instead.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import NONE
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds as ledger_builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import failure
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.builds import Build, Stage
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, cleanups, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils import attached_volumes, host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import item_errors

Outcomes = t.Dict[str, t.Optional[errors.BootflowError]]


class StageAction(LedgerAction):
    """Base of the stages: a subclass has STAGE and work()."""

    STAGE: t.ClassVar[Stage]

    def work(self, builds: list[Build]) -> Outcomes:
        """Do the stage for all builds on this host. Returns uuid -> None, or why it failed."""
        raise NotImplementedError

    def finish(self, tx: Transaction, host: str, good: list[Build]) -> list[str]:
        """Record that these builds completed the stage. Returns the uuids that this run no longer owns."""
        return ledger_builds.done(tx, self.STAGE, [b.uuid for b in good])

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        host = self.task_vars["inventory_hostname"]
        ledger = self.open_ledger()
        builds, failed = ledger.transact(ledger_builds.begin, self.STAGE, host)
        if not builds and not failed:
            return {"changed": False, "builds": [], "failed_builds": []}
        outcomes: Outcomes = {}
        if builds:
            with lease_kept(self):
                try:
                    outcomes = self.work(builds)
                except errors.BootflowError as e:
                    outcomes = {b.uuid: e for b in builds}
                except Exception as e:  # any other exception: the next host, and never a failed play
                    outcomes = dict.fromkeys((b.uuid for b in builds), self.unexpected(e))
        good = [b for b in builds if outcomes.get(b.uuid) is None]
        bad = {
            b.uuid: t.cast(errors.BootflowError, outcomes[b.uuid]) for b in builds if outcomes.get(b.uuid) is not None
        }
        failed.update(self._undo([b for b in builds if b.uuid in bad], bad))

        def write(tx: Transaction) -> tuple[list[str], dict[str, str]]:
            lost = self.finish(tx, host, good)
            return lost, failure.fail_builds(tx, host, self.STAGE.name, failed)

        lost, results = ledger.transact(write)
        if lost:
            # A delete or another run adopted it meanwhile, and may have checked the host before we made something there.
            late = [b for b in good if b.uuid in lost]
            problems = self._clean(late)

            def remember(tx: Transaction) -> None:
                for build in late:
                    if build.uuid in problems:
                        cleanups.add(tx, host, build.uuid, build.row.domain_name, problems[build.uuid].message)

            ledger.transact(remember)
        names = {b.uuid: b.row.display_name for b in builds}
        return {
            "changed": True,
            "builds": [{"uuid": b.uuid, "name": b.row.display_name} for b in good if b.uuid not in lost],
            "failed_builds": [
                {"uuid": u, "name": names.get(u, u), "outcome": results[u], "error": failed[u].error.as_dict()}
                for u in sorted(results)
            ],
        }

    def _undo(self, builds: list[Build], causes: t.Mapping[str, errors.BootflowError]) -> dict[str, failure.Failed]:
        if not builds:
            return {}
        problems = self._clean(builds)
        found = {}
        for build in builds:
            problem = problems.get(build.uuid)
            away = isinstance(problem, (errors.HostUnreachable, errors.HypervisorUnavailable))
            away = away or isinstance(causes[build.uuid], errors.HostTimeout)  # it is left out of the next rounds
            found[build.uuid] = failure.Failed(
                causes[build.uuid],
                cleaned=problem is None,
                cleanup_reason=problem.message if problem else "",
                unreachable=away,
            )
        return found

    def _clean(self, builds: list[Build]) -> dict[str, errors.BootflowError]:
        """Remove what was made on the host for these builds. Returns uuid -> why that failed."""
        # A build that failed before its guest ran has written nothing to its whole disks.
        return clean_host(self, [{"uuid": b.uuid, "name": b.row.domain_name, "ran": False} for b in builds])


def clean_host(action: LedgerAction, instances: list[dict[str, t.Any]]) -> dict[str, errors.BootflowError]:
    """Remove domain, disks and config drive of these instances from the current host. Returns uuid -> why that failed.

    Their whole disks here are cleared, and their volumes disconnected after their guest is gone. The ledger is read for
    both now: what an instance no longer has may belong to another.
    """
    if not instances:
        return {}
    host = action.task_vars["inventory_hostname"]
    uuids = [i["uuid"] for i in instances]
    ledger = action.open_ledger()
    try:
        disks, volumes = ledger.inspect(_had_on, host, uuids)
        problems = _remove_instances(action, instances, disks)
        volumes = [v for v in volumes if v.row.instance_uuid not in problems]
        if volumes:
            # A guest that still exists keeps the session, which it may share with another.
            gone = [uuid for uuid in uuids if uuid not in problems]
            shared = ledger.inspect(attachments.shared_on, host, [a.volume_id for a in volumes], gone)
            left = attached_volumes.disconnect(action, ledger, volumes, shared)
            for volume in volumes:
                if volume.id in left:
                    problems.setdefault(volume.row.instance_uuid, left[volume.id])
    finally:
        ledger.close()
    return problems


def _had_on(
    tx: Transaction, host: str, uuids: t.Sequence[str]
) -> tuple[dict[str, list[dict[str, t.Any]]], list[attached_volumes.Attached]]:
    """Whole disks and attachments."""
    found = attached_volumes.load(tx, uuids)
    volumes = [a for group in found.values() for a in group if a.row.attached_host == host]
    volumes = [a for a in volumes if a.row.connection != NONE]
    return claims.disks_on(tx, host, uuids), volumes


def _remove_instances(
    action: LedgerAction, instances: list[dict[str, t.Any]], disks: t.Mapping[str, list[dict[str, t.Any]]]
) -> dict[str, errors.BootflowError]:
    arguments = {
        **host_settings.cleanup_arguments(action),
        "instances": [{**i, "disks": disks.get(i["uuid"], [])} for i in instances],
    }
    try:
        # Clearing a large disk takes hours.
        clears = bool(disks or arguments["volume_group"])
        with lease_kept(action) if clears else contextlib.nullcontext():
            result = action.run_module("instance_cleanup", arguments)
    except errors.BootflowError as e:
        return {i["uuid"]: e for i in instances}
    except Exception as e:  # nothing of them counts as removed, and the play goes on
        return dict.fromkeys((i["uuid"] for i in instances), action.unexpected(e))
    return item_errors(result, [i["uuid"] for i in instances])


@contextlib.contextmanager
def lease_kept(action: LedgerAction) -> t.Iterator[None]:
    """Renew the run's lease while a long step works, however long an image takes to come."""
    context = action.context()
    over = threading.Event()

    def renew() -> None:
        while not over.wait(context.lease_seconds / 4):
            with contextlib.suppress(errors.BootflowError):  # the next one tries again; a lease outlasts three misses
                ledger = database.open_ledger(action.options["ledger_url"], check_revision=False)
                try:
                    ledger.for_run(context).transact(runs.renew)
                finally:
                    ledger.close()

    thread = threading.Thread(target=renew, daemon=True, name="bootflow-lease")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
