# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of guests on the current host: attached, detached and extended, as the ledger has them to be."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...module_utils.core import errors
from ...module_utils.core.amounts import GIB
from ...module_utils.flows.attachments import life
from ...module_utils.flows.boot import builds
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import attach as changes
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.compute.instances import PlacedInstance
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..builds import domain_builder
from ..run import host_settings
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..run.stage_results import StageResults
from ..volumes import attached_volumes
from ..volumes.attached_volumes import Attached, Problems
from .volume_swaps import VolumeSwapsOfHost


@dataclass
class Due:
    """The attachments in the ledger that the current host has to change."""

    attach: list[Attached]
    detach: list[Attached]
    grown: list[Attached]
    guests: dict[str, Build]  # of what is to be attached
    volumes: dict[str, list[Attached]]  # all of these guests


class AttachmentsOfHost:
    """The attachments that the ledger has for the current host, in one task."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.host: str = action.task_vars["inventory_hostname"]
        self.ledger = action.open_ledger()

    def work_on_host(self) -> dict[str, t.Any]:
        swaps = VolumeSwapsOfHost(self.action, self.ledger, self._run_disks)
        problems = swaps.work_on_host()
        work = self.ledger.inspect(_work_of, self.host)
        done: dict[str, list[str]] = {"attached": [], "detached": [], "extended": [], "swapped": sorted(swaps.swapped)}
        if work.attach or work.detach or work.grown:
            with lease_kept(self.action):
                for name, due_attachments, step in (
                    ("detached", work.detach, self._detach),
                    ("attached", work.attach, self._attach),
                    ("extended", work.grown, self._extend),
                ):
                    if due_attachments:
                        failed = step(work)
                        problems.update(failed)
                        done[name] = sorted(a.volume_id for a in due_attachments if a.id not in failed)
        volume_ids = {**swaps.volume_ids, **{a.id: a.volume_id for a in work.attach + work.detach + work.grown}}
        for attachment_id, problem in sorted(problems.items()):
            volume_id = volume_ids[attachment_id]
            self.action._display.warning("%s, volume %s: %s" % (self.host, volume_id, problem.message))
        errors_of = {volume_ids[i]: p.as_dict() for i, p in problems.items()}
        StageResults(self.action, "compute_attachments").leave("work", self.host, {"problems": errors_of})
        return {"changed": any(done.values()), **done, "problems": errors_of}

    # --- attach -------------------------------------------------------------------------------------------------------

    def _attach(self, work: Due) -> Problems:
        problems: Problems = {}
        by_node: dict[str, list[Attached]] = {}
        for attachment in work.attach:
            by_node.setdefault(work.guests[attachment.row.instance_uuid].row.node, []).append(attachment)
        for group in by_node.values():
            facts = work.guests[group[0].row.instance_uuid].facts
            problems.update(attached_volumes.connect(self.action, self.ledger, group, facts))
        connected = [a for a in work.attach if a.id not in problems]
        problems.update(self._give_to_guests(work, connected))
        failed = [a for a in work.attach if a.id in problems]
        if failed:
            self._undo(failed)
            self.ledger.transact(changes.failed, {a.id: problems[a.id] for a in failed})
        good = [a.id for a in work.attach if a.id not in problems]
        if good:
            self.ledger.transact(life.attached, good)
        return problems

    def _give_to_guests(self, work: Due, connected_volumes: t.Sequence[Attached]) -> Problems:
        """Give connected volumes to their guests. The attachments are read again, as connecting wrote their paths."""
        now = {a.id: a for a in self.ledger.inspect(_reread_attachments, [a.id for a in connected_volumes])}
        settings = host_settings.read_current_host(self.action)
        disks: list[dict[str, t.Any]] = []
        problems: Problems = {}
        for attachment in connected_volumes:
            build = work.guests[attachment.row.instance_uuid]
            others = [a for a in work.volumes.get(build.uuid, ()) if a.id != attachment.id]
            try:
                current = now[attachment.id]
                xml = domain_builder.volume_xml(build, settings, [*others, current], current)
                disks.append({**_disk(attachment, "attached"), "xml": xml})
            except KeyError:
                problems[attachment.id] = errors.VolumeAttachmentNotFound(filter="id = %s" % attachment.id)
            except errors.BootflowError as e:
                problems[attachment.id] = e
            except Exception as e:  # the attachment fails, never the play
                problems[attachment.id] = self.action.unexpected(e)
        problems.update(self._disks(disks))
        return problems

    def _undo(self, failed: t.Sequence[Attached]) -> None:
        """Undo attachments on the host. The next detach or delete finds the rest in the ledger."""
        begun = self.ledger.inspect(_reread_attachments, [a.id for a in failed])
        problems = self._disks([_disk(a, "detached") for a in begun])
        free = [a for a in begun if a.id not in problems]
        shared = self.ledger.inspect(attached_volumes.shared_on_host, self.host, free)
        problems.update(attached_volumes.disconnect(self.action, self.ledger, free, shared))
        for attachment_id, problem in sorted(problems.items()):
            self.action._display.warning("%s still has attachment %s: %s" % (self.host, attachment_id, problem.message))

    # --- detach -------------------------------------------------------------------------------------------------------

    def _detach(self, work: Due) -> Problems:
        problems = self._disks([_disk(a, "detached") for a in work.detach])
        free = [a for a in work.detach if a.id not in problems]
        # A guest that keeps its disk keeps the session, which may be another's, too.
        shared = self.ledger.inspect(attached_volumes.shared_on_host, self.host, free)
        problems.update(attached_volumes.disconnect(self.action, self.ledger, free, shared))
        if problems:
            self.ledger.transact(changes.failed, problems)
        return problems

    # --- extend -------------------------------------------------------------------------------------------------------

    def _extend(self, work: Due) -> Problems:
        problems = attached_volumes.rescan(self.action, work.grown)
        grown = [a for a in work.grown if a.id not in problems]
        problems.update(self._disks([{**_disk(a, "resized"), "size": a.size_gb * GIB} for a in grown]))
        seen = [a.id for a in work.grown if a.id not in problems]
        if seen:
            self.ledger.transact(attachments.rescanned, seen)
        return problems

    def _disks(self, disks: t.Sequence[t.Mapping[str, t.Any]]) -> Problems:
        return self._run_disks(disks)[1]

    def _run_disks(self, disks: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[dict[str, t.Any], Problems]:
        """Run domain_disk. Returns its outcomes, and why some failed."""
        if not disks:
            return {}, {}
        keys = [d["id"] for d in disks]
        arguments = {
            **host_settings.libvirt_arguments(self.action),
            "disks": list(disks),
            "workers": host_settings.workers(self.action, len(disks)),
        }
        try:
            result = self.action.run_module("domain_disk", arguments)
            return dict(result.get("outcomes") or {}), item_errors(result, keys)
        except errors.BootflowError as e:
            return {}, dict.fromkeys(keys, e)
        except Exception as e:  # the attachments fail, never the play
            return {}, dict.fromkeys(keys, self.action.unexpected(e))


def _disk(attached: Attached, state: str) -> dict[str, t.Any]:
    item = {"id": attached.id, "uuid": attached.row.instance_uuid, "serial": attached.volume_id, "state": state}
    if state == "detached":
        item["source"] = attached_volumes.source_of(attached.row)
    return item


def _work_of(tx: Transaction, host: str) -> Due:
    attach = attached_volumes.of_rows(tx, changes.to_attach(tx, host))
    detach = attached_volumes.of_rows(tx, changes.to_detach(tx, host))
    grown = attached_volumes.of_rows(tx, attachments.to_rescan(tx, host))
    uuids = sorted({a.row.instance_uuid for a in attach})
    rows = instances.select_live(tx, uuids=uuids) if uuids else []
    return Due(
        attach=attach,
        detach=detach,
        grown=grown,
        guests={b.uuid: b for b in builds.load(tx, t.cast(list[PlacedInstance], rows))},
        volumes=attached_volumes.load(tx, uuids) if uuids else {},
    )


def _reread_attachments(tx: Transaction, ids: t.Sequence[str]) -> list[Attached]:
    return attached_volumes.of_rows(tx, attachments.select(tx, ids=ids))
