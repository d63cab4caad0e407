# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares a wanted domain with libvirt's inactive XML, ignoring what libvirt fills in.

The definition must contain everything that the intent contains. Additions in the definition are libvirt's
(addresses, aliases, controllers, defaults), except for elements that libvirt never adds by itself: a disk, an interface, a
limit, a kernel. These are differences too; otherwise a device attached by hand would count as ours.
"""

from __future__ import annotations

import re
import typing as t

from .element import parse
from .namespaces import NOVA_NAMESPACE, OWNER_NAMESPACE

Node = t.Any

# Children that count even if the intent does not have them, by the tag of their parent.
_NEVER_ADDED: t.Mapping[str, frozenset[str]] = {
    "domain": frozenset(
        {"cputune", "memtune", "blkiotune", "numatune", "memoryBacking", "iothreads", "maxMemory", "sysinfo", "genid"}
    ),
    "os": frozenset({"kernel", "initrd", "cmdline", "dtb", "boot", "bootmenu", "smbios"}),
    "devices": frozenset(
        {
            "disk",
            "interface",
            "hostdev",
            "filesystem",
            "redirdev",
            "shmem",
            "tpm",
            "vsock",
            "memory",
            "iommu",
            "sound",
            "smartcard",
            "graphics",
            "serial",
            "channel",
            "rng",
            "watchdog",
        }
    ),
    "disk": frozenset({"iotune", "shareable", "serial", "boot", "transient", "encryption", "auth", "mirror"}),
    "backingStore": frozenset({"format", "source"}),
    "interface": frozenset({"bandwidth", "filterref", "vlan", "mtu", "boot", "link", "virtualport", "script"}),
    "cpu": frozenset({"numa", "topology"}),
    "features": frozenset({"hyperv", "kvm", "pmu", "smm", "hap", "privnet"}),
}
# Values that change with time or with our release, such as SMBIOS's version: no reason to define again.
_IGNORED = frozenset({"{%s}creationTime" % NOVA_NAMESPACE, "{%s}package" % NOVA_NAMESPACE})
_KIB_UNITS: t.Mapping[str, int] = {
    "b": 1,
    "bytes": 1,
    "kb": 1000,
    "k": 1024,
    "kib": 1024,
    "mb": 1000**2,
    "m": 1024**2,
    "mib": 1024**2,
    "gb": 1000**3,
    "g": 1024**3,
    "gib": 1024**3,
    "tb": 1000**4,
    "t": 1024**4,
    "tib": 1024**4,
}
_SIZES = frozenset({"memory", "currentMemory"})
# Defaults of attributes, which libvirt omits.
_DEFAULTS: t.Mapping[tuple[str, str], str] = {
    ("disk", "device"): "disk",
    ("disk", "type"): "file",
    ("vcpu", "placement"): "static",
    ("boot", "order"): "",
    ("loader", "secure"): "no",
    ("bootmenu", "enable"): "no",
    ("link", "state"): "up",
    ("address", "multifunction"): "off",
    ("driver", "cache"): "default",
    ("driver", "io"): "default",
}
# Children that state a default: a missing one is not a difference.
_SAME_AS_MISSING: t.Mapping[str, t.Mapping[str, str]] = {"bootmenu": {"enable": "no"}, "link": {"state": "up"}}


def intent_differences(wanted_xml: str | bytes, actual_xml: str | bytes) -> list[str]:
    """Return what the actual (inactive) XML lacks of the wanted domain, and what it has in addition.

    Empty: equal; defining again would change nothing. Each line names the place and both values.

    :raises InvalidInput: one of the two is not well-formed XML.
    """
    differences: list[str] = []
    _compare(parse(wanted_xml), parse(actual_xml), "", differences)
    return differences


def _compare(wanted: Node, actual: Node, path: str, differences: list[str]) -> None:
    location = path or wanted.tag
    _compare_attributes(wanted, actual, location, differences)
    _compare_text(wanted, actual, location, differences)
    pairs, missing, extra = _pair(wanted, actual)
    prefix = "%s/" % path if path else ""
    for child, match, name in pairs:
        _compare(child, match, prefix + name, differences)
    for child, name in missing:
        if not _is_default(child):
            differences.append("%s%s: wanted, but missing" % (prefix, name))
    for _surplus, name in extra:
        differences.append("%s%s: not wanted, but there" % (prefix, name))


def _compare_attributes(wanted: Node, actual: Node, path: str, differences: list[str]) -> None:
    for name, value in sorted(wanted.attrib.items()):
        if name == "unit" and wanted.tag in _SIZES:
            continue  # part of the size
        actual_value = actual.get(name)
        if actual_value is None:
            if value == _DEFAULTS.get((wanted.tag, name)) or _assigned_later(wanted, name, value):
                continue
            actual_value = _elsewhere(actual, name)
        if actual_value is None or not _equal(wanted, actual, name, value, actual_value):
            differences.append(
                "%s/@%s: wanted %s, is %s" % (path, name, _shown(name, value), _shown(name, actual_value))
            )


def _compare_text(wanted: Node, actual: Node, path: str, differences: list[str]) -> None:
    if len(wanted):
        return
    text, actual_text = (wanted.text or "").strip(), (actual.text or "").strip()
    if wanted.tag in _SIZES:
        if _bytes(wanted) != _bytes(actual):
            differences.append(
                "%s: wanted %s %s, is %s %s"
                % (path, text, wanted.get("unit", "KiB"), actual_text, actual.get("unit", "KiB"))
            )
    elif (
        text != actual_text
        and not (wanted.tag == "uuid" and text.lower() == actual_text.lower())
        and (text or not len(actual))
    ):
        if text or not _filled_in(wanted):
            differences.append("%s: wanted %r, is %r" % (path, text, actual_text))


def _filled_in(wanted: Node) -> bool:
    """Elements that the intent leaves empty and libvirt fills."""
    return wanted.tag in ("loader", "nvram", "model")


def _assigned_later(wanted: Node, name: str, value: str) -> bool:
    # libvirt drops names that it would assign itself.
    return wanted.tag == "target" and name == "dev" and bool(re.match(r"^(vnet|vif|macvtap|macvlan)\d+$", value))


def _elsewhere(actual: Node, name: str) -> str | None:
    """``listen`` of graphics may be in the child only."""
    if actual.tag == "graphics" and name == "listen":
        child = actual.find("listen")
        return None if child is None else child.get("address")
    return None


def _equal(wanted: Node, actual: Node, name: str, value: str, actual_value: str) -> bool:
    if value == actual_value:
        return True
    if wanted.tag == "type" and name == "machine":
        return _machine_is(value, actual_value)
    if (wanted.tag, name) == ("mac", "address"):
        return value.lower() == actual_value.lower()
    if wanted.tag == "address":
        return _number(value) is not None and _number(value) == _number(actual_value)
    if wanted.tag == "graphics" and name == "port":
        return value == "-1" and actual.get("autoport") == "yes"
    return False


def _machine_is(alias: str, canonical: str) -> bool:
    """libvirt writes pc-i440fx-7.2 for pc."""
    prefixes = {"pc": "pc-i440fx-", "q35": "pc-q35-"}
    return canonical.startswith(prefixes.get(alias, alias + "-"))


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _bytes(node: Node) -> int | None:
    factor = _KIB_UNITS.get((node.get("unit") or "KiB").lower())
    number = _number((node.text or "").strip())
    return None if factor is None or number is None else number * factor


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return "not set"
    return "***" if name in ("passwd", "password") else repr(value)


# --- matching children


def _pair(
    wanted: Node, actual: Node
) -> tuple[list[tuple[Node, Node, str]], list[tuple[Node, str]], list[tuple[Node, str]]]:
    """Pairs, wanted ones without a match, and surplus ones that libvirt did not add; each with its name."""
    groups: dict[str, list[Node]] = {}
    for child in actual:
        groups.setdefault(child.tag, []).append(child)
    pairs, missing = [], []
    count: dict[str, int] = {}
    for child in wanted:
        if child.tag in _IGNORED or (child.tag, child.get("name")) == ("entry", "version"):
            continue
        key = _key(child)
        candidates = groups.get(child.tag, [])
        match = _take(candidates, key)
        number = count.get(child.tag, 0)
        count[child.tag] = number + 1
        name = _name(child, key, number)
        if match is None:
            missing.append((child, name))
        else:
            pairs.append((child, match, name))
    surplus = [
        (child, _name(child, _key(child), index))
        for tag in sorted(_NEVER_ADDED.get(wanted.tag, frozenset()) & groups.keys())
        for index, child in enumerate(groups[tag])
        if not _is_libvirts(child, actual)
    ]
    return pairs, missing, surplus


def _take(candidates: list[Node], key: str | None) -> Node | None:
    for index, candidate in enumerate(candidates):
        if key is None or _key(candidate) == key:
            return candidates.pop(index)
    return None


def _key(node: Node) -> str | None:
    """The key that identifies a device among its siblings; None: its position."""
    if node.tag == "disk":
        return _attribute(node, "target", "dev")
    if node.tag == "interface":
        mac = _attribute(node, "mac", "address")
        return mac.lower() if mac else None
    if node.tag == "controller":
        return "%s%s" % (node.get("type"), node.get("index") or "0")
    if node.tag in ("timer", "parameter", "entry"):
        return str(node.get("name"))
    if node.tag == "feature":
        return str(node.get("name"))
    if node.tag == "channel":
        return _attribute(node, "target", "name")
    if node.tag == "input":
        return "%s-%s" % (node.get("type"), node.get("bus"))
    if node.tag == "graphics":
        return str(node.get("type"))
    if node.tag == "{%s}port" % NOVA_NAMESPACE:
        return str(node.get("uuid"))
    return None


def _attribute(node: Node, tag: str, name: str) -> str | None:
    child = node.find(tag)
    value = None if child is None else child.get(name)
    return None if value is None else str(value)


def _name(node: Node, key: str | None, number: int) -> str:
    tag = node.tag.replace("{%s}" % NOVA_NAMESPACE, "nova:").replace("{%s}" % OWNER_NAMESPACE, "bootflow:")
    if key is not None:
        return "%s[%s]" % (tag, key)
    return tag if number == 0 else "%s[%d]" % (tag, number)


def _is_default(wanted: Node) -> bool:
    default = _SAME_AS_MISSING.get(wanted.tag)
    return default is not None and dict(wanted.attrib) == dict(default) and not len(wanted)


def _is_libvirts(extra: Node, parent: Node) -> bool:
    """Whether libvirt added this child of the list above, as it does in some cases."""
    if extra.tag == "link":
        return bool(extra.get("state") == "up")
    if extra.tag == "boot" and parent.tag == "os":
        # libvirt writes hd if neither os nor a device has a boot order
        return extra.get("dev") == "hd" and len(parent.findall("boot")) == 1
    if extra.tag == "sound":
        return False
    if extra.tag == "smm":
        return bool(extra.get("state") == "on")  # follows from the secure loader
    return False
