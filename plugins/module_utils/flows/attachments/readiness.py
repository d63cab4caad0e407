# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readiness of the volumes of a build: ready, still expected, or never to exist."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import states
from ...core.volumes.attachment import DONE
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.volumes import VolumeRow

_FAILED = (states.ERROR, states.ERROR_DELETING)


@dataclass
class Prospects:
    """Instances whose builds can continue, wait for volumes, or fail because of a volume."""

    ready: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)


def prospects(tx: Transaction, instance_uuids: t.Iterable[str]) -> Prospects:
    """Sort these instances; an instance without volumes is ready."""
    wanted = sorted(set(instance_uuids))
    result = Prospects()
    rows = attachments.of_instances(tx, wanted)
    known = attachments.volumes_of(tx, [r for group in rows.values() for r in group])
    for uuid in wanted:
        group = rows.get(uuid, [])
        problems = [p for p in (_problem(r, known.get(r.volume_id)) for r in group) if p is not None]
        if problems:
            result.failed[uuid] = problems[0]
        elif all(_is_ready(r, known[r.volume_id]) for r in group):
            result.ready.add(uuid)
        else:
            result.waiting.add(uuid)
    if result.failed:
        _add_causes(tx, result.failed.values())
    return result


def _add_causes(tx: Transaction, problems: t.Collection[errors.BootflowError]) -> None:
    """Add the last fault of its volume to the remedy of each error. Nova's message has only the status of the volume.

    A volume that was detached or deleted meanwhile has no fault for that: an earlier one is not the cause.
    """
    failed = [p for p in problems if p.details.get("volume_status", states.ERROR) in _FAILED]
    faults = volume_history.last_faults(tx, [p.details["volume_id"] for p in failed])
    for problem in failed:
        fault = faults.get(problem.details["volume_id"])
        if fault is not None:
            cause = "%s: %s" % (fault["code"], fault["message"])
            problem.remedy = " ".join(part for part in (cause, fault["remedy"] or "", problem.remedy) if part)


def _is_ready(row: Attachment, volume: VolumeRow) -> bool:
    return row.export == DONE and volume.status in (states.ATTACHING, states.IN_USE)


def _problem(row: Attachment, volume: VolumeRow | None) -> errors.BootflowError | None:
    """Why this volume will never be ready, or None."""
    if volume is None:
        return _not_created(row.volume_id, states.DELETED)
    if row.attach_status == states.ERROR_ATTACHING:
        return errors.ISCSITargetAttachFailed(
            volume_id=row.volume_id, remedy="volume_list shows why its target could not be created."
        )
    if row.attach_status == states.DETACHED or volume.status in (states.ERROR, states.DELETING, states.ERROR_DELETING):
        return _not_created(row.volume_id, volume.status)
    return None


def waited_in_vain(tx: Transaction, uuid: str, seconds: float, attempts: int) -> errors.BootflowError:
    """The error of a build whose volumes did not become ready in time."""
    rows = attachments.of_instances(tx, [uuid])[uuid]
    known = attachments.volumes_of(tx, rows)
    late = next(r for r in rows if not _is_ready(r, known[r.volume_id]))
    return _not_created(late.volume_id, known[late.volume_id].status, seconds, attempts)


def _not_created(volume_id: str, status: str, seconds: float = 0, attempts: int = 1) -> errors.VolumeNotCreated:
    return errors.VolumeNotCreated(
        volume_id=volume_id,
        seconds=int(seconds),
        attempts=attempts,
        volume_status=status,
        remedy="volume_list shows what became of volume %s." % volume_id,
    )
