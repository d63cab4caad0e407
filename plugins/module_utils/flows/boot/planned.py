# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One entry of a request with its planned disks: all that a boot without volumes needs."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.disks.block_device_checks import MAX_LOCAL_BLOCK_DEVICES
from ...core.disks.block_device_mapping import image_defined_bdms
from ...core.disks.block_devices import PlannedDisk, block_device_plan
from ...core.disks.boot_from_volume import anonymous
from ...core.errors import InvalidBDMFormat
from ...core.instances import states
from ...core.instances.request import ServerRequest
from ...core.model import BlockDevice, Image
from ...ledger.compute.instances import Instance
from ...ledger.storage.volumes import VolumeRow

if t.TYPE_CHECKING:
    from ...core.volumes.model import VolumeRequest
    from ..volumes.requests import VolumeSettings

VOLUME = "volume"  # kind of a planned disk


class VolumeToCreate(t.NamedTuple):
    """A volume to create, in the form of flows.volumes.accept.add()."""

    path: str
    request: VolumeRequest
    image: Image | None


@dataclass
class Planned:
    """One entry with its disks and volumes."""

    request: ServerRequest  # with the zone of its volumes, if that is binding
    disks: list[PlannedDisk] = field(default_factory=list)
    meta: Image | None = None  # whose properties the guest has
    existing: dict[str, VolumeRow] = field(default_factory=dict)  # by the disk's word for it
    to_create: dict[str, VolumeToCreate] = field(default_factory=dict)  # by the disk's name
    max_local_block_devices: int = MAX_LOCAL_BLOCK_DEVICES

    @property
    def properties(self) -> t.Mapping[str, t.Any]:
        return self.meta.properties if self.meta is not None else {}

    @property
    def volume_backed(self) -> bool:
        return any(d.kind == VOLUME and d.boot_index == 0 for d in self.disks)

    @property
    def has_volumes(self) -> bool:
        return any(d.kind == VOLUME for d in self.disks)

    def plan_disks(self) -> None:
        """Plan the disks from the entry and the properties of ``meta``.

        :raises BootflowError: the block devices contradict each other, the flavor, or the image.
        """
        request = self.request
        self.disks = block_device_plan(
            request.flavor,
            request.image,
            request.block_device_mapping,
            self.properties,
            request.root_image,
            request.max_count,
            self.max_local_block_devices,
        )


@dataclass(frozen=True)
class BootVolumeOptions:
    """``settings``: what volumes that a boot makes are read with; None where none are made.

    ``pci_aliases``, ``filters``: see requested_resources(), for what the image of an existing volume asks for.
    """

    settings: VolumeSettings | None = None
    cross_az_attach: bool = True
    pci_aliases: t.Any = field(default_factory=dict)
    filters: t.Collection[str] | None = None


def volumes_requested(request: ServerRequest) -> list[BlockDevice]:
    """The volumes among the block devices of an entry and of its image's mappings.

    Malformed mappings of an image are skipped here; planning the disks reports them.
    """
    image = request.image if request.image is not None else request.root_image
    devices = list(request.block_device_mapping)
    with contextlib.suppress(InvalidBDMFormat):
        devices += image_defined_bdms(image, request.flavor) if image is not None else []
    return [d for d in devices if d.destination_type == "volume" and not d.no_device]


def may_have_volumes(row: Instance) -> bool:
    """Whether an instance (its row with the stored request) may have volumes: a build has the volumes of its request, other
    instances may have been given some since.
    """
    return bool(row.vm_state != states.BUILDING or row.spec.get("has_volumes", True))


def without_volumes(request: ServerRequest, max_local_block_devices: int) -> Planned:
    """Plan an entry without volumes. :raises BootflowError: as Planned.plan_disks()"""
    image = request.image
    if image is None and request.root_image is not None:
        image = anonymous(request.root_image)
    planned = Planned(request, meta=image, max_local_block_devices=max_local_block_devices)
    planned.plan_disks()
    return planned
