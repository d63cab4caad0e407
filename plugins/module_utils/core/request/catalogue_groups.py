# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Server groups of the catalogue (bootflow_server_groups). source: Nova's os-server-groups"""

from __future__ import annotations

import typing as t

from ..errors import InstanceGroupNotFound
from ..instances.server_groups import ANTI_AFFINITY, POLICIES, ServerGroup
from ..reading.fields import Fields, catalogue_id, entries_of
from ..reading.problems import Problems
from ..reading.setting import canonical

Key = t.Tuple[str, str]  # project, name


def read_server_groups(data: t.Any, default_project: str, problems: Problems) -> dict[Key, ServerGroup]:
    """(project, name) -> group, without members, which the ledger has. Two projects may have groups of the same name.

    :arg data: a list of {name, policy, rules, project, id}, a mapping of them keyed by name, or None. ``policies``, a
        list of one, is Nova's former name of ``policy``.
    """
    groups_by_key: dict[Key, ServerGroup] = {}
    ids: dict[str, str] = {}
    for fields in entries_of("server_groups", data, problems):
        name = fields.name("name")
        project = fields.name("project", default_project)
        # names have no line ends, so two groups never give the same text
        group_id = fields.name("id", catalogue_id("server_group", "%s\n%s" % (project, name)))
        policy = _policy(fields)
        group = ServerGroup(
            id=group_id, name=name, policy=policy, max_server_per_host=_most_per_host(fields, policy), project=project
        )
        fields.unknown()
        if name and (project, name) in groups_by_key:
            fields.wrong(
                "name",
                "%r is used twice in project %s" % (name, project),
                "Give each group of a project a unique name.",
            )
        elif group_id in ids:
            fields.wrong("id", "%s is also the id of %s" % (group_id, ids[group_id]), "Ids must differ.")
        ids[group_id] = name
        groups_by_key[project, name] = group
    return groups_by_key


def find_server_group(groups: t.Mapping[Key, ServerGroup], project: str, name_or_id: str) -> ServerGroup:
    """The group of ``project`` with this id, else with this name; groups of other projects are not found.

    :raises InstanceGroupNotFound: unknown.
    """
    of_project = [group for group in groups.values() if group.project == project]
    for key, word in (("id", canonical(str(name_or_id))), ("name", name_or_id)):
        for group in of_project:
            if getattr(group, key) == word:
                return group
    raise InstanceGroupNotFound(
        group=name_or_id,
        remedy="Name a group of bootflow_server_groups; project %s has: %s."
        % (project, ", ".join(sorted(g.name for g in of_project)) or "none"),
    )


def _policy(fields: Fields) -> str:
    """Exactly one policy with a known name."""
    known = "Write policy: %s." % ", ".join(POLICIES)
    single, several = fields.raw("policy"), fields.raw("policies")
    if single is not None and several is not None:
        fields.wrong("policies", "excludes policy", known)
    elif several is not None:
        if not isinstance(several, (list, tuple)) or len(several) != 1:
            fields.wrong("policies", "must be a list of exactly one policy", known)
            return ""
        single = several[0]
    if single is None:
        fields.wrong("policy", "is missing", known)
        return ""
    if isinstance(single, (list, tuple)):
        fields.wrong("policy", "must be exactly one", known)
        return ""
    if single not in POLICIES:
        fields.wrong("policy", "%s is not known" % ascii(single), known)
        return ""
    return str(single)


def _most_per_host(fields: Fields, policy: str) -> int:
    rules = fields.mapping("rules")
    if not rules:
        return 1
    if policy and policy != ANTI_AFFINITY:
        fields.wrong("rules", "are only for the policy anti-affinity", "Leave them out.")
    inner = Fields(rules, fields.at("rules"), fields.problems)
    most = inner.integer("max_server_per_host", 1, 1)
    inner.unknown()
    return int(most)
