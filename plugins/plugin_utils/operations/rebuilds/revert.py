# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts: the root disks of guests go back to images that were made of them, or to incremental backups. Nova has no such operation.

A disk of the image is made while the guest runs. The guest is off for the exchange only, and keeps its domain.
"""

from __future__ import annotations

import contextlib
import copy
import typing as t

from ....module_utils.core import errors
from ....module_utils.core.disks.local import DISK
from ....module_utils.core.images import reverts
from ....module_utils.core.instances import states
from ....module_utils.core.instances.operation_outcomes import Answer, Answers
from ....module_utils.core.model import Image
from ....module_utils.core.request.catalogue_images import image_data
from ....module_utils.core.settings.request import CATALOGUE
from ....module_utils.flows.backups import in_place as backup_flow
from ....module_utils.flows.boot.builds import Build
from ....module_utils.flows.instances import reverts as flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.ledger.backups.backups import stored_file
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ....module_utils.ledger.images import images as image_rows
from ...builds import build_parts
from ...relay import rounds
from ...run import host_settings
from ...run.ledger_action import LedgerAction, read_settings
from ...run.results import item_errors
from ...settings import ledger_images
from .. import hard_reboot
from ..power_work import PowerWork
from ..work import Items, Work, uuids_of
from .in_place import InPlace
from .rebuild import check_files

MODULE = "instance_disks_revert"
BACKUP_MODULE = "instance_backup_image"


class Revert(Work):
    """Has root disks go back to images."""

    starts_any = True
    reads_disks = True

    image_variable = reverts.VARIABLE
    _images: flow.Images
    _backups: t.Mapping[str, backup_flow.GoingBack] = {}
    _nvrams: t.Mapping[str, str] = {}  # UEFI variables, by the ids of images

    def prepare(self) -> None:
        """:raises InvalidInput: neither an image nor a backup is named, or both are. :raises InvalidRequest: bootflow_image_stores is wrong"""
        options = self.action.options
        self._word = reverts.read_word(options["revert_image"], options["revert_backup"])
        self._known = ledger_images.images_of(self.action)

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        if not self._word:
            word = self.action.options["revert_backup"]
            begun, self._backups = backup_flow.begin(tx, operation, selection, known_hosts, word)
            self._images = {uuid: going_back.image for uuid, going_back in self._backups.items()}
            return begun
        begun, self._images = flow.begin(tx, operation, selection, known_hosts, self._word, self._known)
        check_files(self._images.values())
        self._nvrams = image_rows.nvrams(tx, [image.id for image in self._images.values()])
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        image, going_back = self._images[row.uuid], self._backups.get(row.uuid)
        if going_back is not None:
            return {
                "note": image.name,
                "image_data": image_data(image),
                "chain": [stored_file(row) for row in going_back.chain],
            }
        item = {"note": "image %s" % image.name, "image_data": image_data(image)}
        return {**item, "nvram": self._nvrams[image.id]} if image.id in self._nvrams else item

    def change_of(self, row: Instance) -> tuple[str, str]:
        words = ", root disk of %s" if row.uuid in self._backups else ", root disk of image %s"
        return "", words % self._images[row.uuid].name

    def begin_images(self, rows: t.Sequence[Instance]) -> dict[str, t.Any]:
        if self._backups:  # their hosts have them
            return {}
        return rounds.begin_for(self.action, rows, self._images)

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        return revert(self.action, items)

    def result_of(self, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if item.get("chain"):
            return {"backup": {"id": item["chain"][-1]["id"]}}
        return {"image": {"id": item["image_data"]["id"], "name": item["image_data"]["name"]}}


class Reverting(InPlace):
    """Guests whose root disks go back. Each build has the image that its disk goes back to, not the one that it was booted from."""

    operation = "revert"

    def __init__(
        self,
        action: LedgerAction,
        builds: t.Sequence[Build],
        images: t.Mapping[str, t.Any],
        nvrams: t.Mapping[str, str] | None = None,
    ):
        """:arg images: by the uuids of instances, as requests store them. :arg nvrams: UEFI variables of images that have some, by the same keys"""
        catalogue = read_settings(CATALOGUE.options("images"), {}, action.variable)["images"]
        super().__init__(
            action, [_with_image(b, images[b.uuid]) for b in builds], catalogue, lambda _project, _name: None
        )
        self._nvrams = nvrams or {}
        self.power: dict[str, int] = {}  # what each guest's power state is, as far as it is known

    def check(self) -> None:
        """Look whether the disks can go back, and which guests run."""
        self._ask_module("checked", self.good(self.builds.values()))

    def make_disks(self) -> None:
        """Have the images on the host, and a replacement of each root disk."""
        disk = {"name": DISK, "kind": "image"}
        self.have_images(
            [
                {
                    "uuid": b.uuid,
                    "replacement": True,
                    "disks": [{**disk, "image_id": b.row.spec["image"]["id"], "size_gb": b.row.root_gb}],
                }
                for b in self.good(self.builds.values())
            ]
        )

    def exchange(self) -> set[str]:
        """Exchange the disks of guests that are off. Returns the instances that went back."""
        outcomes = self._ask_module("reverted", self.good(self.builds.values()))
        return {u for u, outcome in outcomes.items() if outcome.get("reverted")}

    def drop_disks(self, builds: t.Sequence[Build]) -> None:
        """Remove the replacements of these disks. Where that fails, the next revert does it, or the deletion of the instance."""
        if builds:
            self._ask_module("undone", builds, notes_problems=False)

    def start(self, builds: t.Sequence[Build]) -> None:
        """Start these guests again."""
        if not builds:
            return
        uuids = {b.uuid for b in builds}
        items = [{"uuid": uuid, "details": {}} for uuid in sorted(uuids)]
        try:
            outcomes, failed = PowerWork(self.action, "running").on_host(items, ())
        except errors.BootflowError as e:
            outcomes, failed = {}, dict.fromkeys(uuids, e)
        self.power.update({u: o["power_state"] for u, o in outcomes.items() if "power_state" in o})
        for uuid, problem in failed.items():
            self.problems.setdefault(uuid, problem)  # what came before is the cause

    def _ask_module(
        self, state: str, builds: t.Sequence[Build], notes_problems: bool = True
    ) -> t.Mapping[str, t.Mapping[str, t.Any]]:
        if not builds:
            return {}
        settings = host_settings.read_current_host(self.action)
        volumes = self.sources(builds)
        result = self.action.run_module(
            MODULE,
            {
                **host_settings.libvirt_arguments(self.action),
                "instances_path": settings.instances_path,
                "ledger_id": builds[0].ledger_id,
                "instances": [
                    {"uuid": b.uuid, "volumes": volumes[b.uuid], "nvram": self._nvrams.get(b.uuid, "")} for b in builds
                ],
                "state": state,
                "volume_clear": settings.disk_volume_clear,
                "volume_clear_size_mb": settings.disk_volume_clear_size_mb,
                "workers": host_settings.workers(self.action, len(builds)),
            },
        )
        if notes_problems:
            self.problems.update(item_errors(result, [b.uuid for b in builds]))
        outcomes: t.Mapping[str, t.Mapping[str, t.Any]] = result["outcomes"]
        self.power.update({u: o["power_state"] for u, o in outcomes.items() if "power_state" in o})
        return outcomes


class RevertingToBackups(Reverting):
    """Guests whose root disks go back to incremental backups of their host, each of which becomes an image for as long as the disk is made of it."""

    def __init__(
        self,
        action: LedgerAction,
        builds: t.Sequence[Build],
        images: t.Mapping[str, t.Any],
        chains: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    ):
        """:arg chains: of backups, the full one first, by the uuids of instances"""
        super().__init__(action, builds, images)
        self._chains = chains
        self._files: dict[str, str] = {}  # path of each image on the host, by its id

    def check(self) -> None:
        super().check()
        if self.action.check_mode:
            self._make_images()

    def make_disks(self) -> None:
        try:
            self._make_images()
            super().make_disks()
        finally:
            self._run_module([], [b.image["id"] for b in self.builds.values()])

    def uploaded(
        self, images: t.Iterable[Image]
    ) -> contextlib.AbstractContextManager[tuple[dict[str, str], build_parts.Problems]]:
        """Yield the files of images on the host, where they were made."""
        files = {image.id: self._files[image.id] for image in images if image.id in self._files}
        return contextlib.nullcontext((files, {}))

    def _make_images(self) -> None:
        """Have the host compare all bytes of the backups, and make a file without a base of each. In check mode, only sizes are compared."""
        builds = self.good(self.builds.values())
        if not builds:
            return
        made = [{"key": b.uuid, "image_id": b.image["id"], "chain": list(self._chains[b.uuid])} for b in builds]
        result = self._run_module(made, [])
        self.problems.update(item_errors(result, [b.uuid for b in builds]))
        for build in [] if self.action.check_mode else self.good(builds):
            done = result["outcomes"][build.uuid]
            build.image.update(checksum="sha256:%s" % done["checksum"], size=done["size"])
            self._files[build.image["id"]] = done["path"]

    def _run_module(self, made: t.Sequence[t.Mapping[str, t.Any]], removed: t.Sequence[str]) -> t.Mapping[str, t.Any]:
        arguments = {
            "instances_path": host_settings.read_current_host(self.action).instances_path,
            "backups": list(made),
            "failed_images": list(removed),
        }
        return self.action.run_module(BACKUP_MODULE, arguments)


def _with_image(build: Build, image: t.Mapping[str, t.Any]) -> Build:
    changed = copy.copy(build)
    changed.row = copy.copy(build.row)
    changed.row.spec = {**build.row.spec, "image": dict(image)}
    return changed


def revert(action: LedgerAction, items: Items) -> tuple[Answers, build_parts.Problems]:
    """Revert these. A guest is asked to shut down only when the disk of its image and its volumes are there, and runs again afterwards if it ran,
    whatever became of its disk.

    Returns for each what its instance is now (vm_state; without it, nothing was touched), and why instances failed.
    """
    builds, _volumes, left_alone = action.open_ledger().inspect(hard_reboot.guests, uuids_of(items))
    builds = [b for b in builds if b.uuid not in left_alone]
    images = {i["uuid"]: i["image_data"] for i in items}
    chains = {i["uuid"]: i["chain"] for i in items if i.get("chain")}
    nvrams = {i["uuid"]: i["nvram"] for i in items if i.get("nvram")}
    work = RevertingToBackups(action, builds, images, chains) if chains else Reverting(action, builds, images, nvrams)
    builds = list(work.builds.values())
    with work.guarded(builds):
        work.check()
    ran = {b.uuid for b in builds if b.row.vm_state == states.ACTIVE or work.power.get(b.uuid) not in _OFF}
    if action.check_mode:
        good = work.good(builds)
        planned: Answers = {b.uuid: {"changed": True, **_power_of(b, work, b.uuid in ran)} for b in good}
        return planned, {**left_alone, **work.problems}
    with work.guarded(work.good(builds)):
        work.have_volumes()
    begun = work.good(builds)
    with work.guarded(begun):
        work.make_disks()
    work.drop_lost_instances()
    forced: set[str] = set()
    with work.guarded(work.good(builds)):
        forced = work.shut_down(leaves=True)
    work.power.update(dict.fromkeys((b.uuid for b in work.good(builds)), states.SHUTDOWN))
    work.drop_lost_instances()
    touched = work.good(builds)
    reverted: set[str] = set()
    with work.guarded(touched):
        reverted = work.exchange()
    work.start([b for b in touched if b.uuid in ran])
    with work.guarded(()):
        work.drop_disks([b for b in begun if b.uuid not in reverted | work.lost_uuids])
    outcomes: Answers = {}
    for build in touched:
        outcomes[build.uuid] = {"changed": build.uuid in reverted or build.uuid in forced}
        runs = work.power.get(build.uuid) not in _OFF
        if build.uuid in reverted or build.row.vm_state != states.ERROR:
            outcomes[build.uuid].update(_power_of(build, work, runs))
        if build.uuid in forced:
            outcomes[build.uuid]["forced"] = True
    return outcomes, {**left_alone, **work.problems}


_OFF = (states.SHUTDOWN, states.CRASHED)


def _power_of(build: Build, work: Reverting, runs: bool) -> Answer:
    """Return the states of an instance. :arg runs: whether its guest does"""
    known = work.power.get(build.uuid, states.NOSTATE)
    return {"vm_state": states.ACTIVE if runs else states.STOPPED, "power_state": known}
