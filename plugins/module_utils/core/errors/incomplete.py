# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of runs in which some of many items failed."""

from __future__ import annotations

import typing as t

from .base import BootflowError

Item = t.Dict[str, t.Any]


def failed_item(
    name: str,
    id: str,
    error: t.Mapping[str, t.Any] | None,
    tried: t.Sequence[t.Mapping[str, t.Any]] = (),
    host: str | None = None,
    state: str = "",
) -> Item:
    """Return one item of an Incomplete.

    :arg id: its UUID.
    :arg error: as_dict()'s data, or a fault of the ledger.
    :arg tried: faults of earlier attempts; by default the faults of ``error``.
    :arg state: the item's state, shown if there is no error.
    """
    cause = dict(error) if error else None
    before = (cause or {}).pop("tried", ())
    return {"name": name, "id": id, "host": host, "state": state, "error": cause, "tried": list(tried or before)}


class Incomplete(BootflowError):
    """Some items of the run failed; ``items`` has each of them with its own error."""

    msg_fmt = "%(failed)d of %(total)d items failed."
    status = 503
    remedy = "Fix the cause and rerun the playbook; it resumes where it stopped."

    def __init__(self, items: t.Sequence[t.Mapping[str, t.Any]], total: int, **details: t.Any):
        """:arg total: the number of items in the run, including the good ones."""
        self.items = [dict(i) for i in items]
        super().__init__(failed=len(self.items), total=total, **details)

    def as_dict(self) -> dict[str, t.Any]:
        # Not "items", which in a template is the method of the mapping.
        return {**super().as_dict(), "failed_items": self.items}


class BootFailed(Incomplete):
    """Some instances of a boot are not ACTIVE, or in check mode would not be."""

    msg_fmt = "%(failed)d of %(total)d instances are not ACTIVE."
    remedy = (
        "Fix the cause and run the same boot again: it continues with these instances. To remove them, run bootflow.compute.delete with their names in"
        " bootflow_names."
    )


class PurgeIncomplete(Incomplete):
    """Some base images or networks of a compute host that nothing uses could not be removed."""

    msg_fmt = "%(failed)d of %(total)d removals failed."
    status = 500
    retryable = True
    remedy = "Fix the cause and purge again. What was removed stays removed."


class DeleteIncomplete(Incomplete):
    """Some instances are still on a host, or still hold a volume."""

    msg_fmt = "%(failed)d of %(total)d instances could not be deleted."
    retryable = True
    remedy = "Bring the host back and delete again. If it is gone for good, delete with bootflow_delete_force: true."


class DrainIncomplete(Incomplete):
    """Some instances are still on the host that is drained, or in check mode would be."""

    msg_fmt = "%(failed)d of %(total)d instances stay on %(host)s."
    remedy = "Move or stop these instances as said above, and drain the host again."


class RebalanceIncomplete(Incomplete):
    """Some live migrations of a rebalance were not done. Each instance is where it was, or where it was to go."""

    msg_fmt = "%(failed)d of %(total)d live migrations were not done."
    remedy = "Fix the causes above and run the playbook again: it plans from the fleet as it is then."


class ApplyIncomplete(Incomplete):
    """Some changes of the playbook apply were not done, or in check mode could not be."""

    msg_fmt = "%(failed)d of %(total)d changes were not done."
    remedy = "Fix the causes above and apply the file again; it does what is missing."


class VolumeFailed(Incomplete):
    """Some volumes are not as requested, or in check mode would not be."""

    msg_fmt = "%(failed)d of %(total)d volumes are not as requested."
    status = 500


class VolumeDeleteIncomplete(Incomplete):
    """Some volumes are still on their storage host."""

    msg_fmt = "%(failed)d of %(total)d volumes could not be deleted."
    retryable = True
    remedy = "Fix the cause (is the storage host up?) and delete again."


class SnapshotFailed(Incomplete):
    """Some snapshots are not as requested."""

    msg_fmt = "%(failed)d of %(total)d snapshots are not as requested."
    status = 500


class VolumeUploadFailed(Incomplete):
    """Some images of volumes were not made; each volume has its former status."""

    msg_fmt = "%(failed)d of %(total)d images of volumes were not made."
    remedy = "Fix the cause and run the same command again: it makes the missing images."


class ImageImportFailed(Incomplete):
    """Some images were not imported."""

    msg_fmt = "%(failed)d of %(total)d images were not imported."


class ImagePrecacheFailed(Incomplete):
    """Some images did not come to their hosts."""

    msg_fmt = "%(failed)d of %(total)d images did not come to their hosts."
    retryable = True
    remedy = "Fix the cause and run image_precache again: hosts that have an image are not sent it again."


class ImageDeleteIncomplete(Incomplete):
    """Files of some deleted images are still in their stores."""

    msg_fmt = "The files of %(failed)d of %(total)d images are still in their stores."
    retryable = True
    remedy = "Fix the cause (is the host of the store up?) and delete again."


class AttachFailed(Incomplete):
    """Some volumes are not attached."""

    msg_fmt = "%(failed)d of %(total)d volumes could not be attached."
    retryable = True


class DetachFailed(Incomplete):
    """Some volumes are still attached."""

    msg_fmt = "%(failed)d of %(total)d volumes could not be detached."
    retryable = True


class SwapFailed(Incomplete):
    """Some volumes are not swapped; their guests have the former ones."""

    msg_fmt = "%(failed)d of %(total)d volumes could not be swapped."
    retryable = True


class AttachInterfaceFailed(Incomplete):
    """Some interfaces are not attached."""

    msg_fmt = "%(failed)d of %(total)d interfaces could not be attached."
    retryable = True


class DetachInterfaceFailed(Incomplete):
    """Some interfaces are still attached."""

    msg_fmt = "%(failed)d of %(total)d interfaces could not be detached."
    retryable = True


class OperationFailed(Incomplete):
    """Some instances did not come through an operation; each is as it was before, or in ERROR (docs/operations.md)."""

    msg_fmt = "'%(operation)s' failed for %(failed)d of %(total)d instances."
    remedy = "Fix the cause and run the same command again: it continues with these instances."
