# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of shelving: the image's name, when an instance leaves its host, and where it may come back.

source: Nova's API.shelve, _poll_shelved_instances and API.unshelve (microversions 2.77 and 2.91)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import (
    MoveNotSupported,
    UnshelveHostNotInAZ,
    UnshelveInstanceInvalidState,
)
from ..instances import states
from .snapshots import LONGEST, SnapshotRequest
from .stores.store_kind import ImageStore

SUFFIX = "-shelved"
AT_ONCE, NEVER = 0, -1  # values of bootflow_shelved_offload_time


@dataclass(frozen=True)
class ShelveRequest(SnapshotRequest):
    """The images of shelved instances. They are in the ledger under the names that Nova gives them, whatever other images have that name."""

    def name_of(self, instance_name: str) -> str:
        return instance_name[: LONGEST - len(SUFFIX)] + SUFFIX


def request_in(store: ImageStore, non_inheritable: t.Sequence[str]) -> ShelveRequest:
    """Return the images of one run. :arg store: that gets them"""
    return ShelveRequest("%(name)s" + SUFFIX, store, {}, non_inheritable)


def refuse_whole_disks(uuid: str, spec: t.Mapping[str, t.Any]) -> None:
    """:raises MoveNotSupported: the instance has whole disks of its host, which would be cleared."""
    if spec.get("whole_disks"):
        raise MoveNotSupported(
            instance_uuid=uuid,
            reason="it has whole disks of its host, which are cleared when it leaves the host",
            remedy="Stop it instead: bootflow.compute.stop.",
        )


def leaves_at_once(is_volume_backed: bool, offload_time: int) -> bool:
    """Whether an instance leaves its host as soon as it is shelved. :arg offload_time: bootflow_shelved_offload_time"""
    return is_volume_backed or offload_time == AT_ONCE


@dataclass(frozen=True)
class Destination:
    """Where an instance may come back. ``zone``: its availability zone from now on, None: any. ``host``: the only one, None: any"""

    zone: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Wish:
    """The destination that a person names. ``unpin``: the zone that the instance has does not bind it any more"""

    zone: str | None = None
    unpin: bool = False
    host: str | None = None

    def __bool__(self) -> bool:
        return bool(self.zone or self.unpin or self.host)

    def of_instance(
        self, uuid: str, vm_state: str, pinned: str | None, zone_of: t.Callable[[str], str | None]
    ) -> Destination:
        """Return where an instance may come back.

        :arg pinned: the zone that binds it. :arg zone_of: the zones of a host, with commas between
        :raises UnshelveInstanceInvalidState: it is on its host still. :raises UnshelveHostNotInAZ: the host is in another zone.
        """
        if self and vm_state != states.SHELVED_OFFLOADED:
            raise UnshelveInstanceInvalidState(instance_uuid=uuid, state=vm_state)
        zone = self.zone or (None if self.unpin else pinned)
        if self.host is not None and zone is not None:
            zones = [z.strip() for z in (zone_of(self.host) or "").split(",")]
            if zone not in zones:
                raise UnshelveHostNotInAZ(host=self.host, availability_zone=zone)
        return Destination(zone, self.host)
