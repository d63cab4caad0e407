# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module instance_disks: images first, then the disks of all instances on this host."""

from __future__ import annotations

import contextlib
import typing as t

from ...core.amounts import GIB, MIB
from ...core.disks.local import DISK, FILE_SYSTEMS
from ...core.disks.stores.registry import NAMES
from ...core.errors import BootflowError, FlavorDiskSmallerThanImage, ImageUnacceptable, InvalidInput, from_dict
from ...core.volumes.disk_pool import DiskPool
from ..images.fetch import UNLIMITED, FetchLimits
from ..images.images import (
    FETCH_ARGUMENTS,
    IMAGE_ARGUMENTS,
    BaseImage,
    TooLarge,
    cached_image,
    hold_image,
    image_source,
)
from ..images.images import fetch_limits as limits_of
from ..os.batch import run_batch
from ..os.locks import BUILDS, host_place
from ..os.ownership import LEDGER_ARGUMENTS
from ..os.paths import checked_id, checked_instances_path, checked_uuid
from ..rbd.disk_images import DISK_POOL_ARGUMENTS, pool_of
from .local_disks import ensure_disks, make_replacement
from .stores.disk_spec import KINDS, DiskSpec, check_fits

# The option ``instances[].disks``.
DISK_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": list(KINDS), "required": True},
    "image_id": {"type": "str"},
    "size_gb": {"type": "int"},
    "size_mb": {"type": "int"},
    "max_size_gb": {"type": "int"},
    "backend": {"type": "str", "choices": list(NAMES), "default": DiskSpec.backend},
    "fs": {"type": "str", "choices": list(FILE_SYSTEMS), "default": DiskSpec.fs},
    "label": {"type": "str"},
}


# Disks that have nothing of an image: the option ``instances[].made``.
BLANK_DISKS_ARGUMENT: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        **{name: DISK_ARGUMENTS[name] for name in ("name", "size_gb", "size_mb", "backend", "fs")},
        "kind": {"type": "str", "choices": ["ephemeral", "swap"], "required": True},
    },
    "mutually_exclusive": [("size_gb", "size_mb")],
}

DISK_BATCH_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    **LEDGER_ARGUMENTS,
    "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
    "images": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {**IMAGE_ARGUMENTS, "virtual_size_limit": {"type": "int"}},
    },
    "instances": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "uuid": {"type": "str", "required": True},
            "made_at": {"type": "float", "default": 0.0},
            "replacement": {"type": "bool", "default": False},
            "disks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": DISK_ARGUMENTS,
                "mutually_exclusive": [("size_gb", "size_mb")],
                "required_if": [("kind", "image", ["image_id"])],
            },
        },
    },
    "volume_group": {"type": "str"},
    **DISK_POOL_ARGUMENTS,
    "fetch": {"type": "bool", "default": True},
    **FETCH_ARGUMENTS,
    "workers": {"type": "int", "default": 4},
    "max_builds": {"type": "int", "default": 0},
    "place_timeout": {"type": "float", "default": 600.0},
}


def disk_spec(args: t.Mapping[str, t.Any]) -> DiskSpec:
    """The spec for one element of the option ``instances[].disks``. Raises InvalidInput."""
    in_gb = args.get("size_gb")
    return DiskSpec(
        name=args["name"],
        kind=args["kind"],
        size=int(in_gb) * GIB if in_gb is not None else int(args.get("size_mb") or 0) * MIB,
        backend=args.get("backend") or DiskSpec.backend,
        image_id=(args.get("image_id") or "") if args["kind"] == "image" else "",
        fs=args.get("fs") or DiskSpec.fs,
        label=args.get("label") or "",
        max_size=int(args.get("max_size_gb") or 0) * GIB,
    ).checked()


class _Work:
    """One call of the module: its images and their results."""

    def __init__(
        self,
        instances_path: str,
        held: contextlib.ExitStack,
        uploads: t.Mapping[str, str],
        allow_unverified: bool,
        check_mode: bool,
        volume_group: str = "",
        fetch_limits: FetchLimits = UNLIMITED,
        ledger_id: str = "",
        fetch: bool = True,
        pool: DiskPool | None = None,
    ):
        self.instances_path = checked_instances_path(instances_path)
        self.held = held  # base images, until the disks are made
        self.uploads = uploads
        self.allow_unverified = allow_unverified
        self.check_mode = check_mode
        self.volume_group = volume_group
        self.fetch_limits = fetch_limits
        self.ledger_id = ledger_id
        self.fetch = fetch
        self.pool = pool
        self.sizes: dict[str, list[int]] = {}  # image id -> sizes of the disks created from it, in bytes
        self.bases: dict[str, BaseImage] = {}
        self.too_large: dict[str, int] = {}  # image id -> virtual size
        self.missing: set[str] = set()
        self.unknown_size: set[str] = set()

    def note_sizes(self, instances: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        for instance in instances:
            for disk in instance["disks"]:
                try:
                    spec = disk_spec(disk)
                except BootflowError:
                    continue  # reported as the error of this instance
                if spec.kind == "image":
                    self.sizes.setdefault(spec.image_id, []).append(spec.size or spec.max_size)

    def max_bytes(self, image_id: str, limit: int | None) -> int | None:
        """The largest disk created from the image; None if one of them has the size of the image."""
        sizes = self.sizes.get(image_id, [])
        largest = None if not sizes or 0 in sizes else max(sizes)
        if limit and (largest is None or limit < largest):
            return limit
        return largest

    def image(self, args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        image_id = checked_id(args["id"], "image id")
        source = image_source(args, self.uploads, self.allow_unverified, self.fetch_limits)
        cached = cached_image(source, self.instances_path)
        if cached is None and not (self.fetch and (source.path or source.url)):
            self.missing.add(image_id)
            return {"changed": False, "virtual_size": None, "path": ""}
        if cached is None and self.check_mode:
            self.unknown_size.add(image_id)
            return {"changed": True, "virtual_size": None, "path": ""}
        limit = args.get("virtual_size_limit")
        try:
            base = hold_image(source, self.instances_path, self.max_bytes(image_id, limit), self.held)
        except TooLarge as error:
            if limit and error.virtual_size > limit:
                raise ImageUnacceptable(
                    image_id=image_id,
                    reason="the virtual size is %d bytes, the limit is %d" % (error.virtual_size, limit),
                ) from None
            self.too_large[image_id] = error.virtual_size
            largest = self.max_bytes(image_id, limit) or 0
            raise FlavorDiskSmallerThanImage(flavor_size=largest, image_size=error.virtual_size) from None
        self.bases[image_id] = base
        return {"changed": base.changed, "virtual_size": base.virtual_size, "path": base.path}

    def instance(
        self, args: t.Mapping[str, t.Any], image_results: t.Mapping[str, t.Mapping[str, t.Any]]
    ) -> dict[str, t.Any]:
        uuid = checked_uuid(args["uuid"])
        specs = [disk_spec(disk) for disk in args["disks"]]
        pending = []
        for spec in specs:
            if spec.kind != "image" or spec.image_id in self.bases or spec.image_id in self.unknown_size:
                continue
            if spec.image_id in self.missing:
                pending.append(spec.image_id)
            elif spec.image_id in self.too_large:
                check_fits(spec, self.too_large[spec.image_id])
            error = (image_results.get(spec.image_id) or {}).get("error")
            if error:
                raise from_dict(error)
            if spec.image_id not in image_results:
                raise InvalidInput(
                    reason="image %s of disk %s is missing from the option images" % (spec.image_id, spec.name)
                )
        if pending:
            return {"changed": False, "disks": [], "pending": pending}
        if args.get("replacement"):
            return self._replacement(uuid, specs)
        result = ensure_disks(
            self.instances_path,
            uuid,
            specs,
            self.bases,
            self.check_mode,
            self.volume_group,
            self.ledger_id,
            float(args.get("made_at") or 0.0),
            self.pool,
        )
        result["pending"] = []
        return result

    def _replacement(self, uuid: str, specs: t.Sequence[DiskSpec]) -> dict[str, t.Any]:
        """Make a disk that is to replace the root disk of the instance."""
        if [(spec.name, spec.kind) for spec in specs] != [(DISK, "image")]:
            raise InvalidInput(reason="only disk %s of an image can be made as a replacement" % DISK)
        if self.check_mode:
            return {"changed": True, "disks": [], "pending": []}
        return {**make_replacement(self.instances_path, uuid, specs[0], self.bases, self.ledger_id), "pending": []}


def make_disks(
    instances_path: str,
    images: t.Sequence[t.Mapping[str, t.Any]],
    instances: t.Sequence[t.Mapping[str, t.Any]],
    uploads: t.Mapping[str, str],
    allow_unverified: bool = False,
    workers: int = 4,
    check_mode: bool = False,
    volume_group: str = "",
    max_builds: int = 0,
    fetch_limits: FetchLimits = UNLIMITED,
    place_timeout: float = 600.0,
    ledger_id: str = "",
    fetch: bool = True,
    pool: DiskPool | None = None,
) -> dict[str, t.Any]:
    """{outcomes by uuid, image_outcomes by id, missing_images}; see the module instance_disks for the fields.

    :arg volume_group: for the backends lvm and qcow2_on_lvm. :arg pool: for the backend rbd.
    :arg ledger_id: of the instances.
    :arg max_builds: of all runs on this host at once; 0: no limit.
    :arg place_timeout: seconds that a build waits for one of them.
    :arg fetch: images that are not in the cache; otherwise they are missing.
    :raises InvalidInput: instances_path is not valid, or an image or instance is given twice.
    """
    with contextlib.ExitStack() as held:
        work = _Work(
            instances_path,
            held,
            uploads,
            allow_unverified,
            check_mode,
            volume_group,
            fetch_limits,
            ledger_id,
            fetch,
            pool,
        )
        work.note_sizes(instances)
        image_results = run_batch([(image["id"], image) for image in images], work.image, workers)

        def build(instance: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
            with host_place(instances_path, BUILDS, 0 if check_mode else max_builds, place_timeout):
                return work.instance(instance, image_results)

        results = run_batch([(i["uuid"], i) for i in instances], build, workers)
    return {"outcomes": results, "image_outcomes": image_results, "missing_images": sorted(work.missing)}


def make_disks_of(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """The same with the options of the module instance_disks."""
    return make_disks(
        params["instances_path"],
        params["images"],
        params["instances"],
        params["uploads"],
        allow_unverified=params["allow_unverified"],
        workers=params["workers"],
        max_builds=params["max_builds"],
        place_timeout=params["place_timeout"],
        check_mode=check_mode,
        volume_group=params["volume_group"] or "",
        fetch_limits=limits_of(params),
        ledger_id=params["ledger_id"],
        fetch=params["fetch"],
        pool=pool_of(params),
    )
