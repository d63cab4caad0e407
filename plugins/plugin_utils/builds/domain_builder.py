# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host-side form of a build in the ledger: paths, disks, config drive, domain XML."""

from __future__ import annotations

import base64
import dataclasses
import os
import posixpath
import typing as t
from secrets import token_hex

from ...module_utils.core import errors
from ...module_utils.core.disks.block_devices import PlannedDisk, planned_disk
from ...module_utils.core.disks.stores.registry import STORE_TYPES
from ...module_utils.core.guest import config as core_guest
from ...module_utils.core.guest import config_drive_rules, devices, metadata, platform, values
from ...module_utils.core.guest.domain.domain import DomainConfig, render
from ...module_utils.core.guest.domain.element import to_text
from ...module_utils.core.guest.drive_files import pack_files
from ...module_utils.core.guest.nocloud import nocloud_files
from ...module_utils.core.guest.nvram import NVRAM
from ...module_utils.core.guest.password_hash import sha512_crypt
from ...module_utils.core.model import Flavor
from ...module_utils.core.reading.setting import Values
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.core.request.image_rules import zero_disk_gb
from ...module_utils.core.resources.numa.topology import GuestNUMATopology, HostNUMATopology
from ...module_utils.core.settings.hosts import GUEST
from ...module_utils.core.times import utc
from ...module_utils.core.volumes.disk_pool import DiskPool
from ...module_utils.flows.boot.builds import Build
from ..run import host_settings
from ..volumes import attached_volumes
from ..volumes.attached_volumes import Attached
from . import ssh_host_keys

VERSION = "0.9.0"  # of the collection, in the domain's metadata
VOLUME = "volume"  # kind of a planned disk that an attachment brings
MACHINE_TYPE = "hw_machine_type"  # property of an image


def folder(build: Build, settings: Values) -> str:
    return posixpath.join(settings.instances_path, build.uuid)


def config_drive_path(build: Build, settings: Values) -> str:
    return posixpath.join(folder(build, settings), "disk.config")


def console_log(build: Build, settings: Values) -> str:
    return posixpath.join(folder(build, settings), "console.log")


def nvram_path(build: Build, settings: Values) -> str:
    return posixpath.join(folder(build, settings), NVRAM)


def has_nvram(build: Build, settings: Values) -> bool:
    """Whether the guest has UEFI variables."""
    properties = image_properties(build)
    return platform.wanted_firmware(properties, settings.firmware, host_capabilities(build).arch) == "uefi"


def has_volumes(build: Build) -> bool:
    return any(d["kind"] == VOLUME for d in build.disks)


def has_agent(build: Build) -> bool:
    return devices.has_agent(image_properties(build))


def has_tags(build: Build) -> bool:
    """Whether the guest finds the places of its devices in its metadata."""
    return any(disk.get("tag") for disk in build.disks) or any(port.tag for port, _network in build.ports)


def image_properties(build: Build) -> t.Mapping[str, t.Any]:
    """Return the properties of the image from which the guest boots."""
    properties: t.Mapping[str, t.Any] = (build.row.spec["image"] or {}).get("properties") or {}
    return properties


def drive_content(md: metadata.InstanceMetadata, properties: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options ``label`` and ``files`` of a drive of the module config_drive.

    :arg properties: of the image that reads the drive.
    """
    datasource = config_drive_rules.datasource(properties)
    files = nocloud_files(md) if datasource == config_drive_rules.NO_CLOUD else metadata.config_drive_files(md)
    return {"label": config_drive_rules.LABELS[datasource], "files": pack_files(files)}


def instance_metadata(
    build: Build,
    settings: Values,
    secrets: t.Optional[GuestSecrets],
    password: str,
    volumes: t.Sequence[Attached] = (),
    places: t.Sequence[t.Mapping[str, t.Any]] = (),
    image: t.Optional[t.Mapping[str, t.Any]] = None,
) -> metadata.InstanceMetadata:
    """Return the metadata of the guest. ``secrets``: user data and files, which the ledger does not store.

    A password that cloud-init sets is on the drive as a hash only: any user of the guest can read the drive's metadata.

    :arg volumes: attachments of the build.
    :arg places: of the devices of the defined domain, see hosts.libvirt.domains.device_places().
    :arg image: that it boots, if not its own.
    """
    row, spec = build.row, build.row.spec
    numa = build.allocation.get("numa")
    files = tuple((f.path, base64.b64decode(f.contents)) for f in secrets.injected_files) if secrets else ()
    keys = ((spec["key_name"], spec["key_data"]),) if spec["key_data"] else ()
    image = image or spec["image"] or {}
    properties = image.get("properties") or {}
    given = secrets is not None and bool(secrets.admin_password)
    as_hash = (given or settings.inject_password) and not values.is_windows(properties)
    user = str(properties.get("os_admin_user") or "root")  # source: Nova's set_admin_password
    return metadata.InstanceMetadata(
        uuid=row.uuid,
        display_name=row.display_name,
        hostname=row.hostname,
        project_id=row.project,
        availability_zone=_zone(build),
        launch_index=row.launch_index,
        metadata=spec["metadata"],
        keys=keys,
        user_data=secrets.user_data if secrets else None,
        vendor_data=settings.vendor_data,
        dhcp_domain=settings.dhcp_domain,
        admin_password=None if as_hash else password,
        login=(user, sha512_crypt(password, token_hex(8))) if as_hash else None,
        ssh_host_key=ssh_host_keys.key_pair(row.uuid) if has_ssh_host_key(build, settings) else None,
        random_seed=_random_seed(),
        injected_files=files,
        network_info=tuple(build.network_info),
        reservation_id=row.reservation_id,
        security_groups=tuple(build.security_groups),
        instance_type=spec["flavor"]["name"],
        image_id=image.get("id", ""),
        block_device_mapping=ec2_block_device_mapping(build),
        devices=tuple(tagged_devices(build, volumes, places)),
        dedicated_cpus=GuestNUMATopology.from_dict(numa).dedicated_cpus if numa else (),
    )


def has_ssh_host_key(build: Build, settings: Values) -> bool:
    """Whether the guest gets an SSH host key on its config drive. One whose root volume has a key already keeps that."""
    properties = image_properties(build)
    has_one = bool(build.row.ssh_host_key and build.row.spec.get("is_bfv"))
    return bool(settings.ssh_host_keys and build.row.config_drive and not has_one and not values.is_windows(properties))


def ec2_block_device_mapping(build: Build) -> dict[str, str]:
    """EC2's names of the build's disks: cloud-init finds the ephemeral and swap disks by them."""

    def named(kind: str) -> list[str]:
        return [disk["device_name"] for disk in build.disks if disk["kind"] == kind]

    root = next((disk["device_name"] for disk in build.disks if disk.get("boot_index") == 0), None)
    return metadata.block_device_mapping(root, named("ephemeral"), next(iter(named("swap")), None), named(VOLUME))


def tagged_devices(
    build: Build, volumes: t.Sequence[Attached], places: t.Sequence[t.Mapping[str, t.Any]]
) -> t.Iterator[dict[str, t.Any]]:
    """The devices with a tag, for meta_data.json: a guest recognises a volume by its serial. source: Nova's _build_device_metadata"""
    ports = {port.mac_address: port for port, _network in build.ports if port.tag}
    disks = {disk["device_name"]: disk for disk in build.disks if disk.get("tag")}
    for place in places:
        port = ports.get(place.get("mac", ""))
        disk = disks.get("/dev/" + place.get("name", ""))
        if port is not None:
            yield {**place, "tags": [port.tag]}
        elif disk is not None:
            attached = attached_volumes.attached_of(disk, volumes) if disk["kind"] == VOLUME else None
            serial = attached.volume_id if attached is not None else disk.get("serial")
            yield {**place, "serial": serial, "tags": [disk["tag"]]}


def _zone(build: Build) -> str | None:
    """The node's zone: of several, the requested one."""
    requested = build.row.availability_zone
    zones = [zone.strip() for zone in build.zone.split(",")]
    return requested if requested and (requested in zones or not build.zone) else build.zone or None


def _random_seed() -> bytes:
    return os.urandom(metadata.RANDOM_SEED_BYTES)


def module_disk(disk: t.Mapping[str, t.Any], build: Build, settings: Values) -> dict[str, t.Any]:
    """A planned disk in the form of the module instance_disks."""
    wanted = blank_disk(disk, settings)
    if disk["kind"] == "image":
        wanted["image_id"] = build.image["id"]
        own = build.row.spec["image"]
        if disk["size_gb"] == 0 and zero_disk_gb(own):
            wanted["max_size_gb"] = zero_disk_gb(own)
    return wanted


def blank_disk(disk: t.Mapping[str, t.Any], settings: Values) -> dict[str, t.Any]:
    """The same of an ephemeral or swap disk."""
    wanted = {
        "name": disk["name"],
        "kind": disk["kind"],
        "backend": settings.disk_backend,
        "size_gb": disk["size_gb"],
        "size_mb": disk["size_mb"],
        "fs": (disk["guest_format"] or settings.default_ephemeral_format) if disk["kind"] == "ephemeral" else None,
    }
    return {k: v for k, v in wanted.items() if v is not None}


def _placed(disk: t.Mapping[str, t.Any], build: Build, settings: Values, volumes: t.Sequence[Attached]) -> PlannedDisk:
    planned = planned_disk(disk)
    if planned.kind == VOLUME:
        return attached_volumes.guest_disk(planned, attached_volumes.attached_of(disk, volumes))
    return local_disk(planned, build.uuid, folder(build, settings), settings)


def local_disk(planned: PlannedDisk, uuid: str, of_instance: str, settings: Values) -> PlannedDisk:
    """A disk of the host's own, where the module instance_disks makes it.

    :arg of_instance: the instance's folder on the host.
    """
    store, pool = STORE_TYPES[settings.disk_backend], host_settings.disk_pool(settings)
    checked_pool = None if pool is None else DiskPool.checked(pool)
    source = store.source(uuid, planned.name, of_instance, settings.disk_volume_group, checked_pool)
    return planned.placed(**source._asdict())


def spare_names(build: Build) -> list[str]:
    """The names that the domain may take where another one has its own; none with bootflow_domain_names: uuid."""
    row = build.row
    if row.domain_name == core_guest.domain_name(row.display_name, row.uuid):
        return []
    return [name for name in core_guest.short_domain_names(row.display_name, row.uuid) if name != row.domain_name]


def domain_xml(build: Build, settings: Values, volumes: t.Sequence[Attached] = ()) -> str:
    """The domain of a build on its host, as text. See domain_config()."""
    return render(domain_config(build, settings, volumes))


def volume_xml(build: Build, settings: Values, volumes: t.Sequence[Attached], attached: Attached) -> str:
    """One volume's disk of an existing guest, for attaching it.

    :raises VolumeAttachmentNotFound: the ledger has no such disk of the guest.
    """
    config = domain_config(build, settings, volumes)
    for disk in config.disks:
        if disk.known_as == attached.volume_id:
            # libvirt assigns the place on the bus: the guest's disks may have changed since.
            return to_text(dataclasses.replace(disk, address=None, boot_order=None).to_xml())
    raise errors.VolumeAttachmentNotFound(
        filter="instance_uuid = %s, volume_id = %s" % (build.uuid, attached.volume_id)
    )


def interface_xml(build: Build, settings: Values, volumes: t.Sequence[Attached], mac_address: str) -> str:
    """One interface of an existing guest, for attaching it.

    :raises PortNotFound: the ledger has no such interface of the guest.
    """
    for interface in domain_config(build, settings, volumes).interfaces:
        if interface.mac == mac_address:
            return to_text(dataclasses.replace(interface, address=None, boot_order=None).to_xml())
    raise errors.PortNotFound(port_id=mac_address)


def domain_config(build: Build, settings: Values, volumes: t.Sequence[Attached] = ()) -> DomainConfig:
    """The domain of a build on its host.

    :arg volumes: attachments of the build.
    :raises BootflowError: the host or the image does not support the request (a machine type, UEFI, a bus...).
    """
    return core_guest.guest_config(guest_spec(build, settings, volumes), host_capabilities(build))


def guest_spec(build: Build, settings: Values, volumes: t.Sequence[Attached] = ()) -> core_guest.GuestSpec:
    """The guest of a build. :arg volumes: attachments of the build"""
    row, spec = build.row, build.row.spec
    image = spec["image"] or {}
    numa = build.allocation.get("numa")
    properties = image.get("properties") or {}
    if row.machine_type and not properties.get(MACHINE_TYPE):
        properties = {**properties, MACHINE_TYPE: row.machine_type}
    return core_guest.GuestSpec(
        uuid=row.uuid,
        name=row.domain_name,
        display_name=row.display_name,
        memory_mb=row.memory_mb,
        vcpus=row.vcpus,
        flavor=Flavor(**spec["flavor"]),
        disks=[_placed(d, build, settings, volumes) for d in build.disks],
        image_properties=properties,
        config_drive=config_drive_path(build, settings) if row.config_drive else None,
        config_drive_format=settings.config_drive_format,
        network_info=build.network_info,
        console_log=console_log(build, settings),
        nvram=nvram_path(build, settings),
        options=core_guest.GuestOptions(**{setting.name: getattr(settings, setting.name) for setting in GUEST}),
        ledger_id=build.ledger_id,
        image_id=image.get("id"),
        user=row.user_name,
        project=row.project,
        numa_topology=GuestNUMATopology.from_dict(numa) if numa else None,
        pci_devices=build.allocation.get("pci") or (),
        whole_disks=build.allocation.get("disks") or (),
        creation_time=utc(row.created_at),
        package_version=VERSION,
    )


def machine_type(build: Build, settings: Values) -> str | None:
    """The machine type that a build is defined with by its host's setting or by default, and keeps; None where its image names one,
    where it has kept one, or where libvirt chooses. source: Nova's instances, whose image_hw_machine_type is recorded (Wallaby)
    """
    properties = (build.row.spec["image"] or {}).get("properties") or {}
    if build.row.machine_type or properties.get(MACHINE_TYPE):
        return None
    return platform.machine_type(properties, settings.machine_type, host_capabilities(build))


def host_capabilities(build: Build) -> core_guest.HostCapabilities:
    """Return the capabilities of the host that its domain depends on, as it reported them."""
    facts = build.facts
    arch = (facts.get("cpu_info") or {}).get("arch") or "x86_64"
    return core_guest.HostCapabilities(
        virt_type=facts.get("virt_type") or "kvm",
        arch=arch,
        emulator=(facts.get("emulators") or {}).get(arch),
        machine_types=(facts.get("machine_types") or {}).get(arch) or (),
        uefi=bool(facts.get("uefi")),
        cpu_models=facts.get("cpu_models") or (),
        unknown_cpu_flags=facts.get("unknown_cpu_flags") or (),
        libvirt_version=facts.get("libvirt_version") or 0,
        host=build.row.host or "",
        numa_topology=HostNUMATopology.from_facts(facts.get("numa_topology")),
    )
