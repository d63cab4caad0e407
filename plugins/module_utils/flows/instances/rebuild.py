# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilding instances: new local disks from an image, with the same uuid, host, claim, ports and volumes.

source: Nova's API.rebuild and ComputeManager.rebuild_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.amounts import GIB
from ...core.disks.block_devices import planned_disk, replanned
from ...core.model import Flavor, Image
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.request.catalogue_images import image_data
from ...core.request.guest_data import GuestSecrets
from ...core.request.image_rules import image_errors, zero_disk_gb
from ...core.request.requested_resources import requested_resources
from ...ledger.compute import instances, requests
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
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
    kept: t.Callable[[t.Mapping[str, t.Any]], GuestSecrets | None] = lambda digest: None
    kept_in: str | None = None  # the folder of that; None: nothing is kept
    allow_zero_disk: bool = True
    #: raises where the host of an instance must not have the image of its new request
    check_host: t.Callable[[Transaction, Instance, t.Mapping[str, t.Any]], None] = lambda tx, row, spec: None

    def image_for(self, row: Instance) -> Image | None:
        """Return the image that ``row`` is rebuilt from; None: its own."""
        return self.image or self.image_of(row.project, row.display_name)


#: What an instance was, to be kept by one whose host touched nothing: its request's id, its key pair and its disks.
Before = t.Dict[str, t.Any]


def begin(
    tx: Transaction, its: Operation, selection: Selection, known_hosts: t.Collection[str], wanted: Wanted
) -> tuple[Begun, dict[str, Before]]:
    """Begin to rebuild the selected instances, all of them or none. Returns also uuid -> the former state of each, without instances that a dead
    run left in the middle of a rebuild: the content of their disks is unknown.

    :raises NoValidHost: its host must not have the image.
    :raises BootflowError: see operation.begin(); an image that does not fit, another one for a root that is a volume, user data that
        the ledger does not have.
    """
    begun = operation.begin(tx, its, selection, known_hosts)
    refused: list[errors.BootflowError] = []
    rebuilt: list[tuple[Instance, dict[str, t.Any], dict[str, t.Any], dict[int, dict[str, t.Any]]]] = []
    disks = instances.disks_of(tx, [r.uuid for r in begun.rows])
    for row in begun.rows:
        try:
            rebuilt.append((row, *_rebuilt(tx, row, disks[row.uuid], wanted)))
        except errors.BootflowError as e:
            e.details.setdefault(operation.WHOSE, row.display_name)
            refused.append(e)
    operation.refuse(refused)
    before = {
        r.uuid: {
            "request_spec_id": r.request_spec_id,
            "key_name": r.key_name,
            "disks": {str(p): disks[r.uuid][p] for p in changed},
        }
        for r, _spec, _digest, changed in rebuilt
        if not its.is_begun(r.task_state)
    }
    _write(tx, rebuilt)
    return begun, before


def _rebuilt(
    tx: Transaction, row: Instance, disks: t.Sequence[t.Mapping[str, t.Any]], wanted: Wanted
) -> tuple[dict[str, t.Any], dict[str, t.Any], dict[int, dict[str, t.Any]]]:
    """The instance's new request and digest, and its disks that change, by their position."""
    spec, digest = dict(row.spec), dict(row.digest)
    changed: dict[int, dict[str, t.Any]] = {}
    stored = spec["image"]
    image = wanted.image_for(row)
    if image is not None:
        new = image_data(image) or {}
        if spec.get("is_bfv") and (stored or {}).get("id") != new["id"]:
            raise errors.ImageUnacceptable(
                image_id=image.name,
                reason="Unable to rebuild with a different image for a volume-backed server.",
                remedy="Rebuild %s without an image: its volumes stay as they are." % row.display_name,
            )
        if not spec.get("is_bfv"):
            _check_image(row, image, wanted)
            spec["image"], digest["image"] = new, expand.image_digest(image)
            if stored is None or (stored["id"], stored["checksum"]) != (image.id, image.checksum):
                wanted.check_host(tx, row, spec)
            before = (stored or {}).get("properties") or {}
            planned = replanned([planned_disk(d) for d in disks], Flavor(**spec["flavor"]), image, before)
            changed = {p: disk.as_dict() for p, disk in enumerate(planned) if disk.as_dict() != disks[p]}
    key = wanted.key_of(row.project, row.display_name)
    if key is not None:
        spec["key_name"], spec["key_data"] = key
        digest.update(expand.key_digest(*key))
    secrets = wanted.secrets_of(row.project, row.display_name) or wanted.kept(row.digest)
    digest.update(check_guest_data(row, secrets, wanted.kept_in))
    return spec, digest, changed


def _check_image(row: Instance, image: Image, wanted: Wanted) -> None:
    """:raises BootflowError: the image does not fit the instance's flavor, or what it has claimed."""
    flavor = Flavor(**row.spec["flavor"])
    for error in image_errors(image, flavor, allow_zero_disk=wanted.allow_zero_disk):
        raise error
    if not flavor.root_gb and zero_disk_gb(image_data(image)) > row.root_gb:
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

    :arg secrets: of the request, or kept on this controller; None: neither has the instance.
    :arg kept_in: the folder on this controller; None: it keeps nothing.
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
            where="the folder %s of this controller" % kept_in if kept_in else "this controller",
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


def _write(
    tx: Transaction,
    rebuilt: t.Sequence[tuple[Instance, dict[str, t.Any], dict[str, t.Any], dict[int, dict[str, t.Any]]]],
) -> None:
    """Give the instances their new requests: instances that shared one share the new one."""
    together: dict[tuple[int, str], list[Instance]] = {}
    entries: dict[tuple[int, str], tuple[dict[str, t.Any], dict[str, t.Any]]] = {}
    for row, spec, digest, changed in rebuilt:
        for position, disk in changed.items():
            instances.replace_disk(tx, row.uuid, position, disk)
        if spec != row.spec or digest != row.digest:
            key = (row.request_spec_id, repr(digest))
            together.setdefault(key, []).append(row)
            entries[key] = (digest, spec)
    for (key, members), spec_id in zip(together.items(), requests.new_ids(tx, len(together)) if together else ()):
        digest, spec = entries[key]
        requests.add_specs(tx, members[0].reservation_id, [requests.Entry(spec_id, digest, spec)])
        instances.write(tx, [r.uuid for r in members], request_spec_id=spec_id, key_name=spec["key_name"])


def keep(tx: Transaction, its: Operation, before: t.Mapping[str, Before]) -> None:
    """Give these instances back their former fields: their hosts touched nothing. Instances that this run no longer owns are left alone.

    What another run changed in place meanwhile stays.
    """
    rows = instances.select_live(tx, uuids=sorted(before), run_id=tx.run.id, task_state=its.during, lock=True)
    former = requests.specs(tx, [before[r.uuid]["request_spec_id"] for r in rows])
    for row in rows:
        was = before[row.uuid]
        spec_id = redefine.as_before(tx, row, former[was["request_spec_id"]])
        instances.write(tx, [row.uuid], request_spec_id=spec_id, key_name=was["key_name"])
        for position, disk in was["disks"].items():
            instances.replace_disk(tx, row.uuid, int(position), disk)
