# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts: the root disks of guests go back to images that were made of them. Nova has no such operation.

A disk of the image is made while the guest runs. The guest is off for the exchange only, and keeps its domain.
"""

from __future__ import annotations

import copy
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.local import DISK
from ...module_utils.core.images import reverts
from ...module_utils.core.instances import states
from ...module_utils.core.instances.operation_outcomes import Answer, Answers
from ...module_utils.core.request.catalogue_images import image_data
from ...module_utils.core.settings.request import CATALOGUE
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import reverts as flow
from ...module_utils.flows.instances.operation import Begun, Operation, Selection
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts
from ..relay import rounds
from ..run import host_settings
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import item_errors
from ..settings import ledger_images
from . import hard_reboot
from .in_place import InPlace
from .power_work import PowerWork
from .rebuild import check_files
from .work import Items, Work, uuids_of

MODULE = "instance_disks_revert"


class Revert(Work):
    """Has root disks go back to images."""

    image_variable = reverts.VARIABLE
    _images: flow.Images

    def prepare(self) -> None:
        """:raises InvalidInput: no image is named. :raises InvalidRequest: bootflow_image_stores is wrong"""
        self._word = reverts.read_word(self.action.options["revert_image"])
        self._known = ledger_images.images_of(self.action)

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        begun, self._images = flow.begin(tx, operation, selection, known_hosts, self._word, self._known)
        check_files(self._images.values())
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        image = self._images[row.uuid]
        return {"note": "image %s" % image.name, "image_data": image_data(image)}

    def change_of(self, row: Instance) -> tuple[str, str]:
        return "", ", root disk of image %s" % self._images[row.uuid].name

    def begin_images(self, rows: t.Sequence[Instance]) -> dict[str, t.Any]:
        return rounds.begin_for(self.action, rows, self._images)

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        return revert(self.action, items)

    def result_of(self, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {"image": {"id": item["image_data"]["id"], "name": item["image_data"]["name"]}}


class Reverting(InPlace):
    """Guests whose root disks go back. Each build has the image that its disk goes back to, not the one that it was booted from."""

    operation = "revert"

    def __init__(self, action: LedgerAction, builds: t.Sequence[Build], images: t.Mapping[str, t.Any]):
        """:arg images: by the uuids of instances, as requests store them"""
        catalogue = read_settings(CATALOGUE.options("images"), {}, action.variable)["images"]
        super().__init__(
            action, [_with_image(b, images[b.uuid]) for b in builds], catalogue, lambda _project, _name: None
        )
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
                "instances": [{"uuid": b.uuid, "volumes": volumes[b.uuid]} for b in builds],
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
    work = Reverting(action, builds, {i["uuid"]: i["image_data"] for i in items})
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
