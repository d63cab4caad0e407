# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request of a boot as options of an action: read, checked against the catalogue, ready for the ledger."""

from __future__ import annotations

import os
import typing as t

from ...module_utils.core.errors import InvalidInput
from ...module_utils.core.images.resolve import LedgerImages
from ...module_utils.core.instances import quotas
from ...module_utils.core.instances.request import ServerRequest
from ...module_utils.core.networks.network import Network
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.request import catalogue as catalogue_module
from ...module_utils.core.request import server_request
from ...module_utils.core.request.options import RequestOptions
from ...module_utils.core.settings.request import SHORT_NAMES
from ...module_utils.flows.boot import accept
from . import image_upload
from .scheduler_settings import Reading, reading_by_names


class BootRequest:
    """The entries of the request and the catalogue they name things of."""

    def __init__(
        self,
        options: t.Mapping[str, t.Any],
        reading: Reading | None = None,
        zones: t.Collection[str] | None = None,
        user: str = "",
        follows_file: bool | None = None,
        ledger_images: LedgerImages | None = None,
        filters_ports: bool = False,
    ):
        """:arg reading: what the scheduler reads; by default from its settings among the options. Without these, hints are
            not checked against filters.
        :arg zones: the availability zones that exist; None: any may be requested.
        :arg user: who runs the playbook.
        :arg ledger_images: images of the ledger that entries may name.
        :arg filters_ports: hosts filter the ports of guests; otherwise entries name no security group
        :arg follows_file: the playbook apply reads it, which has fields that a boot refuses. None: as ``follow_file`` of the options says
        """
        self.options = options
        self.catalogue = catalogue_module.parse_catalogue(
            options["flavors"],
            options["images"],
            options["networks"],
            options["keypairs"],
            options["server_groups"],
            options["pci_alias"],
            default_project=options["project"],
            ledger_images=ledger_images,
        )
        problems = Problems()
        with problems.collect("server_groups"):
            quotas.check_server_groups(self.catalogue.server_groups.values(), options["quotas"])
        problems.raise_if_any()
        if reading is None and "enabled_filters" in options:
            reading = reading_by_names(options["enabled_filters"], options["weighers"])
        self.filters = None if reading is None else reading.filters  # names of the enabled ones
        self.requests: list[ServerRequest] = server_request.parse_requests(
            options["instances"],
            self.catalogue,
            RequestOptions(
                allow_forced_host=options["allow_forced_host"],
                allow_zero_disk=options["allow_zero_disk_flavor"],
                allow_other_owners=options["allow_other_owners"],
                user=user,
                denied_policies=options["denied_policies"],
                default_schedule_zone=options["default_schedule_zone"],
                availability_zones=zones,
                default_flavor=options.get("default_flavor"),
                default_project=options["project"],
                allow_duplicate_networks=options["allow_duplicate_networks"],
                force_config_drive=options["force_config_drive"],
                extra_hint_names=tuple(options["scheduler_hint_names"]),
                hints_read=None if reading is None else reading.hints,
                enabled_filters=self.filters,
                enabled_weighers=None if reading is None else reading.weighers,
                schema_dirs=tuple(options["schema_dirs"]),
                quotas=options["quotas"],
                overhead=options["instance_overhead"],
                follows_file=bool(options.get("follow_file") if follows_file is None else follows_file),
                max_count=options["max_count"],
                filters_ports=filters_ports,
            ),
        )

    def networks_used(self) -> list[Network]:
        """Return the networks of the catalogue that instances are to be in; networks of existing ports are not known yet."""
        words = {network.network for request in self.requests for network in request.networks}
        return [network for network in self.catalogue.networks.values() if words & {network.id, network.name}]

    def accept_options(self) -> accept.AcceptOptions:
        by_name: dict[str, Network] = {}
        for network in self.catalogue.networks.values():
            by_name[network.id] = network
            by_name[network.name] = network
        return accept.AcceptOptions(
            quotas=self.options["quotas"],
            force_config_drive=self.options["force_config_drive"],
            networks=by_name,
            max_local_block_devices=self.options["max_local_block_devices"],
            short_domain_names=self.options["domain_names"] == SHORT_NAMES,
            keep_built_instances=bool(self.options.get("follow_file")),
        )

    def refuse_fields_of_apply(self) -> None:
        """:raises InvalidRequest: fields that only the playbook apply reads; a boot does nothing with them."""
        problems = Problems()
        for index, request in enumerate(self.requests):
            given = {
                "state": request.state,
                "locked": request.locked,
                "allow": request.allow or None,
            }
            for name in (n for n, value in given.items() if value is not None):
                problems.add(
                    "instances[%d].%s" % (index, name),
                    InvalidInput(
                        message="boot does not read %s" % name,
                        remedy="Run bootflow.compute.apply, which does, or leave the field out.",
                    ),
                )
        problems.raise_if_any()

    def image_ids(self) -> set[str]:
        """The ids of all images that entries name."""
        images = [i for r in self.requests for i in (r.image, r.root_image) if i is not None]
        devices = [d for r in self.requests for d in r.block_device_mapping if d.source_type == "image" and d.uuid]
        return {image.id for image in images} | {str(device.uuid) for device in devices}

    def check_image_files(self) -> None:
        """:raises InvalidRequest: images whose file is not on the controller."""
        problems = Problems()
        for index, request in enumerate(self.requests):
            for image in (request.image, request.root_image):
                if image is not None and image.path and not os.path.isfile(os.path.expanduser(image.path)):
                    problems.add("instances[%d].image" % index, image_upload.file_missing(image))
        problems.raise_if_any()
