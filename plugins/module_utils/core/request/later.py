# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fields that Nova knows and a later version of the collection honours: refused in words, never ignored."""

from __future__ import annotations

import typing as t

from ..errors import BootflowError, NotSupportedYet

_FIELDS = {
    "host": ("Asking for a host that the scheduler still tests (host)", "Force it: availability_zone zone:host."),
    "hypervisor_hostname": (
        "Asking for a node that the scheduler still tests (hypervisor_hostname)",
        "Force it: availability_zone zone::node.",
    ),
    "tags": ("Tagging instances (tags)", "Use metadata."),
    "trusted_image_certificates": (
        "Verifying image signatures (trusted_image_certificates)",
        "Give the image's sha256 as checksum.",
    ),
}


def later_fields(entry: t.Mapping[str, t.Any], bad: t.Container[str]) -> t.Iterator[tuple[str, BootflowError]]:
    """(field, error) of what ``entry`` asks for too early; fields of ``bad`` are left out."""
    for name, (feature, remedy) in _FIELDS.items():
        if name not in bad and entry.get(name):
            yield name, NotSupportedYet(feature=feature, remedy=remedy)


def later_security_groups(groups: t.Iterable[str]) -> t.Iterator[BootflowError]:
    for group in groups:
        if group != "default":
            yield NotSupportedYet(
                feature="Security group %s (any other than default)" % ascii(group),
                remedy="Leave security_groups out, or say default.",
            )
