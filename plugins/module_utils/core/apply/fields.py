# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for a change of each field of an entry on an existing instance.

source: Nova's API.update_instance (what a PUT of a server may change; the hostname since 2.90), ServerMetadataController, API.rebuild (the key pair
since 2.54, the user data since 2.57) and API.resize
"""

from __future__ import annotations

from dataclasses import dataclass

LIVE = "live"  # in the ledger; the guest continues
VOLUMES = "volumes"  # live, as far as data volumes go
INTERFACES = "interfaces"  # live, one by one
RESIZE = "resize"
REBUILD = "rebuild"
RESTART = "restart"
NEVER = "never"

#: What has to be allowed, as it ends or restarts the guest.
ALLOWABLE = (RESIZE, REBUILD, RESTART)

#: What each of them does to the guest.
COSTS = {
    RESIZE: "resize, restarts the guest",
    REBUILD: "rebuild, replaces the guest's local disks",
    RESTART: "hard reboot, restarts the guest",
}


@dataclass(frozen=True)
class Field:
    """Rule for the change of a field."""

    how: str
    why: str = ""  # NEVER: why not; LIVE: what the guest notices


ON_OLD_DRIVE = "the guest's config drive keeps the old one"
_PLACED = "it counts when an instance is placed"

FIELDS: dict[str, Field] = {
    "description": Field(LIVE),
    "metadata": Field(LIVE, ON_OLD_DRIVE),
    "tags": Field(LIVE),
    "access_ip_v4": Field(LIVE),
    "access_ip_v6": Field(LIVE),
    "disk_config": Field(LIVE),
    "extra": Field(LIVE),
    "name": Field(LIVE, "of its entry; the instance keeps its name"),
    "block_device_mapping": Field(VOLUMES, "disks are made when an instance is booted"),
    "flavor": Field(RESIZE),
    "image": Field(REBUILD),
    "root_image": Field(NEVER, "its root disk is a volume, which was made of the image"),
    "user_data": Field(REBUILD),
    "key_name": Field(REBUILD),
    "injected_files": Field(REBUILD),
    "hostname": Field(LIVE, ON_OLD_DRIVE),
    "config_drive": Field(NEVER, "it is made when an instance is booted"),
    "networks": Field(INTERFACES),
    "security_groups": Field(NEVER, "they count when an instance is booted"),
    "availability_zone": Field(NEVER, _PLACED),
    "forced_host": Field(NEVER, _PLACED),
    "forced_node": Field(NEVER, _PLACED),
    "scheduler_hints": Field(NEVER, _PLACED),
    "user": Field(NEVER, "an instance keeps its owner"),
    "project": Field(NEVER, "an instance stays in its project"),
}


#: What reaches a guest by its config drive alone.
ON_DRIVE = ("user_data", "injected_files", "key_name")


def rule(field: str) -> Field:
    """Return the rule for ``field`` of a digest. A field of a later version is never changed."""
    return FIELDS.get(field, Field(NEVER, "this version does not know it"))
