# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of a compute host, read for each host separately."""

from __future__ import annotations

import json
import typing as t

from ..disks.image_checks import VMDK_CREATE_TYPES
from ..disks.local import CLEARS, FILE_SYSTEMS, QCOW2, RAW
from ..disks.logical_volumes import checked_lvm_name
from ..disks.stores.registry import DEFAULT, NAMES
from ..disks.whole_disks import CLEARS as WHOLE_DISK_CLEARS
from ..disks.whole_disks import MEDIA
from ..errors import BootflowError, InvalidInput
from ..firewall.driver import DRIVERS, NOOP
from ..guest.config_drive_rules import FORMATS
from ..guest.constraints import CACHE_MODES, CPU_MODES
from ..guest.values import FIRMWARE_TYPES
from ..networks.physical import check_interface_mappings
from ..networks.underlay import check_underlay_address
from ..ovn.addresses import checked_addresses
from ..reading.setting import (
    ABSOLUTE,
    ABSOLUTES,
    ADDRESS,
    FILLED,
    NUMBERS,
    PATTERN,
    Kind,
    Setting,
    Table,
    Unfit,
    structure,
)
from ..resources.pci.spec import parse_device_specs
from ..volumes.connectors.registry import CHOICES
from . import ceph

_PAGES = "a list of {node, size (kB, or such as 2MB), count}"
_VOLUME_GROUP = "a name that LVM takes (letters, digits, + _ . -)"


def _ports(value: t.Any) -> str:
    first, _dash, last = str(value).partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        raise Unfit
    return str(value)


def _ovn_remote(value: t.Any) -> str:
    if value == "":
        return ""
    try:
        addresses = checked_addresses(value)
    except InvalidInput:
        raise Unfit from None
    if "unix:" in addresses:
        raise Unfit
    return addresses


def _pci_devices(value: t.Any) -> list[t.Any]:
    entries = structure(value)
    if not isinstance(entries, (list, tuple)):
        raise Unfit
    parse_device_specs(entries)
    return [dict(e) if isinstance(e, t.Mapping) else e for e in entries]


def _huge_pages(value: t.Any) -> list[dict[str, int]]:
    from ..resources.numa.topology import reserved_pages  # few inventories reserve pages

    entries = structure(value)
    if not isinstance(entries, (list, tuple)):
        raise Unfit
    page_counts: dict[tuple[int, int], int] = {}
    for entry in entries:
        if isinstance(entry, t.Mapping) and set(entry) != {"node", "size", "count"}:
            raise Unfit(dict(entry))
        try:
            pages = reserved_pages([entry])
        except BootflowError:
            raise Unfit(entry) from None
        if any(node < 0 or size <= 0 for node, size in pages) or set(pages) & set(page_counts):
            raise Unfit(entry, _PAGES + ", each node and size once")
        page_counts.update(pages)
    return [{"node": node, "size": size, "count": count} for (node, size), count in page_counts.items()]


def _underlay_address(value: t.Any) -> str:
    try:
        return check_underlay_address(value) if value != "" else ""
    except BootflowError:
        raise Unfit from None


def _interface_mappings(value: t.Any) -> dict[str, str]:
    try:
        return check_interface_mappings(structure(value))
    except BootflowError:
        raise Unfit from None


def _volume_group(value: t.Any) -> str:
    try:
        return checked_lvm_name(value, "") if value != "" else ""
    except BootflowError:
        raise Unfit from None


def _json_mapping(value: t.Any) -> dict[str, t.Any]:
    mapping = structure(value)
    if not isinstance(mapping, t.Mapping):
        raise Unfit
    return t.cast("dict[str, t.Any]", json.loads(json.dumps(mapping)))


#: Settings that the ledger stores in columns of these names, where the scheduler reads them.
CONFIGURATION = Table(
    (
        Setting(
            "ram_allocation_ratio",
            float,
            1.5,
            "Overcommit of memory; 0.0 means the default.",
            least=0,
        ),
        Setting("disk_allocation_ratio", float, 1.0, "Overcommit of disk space; 0.0 means the default.", least=0),
        Setting("cpu_allocation_ratio", float, 16.0, "Overcommit of CPUs; 0.0 means the default.", least=0),
        Setting("reserved_memory_mb", int, 512, "Memory that the host keeps for itself.", least=0, unit="MiB"),
        Setting("reserved_disk_gb", int, 0, "Disk space that the host keeps for itself.", least=0, unit="GiB"),
        Setting("reserved_vcpus", int, 0, "CPUs that the host keeps for itself.", least=0),
        Setting(
            "availability_zone",
            str,
            "nova",
            "Availability zone of a compute or storage host.",
            default_text="the zone of its aggregate, else `bootflow_default_availability_zone` (storage host: `nova`)",
        ),
        Setting("disabled", bool, False, "The host gets no new instances."),
        Setting("disabled_reason", str, "", "Why the host is disabled."),
        Setting(
            "pci_device_spec",
            Kind("a list of mappings", _pci_devices),
            (),
            "PCI devices that guests may have, as in Nova's `[pci]passthrough_whitelist`: `vendor_id`, `product_id`, `address` or"
            " `devname`, tags.",
        ),
        Setting(
            "isolated_disks",
            ABSOLUTES,
            (),
            "Whole disks that guests may have: absolute paths, preferably of `/dev/disk/by-id`.",
        ),
        Setting(
            "reserved_huge_pages",
            Kind(_PAGES, _huge_pages),
            (),
            "Huge pages that guests do not get: `node`, `size` (kB, or such as 2MB), `count`.",
        ),
        Setting("metrics", NUMBERS, {}, "Metric to number, for the MetricsWeigher and the MetricsFilter."),
    )
)


def _vmdk_types(value: t.Any) -> list[str]:
    types = structure(value)
    if not isinstance(types, (list, tuple)):
        raise Unfit
    for vmdk_type in types:
        if vmdk_type not in VMDK_CREATE_TYPES:
            raise Unfit(vmdk_type)
    return list(types)


#: Limits of the images that a compute or storage host fetches.
IMAGES = Table(
    (
        Setting(
            "image_max_gb",
            int,
            1024,
            "Largest image file that a compute or storage host fetches; 0: no limit. A file that its disk has no room for is refused"
            " anyway.",
            least=0,
            unit="GiB",
        ),
        Setting(
            "image_fetch_timeout",
            float,
            3600.0,
            "Longest time to fetch an image; 0: no limit. A server that stalls is given up earlier.",
            least=0,
            unit="seconds",
        ),
        Setting(
            "vmdk_allowed_types",
            Kind("a list of %s" % " and ".join(VMDK_CREATE_TYPES), _vmdk_types, "list"),
            VMDK_CREATE_TYPES,
            "VMDK subformats that a compute or storage host accepts; all have their data in the file itself. Without any, no VMDK image"
            " is accepted.",
        ),
    )
)

FIREWALL = Table(
    (
        Setting(
            "firewall_driver",
            str,
            NOOP,
            "Driver that filters the ports of this host's guests: `noop`, none; `nftables`, the host, by the security groups and addresses of its ports.",
            choices=DRIVERS,
        ),
    )
)

COMPUTE = Table(
    (
        *IMAGES,
        *FIREWALL,
        Setting("libvirt_uri", FILLED, "qemu:///system", "URI of the host's libvirt."),
        Setting(
            "libvirt_timeout",
            float,
            30.0,
            "Time that libvirt may be silent: to answer a connection, or while a call runs.",
            least=5,
            most=3600,
            unit="seconds",
        ),
        Setting(
            "instances_path",
            ABSOLUTE,
            "/var/lib/bootflow/instances",
            "Folder of disks, config drives, console logs and base images (`_base`). It and the folders above belong to root; no other"
            " user may write to them.",
        ),
        Setting(
            "copy_address",
            ADDRESS,
            help="Address at which other hosts reach this one for instances that move: they fetch disks there (`resize`, `migrate`), or send their guests"
            " there (`live_migrate`).",
            default_text="the address that it reported, else `ansible_host`",
        ),
        Setting(
            "copy_ports",
            Kind("a range of ports, FIRST-LAST", _ports, "str"),
            "49216-49279",
            "Ports that other hosts must be able to reach on this one. While instances move, the host listens on one of them for each run:"
            " it offers disks there (`resize`, `migrate`), or lets guests in (`live_migrate`). So it does for each large image that it receives or gives.",
        ),
        Setting(
            "vxlan_address",
            Kind("the IP address of an interface", _underlay_address, "str"),
            "",
            "Address of this host in the network between the compute hosts, for networks of `type: vxlan`: IPv4 on all hosts, or IPv6 on all."
            " Other hosts must be able to reach its UDP port 4789. A host without one gets no guests of such networks; see"
            " [networks.md](networks.md#vxlan-networks).",
        ),
        Setting(
            "physical_interface_mappings",
            Kind("a mapping of physical networks to interfaces ({physnet1: eno2})", _interface_mappings, "dict"),
            {},
            "Physical networks that this host is in, and its interface in each, for networks of `type: vlan` and `type: macvtap`: an Ethernet device,"
            " a bond or a bridge, which gets the frames with their tags. A host without the physical network of a request gets no such guests; see"
            " [networks.md](networks.md#vlan-networks).",
        ),
        Setting(
            "ovn_remote",
            Kind("addresses such as ssl:192.0.2.1:6642, separated by commas", _ovn_remote, "str"),
            "",
            "Southbound database of OVN for ovn-controller of this host: `ssl:ADDRESS:PORT` or `tcp:ADDRESS:PORT`, several with commas where it is a cluster."
            " Without it the role prepares no host for networks of `type: ovn`; see [ovn.md](ovn.md).",
        ),
        Setting(
            "ovn_encap_ip",
            Kind("an IP address", lambda value: ADDRESS.read(value) if value != "" else "", "str"),
            "",
            "Address of this host to which other hosts send the frames of guests in networks of `type: ovn`, by Geneve (UDP port 6081).",
            default_text="`ansible_host`",
        ),
        Setting(
            "virt_type",
            str,
            "auto",
            "`auto`: KVM where it really works, else QEMU's emulation.",
            choices=("auto", "kvm", "qemu"),
        ),
        Setting(
            "disk_backend",
            str,
            DEFAULT,
            "Storage of guests' local disks: `qcow2` (overlay on the base image), `raw`, `lvm` (each a logical volume),"
            " `qcow2_on_lvm` (overlays on one logical volume for each instance) or `rbd` (images in a pool of a Ceph cluster, [ceph.md](ceph.md#local-disks));"
            " see [architecture](architecture.md#local-disks).",
            choices=NAMES,
        ),
        Setting(
            "disk_volume_group",
            Kind(_VOLUME_GROUP, _volume_group, "str"),
            "",
            "Existing volume group of the disk backends `lvm` and `qcow2_on_lvm`, which require it.",
        ),
        Setting(
            "disk_rbd_pool",
            ceph.POOL,
            help="Pool of the disk backend `rbd`, which requires it. Hosts with one pool share their disks.",
        ),
        Setting(
            "disk_rbd_user", ceph.USER, help="User of the pool of the disk backend `rbd`, without `client.`, required."
        ),
        Setting(
            "disk_rbd_monitors",
            ceph.MONITORS,
            help="All monitors of the cluster of the disk backend `rbd`, `address` or `address:port`, required; the port is 6789 by default.",
        ),
        Setting(
            "disk_rbd_fsid",
            ceph.FSID,
            help="Id of the cluster of the disk backend `rbd`, as `ceph fsid` prints it, required: a host that reaches another cluster refuses to work on it.",
        ),
        Setting(
            "disk_rbd_key",
            ceph.KEY,
            help="Key of `bootflow_disk_rbd_user`, required. Keep it in a vault; it is in no file, ledger or log.",
            secret=True,
        ),
        Setting(
            "disk_volume_clear",
            str,
            "zero",
            "How the data of a deleted instance's logical volumes is overwritten.",
            choices=CLEARS,
        ),
        Setting(
            "disk_volume_clear_size_mb",
            int,
            0,
            "How much of it is overwritten, from its beginning; 0: all.",
            least=0,
            unit="MiB",
        ),
        Setting(
            "default_ephemeral_format",
            str,
            "ext4",
            "File system of ephemeral disks whose block device names none; `none`: they are not formatted. The host needs the"
            " program (`xfs`: xfsprogs).",
            choices=FILE_SYSTEMS,
        ),
        Setting(
            "snapshot_image_format",
            str,
            help="Format of the images that the playbook `snapshot` makes of this host's instances, as Nova's setting.",
            choices=(QCOW2, RAW),
            default_text="that of the disk",
        ),
        Setting(
            "snapshot_compression",
            bool,
            False,
            "Images of snapshots with the format qcow2 are compressed: they are smaller, and take longer, as Nova's setting.",
        ),
        Setting(
            "backup_directory",
            ABSOLUTE,
            "/var/lib/bootflow/backups",
            "Directory of this host for the files of the playbook `incremental_backup`; see [incremental-backups.md](incremental-backups.md)."
            " It is made if it is missing. It and the folders above belong to root; no other user may write to them.",
        ),
        Setting(
            "disk_medium",
            str,
            "",
            "Medium of the local disks. A flavor requests it with the extra spec `capabilities:disk_medium`, and the backend with"
            " `capabilities:disk_backend`.",
            choices=("", *MEDIA),
        ),
        Setting(
            "whole_disk_clear",
            str,
            "zero",
            "How a whole disk is cleared after its guest was deleted: `zero` overwrites all of it, which takes hours for a large one;"
            " until then it stays with the instance.",
            choices=WHOLE_DISK_CLEARS,
        ),
        Setting(
            "volume_attach",
            str,
            "kernel",
            "How guests get volumes: `kernel`, the host's iSCSI initiator logs in and the guest has a block device; `qemu`, QEMU"
            " logs in by itself (Debian's qemu-block-extra).",
            choices=CHOICES,
        ),
        Setting("config_drive_format", str, "iso9660", "Format of config drives.", choices=FORMATS),
        Setting(
            "vendor_data",
            Kind("a mapping that JSON can hold", _json_mapping, "dict"),
            {},
            "Content of `vendor_data.json` on config drives; cloud-init reads the key `cloud-init`.",
        ),
        Setting(
            "inject_password",
            bool,
            False,
            "Have cloud-init set a generated admin password in the guest, as it does with a given one; see"
            " [request.md](request.md#admin-passwords).",
        ),
        Setting(
            "ssh_host_keys",
            bool,
            False,
            "Make an SSH host key (ed25519) for each guest with a config drive, which has it for cloud-init. The ledger keeps the public key, and the"
            " inventory of instances has SSH accept that one and no other; see [inventory.md](inventory.md#host-keys).",
        ),
        Setting(
            "dhcp_domain",
            str,
            "",
            "Domain of the hostnames on config drives, such as `example.org`. Nova's default is `novalocal`.",
        ),
        Setting(
            "max_concurrent_builds",
            int,
            10,
            "Builds that a host works on at once, of all runs together; 0: all.",
            least=0,
        ),
        Setting(
            "build_place_timeout",
            float,
            600.0,
            "Time that a build waits on its host for other runs' builds, where they occupy `bootflow_max_concurrent_builds`.",
            least=0,
            most=1_000_000,
            unit="seconds",
        ),
        Setting(
            "vif_plugging_timeout",
            float,
            300.0,
            "How long a guest's CPUs stay stopped until its interfaces are up on the host.",
            least=0,
            unit="seconds",
        ),
        Setting("vif_plugging_is_fatal", bool, True, "Interfaces that do not come up in that time fail the build."),
        Setting(
            "shutdown_timeout",
            float,
            60.0,
            "Time that a guest has to shut down before it loses its power; 0: it loses it at once. The image property"
            " `os_shutdown_timeout` comes first.",
            least=0,
            unit="seconds",
        ),
        Setting(
            "wait_soft_reboot_seconds",
            float,
            120.0,
            "Time that a guest has to restart by itself when it is rebooted, before it is reset.",
            least=0,
            unit="seconds",
        ),
        Setting("wait_timeout", float, 60.0, "Time to wait for a domain to run.", least=0, unit="seconds"),
        Setting("wait_console", PATTERN, help="Pattern that each guest has to print on its console."),
        Setting(
            "wait_address",
            bool,
            False,
            "Wait for the first address of each guest to answer its host: a ping, ARP or ND.",
        ),
        Setting(
            "wait_port",
            int,
            help="TCP port at which the first address of each guest must accept a connection from its host.",
            least=1,
            most=65535,
        ),
        Setting("wait_agent", bool, False, "Wait for the agent of guests whose image has `hw_qemu_guest_agent`."),
        Setting(
            "wait_cloud_init",
            bool,
            False,
            "Wait until cloud-init has finished. If the image has `hw_qemu_guest_agent`, the agent reads the result, and errors in it fail the build; otherwise"
            " the last line decides that cloud-init prints on the console by default.",
        ),
        Setting(
            "wait_guest_timeout",
            float,
            300.0,
            "Longest wait for the console pattern, the address or port, the agent, and cloud-init, each.",
            least=0,
            unit="seconds",
        ),
    )
)


def _cache_modes(value: t.Any) -> dict[str, str]:
    modes = structure(value)
    if not isinstance(modes, t.Mapping):
        raise Unfit
    for kind, mode in modes.items():
        if kind not in ("file", "block", "network") or mode not in CACHE_MODES:
            raise Unfit("%s: %s" % (kind, mode))
    return {str(kind): str(mode) for kind, mode in modes.items()}


#: Fields of core.guest.spec.GuestOptions.
GUEST = Table(
    (
        Setting(
            "machine_type",
            FILLED,
            help="Machine type of guests whose image names none, when they are booted or rebuilt; otherwise they keep theirs.",
            default_text="as the image or the host says",
        ),
        Setting(
            "firmware",
            str,
            help="Firmware of guests.",
            choices=FIRMWARE_TYPES,
            default_text="as the image or the host says",
        ),
        Setting(
            "cpu_mode",
            str,
            help="CPU mode of guests.",
            choices=CPU_MODES,
            default_text="`host-model` with KVM (`host-passthrough` on aarch64), else `none`",
        ),
        Setting("cpu_model", FILLED, help="CPU model of guests, with `bootflow_cpu_mode: custom`."),
        Setting(
            "cpu_model_extra_flags",
            list,
            (),
            "CPU features that guests have in addition (`pcid`, `+pcid`) or do not have (`-vmx`).",
        ),
        Setting("vnc_enabled", bool, True, "Guests have a VNC display and a video device."),
        Setting("vnc_keymap", FILLED, help="Keymap of guests' VNC, such as `de`.", default_text="the client's"),
        Setting(
            "disk_cachemodes",
            Kind("a mapping of file, block or network to one of %s" % ", ".join(CACHE_MODES), _cache_modes, "dict"),
            {},
            "Cache modes of guests' disks, by what they lie on, such as `{file: none}`.",
        ),
        Setting(
            "disk_discard",
            str,
            help="How QEMU treats space that guests discard on their disks.",
            choices=("unmap", "ignore"),
            default_text="QEMU's",
        ),
        Setting(
            "mem_stats_period_seconds",
            int,
            10,
            "Interval of guests' memory statistics; 0: none.",
            least=0,
            unit="seconds",
        ),
        Setting(
            "rng_dev_path",
            ABSOLUTE,
            "/dev/urandom",
            "Device that guests' random number generators (virtio-rng) read, such as `/dev/hwrng`. A flavor with the extra spec"
            " `hw_rng:allowed: false` has none.",
        ),
        Setting(
            "num_pcie_ports",
            int,
            0,
            "PCI ports of guests with the machine type q35 (x86) or virt (aarch64), of which volumes and interfaces that are attached while a guest runs"
            " need one each; 0: as libvirt has it, one or two free ones.",
            least=0,
            most=28,
        ),
        Setting("max_queues", int, 8, "Most queues of a guest's multi-queue interfaces.", least=1),
        Setting(
            "vnc_listen",
            FILLED,
            "127.0.0.1",
            "Address that guests' VNC listens on. VNC has no password: consider this before opening it.",
        ),
    )
)

HOST = Table((*CONFIGURATION, *COMPUTE, *GUEST))
