# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of bootflow_security_groups and bootflow_security_group_rules."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput, SecurityGroupDefaultAlreadyExists
from ..networks.security_rules import DEFAULT, DIRECTIONS, ETHERTYPES, Rule, checked_rule
from ..reading.problems import Problems
from ..reading.setting import canonical
from ..request.schema import entry_errors, schema_validator, without_nulls

_NAME = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
_TEXT = {"type": "string", "maxLength": 255}
_NUMBER = {"type": "integer"}
_GROUP = {"name": _NAME, "description": _TEXT}
_CHANGE = {**_GROUP, "security_group": _NAME}
_RULE = {
    "security_group": _NAME,
    "direction": {"type": "string", "enum": list(DIRECTIONS)},
    "ethertype": {"type": "string", "enum": list(ETHERTYPES)},
    "protocol": {"type": ["string", "integer"]},
    "port_range_min": _NUMBER,
    "port_range_max": _NUMBER,
    "remote_ip_prefix": {"type": "string", "minLength": 1},
    "remote_group": _NAME,
    "remote_group_id": _NAME,
    "description": _TEXT,
}


@dataclass(frozen=True)
class GroupEntry:
    """A group to make. ``description``: None is not given."""

    path: str
    name: str
    description: t.Optional[str] = None


@dataclass(frozen=True)
class GroupChange:
    """A group to change. Fields that are None stay."""

    path: str
    group: str  # name or id
    name: t.Optional[str] = None
    description: t.Optional[str] = None


@dataclass(frozen=True)
class RuleEntry:
    """A rule to add. ``group`` and the remote group of the rule: names or ids."""

    path: str
    group: str
    rule: Rule


def read_groups(entries: t.Sequence[t.Any]) -> list[GroupEntry]:
    """The groups to make. :raises InvalidRequest: all errors, the paths beginning with security_groups."""
    problems, made, names = Problems(), [], set()
    for path, entry in _sound("security_groups", entries, _GROUP, ("name",), problems):
        name = entry["name"]
        if name == DEFAULT:
            problems.add(path + ".name", SecurityGroupDefaultAlreadyExists())
        if name in names:
            error = InvalidInput(message="%r is used twice" % name, remedy="Give each group its own name.")
            problems.add(path + ".name", error)
        names.add(name)
        made.append(GroupEntry(path, name, entry.get("description")))
    problems.raise_if_any()
    return made


def read_group_changes(entries: t.Sequence[t.Any]) -> list[GroupChange]:
    """The groups to change. :raises InvalidRequest: all errors, the paths beginning with security_groups."""
    problems, changes = Problems(), []
    for path, entry in _sound("security_groups", entries, _CHANGE, ("security_group",), problems):
        if len(entry) == 1:
            error = InvalidInput(
                message="no change of security group %s is requested" % entry["security_group"],
                remedy="Give name or description.",
            )
            problems.add(path, error)
        changes.append(GroupChange(path, entry["security_group"], entry.get("name"), entry.get("description")))
    problems.raise_if_any()
    return changes


def read_rules(entries: t.Sequence[t.Any]) -> list[RuleEntry]:
    """The rules to add. :raises InvalidRequest: all errors, the paths beginning with security_group_rules."""
    problems, made = Problems(), []
    for path, entry in _sound("security_group_rules", entries, _RULE, ("security_group", "direction"), problems):
        fields = dict(entry)
        group, remote = fields.pop("security_group"), fields.pop("remote_group", None)
        if remote is not None and fields.setdefault("remote_group_id", remote) != remote:
            error = InvalidInput(
                message="remote_group and remote_group_id name different ones", remedy="Give only one of them."
            )
            problems.add(path + ".remote_group_id", error)
            continue
        if "remote_group_id" in fields:
            fields["remote_group_id"] = canonical(fields["remote_group_id"])
        with problems.collect(path):
            made.append(RuleEntry(path, group, checked_rule(**fields)))
    problems.raise_if_any()
    return made


def _sound(
    where: str, entries: t.Sequence[t.Any], fields: t.Mapping[str, t.Any], required: t.Sequence[str], problems: Problems
) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(path, entry) of the entries that have the form."""
    schema = {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}
    validator = schema_validator(schema)
    for index, raw in enumerate(entries):
        path = "%s[%d]" % (where, index)
        if not isinstance(raw, t.Mapping):
            error = InvalidInput(message="an entry must be a mapping", remedy="Give %s." % " and ".join(required))
            problems.add(path, error)
            continue
        entry = without_nulls(raw)
        wrong = entry_errors(validator, entry, path)
        if wrong:
            problems.extend(wrong)
            continue
        yield path, entry
