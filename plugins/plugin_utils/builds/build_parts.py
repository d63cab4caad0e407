# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of builds on their host - networks, disks, config drives, domains - as arguments of the modules that make them."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

from ...module_utils.core import errors
from ...module_utils.core.disks.local import image_marker_path
from ...module_utils.core.model import Image
from ...module_utils.core.networks import dhcp
from ...module_utils.core.networks.network import Network
from ...module_utils.core.reading.setting import Values
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.catalogue_images import find_image
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.flows.boot.builds import Build
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..settings.image_upload import fetch_arguments, is_local, module_image
from ..volumes.attached_volumes import Attached
from . import domain_builder, passwords
from .domain_builder import VOLUME, module_disk

Problems = t.Dict[str, errors.BootflowError]  # by the instance's uuid
SecretsOf = t.Callable[[str, str], t.Optional[GuestSecrets]]  # (project, name): None without an entry of that name


def networks_of(builds: t.Iterable[Build]) -> dict[str, Network]:
    return {network.name: network for build in builds for _port, network in build.ports}


def network_arguments(action: LedgerAction, networks: t.Iterable[Network]) -> dict[str, t.Any]:
    """Options of the module virtual_network."""
    fields = ("name", "type", "source", "manage", "forward", "mtu", "vni", "vlan", "physical_network", "subnets")
    entries = [{k: v for k, v in asdict(network).items() if k in fields} for network in networks]
    has_tunnels = any(entry["vni"] is not None for entry in entries)
    has_uplinks = any(entry["physical_network"] is not None for entry in entries)
    return {
        **host_settings.libvirt_arguments(action),
        **(host_settings.underlay_arguments(action, action.compute_hosts()) if has_tunnels else {}),
        **(host_settings.vlan_arguments(action) if has_uplinks else {}),
        "networks": entries,
    }


def has_image(build: Build) -> bool:
    """Whether a disk of the build's own is made from an image."""
    return any(d["kind"] == "image" for d in build.disks)


def image_of(build: Build) -> str:
    """The id of the image that a disk of the build's own is made from; "" for none."""
    return str(build.image["id"]) if has_image(build) else ""


def image_marker(action: LedgerAction, build: Build) -> str:
    """The file that is on the host when it has the build's image."""
    return image_marker_path(host_settings.read_current_host(action).instances_path, build.image["id"])


def images_of(builds: t.Iterable[Build], catalogue: t.Any) -> dict[str, Image]:
    """The images that root disks are made from, by id. :arg catalogue: bootflow_images"""
    stored = [b.image for b in builds if has_image(b)]
    known = parse_images(catalogue).values() if stored else ()
    return {image.id: image for image in (find_image(known, data) for data in stored)}


def host_can_fetch(action: LedgerAction, image: Image) -> bool:
    """Whether the current host reaches the image without a copy of the controller's file."""
    wanted = module_image(image, is_local(action), action.task_vars["inventory_hostname"])
    return bool(wanted["url"] or wanted["path_on_host"])


def not_copied(name: str) -> errors.BootflowError:
    """Return the error for an image that a build needs and its host does not have."""
    return errors.ImageUnacceptable(image_id=name, reason="the file was not copied to the host")


def disk_arguments(action: LedgerAction, builds: t.Sequence[Build], images: t.Mapping[str, Image]) -> dict[str, t.Any]:
    """Options of the module instance_disks."""
    local = is_local(action)
    settings = host_settings.read_current_host(action)
    return {
        "instances_path": settings.instances_path,
        "ledger_id": builds[0].ledger_id,
        "images": [module_image(i, local, action.task_vars["inventory_hostname"]) for i in images.values()],
        "instances": [
            {
                "uuid": b.uuid,
                "made_at": b.row.updated_at,
                "disks": [module_disk(d, b, settings) for d in b.disks if d["kind"] != VOLUME],
            }
            for b in builds
        ],
        "volume_group": host_settings.volume_group(settings),
        "disk_pool": host_settings.disk_pool(settings),
        "uploads": {},
        "workers": host_settings.workers(action, len(builds)),
        **fetch_arguments(settings),
        "max_builds": settings.max_concurrent_builds,
        "place_timeout": settings.build_place_timeout,
        # The catalogue has refused an image without a checksum unless it says allow_unverified.
        "allow_unverified": any(not i.checksum for i in images.values()),
    }


def drives_and_domains(
    action: LedgerAction,
    builds: t.Sequence[Build],
    volumes: t.Mapping[str, t.Sequence[Attached]],
    places: t.Mapping[str, t.Any],
    secrets_of: SecretsOf,
    problems: Problems,
    stay_off: t.Collection[str] = (),
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Return the options ``drives`` of the module config_drive and ``domains`` of the module domain.

    :arg volumes: attachments, by uuid. :arg places: of the devices of defined domains, by uuid
    :arg secrets_of: what the ledger does not keep. :arg stay_off: builds whose guests are only defined.
    :arg problems: gets the problems of builds that this host, or no host, can run.
    """
    settings = host_settings.read_current_host(action)
    drives, domains = [], []
    for build in builds:
        attached = volumes.get(build.uuid, ())
        try:
            drive = None
            if build.row.config_drive:
                secrets = secrets_of(build.row.project, build.row.display_name)
                password = passwords.password_of(build.uuid, secrets)
                metadata = domain_builder.instance_metadata(
                    build, settings, secrets, password, attached, places.get(build.uuid, ())
                )
                drive = {
                    "uuid": build.uuid,
                    "path": domain_builder.config_drive_path(build, settings),
                    "format": settings.config_drive_format,
                    **domain_builder.drive_content(metadata, domain_builder.image_properties(build)),
                    "keep": build.resumed,
                }
            if build.uuid in stay_off:
                domains.append({**definition(build, settings, attached), "state": "defined"})
            else:
                domains.append(domain(build, settings, attached))
            if drive is not None:
                drives.append(drive)
        except errors.BootflowError as e:
            problems[build.uuid] = e
    return drives, domains


def domain_arguments(action: LedgerAction, domains: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """Options of the module domain."""
    settings = host_settings.read_current_host(action)
    return {
        **host_settings.libvirt_arguments(action),
        "domains": domains,
        "workers": host_settings.workers(action, len(domains)),
        "instances_path": settings.instances_path,
        "max_builds": settings.max_concurrent_builds,
        "place_timeout": settings.build_place_timeout,
    }


def definition(build: Build, settings: Values, volumes: t.Sequence[Attached]) -> dict[str, t.Any]:
    """An element of the option ``domains``, a guest that is started. :raises BootflowError: see domain_builder.domain_config"""
    return {
        "uuid": build.uuid,
        "name": build.row.domain_name,
        "spare_names": domain_builder.spare_names(build),
        "xml": domain_builder.domain_xml(build, settings, volumes),
        "state": "running",
        "wait_timeout": settings.wait_timeout,
        "vif_plugging_timeout": settings.vif_plugging_timeout,
        "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
        "reservations": [
            reserved
            for port, network in build.ports
            for reserved in dhcp.reservations(port.mac_address, port.fixed_ips, network, build.row.hostname)
        ],
    }


def domain(build: Build, settings: Values, volumes: t.Sequence[Attached]) -> dict[str, t.Any]:
    """The same, with what a boot waits for in its guest."""
    wanted = definition(build, settings, volumes)
    timeout = {"timeout": settings.wait_guest_timeout}
    log = {"log": domain_builder.console_log(build, settings)}
    if settings.wait_console:
        wanted["wait_console"] = {"pattern": settings.wait_console, **log, **timeout}
    addresses = [(f["ip_address"], p.mac_address) for p, _n in build.ports for f in p.fixed_ips]
    if addresses and (settings.wait_address or settings.wait_port):
        address, mac_address = addresses[0]
        wanted["wait_address"] = {"address": address, "mac_address": mac_address, **timeout}
        if settings.wait_port:  # what accepts a connection answers
            wanted["wait_address"]["port"] = settings.wait_port
    if settings.wait_agent and domain_builder.has_agent(build):
        wanted["wait_agent"] = settings.wait_guest_timeout
    if settings.wait_cloud_init:
        wanted["wait_cloud_init"] = {"agent": domain_builder.has_agent(build), **log, **timeout}
    return wanted
