# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups of projects: made, changed and deleted, with their rules.

A transaction that changes groups or rules of a project, or gives groups to ports, has the turn of the project: two runs never change the
same group at once. source: Neutron's securitygroups_db
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances import quotas
from ...core.interfaces.security_entries import GroupChange, GroupEntry, RuleEntry
from ...core.networks.security_rules import DEFAULT, Rule, rules_of_new_group
from ...core.reading.problems import Problems
from ...ledger.compute import runs
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.networks import filter_marks, security_groups
from ...ledger.networks.security_groups import GroupRow
from .port_filters import hosts_following


@dataclass
class GroupsWritten:
    """Ids of groups or rules by what was done. ``changes``: id -> field -> (before, after). ``hosts``: whose filters follow."""

    created: list[str] = field(default_factory=list)
    changes: dict[str, dict[str, tuple[t.Any, t.Any]]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)  # whose rules changed
    hosts: list[str] = field(default_factory=list)


def create(
    tx: Transaction, entries: t.Sequence[GroupEntry], project: str, limits: t.Mapping[str, t.Any]
) -> GroupsWritten:
    """Make the groups that the project lacks, each with the rules of a new group.

    :arg limits: bootflow_quotas
    :raises InvalidRequest: all refusals (SecurityGroupExists, OverQuota). Nothing is written then.
    """
    runs.renew(tx)
    take_turns(tx, "project", [project])
    security_groups.ensure_default(tx, project)
    problems, written = Problems(), GroupsWritten()
    rows = security_groups.find(tx, [(entry.name, project) for entry in entries])
    missing = []
    for entry in entries:
        row = rows.get((entry.name, project))
        if row is None or row.project != project:
            missing.append(entry)
            continue
        if entry.description not in (None, row.description):
            reason = "its description is %r" % row.description
            problems.add(entry.path, errors.SecurityGroupExists(name=entry.name, reason=reason))
        written.unchanged.append(row.id)
    with problems.collect("security_groups"):
        _check_quota(tx, project, len(missing), len(missing) * len(rules_of_new_group()), limits)
    problems.raise_if_any()
    for entry in missing:
        key = security_groups.add(tx, project, entry.name, entry.description or "", rules_of_new_group())
        written.created.append(key)
    return written


def _check_quota(tx: Transaction, project: str, groups: int, rules: int, limits: t.Mapping[str, t.Any]) -> None:
    if groups or rules:
        new = {quotas.SECURITY_GROUPS: groups, quotas.SECURITY_GROUP_RULES: rules}
        own = quotas.limits_of(limits, project)
        quotas.check_security_groups(new, security_groups.usage(tx, project), own, project)


def _find(tx: Transaction, words: t.Sequence[str], project: str | None) -> security_groups.Found:
    """The groups by (word, project), while this transaction has the turns of their projects."""
    pairs = [(word, project) for word in words]
    if project is not None:
        take_turns(tx, "project", [project])
        if DEFAULT in words:
            security_groups.ensure_default(tx, project)
    projects = {row.project for row in security_groups.find(tx, pairs).values()}
    take_turns(tx, "project", sorted(projects))
    return security_groups.find(tx, pairs)


def known_group(row: GroupRow | None, word: str, project: str | None) -> GroupRow:
    """The group. :raises SecurityGroupNotFound: there is none, or it is another project's."""
    if row is None or project not in (None, row.project):
        raise errors.SecurityGroupNotFound(id=word)
    return row


def update(tx: Transaction, changes: t.Sequence[GroupChange], project: str | None) -> GroupsWritten:
    """Change names and descriptions of groups. :arg project: of groups that are named; None: any

    :raises InvalidRequest: all refusals (SecurityGroupNotFound, SecurityGroupExists, SecurityGroupCannotUpdateDefault). Nothing is written then.
    """
    runs.renew(tx)
    rows = _find(tx, [change.group for change in changes], project)
    problems, written = Problems(), GroupsWritten()
    for change in changes:
        with problems.collect(change.path):
            row = known_group(rows.get((change.group, project)), change.group, project)
            if row.id in written.changes or row.id in written.unchanged:
                raise errors.InvalidInput(
                    message="security group %s is named twice" % row.id, remedy="Write one entry per group."
                )
            wanted = {"name": change.name, "description": change.description}
            changed = {n: (getattr(row, n), v) for n, v in wanted.items() if v not in (None, getattr(row, n))}
            if not changed:
                written.unchanged.append(row.id)
                continue
            if "name" in changed:
                _check_new_name(tx, row, str(change.name))
            security_groups.write(tx, row.id, **{name: after for name, (_before, after) in changed.items()})
            written.changes[row.id] = changed
    problems.raise_if_any()
    return written


def _check_new_name(tx: Transaction, row: GroupRow, name: str) -> None:
    if row.name == DEFAULT:
        raise errors.SecurityGroupCannotUpdateDefault()
    if name == DEFAULT:
        raise errors.SecurityGroupDefaultAlreadyExists()
    namesake = security_groups.find(tx, [(name, row.project)]).get((name, row.project))
    if namesake is not None and namesake.id != row.id:
        raise errors.SecurityGroupExists(name=name, reason="it is security group %s" % namesake.id)


def delete(tx: Transaction, words: t.Sequence[str], project: str | None, missing_ok: bool) -> GroupsWritten:
    """Delete groups that no port has, with their rules and the rules of other groups that name them. :arg words: names and ids

    :raises InvalidRequest: all refusals (SecurityGroupNotFound, SecurityGroupInUse, SecurityGroupCannotRemoveDefault). Nothing is written then.
    """
    runs.renew(tx)
    rows = _find(tx, words, project)
    used = security_groups.in_use(tx, [row.id for row in rows.values()])
    problems, written = Problems(), GroupsWritten()
    for word in dict.fromkeys(words):
        row = rows.get((word, project))
        if missing_ok and (row is None or project not in (None, row.project)):
            written.not_found.append(word)
            continue
        with problems.collect("security_groups[%s]" % word):
            chosen = known_group(row, word, project)
            if chosen.name == DEFAULT:
                raise errors.SecurityGroupCannotRemoveDefault()
            if chosen.id in used:
                raise errors.SecurityGroupInUse(id=word)
            written.deleted.append(chosen.id)
    problems.raise_if_any()
    written.deleted = list(dict.fromkeys(written.deleted))
    if written.deleted:
        written.hosts = _mark_followers(tx, written.deleted)
        security_groups.delete(tx, written.deleted)
    return written


def create_rules(
    tx: Transaction, entries: t.Sequence[RuleEntry], project: str | None, limits: t.Mapping[str, t.Any]
) -> GroupsWritten:
    """Add rules to groups. A rule that is there word for word stays as it is.

    :raises InvalidRequest: all refusals (SecurityGroupNotFound, SecurityGroupRuleExists, DuplicateSecurityGroupRuleInPost, OverQuota). Nothing
        is written then.
    """
    runs.renew(tx)
    words = [entry.group for entry in entries]
    words += [entry.rule.remote_group_id for entry in entries if entry.rule.remote_group_id is not None]
    rows = _find(tx, words, project)
    problems, written = Problems(), GroupsWritten()
    existing = security_groups.rules_of(tx, {row.id for row in rows.values()})
    missing: dict[str, list[Rule]] = {}
    requested: set[tuple[t.Any, ...]] = set()
    owners: dict[str, str] = {}
    for entry in entries:
        with problems.collect(entry.path):
            group = known_group(rows.get((entry.group, project)), entry.group, project)
            rule = _resolved(entry.rule, rows, project, group)
            if (group.id, *rule.meaning) in requested:
                raise errors.DuplicateSecurityGroupRuleInPost()
            requested.add((group.id, *rule.meaning))
            equal_rules = [row for row in existing[group.id] if security_groups.rule_of(row).meaning == rule.meaning]
            if equal_rules and security_groups.rule_of(equal_rules[0]) != rule:
                raise errors.SecurityGroupRuleExists(rule_id=equal_rules[0].id)
            if equal_rules:
                written.unchanged.append(equal_rules[0].id)
                continue
            missing.setdefault(group.id, []).append(rule)
            owners[group.id] = group.project
    for owner in sorted(set(owners.values())):
        count = sum(len(rules) for key, rules in missing.items() if owners[key] == owner)
        with problems.collect("security_group_rules"):
            _check_quota(tx, owner, 0, count, limits)
    problems.raise_if_any()
    for key, rules in missing.items():
        written.created += security_groups.add_rules(tx, key, rules)
    written.groups = sorted(missing)
    written.hosts = _mark_followers(tx, missing)
    return written


def _resolved(rule: Rule, rows: security_groups.Found, project: str | None, group: GroupRow) -> Rule:
    """The rule with the id of its remote group. :raises SecurityGroupNotFound: the project has none."""
    if rule.remote_group_id is None:
        return rule
    remote = known_group(rows.get((rule.remote_group_id, project)), rule.remote_group_id, group.project)
    return replace(rule, remote_group_id=remote.id)


def _mark_followers(tx: Transaction, groups: t.Collection[str]) -> list[str]:
    """Mark the hosts whose filters change with the rules of these groups, where hosts filter. Returns them."""
    if not groups or not tx.filters_ports:
        return []
    hosts = hosts_following(tx, groups)
    filter_marks.mark(tx, hosts)
    return hosts


def delete_rules(tx: Transaction, ids: t.Sequence[str], project: str | None, missing_ok: bool) -> GroupsWritten:
    """Delete rules. :raises InvalidRequest: all refusals (SecurityGroupRuleNotFound). Nothing is written then."""
    runs.renew(tx)
    owners = {owner for _row, owner in security_groups.rules(tx, ids).values()}
    take_turns(tx, "project", sorted(owners))
    rows = security_groups.rules(tx, ids)
    problems, written = Problems(), GroupsWritten()
    for key in dict.fromkeys(ids):
        if key in rows and project in (None, rows[key][1]):
            written.deleted.append(key)
        elif missing_ok:
            written.not_found.append(key)
        else:
            problems.add("security_group_rules[%s]" % key, errors.SecurityGroupRuleNotFound(id=key))
    problems.raise_if_any()
    if written.deleted:
        written.groups = sorted({rows[key][0].security_group_id for key in written.deleted})
        written.hosts = _mark_followers(tx, written.groups)
        security_groups.delete_rules(tx, written.deleted)
    return written
