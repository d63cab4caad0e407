# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operator's settings that a request is read under."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

#: the newest version of Nova's create that the fragments follow
LATEST_API_VERSION = "2.94"


@dataclass(frozen=True)
class RequestOptions:
    """Settings, with Nova's defaults. -1 is unlimited. source: Nova's API.create."""

    api_version: str = LATEST_API_VERSION
    default_availability_zone: t.Optional[str] = None  # Nova's default_schedule_zone
    availability_zones: t.Optional[t.Collection[str]] = None  # the zones that exist; None: not checked here
    allow_forced_host: bool = True  # policy create:forced_host
    denied_policies: t.Collection[
        str
    ] = ()  # of create, create:attach_network, create:attach_volume, create:zero_disk_flavor
    default_flavor: t.Optional[str] = None
    default_project: str = "default"
    default_user: str = ""
    enable_config_drive: bool = True  # False: nobody may ask for one
    force_config_drive: bool = False  # every instance has one, whatever it asks
    enable_injected_files: bool = True
    allow_duplicate_networks: bool = True
    extra_hint_names: t.Collection[str] = ()  # scheduler hints that the user's own filters read
    hints_read: t.Optional[t.Collection[str]] = None  # hints that the enabled filters read; None: not checked here
    enabled_filters: t.Optional[t.Collection[str]] = None  # their names; None: not checked here
    enabled_weighers: t.Optional[t.Collection[str]] = None
    schema_dirs: t.Sequence[str] = ()  # folders with more schema fragments
    metadata_items: int = 128
    injected_files: int = 5
    injected_file_content_bytes: int = 10240
    injected_file_path_length: int = 255
