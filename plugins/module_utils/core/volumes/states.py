# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Status and attach_status of volumes and snapshots: their values, the actions allowed in each, and the results.

source: Cinder's volume API and manager (Queens). Each check returns the compare-and-swap that the ledger has to
do: a check alone would lose races.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..errors import BootflowError, InvalidInput, InvalidSnapshot, InvalidVolume
from ..reading.formats import MAX_INT

if t.TYPE_CHECKING:
    from .model import Snapshot, Volume

# --- status of a volume --------------------------------------------------------------------------------------------

CREATING = "creating"
DOWNLOADING = "downloading"
AVAILABLE = "available"
RESERVED = "reserved"
ATTACHING = "attaching"
IN_USE = "in-use"
DETACHING = "detaching"
DELETING = "deleting"
DELETED = "deleted"
EXTENDING = "extending"
RETYPING = "retyping"
UPLOADING = "uploading"
BACKING_UP = "backing-up"
RESTORING_BACKUP = "restoring-backup"
REVERTING = "reverting"
MAINTENANCE = "maintenance"
AWAITING_TRANSFER = "awaiting-transfer"
ERROR = "error"
ERROR_DELETING = "error_deleting"
ERROR_EXTENDING = "error_extending"
ERROR_RESTORING = "error_restoring"
ERROR_MANAGING = "error_managing"
ERROR_ATTACHING = "error_attaching"
ERROR_DETACHING = "error_detaching"

VOLUME_STATES = (
    CREATING, DOWNLOADING, AVAILABLE, RESERVED, ATTACHING, IN_USE, DETACHING, DELETING, DELETED, EXTENDING, RETYPING,
    UPLOADING, BACKING_UP, RESTORING_BACKUP, REVERTING, MAINTENANCE, AWAITING_TRANSFER,
    ERROR, ERROR_DELETING, ERROR_EXTENDING, ERROR_RESTORING, ERROR_MANAGING, ERROR_ATTACHING, ERROR_DETACHING,
)  # fmt: skip

SNAPSHOT_STATES = (
    CREATING, AVAILABLE, DELETING, DELETED, "updating", "unmanaging", BACKING_UP, "restoring", ERROR, ERROR_DELETING,
)  # fmt: skip

# --- attach_status, of a volume and of one attachment ----------------------------------------------------------------

ATTACHED = "attached"
DETACHED = "detached"

ATTACH_STATES = (RESERVED, ATTACHING, ATTACHED, DETACHED, ERROR_ATTACHING, ERROR_DETACHING)

# --- statuses in which an action may begin ---------------------------------------------------------------------------

NOT_MIGRATING = (None, "deleting", "error", "success")  # values of migration_status
DELETABLE = (AVAILABLE, ERROR, ERROR_RESTORING, ERROR_EXTENDING, ERROR_MANAGING)
SNAPSHOT_DELETABLE = (AVAILABLE, ERROR)
CASCADE_DELETABLE = (AVAILABLE, ERROR, DELETING)  # snapshots deleted with their volume
SNAPSHOT_SOURCE = (AVAILABLE,)  # a snapshot that a volume may be made from
VOLUME_SOURCE = (AVAILABLE, IN_USE)  # a volume that a volume may be made from


_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")  # longer is not a size


@dataclass(frozen=True)
class Transition:
    """A compare-and-swap: ``values`` may be written if every field of ``expected`` has one of its values."""

    expected: t.Mapping[str, tuple[t.Any, ...]] = field(default_factory=dict)
    values: t.Mapping[str, t.Any] = field(default_factory=dict)

    def applies_to(self, record: t.Any) -> bool:
        return all(getattr(record, name) in allowed for name, allowed in self.expected.items())


def any_of(states: t.Iterable[str]) -> str:
    """``a or b or c``, as Cinder writes what it expected."""
    return " or ".join(states)


# --- volumes -------------------------------------------------------------------------------------------------------


def check_not_frozen(frozen: bool) -> None:
    """A frozen backend deletes nothing and makes no snapshots. :raises InvalidInput: (400)"""
    if frozen:
        raise InvalidInput(
            reason="Modification operations are not allowed on frozen storage backends.",
            remedy="Take frozen out of the backend in bootflow_storage_backends.",
        )


def check_delete(
    volume: Volume,
    snapshots: t.Sequence[Snapshot] = (),
    force: bool = False,
    cascade: bool = False,
) -> None:
    """Check whether a volume may be deleted. A volume that was never scheduled is deleted at once, in any status.

    :arg snapshots: the volume's live snapshots.
    :arg force: in any status; but not attached, migrating or with snapshots.
    :arg cascade: delete the snapshots too: available ones and ones in error, and snapshots of an interrupted cascade (Cinder
    intends this too, but its first test rejects them); with ``force`` in any status.
    :raises InvalidVolume: (400) the text is Cinder's, the remedy names the failed condition.
    """
    if not volume.host:
        return
    stuck = [s for s in snapshots if not cascade or not (force or s.status in CASCADE_DELETABLE)]
    remedy = _why_not_deleted(volume, force, stuck)
    if remedy:
        status = "" if force else " status must be %s and" % any_of(DELETABLE)
        raise InvalidVolume(
            reason="Volume%s must not be migrating, attached, belong to a group, have snapshots or be disassociated from "
            "snapshots after volume transfer." % status,
            remedy=remedy,
            volume_id=volume.id,
        )


def _why_not_deleted(volume: Volume, force: bool, stuck: t.Sequence[Snapshot]) -> str:
    if volume.attach_status == ATTACHED:
        return "Volume %s is attached: detach it first." % volume.id
    if volume.migration_status not in NOT_MIGRATING:
        return "Volume %s is migrating: wait until that is done." % volume.id
    if not force and volume.status not in DELETABLE:
        return "Volume %s is %s: wait until that is done." % (volume.id, volume.status)
    if stuck:
        return "Volume %s has snapshots: delete %s first." % (volume.id, ", ".join(s.name or s.id for s in stuck))
    return ""


def check_extend(volume: Volume, new_size: t.Any, attached: bool = False) -> None:
    """Check whether a volume may grow to ``new_size`` GB; quota and backend are checked after this.

    :arg attached: extend it while it is in use, if the host can do that.
    :raises InvalidInput: (400) not an integer, not larger, or above the maximum (2147483647, as in later releases).
    :raises InvalidVolume: (400) the status.
    """
    text = str(new_size).strip()
    if not _INTEGER.match(text):
        raise InvalidInput(message="New volume size must be specified as an integer.", remedy="Give whole GiB.")
    wanted = int(text)
    if wanted <= volume.size:
        raise InvalidInput(
            reason="New size for extend must be greater than current size. (current: %s, extended: %s)."
            % (volume.size, new_size),
            remedy="Volumes only grow: request more than %d GiB." % volume.size,
        )
    if wanted > MAX_INT:
        raise InvalidInput(reason="New size %s GiB must be at most %d GiB." % (new_size, MAX_INT))
    expected = IN_USE if attached else AVAILABLE
    if volume.status != expected:
        raise InvalidVolume(
            reason="Volume %s status must be '%s' to extend, currently %s." % (volume.id, expected, volume.status),
            remedy="Detach it, or extend it attached." if volume.status == IN_USE else "Wait until that is done.",
        )


_WHILE_MOVING = "Volume %s: the work begun on it has not ended. Rerun the playbook once its hosts answer (warnings name silent hosts)."


def check_reserve(volume: Volume, together: bool = False) -> Transition:
    """The first step of attaching. :raises InvalidVolume: (400) the status.

    :arg together: a multiattach volume in attaching is being attached to other instances by the same run. (Cinder allows
        one reservation at a time, so that connections do not interfere.)
    """
    allowed: tuple[str, ...] = (AVAILABLE, IN_USE) if volume.multiattach else (AVAILABLE,)
    if volume.multiattach and together:
        allowed = (*allowed, ATTACHING)
    if volume.status not in allowed:
        raise InvalidVolume(
            reason="Volume status must be %s to reserve, but the status is %s." % (any_of(allowed), volume.status),
            remedy=_WHILE_MOVING % volume.id
            if volume.status in (ATTACHING, DETACHING)
            else "Volume %s: detach it where it is, or wait until it is available." % volume.id,
        )
    return Transition({"multiattach": (volume.multiattach,), "status": allowed}, {"status": ATTACHING})


_EXTENDED_AGAIN = " Run bootflow.compute.volume_extend for the volume again, with the present size of %d GiB if the volume should not grow."


def check_begin_detaching(volume: Volume) -> Transition:
    """The first step of detaching. :raises InvalidVolume: (400) it is not attached."""
    transition = Transition(
        {"status": (IN_USE,), "attach_status": (ATTACHED,), "migration_status": NOT_MIGRATING},
        {"status": DETACHING},
    )
    if volume.migration_status not in NOT_MIGRATING:
        return Transition()  # the status stays, as the migration needs it
    if not transition.applies_to(volume):
        raise InvalidVolume(
            reason="Unable to detach volume. Volume status must be 'in-use' and attach_status must be 'attached' to detach.",
            remedy="Volume %s is %s, attach_status %s.%s"
            % (
                volume.id,
                volume.status,
                volume.attach_status,
                _EXTENDED_AGAIN % volume.size if volume.status == ERROR_EXTENDING else "",
            ),
        )
    return transition


def roll_detaching() -> Transition:
    """Undoes check_begin_detaching()."""
    return Transition({"status": (DETACHING,)}, {"status": IN_USE})


# --- images of volumes ---------------------------------------------------------------------------------------------


def check_upload(volume: Volume, force: bool = False, enable_force_upload: bool = False) -> Transition:
    """The first step of making an image of a volume. :raises InvalidVolume: (400) the status; the text is Cinder's.

    :arg force: also of a volume in use. Without ``enable_force_upload`` it is ignored, as in Cinder.
    source: Cinder's API.copy_volume_to_image (2026)
    """
    allowed = (AVAILABLE, IN_USE) if force and enable_force_upload else (AVAILABLE,)
    if volume.status not in allowed:
        remedy = "Volume %s is %s: wait until that is done." % (volume.id, volume.status)
        if volume.status == IN_USE:
            remedy = (
                "Detach volume %s; or write force: true and set bootflow_enable_force_upload: true, for an image as after a power cut."
                % volume.id
            )
        raise InvalidVolume(
            reason="Volume %s status must be %s" % (volume.id, any_of(allowed)), remedy=remedy, volume_id=volume.id
        )
    return Transition({"status": allowed}, {"status": UPLOADING, "previous_status": volume.status})


def status_after_upload(attach_status: str | None) -> str:
    """The status after that, whatever became of the image. source: Cinder's volume_update_status_based_on_attachment"""
    return IN_USE if attach_status == ATTACHED else AVAILABLE


# --- snapshots -----------------------------------------------------------------------------------------------------


def check_snapshot(volume: Volume, force: bool = False, frozen: bool = False) -> None:
    """Check whether a snapshot of a volume may be made; the volume's status stays.

    :arg force: also of a volume in use. :arg frozen: whether the backend is frozen.
    :raises InvalidVolume: (400) not scheduled, maintenance, migrating, the status. :raises InvalidInput: (400) frozen
    """
    check_not_frozen(frozen)
    if not volume.host:
        raise InvalidVolume(
            reason="The snapshot cannot be created because volume has not been scheduled to any host.",
            remedy="Wait until volume %s is available." % volume.id,
        )
    if volume.status == MAINTENANCE:
        raise InvalidVolume(reason="The snapshot cannot be created when the volume is in maintenance mode.")
    if volume.migration_status not in NOT_MIGRATING:
        raise InvalidVolume(reason="Snapshot cannot be created while volume is migrating.")
    allowed = (AVAILABLE, IN_USE) if force else (AVAILABLE,)
    if volume.status not in allowed:
        raise InvalidVolume(
            reason="Volume %s status must be %s, but current status is: %s."
            % (volume.id, ", ".join(allowed), volume.status),
            remedy="Detach the volume, or write force: true for a snapshot as after a power cut."
            if volume.status == IN_USE
            else "Wait until that is done.",
        )


def check_snapshot_delete(snapshot: Snapshot, force: bool = False) -> None:
    """Check whether a snapshot may be deleted.

    :arg force: in any status.
    :raises InvalidSnapshot: (400) the status; the text is Cinder's.
    """
    if not force and snapshot.status not in SNAPSHOT_DELETABLE:
        raise InvalidSnapshot(
            reason="Snapshot status must be %s and must not be part of a group." % any_of(SNAPSHOT_DELETABLE),
            remedy="Snapshot %s is %s." % (snapshot.id, snapshot.status),
        )


# --- results of the backend's work -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """Status after an action. None: ``previous_status``."""

    done: str | None
    failed: str


ENDS: dict[str, End] = {
    "create": End(AVAILABLE, ERROR),
    "delete": End(DELETED, ERROR_DELETING),
    "extend": End(None, ERROR_EXTENDING),
    "reimage": End(IN_USE, ERROR),
    "snapshot_create": End(AVAILABLE, ERROR),
    "snapshot_delete": End(DELETED, ERROR_DELETING),
}


def status_after(action: str, error: BootflowError | None, previous_status: str | None = None) -> str:
    """The status after an action of ENDS.

    A busy volume ends in error_deleting after a deletion like after any other failure (Cinder returns it to available): the
    host may have begun to wipe it.
    """
    return ENDS[action].failed if error is not None else ENDS[action].done or previous_status or AVAILABLE
