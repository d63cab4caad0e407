# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for the config drive of a guest."""

from __future__ import annotations

import typing as t

from ..errors import ConfigDriveUnknownFormat, InvalidInput
from .values import is_windows

FORMATS = ("iso9660", "vfat")  # of the setting config_drive_format; the first is the default

CONFIG_DRIVE, NO_CLOUD = "ConfigDrive", "NoCloud"  # cloud-init's names of its data sources
#: data source -> label of the file system that it looks for
LABELS = {CONFIG_DRIVE: "config-2", NO_CLOUD: "cidata"}
DATASOURCE = "bootflow:config_drive_datasource"  # property of an image


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


def datasource(properties: t.Mapping[str, t.Any]) -> str:
    """Return the data source that the image reads: CONFIG_DRIVE by default, or NO_CLOUD.

    :arg properties: of the image.
    :raises InvalidInput: another value, or NO_CLOUD for a Windows guest.
    """
    name = str(properties.get(DATASOURCE) or CONFIG_DRIVE)
    if name not in LABELS:
        raise InvalidInput(
            reason="image property %s must be %s, got %r" % (DATASOURCE, " or ".join(LABELS), name),
            remedy="Set it to %s, or leave it out." % " or ".join(LABELS),
        )
    if name == NO_CLOUD and is_windows(properties):
        raise InvalidInput(
            reason="image property %s is %s, which brings a Windows guest no password" % (DATASOURCE, name),
            remedy="Leave it out: cloudbase-init reads %s." % CONFIG_DRIVE,
        )
    return name


def check_files(properties: t.Mapping[str, t.Any], files: t.Collection[t.Any]) -> None:
    """Check that the image reads injected files. NO_CLOUD has no place for them.

    :raises InvalidInput: it does not, or its data source is unknown.
    """
    if files and datasource(properties) == NO_CLOUD:
        raise InvalidInput(
            reason="image property %s is %s, which has no injected files" % (DATASOURCE, NO_CLOUD),
            remedy="Let user_data write them (write_files).",
        )


def check_format(name: str) -> str:
    """Returns ``name``.

    :raises ConfigDriveUnknownFormat: neither iso9660 nor vfat.
    """
    if name not in FORMATS:
        raise ConfigDriveUnknownFormat(format=name)
    return name
