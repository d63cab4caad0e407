# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of the current host that are worked on in place: their volumes are the host's, images come to it before anything is taken from a guest, and a
guest is asked to shut down. Rebuilds and reverts add what they do with the disks.
"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.amounts import GIB
from ....module_utils.flows.boot.builds import Build
from ....module_utils.flows.instances.operations import OPERATIONS
from ....module_utils.ledger.compute import instances
from ...builds import build_parts, domain_builder, pool_disks
from ...builds.build_work import BuildWork
from ...relay import boot_images
from ...run import host_settings
from ...run.results import item_errors
from ...volumes import attached_volumes
from ...volumes.attached_volumes import Attached


class InPlace(BuildWork):
    """The guests of one host, each as a build."""

    operation = ""  # its name in flows.instances.operations
    volumes: t.Mapping[str, t.Sequence[Attached]] | None = (
        None  # of its guests, where they are known; None: the ledger is asked
    )

    def connect(
        self, builds: list[Build], attachments_by_uuid: t.Mapping[str, t.Sequence[Attached]]
    ) -> build_parts.Problems:
        attachments = [a for b in builds for a in attachments_by_uuid.get(b.uuid, ())]
        return attached_volumes.reconnect(self.action, attachments)

    def shut_down(self, **more: t.Any) -> set[str]:
        """Ask the guests to shut down: what they have in memory belongs on their volumes. Returns the guests that lost their power. A guest with another
        disk in place of a volume is left alone. :arg more: options of each domain

        source: Nova's _rebuild_default_impl
        """
        builds = self.good(self.builds.values())
        if not builds:
            return set()
        settings = host_settings.read_current_host(self.action)
        volumes = self.sources(builds)
        domains = [
            {"uuid": b.uuid, "volumes": volumes[b.uuid], **more, **OPERATIONS["stop"].details(b.row)} for b in builds
        ]
        result = self.action.run_module(
            "domain_power",
            {
                **host_settings.libvirt_arguments(self.action),
                "domains": domains,
                "state": "shutdown",
                "instances_path": settings.instances_path,
                "shutdown_timeout": settings.shutdown_timeout,
                "workers": host_settings.workers(self.action, len(domains)),
            },
        )
        failed = item_errors(result, [b.uuid for b in builds])
        self.problems.update({u: e for u, e in failed.items() if not isinstance(e, errors.InstanceNotFound)})
        return {u for u, outcome in result["outcomes"].items() if outcome.get("forced")}

    def sources(self, builds: t.Sequence[Build]) -> dict[str, t.Mapping[str, str]]:
        """Return the places of the volumes of these builds on the current host, see attached_volumes.sources_on(), by the uuids of instances."""
        host, uuids = self.action.task_vars["inventory_hostname"], [b.uuid for b in builds]
        if self.volumes is not None:
            known = [a.row for u in uuids for a in self.volumes.get(u, ())]
            sources = attached_volumes.sources_of_rows(r for r in known if r.attached_host == host)
        else:
            sources = self.action.open_ledger().inspect(attached_volumes.sources_on, host, uuids)
        return {uuid: sources.get(uuid, {}) for uuid in uuids}

    def drop_lost_instances(self) -> None:
        """Leave alone what another run has taken over meanwhile: images may have taken long, and guests."""
        builds = self.good(self.builds.values())
        with self.guarded(builds):
            ledger = self.action.open_ledger()
            during = str(OPERATIONS[self.operation].during)
            owned_uuids = ledger.inspect(instances.working_on, [b.uuid for b in builds], during)
            lost_uuids = {b.uuid for b in builds} - owned_uuids
            self.lost_uuids |= lost_uuids
            self.problems.update(ledger.inspect(instances.swap_errors, lost_uuids, [during]))

    def collect_images(self) -> None:
        """Wait for images of the stores of other hosts. A build whose image does not come fails."""
        refused = boot_images.collect(self.action)
        builds = [b for b in self.builds.values() if build_parts.image_of(b) in refused]
        self.problems.update({b.uuid: refused[build_parts.image_of(b)] for b in builds})

    def have_images(self, instances_with_disks: t.Sequence[t.Mapping[str, t.Any]] = ()) -> None:
        """Have the images on the host: what cannot be had fails here, before anything is taken from a guest.

        :arg instances_with_disks: for which disks are made of the images at once; elements of the option ``instances`` of the module instance_disks
        """
        with_image = [b for b in self.builds.values() if build_parts.has_image(b)]
        self.collect_images()
        with_image = self.good(with_image)
        self.problems.update(pool_disks.open_disks(self.action, [b.uuid for b in with_image]))
        with_image = self.good(with_image)
        images = build_parts.images_of(with_image, self.images)
        if not with_image:
            return
        wanted = {b.uuid for b in with_image}
        made = [i for i in instances_with_disks if i["uuid"] in wanted]
        arguments = {**build_parts.disk_arguments(self.action, with_image, images), "instances": made}
        result = self.action.run_module("instance_disks", arguments)
        missing = [images[i] for i in result.get("missing_images") or [] if i in images]
        refused: build_parts.Problems = {}
        if missing:
            with self.uploaded(missing) as (uploads, refused):
                result = self.action.run_module("instance_disks", {**arguments, "uploads": uploads})
        failed = {**item_errors({"outcomes": result["image_outcomes"]}, images), **refused}
        self.problems.update(item_errors(result, [i["uuid"] for i in made]))
        for build in with_image:
            image_id = build.row.spec["image"]["id"]
            size = int((result["image_outcomes"].get(image_id) or {}).get("virtual_size") or 0)
            root = build.row.root_gb * GIB
            if build.uuid in self.problems and image_id not in failed:
                continue
            if image_id in failed:
                self.problems[build.uuid] = failed[image_id]
            elif size > root:
                self.problems[build.uuid] = errors.FlavorDiskSmallerThanImage(flavor_size=root, image_size=size)

    def have_volumes(self, without: t.Collection[str] = ()) -> None:
        """Have the host logged in to the volumes. :arg without: volumes that are to go to their storage hosts"""
        builds = [b for b in self.good(self.builds.values()) if domain_builder.has_volumes(b)]
        if not builds:
            return
        uuids = [b.uuid for b in builds]
        loaded = self.volumes
        if loaded is None:
            loaded = self.action.open_ledger().inspect(attached_volumes.load, uuids)
        loaded = {u: loaded[u] for u in uuids if u in loaded}
        attachments = {u: [a for a in group if a.volume_id not in without] for u, group in loaded.items()}
        problems = self.connect(builds, attachments)
        for uuid, group in attachments.items():
            problem = next((problems[a.id] for a in group if a.id in problems), None)
            if problem is not None:
                self.problems[uuid] = problem
