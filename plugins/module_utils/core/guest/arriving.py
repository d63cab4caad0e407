# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check of the definition that a host accepts from another host that live-migrates the guest.

The other host may have been taken over. Its definition may use the files, devices, networks and limits that the ledger gives this guest here, and
no others. Only elements and attributes listed here are accepted: libvirt knows many more that open files of the host.
source: libvirt's domain format
"""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import dataclass, field

from ..errors import MigrationPreCheckError
from .domain.cpu import CpuTuneConfig
from .domain.disk import DiskConfig
from .domain.element import parse
from .domain.interface import InterfaceConfig
from .domain.namespaces import NOVA_NAMESPACE, OWNER_NAMESPACE
from .domain.numa import MemoryBackingConfig, NumaTuneConfig
from .nvram import NVRAM

Node = t.Any

#: Below this folder a host has firmware, which guests read only, and the templates of their NVRAM.
_FIRMWARE = "/usr/share/"
_RANDOM = ("/dev/urandom", "/dev/random", "/dev/hwrng")
_ENDS = ("destroy", "restart", "preserve")  # without core dumps, which fill the host's disk
_WATCHDOG = ("none", "pause", "poweroff", "reset")
_DEFAULT_SHARES = 1024
_MODELS = ("apparmor", "selinux", "dac")

#: Elements whose content is the guest's own business: nothing in them names something of the host.
_FREE = frozenset("title description genid features cpu clock pm".split())

_ADDRESS = "type domain bus slot function multifunction controller target unit port iobase irq base uuid"
_DRIVER = "name type cache io discard iothread queues queue_size error_policy rerror_policy detect_zeroes copy_on_read event_idx ioeventfd"
_DRIVER += " packed page_per_vq iommu ats discard_no_unref"
_OFFLOADS = "csum gso tso4 tso6 ecn ufo mrg_rxbuf"

#: Path of an element below ``<domain>`` -> the attributes that it may have.
_KNOWN: t.Mapping[str, str] = {
    "name": "",
    "uuid": "",
    "memory": "unit",
    "currentMemory": "unit",
    "memoryBacking": "",
    "memoryBacking/hugepages": "",
    "memoryBacking/hugepages/page": "size unit nodeset",
    "memoryBacking/nosharepages": "",
    "memoryBacking/locked": "",
    "vcpu": "placement current",
    "cputune": "",
    "cputune/shares": "",
    "cputune/period": "",
    "cputune/quota": "",
    "cputune/vcpupin": "vcpu cpuset",
    "cputune/emulatorpin": "cpuset",
    "cputune/vcpusched": "vcpus scheduler priority",
    "numatune": "",
    "numatune/memory": "mode nodeset",
    "numatune/memnode": "cellid mode nodeset",
    "resource": "",
    "resource/partition": "",
    "sysinfo": "type",
    "sysinfo/system": "",
    "sysinfo/system/entry": "name",
    "os": "firmware",
    "os/type": "arch machine",
    "os/firmware": "",
    "os/firmware/feature": "enabled name",
    "os/loader": "readonly secure type stateless format",
    "os/nvram": "template templateFormat format",
    "os/boot": "dev",
    "os/bootmenu": "enable timeout",
    "os/bios": "useserial rebootTimeout",
    "os/smbios": "mode",
    "on_poweroff": "",
    "on_reboot": "",
    "on_crash": "",
    "seclabel": "type model relabel",
    "seclabel/label": "",
    "seclabel/imagelabel": "",
    "devices": "",
    "devices/emulator": "",
    "devices/disk": "type device model snapshot",
    "devices/disk/driver": _DRIVER,
    "devices/disk/target": "dev bus removable rotation_rate",
    "devices/disk/blockio": "physical_block_size logical_block_size discard_granularity",
    "devices/disk/readonly": "",
    "devices/disk/shareable": "",
    "devices/disk/serial": "",
    "devices/disk/wwn": "",
    "devices/disk/boot": "order",
    "devices/controller": "type index model ports vectors",
    "devices/controller/driver": "queues cmd_per_lun max_sectors ioeventfd iothread iommu ats packed page_per_vq",
    "devices/controller/model": "name",
    "devices/controller/target": "chassisNr chassis port busNr index hotplug",
    "devices/controller/master": "startport",
    "devices/controller/pcihole64": "unit",
    "devices/interface": "type trustGuestRxFilters",
    "devices/interface/mac": "address type check",
    "devices/interface/source": "network bridge portid",
    "devices/interface/virtualport": "type",
    "devices/interface/virtualport/parameters": "interfaceid",
    "devices/interface/target": "dev managed",
    "devices/interface/model": "type",
    "devices/interface/driver": "name txmode ioeventfd event_idx queues rx_queue_size tx_queue_size rss packed page_per_vq iommu ats",
    "devices/interface/driver/host": _OFFLOADS,
    "devices/interface/driver/guest": _OFFLOADS,
    "devices/interface/mtu": "size",
    "devices/interface/bandwidth": "",
    "devices/interface/bandwidth/inbound": "average peak burst floor",
    "devices/interface/bandwidth/outbound": "average peak burst",
    "devices/interface/link": "state",
    "devices/interface/boot": "order",
    "devices/channel": "type",
    "devices/channel/target": "type name state",
    "devices/input": "type bus model",
    "devices/graphics": "type port autoport listen keymap sharePolicy",
    "devices/graphics/listen": "type address",
    "devices/audio": "id type",
    "devices/video": "",
    "devices/video/model": "type vram vram64 vgamem ram heads primary",
    "devices/watchdog": "model action",
    "devices/memballoon": "model autodeflate freePageReporting",
    "devices/memballoon/stats": "period",
    "devices/memballoon/driver": "iommu ats packed page_per_vq",
    "devices/rng": "model",
    "devices/rng/backend": "model",
    "devices/rng/rate": "bytes period",
    "devices/rng/driver": "iommu ats packed page_per_vq",
    "devices/panic": "model",
    **{
        "devices/%s%s" % (tag, path): attributes
        for tag in ("serial", "console")
        for path, attributes in {
            "": "type tty",
            "/source": "path",
            "/log": "file append",
            "/target": "type port",
            "/target/model": "name",
        }.items()
    },
}
_ON_EACH_DEVICE = {"alias": "name", "address": _ADDRESS, "acpi": "index"}
#: Elements that are compared as a whole with elements of the ledger or of this host.
_COMPARED = frozenset("devices/disk/source devices/disk/auth devices/disk/iotune devices/disk/backingStore".split())


@dataclass(frozen=True)
class LocalDisk:
    """A local disk of the guest as this host has it: a file or a logical volume. ``size``: bytes that the guest sees of it; 0: all.

    ``shared``: of a disk in a pool that both hosts reach, a ``<disk>`` with its source here.
    """

    path: str
    format: str
    block: bool = False
    size: int = 0
    shared: str = ""


@dataclass(frozen=True)
class Arriving:
    """A guest that may come to this host, and what its definition may use here."""

    uuid: str
    name: str
    folder: str  # of the instance
    disks: t.Mapping[str, LocalDisk]  # by the guest's names for them
    emulators: t.Sequence[str]  # of this host
    drive: str = ""  # path of its config drive
    #: What the controller knows by the ledger, see limits_of() in plugin_utils/moves/arriving_guest.py.
    limits: t.Mapping[str, t.Any] = field(default_factory=dict)
    volumes: t.Mapping[str, str] = field(default_factory=dict)  # id -> ``<disk>`` with its source on this host


def check_definition(root: Node, guest: Arriving) -> None:
    """Check the definition of a guest that another host sent.

    :raises MigrationPreCheckError: it is of another guest, or uses something that this guest does not have here.
    """
    if root.tag != "domain" or root.get("type") not in ("kvm", "qemu") or set(root.attrib) - {"type", "id"}:
        raise _refused(guest, "is not that of a virtual machine of QEMU")
    for child in root:
        if child.tag == "metadata":
            _check_metadata(child, guest)
        elif child.tag in _FREE:
            _check_free(child, child.tag, guest)
        else:
            _check_known(child, child.tag, guest)
    for check in (_check_identity, _check_size, _check_tuning, _check_firmware, _check_rest):
        check(root, guest)
    devices = root.findall("devices")
    if len(devices) != 1:
        raise _refused(guest, "does not have exactly one list of devices")
    for device in devices[0]:
        checked = _DEVICES.get(device.tag)
        if checked is not None:
            checked(device, guest)


def check_cookie(text: str, guest: Arriving) -> None:
    """Check the libvirt cookie of the other host, in addition to the definition: it has the guest's persistent definition.

    :raises MigrationPreCheckError: see check_definition(), or an unknown element.
    """
    root = parse_strictly(text, guest)
    if root.tag != "qemu-migration":
        raise _refused(guest, "arrives with a cookie of another kind")
    for child in root:
        if child.tag not in _COOKIE:
            raise _refused(guest, "arrives with the unknown element %s in the cookie" % child.tag)
        if child.tag == "domain":
            check_definition(child, guest)
        elif child.tag in ("name", "uuid"):
            if (child.text or "").strip().lower() != (guest.name if child.tag == "name" else guest.uuid).lower():
                raise _refused(guest, "arrives with the cookie of another guest")
        else:
            _check_free(child, child.tag, guest)
    if len(root.findall("domain")) > 1 or len(root.findall("name")) != 1 or len(root.findall("uuid")) != 1:
        raise _refused(guest, "arrives with a cookie that has an element twice, or lacks one")


_COOKIE = frozenset(
    "name uuid hostname hostuuid feature graphics domain network nbd statistics memory-hotplug cpu-hotplug cpu allowReboot capabilities"
    " blockDirtyBitmaps".split()
)


def parse_strictly(text: str, guest: Arriving) -> Node:
    """Parse XML that another host sent. :raises MigrationPreCheckError: it declares a document type, or cannot be parsed."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text or "\0" in text:
        raise _refused(guest, "declares a document type")
    try:
        return parse(text)
    except Exception as error:
        raise _refused(guest, "cannot be read as XML: %s" % error) from None


def _refused(guest: Arriving, what: str) -> MigrationPreCheckError:
    return MigrationPreCheckError(
        reason="the definition of guest %s that its host sent %s" % (guest.uuid, what),
        remedy="A hard reboot defines the guest again as the ledger has it. If that does not help, look whether its host was taken over.",
    )


# --- the vocabulary


def _check_known(node: Node, path: str, guest: Arriving) -> None:
    """Check that libvirt's name of each element and attribute is on the list."""
    if not isinstance(node.tag, str):
        raise _refused(guest, "has something other than elements")
    if path in _COMPARED:
        return
    allowed = _KNOWN.get(path)
    if allowed is None and path.count("/") == 2:
        allowed = _ON_EACH_DEVICE.get(node.tag)
    if allowed is None:
        raise _refused(guest, "has the element %s, which the ledger gives no guest" % path)
    unknown = sorted(set(node.attrib) - set(allowed.split()))
    if unknown:
        raise _refused(guest, "has the attribute %s of %s, which the ledger gives no guest" % (unknown[0], path))
    for child in node:
        _check_known(child, "%s/%s" % (path, child.tag), guest)


def _check_free(node: Node, path: str, guest: Arriving) -> None:
    """Check that a part which libvirt takes for the guest alone has neither a path nor another program's element."""
    for element in node.iter():
        if not isinstance(element.tag, str) or element.tag.startswith("{"):
            raise _refused(guest, "has an unknown element in %s" % path)
        for value in [element.text or "", *element.attrib.values()]:
            if value.strip().startswith("/"):
                raise _refused(guest, "names %s in %s" % (value.strip(), path))


def _check_metadata(node: Node, guest: Arriving) -> None:
    for child in node:
        if child.tag == "{%s}owner" % OWNER_NAMESPACE:
            if child.get("ledger") != guest.limits.get("ledger_id"):
                raise _refused(guest, "names another ledger as its owner")
        elif child.tag != "{%s}instance" % NOVA_NAMESPACE:
            raise _refused(guest, "has unknown metadata")


# --- the guest


def _text(root: Node, path: str) -> str:
    elements = root.findall(path)
    return (elements[0].text or "").strip() if len(elements) == 1 else ""


def _check_identity(root: Node, guest: Arriving) -> None:
    if _text(root, "uuid").lower() != guest.uuid.lower() or _text(root, "name") != guest.name:
        raise _refused(guest, "is of another guest: %s %s" % (_text(root, "uuid"), _text(root, "name")))


def _number(text: str | None) -> int:
    return int(text) if text and re.match(r"^[0-9]{1,15}$", text.strip()) else -1


def _check_size(root: Node, guest: Arriving) -> None:
    most = int(guest.limits["memory_mb"]) * 1024
    cells = root.findall("cpu/numa/cell")
    sizes = [_number(node.text) for tag in ("memory", "currentMemory") for node in root.findall(tag)]
    nodes = [*root.findall("memory"), *root.findall("currentMemory"), *cells]
    in_cells = [_number(cell.get("memory")) for cell in cells]
    is_known = len(root.findall("memory")) == 1 and all(node.get("unit", "KiB") == "KiB" for node in nodes)
    if not is_known or min([*sizes, *in_cells]) < 0 or max([*sizes, sum(in_cells)]) > most:
        raise _refused(guest, "has more memory than its flavor, %d MiB" % guest.limits["memory_mb"])
    if len(root.findall("vcpu")) != 1 or not 0 < _number(_text(root, "vcpu")) <= int(guest.limits["vcpus"]):
        raise _refused(guest, "has more CPUs than its flavor, %d" % guest.limits["vcpus"])


def _check_tuning(root: Node, guest: Arriving) -> None:
    """CPUs and cells of this host, memory that is locked, and the shares of the CPUs."""
    for tag in ("cputune", "numatune", "memoryBacking"):
        if len(root.findall(tag)) > 1:
            raise _refused(guest, "has %s twice" % tag)
    pins = guest.limits.get("pins") or {}
    node = root.find("cputune")
    tune = CpuTuneConfig() if node is None else CpuTuneConfig.from_xml(node)
    if {str(p.vcpu): p.cpuset for p in tune.vcpupins} != dict(pins.get("vcpus") or {}):
        raise _refused(guest, "pins its CPUs to others than the ledger")
    if (tune.emulatorpin or None) != (pins.get("emulator") or None):
        raise _refused(guest, "pins its emulator to other CPUs than the ledger")
    if tune.vcpuscheds and not guest.limits.get("realtime"):
        raise _refused(guest, "runs in real time, which its flavor does not say")
    wanted = {name: guest.limits.get("cpu_" + name) for name in ("shares", "period", "quota")}
    if (tune.shares or _DEFAULT_SHARES) > max(wanted["shares"] or _DEFAULT_SHARES, _DEFAULT_SHARES):
        raise _refused(guest, "has more shares of the CPUs than its flavor")
    if wanted["quota"] is not None and (tune.quota, tune.period) != (wanted["quota"], wanted["period"] or tune.period):
        raise _refused(guest, "has another quota of CPU time than its flavor")
    node = root.find("numatune")
    numa = NumaTuneConfig() if node is None else NumaTuneConfig.from_xml(node)
    cells = {str(n.cellid): n.nodeset for n in numa.memnodes}
    if cells != dict(pins.get("cells") or {}) or (numa.memory_nodeset or "") != (pins.get("memory") or ""):
        raise _refused(guest, "has its memory in other cells than the ledger says")
    node = root.find("memoryBacking")
    backing = MemoryBackingConfig() if node is None else MemoryBackingConfig.from_xml(node)
    if (backing.locked and not guest.limits.get("locked")) or (backing.hugepages and not guest.limits.get("hugepages")):
        raise _refused(guest, "has memory that is locked, or on huge pages, which its flavor does not say")


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder) and posixpath.normpath(path) == path


def _check_firmware(root: Node, guest: Arriving) -> None:
    loader, nvram = root.find("os/loader"), root.find("os/nvram")
    if len(root.findall("os")) != 1 or len(root.findall("os/loader")) > 1 or len(root.findall("os/nvram")) > 1:
        raise _refused(guest, "has an operating system or a firmware twice")
    if _text(root, "os/type") != "hvm" or any(s.get("mode") == "host" for s in root.findall("os/smbios")):
        raise _refused(guest, "asks for the firmware data of the host")
    if loader is not None and (path := (loader.text or "").strip()):
        if not _is_below(path, _FIRMWARE) or (loader.get("type") == "pflash" and loader.get("readonly") != "yes"):
            raise _refused(guest, "boots %s" % path)
    if nvram is None:
        return
    path, template = (nvram.text or "").strip(), nvram.get("template")
    if path != posixpath.join(guest.folder, NVRAM):
        raise _refused(guest, "has %s as its firmware's variables" % path)
    if template and not _is_below(template, _FIRMWARE):
        raise _refused(guest, "takes the variables of its firmware from %s" % template)


def _check_rest(root: Node, guest: Arriving) -> None:
    for tag in ("on_poweroff", "on_reboot", "on_crash"):
        if any((node.text or "").strip() not in _ENDS for node in root.findall(tag)):
            raise _refused(guest, "leaves something on its host: %s" % tag)
    for label in root.findall("seclabel"):
        if (label.get("type"), label.get("relabel", "yes")) != ("dynamic", "yes") or label.get("model") not in _MODELS:
            raise _refused(guest, "has a security label other than that of its host")
    if any((node.text or "").strip() != "/machine" for node in root.findall("resource/partition")):
        raise _refused(guest, "is in another control group than guests are")
    if any(node.get("type") != "smbios" for node in root.findall("sysinfo")):
        raise _refused(guest, "has sysinfo of another kind than smbios")


# --- its devices


def _check_emulator(node: Node, guest: Arriving) -> None:
    if (node.text or "").strip() not in guest.emulators:
        raise _refused(guest, "runs %s, which is not an emulator of this host" % (node.text or "").strip())


def _check_disk(node: Node, guest: Arriving) -> None:
    known = DiskConfig.from_xml(node)
    target = known.target_dev or ""
    for tag in ("source", "driver", "target", "auth", "serial", "alias", "iotune", "backingStore"):
        if len(node.findall(tag)) > 1:
            raise _refused(guest, "has %s of disk %s twice" % (tag, target))
    if any(len(store) or store.attrib for store in node.findall("backingStore")):
        raise _refused(guest, "has a base below disk %s" % target)
    source = node.find("source")
    if source is None:
        if known.device not in ("cdrom", "floppy"):
            raise _refused(guest, "has no source for disk %s" % target)
        return
    volume = known.known_as if known.type in ("block", "network") else None
    if volume is not None:
        _check_volume(node, known, volume, guest)
        return
    is_drive = bool(guest.drive) and known.source_path == guest.drive
    disk = LocalDisk(guest.drive, "raw") if is_drive else guest.disks.get(target)
    if disk is None:
        raise _refused(guest, "has the disk %s, which the ledger does not have" % target)
    if disk.shared:
        if known.driver_type != disk.format or not _is_source_of(node, known, disk.shared):
            raise _refused(guest, "has another source of disk %s than this host" % target)
        _check_limits(node, target, guest)
        return
    if known.driver_type != disk.format or (known.type, known.source_path) != (
        "block" if disk.block else "file",
        disk.path,
    ):
        shown = (target, known.type, known.driver_type, known.source_path)
        raise _refused(guest, "has as disk %s the %s %s %s" % shown)
    if set(source.attrib) - {"dev" if disk.block else "file", "index"} or not _is_slice_of(source, disk):
        raise _refused(guest, "has more than its path as the source of disk %s" % target)
    if node.find("auth") is not None:
        raise _refused(guest, "logs in for disk %s" % target)
    if not is_drive:
        _check_limits(node, target, guest)


def _check_limits(node: Node, target: str, guest: Arriving) -> None:
    limits = dict(guest.limits.get("iotune") or {})
    given = {limit.tag: _number(limit.text) for limit in node.findall("iotune/*")}
    if any(given.get(name) != value for name, value in limits.items() if value):
        raise _refused(guest, "has other limits of disk %s than its flavor" % target)


def _check_volume(node: Node, known: DiskConfig, volume: str, guest: Arriving) -> None:
    if volume not in guest.volumes:
        raise _refused(guest, "has volume %s, which is not connected for it here" % volume)
    if known.driver_type != "raw" or not _is_source_of(node, known, guest.volumes[volume]):
        raise _refused(guest, "has another source of volume %s than this host" % volume)


def _is_source_of(node: Node, known: DiskConfig, local_xml: str) -> bool:
    """Return whether a disk has the same source as the ``<disk>`` that this host has, and QEMU logs in there as the same user."""
    disk_here = parse(local_xml)
    same = bool(known.type == disk_here.get("type"))
    for tag in ("source", "auth"):
        wanted, given = disk_here.find(tag), node.find(tag)
        same = same and (wanted is None) == (given is None) and (wanted is None or _is_same(wanted, given))
    return same


def _is_same(wanted: Node, given: Node) -> bool:
    """Whether two elements are equal but for the number that libvirt gives a source."""
    attributes = {name: value for name, value in given.attrib.items() if name != "index"}
    if given.tag != wanted.tag or attributes != dict(wanted.attrib) or len(given) != len(wanted):
        return False
    if (given.text or "").strip() != (wanted.text or "").strip():
        return False
    by_tag = [sorted(element, key=lambda n: (n.tag, n.get("name") or "")) for element in (wanted, given)]
    return all(_is_same(a, b) for a, b in zip(*by_tag))


def _is_slice_of(source: Node, disk: LocalDisk) -> bool:
    """The guest sees what it is to see of a larger logical volume. Its persistent definition has no slice."""
    if not len(source):
        return True
    slices = source.findall("slices/slice")
    wanted = {"type": "storage", "offset": "0", "size": str(disk.size)}
    return bool(disk.size and len(source) == 1 and len(slices) == 1 and dict(slices[0].attrib) == wanted)


def _check_interface(node: Node, guest: Arriving) -> None:
    for tag in ("mac", "source", "target", "bandwidth", "virtualport", "virtualport/parameters"):
        if len(node.findall(tag)) > 1:
            raise _refused(guest, "has %s of an interface twice" % tag)
    known = InterfaceConfig.from_xml(node)
    mac = (known.mac or "").lower()
    wanted = (guest.limits.get("interfaces") or {}).get(mac)
    if wanted is None:
        raise _refused(guest, "has the interface %s, which the ledger does not have" % mac)
    place = known.place
    if place != {name: wanted.get(name) for name in place}:
        where = (known.source_network or known.source_bridge, known.virtualport_interfaceid)
        raise _refused(guest, "has interface %s on %s (port %s)" % (mac, *where))
    if known.target_dev not in (None, wanted.get("dev")):
        raise _refused(guest, "has interface %s as %s on its host" % (mac, known.target_dev))
    if known.driver_name not in (None, "vhost", "qemu"):
        raise _refused(guest, "has interface %s with the driver %s" % (mac, known.driver_name))
    limits = wanted.get("bandwidth") or {}
    if any(getattr(known, name, None) != value for name, value in limits.items() if value):
        raise _refused(guest, "has other limits of interface %s than its flavor" % mac)


def _check_console(node: Node, guest: Arriving) -> None:
    if node.get("type") != "pty":
        raise _refused(guest, "has a %s of type %s" % (node.tag, node.get("type")))
    for path in [node.get("tty"), *(source.get("path") for source in node.findall("source"))]:
        if path is not None and not re.match(r"^/dev/pts/[0-9]+$", path):
            raise _refused(guest, "has a %s at %s" % (node.tag, path))
    for log in node.findall("log"):
        if log.get("file") != posixpath.join(guest.folder, "console.log"):
            raise _refused(guest, "writes the log of a %s to %s" % (node.tag, log.get("file")))


def _check_channel(node: Node, guest: Arriving) -> None:
    targets = node.findall("target")
    if node.get("type") != "unix" or len(targets) != 1 or targets[0].get("type") != "virtio":
        raise _refused(guest, "has a channel of another kind than that of an agent")
    if not re.match(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", targets[0].get("name") or ""):
        raise _refused(guest, "has a channel called %s" % targets[0].get("name"))


def _check_input(node: Node, guest: Arriving) -> None:
    if node.get("type") not in ("mouse", "keyboard", "tablet"):
        raise _refused(guest, "has an input of type %s" % node.get("type"))


def _check_graphics(node: Node, guest: Arriving) -> None:
    addresses = [node.get("listen"), *(listen.get("address") for listen in node.findall("listen"))]
    kinds = {listen.get("type") for listen in node.findall("listen")}
    if node.get("type") != "vnc" or node.get("autoport") != "yes" or kinds - {"address"}:
        raise _refused(guest, "has a display of another kind than VNC on a port of libvirt's")
    if not re.match(r"^[a-z0-9-]*$", node.get("keymap") or ""):
        raise _refused(guest, "has the keymap %s" % node.get("keymap"))
    if {address for address in addresses if address is not None} - {guest.limits.get("vnc_listen")}:
        raise _refused(guest, "has its display on another address than this host's guests")


def _check_audio(node: Node, guest: Arriving) -> None:
    if node.get("type") != "none":
        raise _refused(guest, "plays sound on its host")


def _check_watchdog(node: Node, guest: Arriving) -> None:
    if node.get("action", "reset") not in _WATCHDOG:
        raise _refused(guest, "has a watchdog that does %s" % node.get("action"))


def _check_video(node: Node, guest: Arriving) -> None:
    if any(_number(m.get(name, "0")) < 0 for m in node.findall("model") for name in ("vram", "ram", "vgamem")):
        raise _refused(guest, "has a display adapter with unknown memory")


def _check_rng(node: Node, guest: Arriving) -> None:
    for backend in node.findall("backend"):
        allowed = ("", *_RANDOM, guest.limits.get("rng_dev_path"))
        if backend.get("model") not in ("random", "builtin") or (backend.text or "").strip() not in allowed:
            raise _refused(guest, "reads random numbers from %s" % (backend.text or "").strip())


_DEVICES: t.Mapping[str, t.Callable[[Node, Arriving], None]] = {
    "emulator": _check_emulator,
    "disk": _check_disk,
    "interface": _check_interface,
    "serial": _check_console,
    "console": _check_console,
    "channel": _check_channel,
    "input": _check_input,
    "graphics": _check_graphics,
    "audio": _check_audio,
    "watchdog": _check_watchdog,
    "video": _check_video,
    "rng": _check_rng,
}
