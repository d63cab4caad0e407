# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of a request for a volume. source: Cinder's API flow (Queens)

The first error in Cinder's order is raised; nothing is changed before all checks have passed.

Differences from Cinder: there are no backups, groups and encrypted types, so types never differ by encryption; messages
name a volume type by its name; images that stand for a snapshot, and the zones of a volume type
(``RESKEY:availability_zones``, Rocky) are ignored; a text that is not a UUID is a name, and an unknown one is not found (404).
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ..amounts import GIB
from ..disks.image_urls import host_of
from ..errors import (
    BootflowError,
    ImageNotReadable,
    InvalidAvailabilityZone,
    InvalidInput,
    InvalidSnapshot,
    InvalidVolume,
    NotSupportedYet,
    SnapshotNotFound,
    VolumeNotFound,
    VolumeTypeNotFound,
)
from ..images.snapshot_properties import is_layer
from ..model import Image
from ..reading.formats import to_boolean
from ..reading.nearest import field_suggestion
from . import states
from .catalogue import VolumeTypes
from .model import Snapshot, Volume, VolumeRequest, VolumeType
from .request_values import check_metadata, check_size_form, check_text, extract_size

MAX_DEPTH = 20  # of scheduler hints
_ALIASES = {"display_name": "name", "display_description": "description", "imageRef": "image_id", "image": "image_id"}
_FIELDS = (
    "size", "name", "description", "volume_type", "metadata", "snapshot_id", "source_volid", "image_id",
    "availability_zone", "scheduler_hints", "multiattach",
)  # fmt: skip
_LATER = ("backup_id", "group_id", "consistencygroup_id")
# The sources of a volume; Cinder lists all of them, whichever were given.
_SOURCES = "backup, imageRef, snapshot, source volume"


@dataclass(frozen=True)
class CreateOptions:
    """Cinder's settings for reading a request.

    ``default_volume_type``: an unknown type is an error, as in later releases; Queens continued without a type.
    """

    default_volume_type: str | None = None
    storage_availability_zone: str = "nova"
    allow_availability_zone_fallback: bool = False


@dataclass(frozen=True)
class Known:
    """The things that a request may name. ``image`` raises ImageNotFound; volumes and snapshots are by id.

    ``backends``: the number of storage backends, also disabled ones: with one backend any type goes with any source.
    (Cinder intends the same, but counts only the disabled ones.)
    """

    types: VolumeTypes
    image: t.Callable[[str], Image]
    volumes: t.Mapping[str, Volume] = field(default_factory=dict)
    snapshots: t.Mapping[str, Snapshot] = field(default_factory=dict)
    zones: t.Collection[str] = ("nova",)
    backends: int = 1


def volume_request(
    entry: t.Mapping[str, t.Any],
    known: Known,
    options: CreateOptions | None = None,
    volume_id: str = "",
    project: str = "default",
    user: str = "",
) -> VolumeRequest:
    """The request for one volume, with all defaults.

    :arg entry: size, name, description, volume_type, metadata, snapshot_id, source_volid, image_id, availability_zone,
        scheduler_hints, multiattach.
    :raises InvalidInput: and what derives from it (400). :raises VolumeTypeNotFound: :raises VolumeNotFound:
        :raises SnapshotNotFound: :raises ImageNotFound: (404).
    """
    options = options or CreateOptions()
    given = fields_of(entry)
    name, description = check_text(given.get("name"), "name"), check_text(given.get("description"), "description")
    wanted_type = known.types.get(given["volume_type"], project) if given.get("volume_type") else None
    snapshot = _named(known.snapshots, given.get("snapshot_id"), lambda i: SnapshotNotFound(snapshot_id=i))
    source = _named(known.volumes, given.get("source_volid"), lambda i: VolumeNotFound(volume_id=i))
    image = known.image(_image_name(given["image_id"])) if given.get("image_id") is not None else None
    multiattach = _truth(given.get("multiattach"))
    check_size_form(given.get("size"))
    _check_type(wanted_type, snapshot, source, known)
    metadata = check_metadata(given.get("metadata"))
    if sum(source_field is not None for source_field in (snapshot, image, source)) > 1:
        raise InvalidInput(reason="May specify only one of %s" % _SOURCES, remedy="Give one of them.")
    _check_sources(snapshot, source)
    size = extract_size(
        given.get("size"),
        None if source is None else source.size,
        None if snapshot is None else snapshot.volume_size,
    )
    if image is not None:
        check_image(image, size)
    zone = _zone(given.get("availability_zone"), snapshot, source, known, options)
    volume_type = _type(wanted_type, snapshot, source, image, known, options, project)
    multiattach = multiattach or (volume_type is not None and volume_type.multiattach)
    return VolumeRequest(
        size=size,
        volume_id=volume_id,
        name=name,
        description=description,
        volume_type=volume_type,
        availability_zone=zone,
        image_id=None if image is None else image.id,
        snapshot_id=None if snapshot is None else snapshot.id,
        source_volid=None if source is None else source.id,
        multiattach=multiattach,
        bootable=source is not None and source.bootable,
        metadata=metadata,
        scheduler_hints=_hints(given.get("scheduler_hints")),
        project=project,
        user=user,
        resource_backend=next((origin.host for origin in (snapshot, source) if origin is not None), None),
    )


def check_image(image: Image, size: int) -> None:
    """Check an image of the catalogue against the volume's size in GB. :raises InvalidInput: (400)

    An image without a size in the catalogue is measured on the host.
    :raises ImageNotReadable: it has no bytes, or only a store of a host has it: storage hosts take part in no round of images.
    """
    if not image.has_bytes:
        raise ImageNotReadable(
            image_id=image.name,
            reason="it has no bytes: it is of an instance whose root is a volume",
            remedy="Make volumes of the snapshots that its property block_device_mapping names.",
        )
    if host_of(image.url):
        raise ImageNotReadable(
            image_id=image.name,
            reason="only a store of host %s has it, and volumes are not made from there" % host_of(image.url),
            remedy="Export it (bootflow.compute.image_export), and import the file into a store of the kind controller or shared.",
        )
    if image.status != "active":
        raise InvalidInput(
            reason="Image %s is not active." % image.id,
            remedy="Set status: active in bootflow_images once it is there.",
        )
    gigabytes = -(-(image.size or 0) // GIB)
    if gigabytes > size and not is_layer(image.disk_format, image.properties):
        raise InvalidInput(
            reason="Size of specified image %sGB is larger than volume size %sGB." % (gigabytes, size),
            remedy="Request %d GiB or more." % gigabytes,
        )
    if size < image.min_disk:
        raise InvalidInput(
            reason="Volume size %sGB cannot be smaller than the image minDisk size %sGB." % (size, image.min_disk),
            remedy="Request %d GiB or more." % image.min_disk,
        )


# --- parts -----------------------------------------------------------------------------------------------------------


def fields_of(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The fields of an entry, each under its canonical name.

    :raises InvalidInput: not a mapping, an unknown field, or one given twice. :raises NotSupportedYet: a source of another kind.
    """
    if not isinstance(entry, t.Mapping):
        raise InvalidInput(reason="a volume must be a mapping of its fields")
    fields: dict[str, t.Any] = {}
    for key, value in entry.items():
        name = _ALIASES.get(key, key)
        if key == "source_replica" and value:
            raise InvalidInput(
                reason="Creating a volume from a replica source was part of the replication v1 implementation which is no "
                "longer available."
            )
        if key in _LATER and value:
            raise NotSupportedYet(feature="Creating a volume with %s" % key)
        if name not in _FIELDS and key not in _LATER and key != "source_replica":
            raise InvalidInput(
                reason="unknown field %s of a volume" % ascii(key),
                remedy=field_suggestion(str(key), _FIELDS, "docs/volumes.md"),
            )
        if name in fields and fields[name] is not None and value is not None and fields[name] != value:
            raise InvalidInput(reason="%s is given twice" % name, remedy="Give it once.")
        if value is not None or name not in fields:
            fields[name] = value
    return fields


_Found = t.TypeVar("_Found")


def _named(known: t.Mapping[str, _Found], wanted: t.Any, missing: t.Callable[[str], BootflowError]) -> _Found | None:
    if wanted is None:
        return None
    row = known.get(wanted) if isinstance(wanted, str) else None
    if row is None:
        raise missing(wanted if isinstance(wanted, str) else ascii(wanted))
    return row


def _image_name(value: t.Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(message="Invalid imageRef provided.", remedy="Name an image of bootflow_images.")
    return value


def _truth(value: t.Any) -> bool:
    if value is None:
        return False
    try:
        return to_boolean(value)
    except ValueError as e:
        raise InvalidInput(reason="multiattach %s" % e) from None


def _hints(value: t.Any) -> dict[str, t.Any]:
    if value is None:
        return {}
    if not isinstance(value, t.Mapping) or not _is_json(value):
        raise InvalidInput(
            reason="scheduler_hints must be a mapping of texts, numbers and lists of them",
            remedy="Put dates and the keys of mappings in quotes.",
        )
    return dict(value)


def _is_json(value: t.Any, depth: int = 0) -> bool:
    """YAML has dates, sets and keys of any kind; the ledger keeps JSON."""
    if isinstance(value, t.Mapping):
        return depth < MAX_DEPTH and all(isinstance(k, str) and _is_json(v, depth + 1) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return depth < MAX_DEPTH and all(_is_json(item, depth + 1) for item in value)
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def _check_sources(snapshot: Snapshot | None, source: Volume | None) -> None:
    text = "Originating %s status must be one of '%s' values"
    if snapshot is not None and snapshot.status not in states.SNAPSHOT_SOURCE:
        raise InvalidSnapshot(
            reason=text % ("snapshot", ", ".join(states.SNAPSHOT_SOURCE)),
            remedy="Snapshot %s is %s." % (snapshot.id, snapshot.status),
        )
    if source is not None and source.status not in states.VOLUME_SOURCE:
        raise InvalidVolume(
            reason=text % ("source volume", ", ".join(states.VOLUME_SOURCE)),
            remedy="Volume %s is %s." % (source.id, source.status),
        )


def _check_type(wanted: VolumeType | None, snapshot: Snapshot | None, source: Volume | None, known: Known) -> None:
    """Check a type other than the source's: it is valid only if its volumes go to the same backend anyway."""
    if wanted is None:
        return
    for origin, advice in (
        (source, "either match source volume, or omit type argument"),
        (snapshot, "recommend omitting the type argument"),
    ):
        if origin is None or origin.volume_type == wanted.name or known.backends == 1:
            continue
        theirs = _recorded(origin.volume_type, known)
        backend = (theirs.extra_specs if theirs is not None else {}).get("volume_backend_name")
        if not backend or backend != wanted.extra_specs.get("volume_backend_name"):
            raise InvalidInput(
                reason="Invalid volume_type provided: %s (requested type is not compatible; %s)."
                % (wanted.name, advice),
                remedy="Leave volume_type out: it is the source's then (%s)." % (origin.volume_type or "none"),
            )


def _recorded(name: str | None, known: Known) -> VolumeType | None:
    """The type of an existing volume or snapshot; it may have been removed from the inventory."""
    if not name:
        return None
    return known.types.get(name) if name in set(known.types) else VolumeType(name)


def _type(
    wanted: VolumeType | None,
    snapshot: Snapshot | None,
    source: Volume | None,
    image: Image | None,
    known: Known,
    options: CreateOptions,
    project: str,
) -> VolumeType | None:
    """Return the requested type, as in later releases (Queens: a snapshot's, under any request). Without one the source's, the
    snapshot's, the image's (cinder_img_volume_type, if the project may use it) or the default one (even if the project may not
    use it).
    """
    if wanted is not None:
        return wanted
    origin = source if source is not None else snapshot
    if origin is not None:
        return _recorded(origin.volume_type, known)
    of_image = image.properties.get("cinder_img_volume_type") if image is not None else None
    if of_image is not None:
        try:
            return known.types.get(of_image, project)
        except VolumeTypeNotFound:
            of_image = None  # Cinder warns, and uses the default
    return known.types.get(options.default_volume_type) if options.default_volume_type else None


def _zone(wanted: t.Any, snapshot: Snapshot | None, source: Volume | None, known: Known, options: CreateOptions) -> str:
    if wanted is not None and not isinstance(wanted, str):
        raise InvalidAvailabilityZone(az=ascii(wanted))
    fallback = options.storage_availability_zone
    of_snapshot = snapshot.availability_zone if snapshot is not None else None
    of_source = source.availability_zone if source is not None else None
    zone = next((z for z in (wanted, of_snapshot, of_source) if z is not None), fallback)
    if zone not in known.zones and zone != fallback:
        if not options.allow_availability_zone_fallback:
            raise InvalidAvailabilityZone(az=zone)
        zone = fallback
    for theirs, what in ((of_snapshot, "snapshot"), (of_source, "source volume")):
        if theirs and theirs != zone:
            raise InvalidInput(
                reason="Volume must be in the same availability zone as the %s" % what,
                remedy="Leave availability_zone out: it is %s then." % theirs,
            )
    return zone
