# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of security groups: requests, and the selection for playbooks."""

from __future__ import annotations

from ..reading.setting import REQUESTS, UUIDS, Setting, Table
from .request import QUOTA
from .selection import MISSING_OK

SECURITY_GROUPS = Table(
    (
        Setting(
            "security_groups",
            REQUESTS,
            help="Playbook `security_group_create`: the groups, each with `name` (required, unique in its project) and `description`. Playbook"
            " `security_group_update`: `security_group` (name or id), and the new `name`, `description`.",
            required=True,
        ),
    )
)

SECURITY_GROUP_RULES = Table(
    (
        Setting(
            "security_group_rules",
            REQUESTS,
            help="Playbook `security_group_rule_create`: the rules, each with `security_group` (name or id) and `direction` (`ingress`, `egress`);"
            " `ethertype` (`IPv4` by default), `protocol`, `port_range_min`, `port_range_max`, `remote_ip_prefix` or `remote_group`, `description`.",
            required=True,
        ),
    )
)

SECURITY_GROUP_RULE_IDS = Table(
    (
        Setting(
            "security_group_rule_ids",
            UUIDS,
            help="Playbook `security_group_rule_delete`: UUIDs of the rules to delete.",
            required=True,
        ),
    )
)

SECURITY_GROUP_SELECTION = Table(
    (
        Setting(
            "security_group_names",
            list,
            help="Names of security groups to list, show or delete, or that instances get or lose.",
        ),
        Setting(
            "security_group_ids",
            UUIDS,
            help="UUIDs of security groups to list, show or delete, or that instances get or lose.",
        ),
        QUOTA.named("project").but(default=None, help="Only security groups of this project."),
    )
)

SECURITY_GROUP_DELETION = Table((MISSING_OK,))
