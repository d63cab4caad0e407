# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The description of a domain that this collection did not make: the part of its XML by which it can become an instance.

The XML comes from other software. A document that is larger, or has more devices, than any sensible guest is refused.
"""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput
from ..guest.domain.element import parse
from ..guest.domain.namespaces import NOVA_NAMESPACE, OWNER_NAMESPACE
from ..guest.names import checked_uuid

MAKER = "bootflow.compute"  # as core.guest.platform writes it
MOST_BYTES = 1024 * 1024  # of a document; a guest with a hundred disks has a tenth
MOST_DEVICES = 256  # of a kind
MOST_VCPUS = 4096
MOST_TEXT = 255  # characters of a name
LARGEST = 2**31 - 1  # of a number that a ledger keeps

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PCI = ("domain", "bus", "slot", "function")
# Units of libvirt's scaled integers -> bytes.
_UNITS = {
    "b": 1,
    "bytes": 1,
    **{letter: 1024**power for power, letter in enumerate("kmgtpe", 1)},
    **{letter + "b": 1000**power for power, letter in enumerate("kmgtpe", 1)},
    **{letter + "ib": 1024**power for power, letter in enumerate("kmgtpe", 1)},
}
_SOURCES = {"file": "file", "block": "dev", "network": "name", "volume": "volume", "dir": "dir"}
_PLUGS = {"bridge": "bridge", "network": "network"}
_AGENT = "devices/channel/target[@name='org.qemu.guest_agent.0'][@state='connected']"
MIB = 1024**2


def describe(text: str) -> dict[str, t.Any]:
    """Return the description of a domain's XML, as plain data.

    {uuid, name, arch, machine, memory_mb, vcpus, disks: [{target, device, type, source}], interfaces: [{mac, type, source}], pci: [address],
    other_devices: [words], pins: [[guest CPU, host CPU]], agent, made_by: "" or "bootflow" or "nova", ledger: id or ""}.
    ``agent``: whether the guest agent is connected. Memory is MiB, rounded up.

    :raises InvalidInput: the text is not a domain, or exceeds a limit.
    """
    if len(text) > MOST_BYTES:
        raise InvalidInput(reason="the XML has %d characters, more than %d" % (len(text), MOST_BYTES))
    root = parse(text)
    if root.tag != "domain":
        raise InvalidInput(reason="the XML must be a domain, got %s" % str(root.tag)[:MOST_TEXT])
    os_type = root.find("os/type")
    described: dict[str, t.Any] = {
        "uuid": checked_uuid((root.findtext("uuid") or "").strip()),
        "name": _text(root.findtext("name"), "name"),
        "arch": _text(None if os_type is None else os_type.get("arch"), "os/type/@arch", empty=True),
        "machine": _text(None if os_type is None else os_type.get("machine"), "os/type/@machine", empty=True),
        "memory_mb": _memory_mb(root.find("memory")),
        "vcpus": _number(root.findtext("vcpu") or "1", "vcpu", MOST_VCPUS),
        "disks": [_disk(element) for element in _devices(root, "disk") if _has_medium(element)],
        "interfaces": [_interface(element) for element in _devices(root, "interface")],
        "pins": _pins(root),
        "agent": root.find(_AGENT) is not None,
        "made_by": made_by(root),
        "ledger": _ledger(root),
    }
    host_devices = _devices(root, "hostdev")
    described["pci"] = [_address(element) for element in host_devices if element.get("type") == "pci"]
    others = [element.get("type") or "of an unknown type" for element in host_devices if element.get("type") != "pci"]
    described["other_devices"] = ["host device %s" % _text(kind, "hostdev/@type") for kind in others]
    described["other_devices"] += ["TPM of the host"] * len(root.findall("devices/tpm/backend[@type='passthrough']"))
    return described


def made_by(root: t.Any) -> str:
    """Return who wrote a domain, by the metadata of an instance in it: "bootflow", "nova", "" for others."""
    if root.find("metadata/{%s}instance" % NOVA_NAMESPACE) is None:
        return ""
    maker = root.findtext("sysinfo/system/entry[@name='manufacturer']")
    return "bootflow" if maker == MAKER else "nova"


def _ledger(root: t.Any) -> str:
    """Return the id of the ledger that has the domain; "" for none, or for a mark that is not an id."""
    owner = root.find("metadata/{%s}owner" % OWNER_NAMESPACE)
    try:
        return checked_uuid(str(owner.get("ledger"))) if owner is not None else ""
    except InvalidInput:
        return ""


def _devices(root: t.Any, kind: str) -> list[t.Any]:
    elements: list[t.Any] = root.findall("devices/%s" % kind)
    if len(elements) > MOST_DEVICES:
        raise InvalidInput(reason="the domain has %d elements %s, more than %d" % (len(elements), kind, MOST_DEVICES))
    return elements


def _text(value: str | None, where: str, empty: bool = False, most: int = MOST_TEXT) -> str:
    text = value or ""
    if len(text) > most or not text.isprintable() or not (text or empty):
        raise InvalidInput(reason="%s must have 1 to %d printable characters" % (where, most))
    return text


def _number(text: str, where: str, most: int) -> int:
    digits = text.strip()
    if not re.fullmatch("[0-9]{1,19}", digits) or not 1 <= int(digits) <= most:
        raise InvalidInput(reason="%s must be a number from 1 to %d, got %r" % (where, most, digits[:MOST_TEXT]))
    return int(digits)


def _memory_mb(element: t.Any) -> int:
    if element is None:
        raise InvalidInput(reason="the domain has no memory")
    unit = str(element.get("unit") or "KiB").lower()
    if unit not in _UNITS:
        raise InvalidInput(reason="memory/@unit %r is unknown" % unit[:MOST_TEXT])
    memory: int = -(-_number(element.text or "", "memory", 2**63 - 1) * _UNITS[unit] // MIB)
    if memory > LARGEST:
        raise InvalidInput(reason="the domain has %d MiB of memory, more than a ledger keeps" % memory)
    return memory


def _has_medium(disk: t.Any) -> bool:
    """Whether there is something in it: an empty drive is not a disk."""
    return disk.find("source") is not None or disk.get("device", "disk") in ("disk", "lun")


def _disk(element: t.Any) -> dict[str, t.Any]:
    kind, source, target = str(element.get("type") or ""), element.find("source"), element.find("target")
    place = source.get(_SOURCES[kind]) if source is not None and kind in _SOURCES else None
    return {
        "target": _text(None if target is None else target.get("dev"), "disk/target/@dev", empty=True),
        "device": _text(element.get("device", "disk"), "disk/@device"),
        "type": _text(kind, "disk/@type", empty=True),
        "source": _text(place, "disk/source", empty=True, most=4096),
    }


def _interface(element: t.Any) -> dict[str, t.Any]:
    mac, kind, source = element.find("mac"), str(element.get("type") or ""), element.find("source")
    address = "" if mac is None else str(mac.get("address") or "").lower()
    if address and not _MAC.fullmatch(address):
        raise InvalidInput(reason="%r is not a MAC address" % address[:MOST_TEXT])
    place = source.get(_PLUGS[kind]) if source is not None and kind in _PLUGS else None
    return {
        "mac": address,
        "type": _text(kind, "interface/@type", empty=True),
        "source": _text(place, "interface/source", empty=True),
    }


def _address(element: t.Any) -> str:
    """Return the address of a host's PCI device as hosts report it: 0000:81:00.0"""
    place = element.find("source/address")
    words = [str((place.get(name) if place is not None else None) or "0x0") for name in _PCI]
    try:
        numbers = [int(word, 0) for word in words]
    except ValueError:
        raise InvalidInput(reason="%s is not a PCI address" % " ".join(words)[:MOST_TEXT]) from None
    if not all(0 <= number <= most for number, most in zip(numbers, (2**32 - 1, 0xFF, 0x1F, 7))):
        raise InvalidInput(reason="%s is not a PCI address" % " ".join(words)[:MOST_TEXT])
    return "%04x:%02x:%02x.%x" % tuple(numbers)


def _pins(root: t.Any) -> list[list[int]]:
    """Return [guest CPU, host CPU] of each guest CPU that may run on one CPU of the host only."""
    pins: dict[int, int] = {}
    for element in root.findall("cputune/vcpupin")[:MOST_VCPUS]:
        cpu, cpus = str(element.get("vcpu") or ""), str(element.get("cpuset") or "").strip()
        if re.fullmatch("[0-9]{1,5}", cpu) and re.fullmatch("[0-9]{1,5}", cpus):
            pins[int(cpu)] = int(cpus)
    return [[cpu, pins[cpu]] for cpu in sorted(pins)]
