# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_disks."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_images
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_images import find_image
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import CATALOGUE
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds as ledger_builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.builds import Build
from ansible_collections.bootflow.compute.plugins.plugin_utils import attached_volumes, host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_of_build import VOLUME, has_volumes, module_disk
from ansible_collections.bootflow.compute.plugins.plugin_utils.image_upload import (
    fetch_arguments,
    is_local,
    module_image,
    remove_uploads,
    upload,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import item_errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import Outcomes, StageAction


class ActionModule(StageAction):
    ARGUMENTS = CATALOGUE.options("images")
    STAGE = ledger_builds.BLOCK_DEVICE_MAPPING

    def work(self, builds: list[Build]) -> Outcomes:
        outcomes = self._local_disks(builds)
        with_volumes = [b for b in builds if has_volumes(b) and outcomes[b.uuid] is None]
        if with_volumes:
            outcomes.update(self._volumes(with_volumes))
        return outcomes

    def _volumes(self, builds: list[Build]) -> Outcomes:
        """Connect the builds' volumes, after their local disks: what fails there needs no session."""
        ledger = self.open_ledger()
        found = ledger.inspect(attached_volumes.load, [b.uuid for b in builds])
        problems: dict[str, errors.BootflowError] = {}
        for facts, group in _by_node(builds):
            mine = [a for b in group for a in found.get(b.uuid, ())]
            problems.update(attached_volumes.connect(self, ledger, mine, facts))
        return {b.uuid: next((problems[a.id] for a in found.get(b.uuid, ()) if a.id in problems), None) for b in builds}

    def _images(self, builds: list[Build]) -> dict[str, Image]:
        """The images that root disks are made from, by id."""
        stored = [b.row.spec["image"] for b in builds if any(d["kind"] == "image" for d in b.disks)]
        catalogue = parse_images(self.options["images"]).values() if stored else ()
        return {image.id: image for image in (find_image(catalogue, data) for data in stored)}

    def _local_disks(self, builds: list[Build]) -> Outcomes:
        images = self._images(builds)
        local = is_local(self)
        settings = host_settings.of(self)
        arguments: dict[str, t.Any] = {
            "instances_path": settings.instances_path,
            "ledger_id": self.ledger_id(),
            "images": [module_image(i, local) for i in images.values()],
            "instances": [
                {
                    "uuid": b.uuid,
                    "disks": [module_disk(d, b, settings) for d in b.disks if d["kind"] != VOLUME],
                }
                for b in builds
            ],
            "volume_group": host_settings.volume_group(settings),
            "uploads": {},
            "workers": host_settings.workers(self, len(builds)),
            **fetch_arguments(settings),
            "max_builds": settings.max_concurrent_builds,
            "place_timeout": settings.build_place_timeout,
            # The catalogue has refused an image without a checksum unless it says allow_unverified.
            "allow_unverified": any(not i.checksum for i in images.values()),
        }
        result = self.run_module("instance_disks", arguments)
        missing = [i for i in result.get("missing_images") or [] if i in images]
        uploads: dict[str, str] = {}
        refused: dict[str, errors.BootflowError] = {}
        if missing:
            # Found out by asking: the cache usually has the image, and the usual case costs one call.
            try:
                for image_id in missing:
                    try:
                        uploads[image_id] = upload(self, images[image_id])
                    except errors.BootflowError as e:
                        refused[image_id] = e
                result = self.run_module("instance_disks", {**arguments, "uploads": uploads})
            finally:
                if uploads:
                    remove_uploads(self)
        problems = item_errors(result, [b.uuid for b in builds])
        for uuid, outcome in result["outcomes"].items():
            for image_id in outcome.get("pending") or []:
                problems[uuid] = refused.get(image_id) or errors.ImageUnacceptable(
                    image_id=images[image_id].name, reason="the file was not copied to the host"
                )
        return {b.uuid: problems.get(b.uuid) for b in builds}


def _by_node(builds: list[Build]) -> list[tuple[dict[str, t.Any], list[Build]]]:
    """(facts of a node, its builds): a host may report as several nodes."""
    found: dict[str, tuple[dict[str, t.Any], list[Build]]] = {}
    for build in builds:
        found.setdefault(build.row.node, (build.facts, []))[1].append(build)
    return list(found.values())
