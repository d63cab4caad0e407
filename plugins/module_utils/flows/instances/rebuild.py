# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilding instances: new local disks from an image, with the same uuid, host, claim, ports and volumes. A root disk that is a volume keeps its
id, type and size, and is written again where another image is named.

source: Nova's API.rebuild (2.93) and ComputeManager.rebuild_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.amounts import GIB
from ...core.disks.block_devices import PlannedDisk, planned_disk, replanned
from ...core.disks.boot_from_volume import anonymous
from ...core.guest.config_drive_rules import check_files
from ...core.model import BlockDevice, Flavor, Image
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.request.catalogue_images import image_data
from ...core.request.guest_data import GuestSecrets
from ...core.request.image_rules import image_errors, zero_disk_gb
from ...core.request.requested_resources import requested_resources
from ...ledger.compute import instances, requests
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import volumes
from ...ledger.storage.volumes import VolumeRow
from ..volumes import reimage
from . import operation, redefine
from .operation import Begun, Operation, Selection

VOLUME = "volume"  # kind of a planned disk
_GUEST_DATA = ("user_data", "injected_files")  # fields of a digest


@dataclass(frozen=True)
class Wanted:
    """Image, key and data that instances are rebuilt with."""

    image: Image | None = None  # None: that of image_of, else each one's own
    image_of: t.Callable[[str, str], Image | None] = lambda project, name: None  # of the file that they follow
    #: name and public key of the file that they follow; None: the instance keeps its key pair
    key_of: t.Callable[[str, str], tuple[str | None, str | None] | None] = lambda project, name: None
    pci_aliases: t.Mapping[str, t.Any] = field(default_factory=dict)
    secrets_of: t.Callable[[str, str], GuestSecrets | None] = lambda project, name: (
        None
    )  # of the request, where it names the instance
    #: by the digest of an instance: what this controller has kept of the request that booted it
    kept_secrets_of: t.Callable[[Transaction, t.Mapping[str, t.Any]], GuestSecrets | None] = lambda tx, digest: None
    kept_in: str | None = None  # the place of that in words; None: nothing is kept
    allow_zero_disk: bool = True
    #: raises where the host of an instance must not have the image of its new request
    check_host: t.Callable[[Transaction, Instance, t.Mapping[str, t.Any]], None] = lambda tx, row, spec: None
    #: raises where one of these images, by id, was deleted since it was looked up, and keeps the others until the transaction ends
    check_images: t.Callable[[Transaction, t.Collection[str]], None] = lambda tx, ids: None

    def image_for(self, row: Instance) -> Image | None:
        """Return the image that ``row`` is rebuilt from; None: its own."""
        return self.image or self.image_of(row.project, row.display_name)


#: What an instance was, to be kept by one whose host touched nothing: its request's id, its key pair and its disks.
Before = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Reimage:
    """A root volume that is written again."""

    volume_id: str
    image: Image
    former: str | None  # the name of the image that it was made from
    storage_host: str = ""


class Rebuilt(t.NamedTuple):
    """An instance with what a rebuild makes of it."""

    row: Instance
    spec: dict[str, t.Any]
    digest: dict[str, t.Any]
    changed: dict[int, dict[str, t.Any]]  # its disks that change, by their position
    reimage: Reimage | None = None


class Beginning(t.NamedTuple):
    """The beginning of a rebuild, by the uuids of instances."""

    begun: Begun
    #: The former state of each, without instances that a dead run left in the middle of a rebuild: the content of their disks is unknown.
    before: dict[str, Before]
    reimages: dict[str, Reimage]  # of instances with a root volume that is written again


def begin(
    tx: Transaction, rebuild: Operation, selection: Selection, known_hosts: t.Collection[str], wanted: Wanted
) -> Beginning:
    """Begin to rebuild the selected instances, all of them or none.

    :raises NoValidHost: its host must not have the image. :raises ImageNotActive: it was deleted meanwhile.
    :raises BootflowError: see operation.begin() and reimage.begin(); an image that does not fit, user data that the ledger does not have.
    """
    begun = operation.begin(tx, rebuild, selection, known_hosts)
    refused: list[errors.BootflowError] = []
    rebuilt: list[Rebuilt] = []
    disks = instances.disks_of(tx, [r.uuid for r in begun.rows])
    roots = _root_volumes(tx, begun.rows, disks)
    for row in begun.rows:
        try:
            rebuilt.append(_rebuilt(tx, row, disks[row.uuid], roots.get(row.uuid), wanted))
        except errors.BootflowError as e:
            e.details.setdefault(operation.WHOSE, row.display_name)
            refused.append(e)
    operation.refuse(refused)
    reimages = {r.row.uuid: r.reimage for r in rebuilt if r.reimage is not None}
    image_ids = {image.id for r in begun.rows if (image := wanted.image_for(r)) is not None}
    wanted.check_images(tx, image_ids | {r.image.id for r in reimages.values()})
    before = {
        r.row.uuid: {
            "request_spec_id": r.row.request_spec_id,
            "key_name": r.row.key_name,
            "disks": {str(p): disks[r.row.uuid][p] for p in r.changed},
        }
        for r in rebuilt
        if not rebuild.is_begun(r.row.task_state)
    }
    _write(tx, rebuilt)
    hosts = reimage.begin(
        tx, {uuid: (r.volume_id, r.image) for uuid, r in reimages.items()}, {r.uuid: r.host for r in begun.rows}
    )
    return Beginning(begun, before, {uuid: replace(r, storage_host=hosts[uuid]) for uuid, r in reimages.items()})


def _root_volumes(
    tx: Transaction, rows: t.Sequence[Instance], disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]
) -> dict[str, VolumeRow]:
    """uuid -> the volume that is the root disk of the instance, where one is."""
    ids = {r.uuid: reimage.root_of(disks[r.uuid]) for r in rows if r.spec.get("is_bfv")}
    if not ids:
        return {}
    reimage.end_left(tx, ids)
    known = {v.id: v for v in volumes.select(tx, ids=[i for i in ids.values() if i is not None])}
    return {uuid: known[i] for uuid, i in ids.items() if i in known}


def _rebuilt(
    tx: Transaction,
    row: Instance,
    disks: t.Sequence[t.Mapping[str, t.Any]],
    root: VolumeRow | None,
    wanted: Wanted,
) -> Rebuilt:
    """:arg root: the volume that is its root disk"""
    spec, digest = dict(row.spec), dict(row.digest)
    changed: dict[int, dict[str, t.Any]] = {}
    stored = spec["image"]
    image, again = wanted.image_for(row), None
    if root is not None:
        image = reimage.image_wanted(root, image)
        again = None if image is None else Reimage(root.id, image, root.image_metadata.get("image_name"))
    elif spec.get("is_bfv") and image is not None:
        raise errors.VolumeNotFound(volume_id=reimage.root_of(disks) or "of the root disk of %s" % row.display_name)
    if image is not None:
        _check_image(row, image, wanted, root)
        new = image if root is None else anonymous(image)
        spec["image"] = image_data(new)
        digest.update(_image_digests(digest, image, root is not None))
        if stored is None or (stored["id"], stored["checksum"]) != (image.id, image.checksum):
            wanted.check_host(tx, row, {**spec, "image": image_data(image)})
        before = (stored or {}).get("properties") or {}
        planned = replanned([planned_disk(d) for d in disks], Flavor(**spec["flavor"]), image, before)
        planned = [replace(d, image_id=image.id) if _is_made_from(d, root) else d for d in planned]
        changed = {p: disk.as_dict() for p, disk in enumerate(planned) if disk.as_dict() != disks[p]}
    key = wanted.key_of(row.project, row.display_name)
    if key is not None:
        spec["key_name"], spec["key_data"] = key
        digest.update(expand.key_digest(*key))
    secrets = wanted.secrets_of(row.project, row.display_name)
    if secrets is None and row.config_drive:
        secrets = wanted.kept_secrets_of(tx, row.digest)
    digest.update(check_guest_data(row, secrets, wanted.kept_in))
    if secrets is not None and row.config_drive:
        check_files((spec["image"] or {}).get("properties") or {}, secrets.injected_files)
    return Rebuilt(row, spec, digest, changed, again)


def _is_made_from(disk: PlannedDisk, root: VolumeRow | None) -> bool:
    """Whether it is the root volume, which was made from an image on the way."""
    return root is not None and disk.volume_id == root.id and disk.image_id is not None


def _image_digests(digest: t.Mapping[str, t.Any], image: Image, on_volume: bool) -> dict[str, t.Any]:
    """The digest's fields of an instance that has another image now, as a request for that has them."""
    if not on_volume:
        return {"image": expand.image_digest(image)}
    fields = {n: expand.image_digest(image) for n in ("image", "root_image") if digest.get(n) is not None}
    devices = [dict(d) for d in digest.get("block_device_mapping") or ()]
    for device in devices:
        if (device.get("source_type"), device.get("boot_index")) == ("image", 0):
            device["uuid"] = image.id
    return {**fields, "block_device_mapping": devices} if devices else fields


def _check_image(row: Instance, image: Image, wanted: Wanted, root: VolumeRow | None = None) -> None:
    """:arg root: the volume that is its root disk

    :raises BootflowError: the image does not fit the instance's flavor or root volume, or what it has claimed.
    """
    flavor = Flavor(**row.spec["flavor"])
    device = None if root is None else BlockDevice("image", "volume", volume_size=root.size)
    for error in image_errors(image, flavor, device, allow_zero_disk=wanted.allow_zero_disk):
        raise error
    if root is None and not flavor.root_gb and zero_disk_gb(image_data(image)) > row.root_gb:
        raise errors.FlavorDiskSmallerThanMinDisk(
            flavor_size=row.root_gb * GIB, image_min_disk=zero_disk_gb(image_data(image)) * GIB
        )
    problems = Problems()
    resources = requested_resources(flavor, image, wanted.pci_aliases, row.display_name, problems)
    problems.raise_if_any()
    cells = resources.numa_topology.as_dict() if resources.numa_topology is not None else None
    if cells != row.spec.get("numa_topology"):
        raise errors.ImageNUMATopologyRebuildConflict()
    if [p.as_dict() for p in resources.pci_requests] != list(row.spec.get("pci_requests") or ()):
        raise errors.InvalidInput(
            reason="image %s asks for other PCI devices than instance %s has" % (image.name, row.display_name),
            remedy="Choose an image with the same property hw_pci_numa_affinity_policy, or delete the instance and boot it again.",
        )


def check_guest_data(row: Instance, secrets: GuestSecrets | None, kept_in: str | None) -> dict[str, t.Any]:
    """Return the digest's fields of user data and files, from the request that has them.

    :arg secrets: of the request, or kept; None: neither has the instance.
    :arg kept_in: the place in words; None: nothing is kept.
    :raises GuestDataRequired: the instance had some, and neither is there.
    """
    if secrets is not None:
        return expand.guest_data_digest(secrets.user_data, secrets.injected_files)
    had = [n for n in _GUEST_DATA if row.digest.get(n)]
    if had and row.config_drive:
        raise errors.GuestDataRequired(
            name=row.display_name,
            project=row.project,
            had=" and ".join(had),
            which=_which(row.digest),
            where=kept_in or "this controller",
        )
    return {}


def check_same_guest_data(row: Instance, secrets: GuestSecrets) -> None:
    """Check the request of an instance that is made again as it was. It may have none: that is how a guest is made without them.

    :raises GuestDataDiffers: its user data or files are others than the instance was booted with.
    """
    given = expand.guest_data_digest(secrets.user_data, secrets.injected_files)
    other = [n for n in _GUEST_DATA if given[n] and given[n] != row.digest.get(n)]
    if other and row.config_drive:
        which = _which(row.digest) or "none"
        raise errors.GuestDataDiffers(
            name=row.display_name, project=row.project, what=" and ".join(other), which="it had: %s" % which
        )


def _which(digest: t.Mapping[str, t.Any]) -> str:
    """Return the names that people use for the user data and files."""
    user_data = digest.get("user_data")  # a few digits tell files apart, and say nothing of what is in them
    which = ["user data %s..." % user_data[: len("sha256:") + 12]] if user_data else []
    return operation.some([*which, *sorted(digest.get("injected_files") or ())])


def _write(tx: Transaction, rebuilt: t.Sequence[Rebuilt]) -> None:
    """Give the instances their new requests: instances that shared one share the new one."""
    together: dict[tuple[int, str], list[Instance]] = {}
    entries: dict[tuple[int, str], tuple[dict[str, t.Any], dict[str, t.Any]]] = {}
    for row, spec, digest, changed, _again in rebuilt:
        for position, disk in changed.items():
            instances.replace_disk(tx, row.uuid, position, disk)
        if spec != row.spec or digest != row.digest:
            key = (row.request_spec_id, repr((digest, spec["image"])))
            together.setdefault(key, []).append(row)
            entries[key] = (digest, spec)
    for (key, members), spec_id in zip(together.items(), requests.new_ids(tx, len(together)) if together else ()):
        digest, spec = entries[key]
        requests.add_specs(tx, members[0].reservation_id, [requests.Entry(spec_id, digest, spec)])
        instances.write(tx, [r.uuid for r in members], request_spec_id=spec_id, key_name=spec["key_name"])


def keep(tx: Transaction, rebuild: Operation, before: t.Mapping[str, Before]) -> None:
    """Give these instances back their former fields: their hosts touched nothing. Instances that this run no longer owns are left alone.

    What another run changed in place meanwhile stays.
    """
    rows = instances.select_live(tx, uuids=sorted(before), run_id=tx.run.id, task_state=rebuild.during, lock=True)
    former = requests.specs(tx, [before[r.uuid]["request_spec_id"] for r in rows])
    for row in rows:
        was = before[row.uuid]
        spec_id = redefine.as_before(tx, row, former[was["request_spec_id"]])
        instances.write(tx, [row.uuid], request_spec_id=spec_id, key_name=was["key_name"])
        for position, disk in was["disks"].items():
            instances.replace_disk(tx, row.uuid, int(position), disk)
