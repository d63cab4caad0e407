# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's fields that the collection does not support yet: rejected with an explanation, never ignored."""

from __future__ import annotations

import re
import typing as t

from ..errors import BootflowError, NotSupportedYet
from ..guest.constraints import is_true
from ..model import Flavor
from ..networks.security_rules import DEFAULT as DEFAULT_GROUP

_FIELDS = {
    "host": (
        "A requested host that the scheduler still filters (host)",
        "Force the host with availability_zone zone:host.",
    ),
    "hypervisor_hostname": (
        "A requested node that the scheduler still filters (hypervisor_hostname)",
        "Force the node with availability_zone zone::node.",
    ),
    "trusted_image_certificates": (
        "Verification of image signatures (trusted_image_certificates)",
        "Give the image's sha256 as checksum.",
    ),
}


def later_fields(entry: t.Mapping[str, t.Any], bad: t.Container[str]) -> t.Iterator[tuple[str, BootflowError]]:
    """(field, error) of unsupported fields in ``entry``, without the fields of ``bad``."""
    for name, (feature, remedy) in _FIELDS.items():
        if name not in bad and entry.get(name):
            yield name, NotSupportedYet(feature=feature, remedy=remedy)


#: What security groups and port security do where hosts filter.
NOT_FILTERED = (
    "Nothing filters the traffic of a guest, which can also use any IP or MAC address. Filter it in the guest, or on the network that its"
    " bridge leads to."
)


_SHOWN = 5


def later_security_groups(groups: t.Iterable[str], filters_ports: bool) -> t.Iterator[BootflowError]:
    """Groups that no host would filter by. :arg filters_ports: hosts filter the ports of guests"""
    for group in () if filters_ports else groups:
        if group != DEFAULT_GROUP:
            yield NotSupportedYet(
                feature="Security group %s (any other than default, with bootflow_firewall_driver: noop)"
                % ascii(group),
                remedy="Set bootflow_firewall_driver: nftables for all hosts, as docs/security-groups.md says, or leave security_groups out. %s"
                % NOT_FILTERED,
            )


def without_effect(entries: t.Iterable[t.Any], filters_ports: bool) -> list[str]:
    """A sentence for each field of valid entries that is accepted and does nothing.

    :arg entries: as they were written. :arg filters_ports: hosts filter the ports of guests
    """
    if filters_ports:
        return []
    names = [str(e.get("name")) for e in entries if isinstance(e, t.Mapping) and e.get("security_groups")]
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (" and %d more" % (len(names) - _SHOWN) if len(names) > _SHOWN else "")
    return ["security_groups: default of %s has no effect. %s" % (shown, NOT_FILTERED)]


_PLACEMENT = (
    "Use capabilities:... (facts of hosts) or aggregate_instance_extra_specs:... instead; vcpus, memory_mb and root_gb of the"
    " flavor are what it takes."
)
#: What a guest would be without, although flavor or image ask for it: name, feature, whether only true asks for it, remedy.
_ASKED = (
    (re.compile(r"trait([a-zA-Z0-9_-]{1,64})?:"), "A trait of placement", False, _PLACEMENT),
    (re.compile(r"resources([a-zA-Z0-9_-]{1,64})?:"), "A resource of placement", False, _PLACEMENT),
    (re.compile(r"accel:device_profile\Z"), "An accelerator of Cyborg", False, "Use pci_passthrough:alias."),
    (re.compile(r"hw[:_]mem_encryption\Z"), "Encryption of a guest's memory", True, None),
    (re.compile(r"hw[:_]ephemeral_encryption\Z"), "Encryption of local disks", True, None),
    (re.compile(r"hw[:_]tpm_(version|model)\Z"), "An emulated TPM", False, None),
)


#: Properties of an image that is booted with its own kernel and RAM disk.
_KERNEL, _RAMDISK, NO_KERNEL = "kernel_id", "ramdisk_id", "nokernel"


def later_properties(properties: t.Mapping[str, t.Any]) -> t.Iterator[BootflowError]:
    """Properties of an image without which its guest would boot something else. source: Nova's _handle_kernel_and_ramdisk"""
    if properties.get(_KERNEL) == NO_KERNEL:  # Nova reads no ramdisk_id then
        return
    for name in (_KERNEL, _RAMDISK):
        if properties.get(name) not in (None, ""):
            yield NotSupportedYet(
                feature="An image with a kernel outside of it (%s)" % name,
                remedy="Use an image that has its own boot loader, or set %s: %s if it has one." % (_KERNEL, NO_KERNEL),
            )


def later_specs(flavor: Flavor, properties: t.Mapping[str, t.Any]) -> t.Iterator[BootflowError]:
    """The extra specs and image properties that decide where a guest may be, or protect it, and that nothing here reads."""
    for source, values in (("flavor %s" % flavor.name, flavor.extra_specs), ("the image", properties)):
        for name, value in values.items():
            for pattern, feature, only_true, remedy in _ASKED:
                if pattern.match(name) and value not in (None, "") and (is_true(value) or not only_true):
                    yield NotSupportedYet(feature="%s (%s of %s)" % (feature, name, source), remedy=remedy)
