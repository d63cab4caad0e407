# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module volume_rbd: many volumes and snapshots of one pool."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.amounts import GIB
from ...core.errors import BootflowError, InvalidInput
from ...core.volumes.names import volume_name
from ...core.volumes.rbd_names import FORMER
from ..images.fetch import UNLIMITED, FetchLimits
from ..images.images import ImageSource, convert, image_source
from ..lvm.lvm import item_locks
from ..os.batch import run_batch
from ..os.module_errors import failure
from ..os.ownership import check_owner
from ..volumes.backend_facts import moment
from ..volumes.plan import ABSENT, CREATE, EXTEND, NOTHING, REIMAGE, DesiredVolume, desired_volume, rounds
from ..volumes.volume_images import CheckedImage, TemporaryImages, check_fits_volume, checked_temp_dir
from .cluster import Cluster
from .images import Images
from .plan import LEDGER, SNAPSHOT, Image, Plan, images_of, plan, settled
from .pool_facts import capacity

Outcome = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Settings:
    """The settings of a pool's backend."""

    temp_dir: str = "/var/lib/bootflow/conversion"
    verify: bool = True
    allow_unverified: bool = False
    fetch_limits: FetchLimits = UNLIMITED
    workers: int = 4
    check_mode: bool = False
    ledger_id: str = ""


@dataclass
class _Batch:
    cluster: Cluster
    settings: Settings
    sources: t.Mapping[str, ImageSource]
    temporary: TemporaryImages
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)
    former: dict[str, str] = field(default_factory=dict)  # in check mode: images that would get their names back

    def round(self, desired_volumes: t.Sequence[DesiredVolume]) -> None:
        """Work on volumes that do not wait for each other."""
        work = Images(self.cluster, self.settings.ledger_id)
        images = self._settled(work, desired_volumes, images_of(self.cluster.rows()))
        plans = self._plans([d for d in desired_volumes if d.id not in self.outcomes], images)
        if self.settings.check_mode:
            for made in plans:
                self._done(made, made.action != NOTHING)
            return
        removals = [made for made in plans if made.desired.state == ABSENT and made.action != NOTHING]
        # One after the other: clones and what they were cloned from. Snapshots first: a volume that has some is not removed.
        self._stage([made for made in removals if made.desired.kind == SNAPSHOT], work.remove_snapshot)
        volumes = [made for made in removals if made.desired.kind != SNAPSHOT]
        self._stage(volumes, lambda made: work.remove_volume(made, images))
        self._stage([made for made in plans if made.action == EXTEND], self._extend)
        for made in plans:
            if made.action == NOTHING:
                self._done(made, False)
        creations = [made for made in plans if made.action in (CREATE, REIMAGE)]
        if creations:
            self._create(work, creations, images)

    def _settled(
        self, work: Images, desired_volumes: t.Sequence[DesiredVolume], images: t.Mapping[str, Image]
    ) -> t.Mapping[str, Image]:
        """Settle the exchanges of these volumes that a killed run began. Returns the images afterwards."""
        to_settle = {desired.id: volume_name(desired.id) for desired in desired_volumes if desired.kind != SNAPSHOT}
        to_settle = {volume_id: name for volume_id, name in to_settle.items() if name + FORMER in images}
        if not to_settle:
            return images
        if self.settings.check_mode:
            self.former = {name: name + FORMER for name in to_settle.values() if name not in images}
            return settled(images, to_settle.values())
        for volume_id, name in to_settle.items():
            try:
                check_owner(
                    "image %s" % name, self.cluster.metadata(name + FORMER).get(LEDGER, ""), self.settings.ledger_id
                )
                work.settle_exchange(name)
            except BootflowError as error:
                self.outcomes[volume_id] = failure(error)
        return images_of(self.cluster.rows())

    def _plans(self, desired_volumes: t.Sequence[DesiredVolume], images: t.Mapping[str, Image]) -> list[Plan]:
        removing = {desired.id for desired in desired_volumes if desired.state == ABSENT}
        plans = []
        for desired in desired_volumes:
            try:
                made = plan(desired, images, self._metadata, self.settings.ledger_id, removing)
            except BootflowError as error:
                self.outcomes[desired.id] = failure(error)
                continue
            was = images.get(made.image)
            existed = made.action not in (CREATE,) and was is not None
            self.before[desired.id] = {"name": made.name, "size": was.size} if existed and was is not None else None
            plans.append(made)
        return plans

    def _metadata(self, name: str) -> dict[str, str]:
        return self.cluster.metadata(self.former.get(name, name))

    def _stage(self, plans: t.Sequence[Plan], work: t.Callable[[Plan], None], workers: int = 1) -> None:
        """Call the function for each plan, and record the outcomes."""

        def one(made: Plan) -> Outcome:
            work(made)
            return {}

        for item_id, result in run_batch([(made.desired.id, made) for made in plans], one, workers).items():
            if result["error"]:
                self.outcomes[item_id] = result
        for made in plans:
            if made.desired.id not in self.outcomes:
                self._done(made, True)

    def _done(self, made: Plan, changed: bool) -> None:
        absent = made.desired.state == ABSENT
        size = 0 if absent else made.size
        outcome = {"action": made.action, "name": made.name, "path": "", "size": size}
        self.outcomes[made.desired.id] = {"changed": changed, "error": None, **outcome}
        self.after[made.desired.id] = None if absent else {"name": made.name, "size": size}

    def _extend(self, made: Plan) -> None:
        self.cluster.resize(made.image, made.size)

    # --- creation -----------------------------------------------------------------------------------------------------

    def _create(self, work: Images, plans: t.Sequence[Plan], images: t.Mapping[str, Image]) -> None:
        raw: dict[str, str] = {}
        checked_images: list[CheckedImage] = []
        try:
            for image_id in sorted({made.desired.image_id for made in plans if made.desired.image_id}):
                waiting = [made for made in plans if made.desired.image_id == image_id]
                try:
                    checked = self.temporary.take(self._source(image_id), max(made.desired.size for made in waiting))
                    checked_images.append(checked)
                    raw[image_id] = self._raw_file(checked)
                except BootflowError as error:
                    for made in waiting:
                        self.outcomes[made.desired.id] = failure(error)
                    continue
                for made in waiting:
                    try:
                        check_fits_volume(checked.source.label, checked.virtual_size, made.desired.size // GIB)
                        checked.check_steady()
                    except BootflowError as error:
                        self.outcomes[made.desired.id] = failure(error)
            plans = [made for made in plans if made.desired.id not in self.outcomes]

            def one(made: Plan) -> None:
                if made.desired.kind == SNAPSHOT:
                    work.snapshot(made)
                elif made.action == REIMAGE:
                    work.write_again(made, raw[made.desired.image_id], images, self.settings.verify)
                else:
                    work.create(made, raw.get(made.desired.image_id, ""), images, self.settings.verify)

            self._stage(plans, one, self.settings.workers or len(plans))
        finally:
            for checked in checked_images:
                self.temporary.drop(checked)

    def _source(self, image_id: str) -> ImageSource:
        if image_id not in self.sources:
            raise InvalidInput(reason="image %s is not among the images" % image_id)
        return self.sources[image_id]

    def _raw_file(self, checked: CheckedImage) -> str:
        """Return a file with the bytes of the disk."""
        if checked.driver == "raw":
            return checked.path
        path = self.temporary.path(checked.source.id + ".raw")
        convert(checked.path, checked.driver, path)
        return path


def make_volumes(
    cluster: Cluster,
    settings: Settings,
    volumes: t.Sequence[t.Mapping[str, t.Any]],
    images: t.Sequence[t.Mapping[str, t.Any]] = (),
    uploads: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """Return {outcomes by id, backend: capacity afterwards, diff}; the module volume_rbd documents the fields.

    :raises InvalidInput: a volume is given twice, or a setting is not valid.
    :raises StorageClusterUnavailable: the cluster does not answer. :raises StorageClusterFull: the pool is full, and a volume is to be made or extended.
    """
    checked_temp_dir(settings.temp_dir)
    ids = [str(args.get("id")) for args in volumes]
    twice = sorted({item_id for item_id in ids if ids.count(item_id) > 1})
    if twice:
        raise InvalidInput(reason="volumes given more than once: %s" % ", ".join(twice))
    sources = {
        args["id"]: image_source(args, uploads or {}, settings.allow_unverified, settings.fetch_limits)
        for args in images
    }
    # Before anything is touched: each request of a cluster that is away or full would wait.
    state = cluster.checked(writing=any(args.get("state") != ABSENT for args in volumes))
    with TemporaryImages(settings.temp_dir, settings.allow_unverified) as temporary:
        if not settings.check_mode:
            temporary.sweep()
        batch = _Batch(cluster, settings, sources, temporary)
        desired_volumes = []
        for item_id, args in zip(ids, volumes):
            try:
                desired_volumes.append(desired_volume(args))
            except BootflowError as error:
                batch.outcomes[item_id] = failure(error)
        with contextlib.ExitStack() as stack:
            if not settings.check_mode:
                stack.enter_context(item_locks(desired.id for desired in desired_volumes))
            for in_round in rounds(desired_volumes):
                batch.round(in_round)
            at = moment()
            backend = None
            with contextlib.suppress(BootflowError):  # without figures the ledger reckons with its own
                backend = capacity(cluster, state, images_of(cluster.rows()), at)
    return {
        "outcomes": {item_id: batch.outcomes[item_id] for item_id in ids},
        "backend": backend,
        "diff": {"before": batch.before, "after": dict(batch.before, **batch.after)},
    }
