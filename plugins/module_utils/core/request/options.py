# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings for reading a request: the operator's, the scheduler's and the hosts'."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..reading.formats import MAX_COUNT

#: Nova's policies that a setting may deny: name -> the field of an entry that asks for it.
POLICIES = {"create": "name", "create:attach_network": "networks", "create:attach_volume": "block_device_mapping"}


@dataclass(frozen=True)
class RequestOptions:
    """Settings, with Nova's defaults. source: Nova's API.create."""

    default_schedule_zone: t.Optional[str] = None
    availability_zones: t.Optional[t.Collection[str]] = None  # the zones that exist; None: not checked here
    allow_forced_host: bool = True  # policy create:forced_host
    allow_zero_disk: bool = True  # policy create:zero_disk_flavor
    allow_other_owners: bool = True  # entries may name other projects and users than the run's
    denied_policies: t.Collection[str] = ()  # of POLICIES
    default_flavor: t.Optional[str] = None
    default_project: str = "default"
    user: str = ""  # who makes the request
    force_config_drive: bool = False  # every instance has one, under any request
    allow_duplicate_networks: bool = True
    extra_hint_names: t.Collection[str] = ()  # scheduler hints that the user's own filters read
    hints_read: t.Optional[t.Collection[str]] = None  # hints that the enabled filters read; None: not checked here
    enabled_filters: t.Optional[t.Collection[str]] = None  # their names; None: not checked here
    overhead: t.Mapping[str, float] = field(default_factory=dict)  # of an instance, see resources.claims.overhead_of()
    enabled_weighers: t.Optional[t.Collection[str]] = None
    follows_file: bool = True  # of the playbook apply, whose entries have fields that a boot refuses
    max_count: int = MAX_COUNT  # of all entries
    filters_ports: bool = False  # hosts filter the ports of guests: entries may name security groups
    schema_dirs: t.Sequence[str] = ()  # folders with more schema fragments
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)  # bootflow_quotas, see instances.quotas.limits_of()
