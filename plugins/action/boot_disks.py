# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_disks."""

from __future__ import annotations

import os
import posixpath
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import accept
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import builds as ledger_builds
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.builds import Build
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings, request_inputs
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_of_build import disk_backend, module_disk
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import Outcomes, StageAction, item_errors


class ActionModule(StageAction):
    ARGUMENTS = request_inputs.CATALOGUE_ARGUMENTS
    STAGE = ledger_builds.BLOCK_DEVICE_MAPPING

    def work(self, builds: list[Build]) -> Outcomes:
        o = self.options
        catalogue = parse_catalogue(o["flavors"], o["images"], o["networks"], o["keypairs"])
        images: dict[str, Image] = {}
        for build in builds:
            if build.row.spec["image"]:
                image = accept.find_image(catalogue.images.values(), build.row.spec["image"])
                images[image.id] = image
        local = getattr(self._connection, "transport", "") == "local"
        arguments: dict[str, t.Any] = {
            "instances_path": host_settings.instances_path(self),
            "images": [_module_image(i, local) for i in images.values()],
            "instances": [
                {"uuid": b.uuid, "disks": [module_disk(d, b, disk_backend(self)) for d in b.disks]} for b in builds
            ],
            "uploads": {},
            "workers": host_settings.workers(self, len(builds)),
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
                        uploads[image_id] = self._upload(images[image_id])
                    except errors.BootflowError as e:
                        refused[image_id] = e
                result = self.run_module("instance_disks", {**arguments, "uploads": uploads})
            finally:
                if uploads and self._connection._shell.tmpdir:
                    self._remove_tmp_path(self._connection._shell.tmpdir, force=True)
        problems = item_errors(result, [b.uuid for b in builds])
        for uuid, outcome in result["outcomes"].items():
            for image_id in outcome.get("pending") or []:
                problems[uuid] = refused.get(image_id) or errors.ImageUnacceptable(
                    image_id=images[image_id].name, reason="it did not come to the host"
                )
        return {b.uuid: problems.get(b.uuid) for b in builds}

    def _upload(self, image: Image) -> str:
        """Copy the controller's file to the host. Returns its path there."""
        source = os.path.expanduser(image.path)
        if not os.path.isfile(source):
            raise errors.ImageUnacceptable(
                image_id=image.name,
                reason="the file %s is not on the controller" % source,
                remedy="Correct its path in bootflow_images.",
            )
        try:
            folder = self._connection._shell.tmpdir or self._make_tmp_path()
            self._connection._shell.tmpdir = folder
            target = posixpath.join(folder, "image-%s" % image.id)
            self._display.display(
                "%s: copying image %s (%d MB)"
                % (self.task_vars["inventory_hostname"], image.name, os.path.getsize(source) >> 20)
            )
            self._transfer_file(source, target)
        except AnsibleConnectionFailure as e:
            raise errors.HostUnreachable(host=self.task_vars["inventory_hostname"], reason=str(e)) from e
        except AnsibleError as e:
            raise errors.ImageDownloadFailed(image_id=image.name, url=source, reason=str(e)) from e
        return t.cast(str, target)


def _module_image(image: Image, local: bool) -> dict[str, t.Any]:
    return {
        "id": image.id,
        "name": image.name,
        "url": image.url or None,
        "path_on_host": os.path.expanduser(image.path) if image.path and local else None,
        "checksum": image.checksum or None,
        "disk_format": image.disk_format,
    }
