# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for the config drive of a guest."""

from __future__ import annotations

import typing as t

from ..errors import ConfigDriveUnknownFormat, InvalidInput

FORMATS = ("iso9660", "vfat")  # of the setting config_drive_format; the first is the default


def config_drive_wanted(force: bool, asked: bool | None, image_props: t.Mapping[str, t.Any]) -> bool:
    """Whether to build one: the setting forces it, the user requests it, or the image's img_config_drive is ``mandatory``.

    A user's False does not override the other two, as in Nova.

    :arg force: Nova's force_config_drive; for instances being built (a launched one keeps its state).
    :raises InvalidInput: img_config_drive is neither mandatory nor optional.
    """
    policy = image_props.get("img_config_drive", "optional")
    if policy not in ("mandatory", "optional"):
        raise InvalidInput(
            reason="image property img_config_drive must be mandatory or optional, got %r" % (policy,),
            remedy="Set it to mandatory or optional, or leave it out.",
        )
    return bool(asked) or bool(force) or policy == "mandatory"


def check_format(name: str) -> str:
    """Returns ``name``.

    :raises ConfigDriveUnknownFormat: neither iso9660 nor vfat.
    """
    if name not in FORMATS:
        raise ConfigDriveUnknownFormat(format=name)
    return name
