# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's fields that the collection does not support yet: rejected with an explanation, never ignored."""

from __future__ import annotations

import typing as t

from ..errors import BootflowError, NotSupportedYet

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


def later_security_groups(groups: t.Iterable[str]) -> t.Iterator[BootflowError]:
    for group in groups:
        if group != "default":
            yield NotSupportedYet(
                feature="Security group %s (any other than default)" % ascii(group),
                remedy="Leave security_groups out, or set it to default.",
            )
