# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Canonical names of architectures, hypervisor types and vm modes."""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput

ARCHITECTURES = frozenset(
    (
        "aarch64 alpha armv6 armv7l armv7b cris i686 ia64 lm32 m68k microblaze microblazeel mips mipsel mips64 mips64el openrisc "
        "parisc parisc64 ppc ppcle ppc64 ppc64le ppcemb riscv32 riscv64 s390 s390x sh4 sh4eb sparc sparc64 unicore32 x86_64 xtensa xtensaeb loongarch64"
    ).split()
)
HV_TYPES = frozenset(
    "baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz parallels vz phyp qemu test uml vbox vmware xen zvm prsm".split()
)
VM_MODES = frozenset("hvm xen uml exe".split())

ARCHITECTURE_ALIASES = {
    "i386": "i686",
    "i486": "i686",
    "i586": "i686",
    "x86_32": "i686",
    "x86_32p": "i686",
    "amd64": "x86_64",
}
HV_TYPE_ALIASES = {"xapi": "xen", "powervm": "phyp"}
VM_MODE_ALIASES = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}

# Property of an image -> its former name in Glance.
LEGACY = {
    "hw_architecture": "architecture",
    "img_hv_type": "hypervisor_type",
    "hw_vm_mode": "vm_mode",
    "img_hv_requested_version": "hypervisor_version_requires",
}
BITS_MAX = 64

_PREDICATE = re.compile(r"\s*(<=|>=|<|>|!=|==)\s*(\d+(?:\.\d+)*)\s*\Z")


def property_of(properties: t.Mapping[str, t.Any], name: str) -> t.Any:
    """An image's property by its name, or by its former one; None for none."""
    return properties.get(name, properties.get(LEGACY.get(name, name)))


def _canonical(kind: str, name: t.Any, aliases: t.Mapping[str, str], known: t.Collection[str]) -> str | None:
    if name is None or name == "":
        return None
    lowered = str(name).lower()
    canonical = aliases.get(lowered, lowered)
    if canonical not in known:
        raise InvalidInput(
            reason="%s %r is not valid" % (kind, name),
            remedy="Correct the image's properties; known are %s." % ", ".join(sorted(known)),
        )
    return canonical


def architecture(name: t.Any) -> str | None:
    """The canonical architecture; None for none. Raises InvalidInput."""
    return _canonical("Architecture name", name, ARCHITECTURE_ALIASES, ARCHITECTURES)


def hv_type(name: t.Any) -> str | None:
    """The canonical virtualization type; None for none. Raises InvalidInput."""
    return _canonical("Hypervisor virtualization type", name, HV_TYPE_ALIASES, HV_TYPES)


def vm_mode(name: t.Any) -> str | None:
    """The canonical guest ABI; None for none. Raises InvalidInput."""
    return _canonical("Virtual machine mode", name, VM_MODE_ALIASES, VM_MODES)


def supported_instance(triple: t.Sequence[t.Any]) -> tuple[str, ...]:
    """A host's report with canonical names; unknown names are kept, because hosts may be newer than this list."""
    result = []
    for name, aliases in zip(triple, (ARCHITECTURE_ALIASES, HV_TYPE_ALIASES, VM_MODE_ALIASES)):
        lowered = str(name).lower()
        result.append(aliases.get(lowered, lowered))
    return tuple(result)


def version_tuple(number: int) -> tuple[int, ...]:
    """The parts of libvirt's version number (1000000 x major + 1000 x minor + micro)."""
    parts: list[int] = []
    while number > 0:
        number, part = divmod(number, 1000)
        parts.insert(0, part)
    return tuple(parts)


def parse_version_range(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """``>=6.0,<8`` as comparisons. Raises InvalidInput."""
    result = []
    for predicate in text.split(","):
        match = _PREDICATE.match(predicate)
        if match is None:
            raise InvalidInput(
                reason="bad version range %r" % text, remedy="Write it like this: >=6.0,<8 (img_hv_requested_version)."
            )
        result.append((match.group(1), tuple(int(p) for p in match.group(2).split("."))))
    return result


def version_in_range(version: tuple[int, ...], comparisons: t.Iterable[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether the version satisfies all comparisons. 7 and 7.0.0 are the same."""
    for op, wanted in comparisons:
        length = max(len(version), len(wanted))
        padded = version + (0,) * (length - len(version))
        padded_wanted = wanted + (0,) * (length - len(wanted))
        if not {
            "<": padded < padded_wanted,
            "<=": padded <= padded_wanted,
            ">": padded > padded_wanted,
            ">=": padded >= padded_wanted,
            "==": padded == padded_wanted,
            "!=": padded != padded_wanted,
        }[op]:
            return False
    return True


def address_bits(name: str, value: t.Any) -> int | None:
    """The physical address bits that hw_maxphysaddr_bits or hw:maxphysaddr_bits asks for; None for none. Raises InvalidInput."""
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:3]) <= BITS_MAX):
        raise InvalidInput(
            reason="%s must be a number of bits, got %r" % (name, value), remedy="Write it in digits, such as 40."
        )
    return int(text)
