# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups and their rules, as people request and see them."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.interfaces.security_entries import read_group_changes, read_groups, read_rules
from ...module_utils.core.reading.setting import canonical
from ...module_utils.core.request.later import NOT_FILTERED
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.networks import security_groups as flow
from ...module_utils.flows.networks.security_groups import GroupsWritten
from ...module_utils.flows.port_security import instance_groups
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.networks import security_groups
from ..run import tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..run.results import diff

Views = t.List[t.Dict[str, t.Any]]


def create(action: LedgerAction) -> dict[str, t.Any]:
    """Make the groups of bootflow_security_groups that are missing; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    entries = read_groups(options["security_groups"])

    def write(tx: Transaction) -> tuple[GroupsWritten, Views]:
        written = flow.create(tx, entries, options["project"], options["quotas"])
        return written, security_groups.views(tx, [*written.created, *written.unchanged])

    written, views = action.write(write, collisions=3)
    made = [view for view in views if view["id"] in written.created]
    _show(action, "create", [_line(view) for view in made])
    return {
        "changed": bool(made),
        "created": written.created,
        "unchanged": written.unchanged,
        "security_groups": [_planned(v) if v in made and action.check_mode else v for v in views],
        "diff": diff("security_groups", "", _text(map(_line, made))),
    }


def _planned(view: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The view of a group that check mode rolled back: it will get other ids."""
    rules = [{**rule, "id": None, "security_group_id": None} for rule in view["security_group_rules"]]
    return {**view, "id": None, "security_group_rules": rules}


def update(action: LedgerAction) -> dict[str, t.Any]:
    """Change groups as bootflow_security_groups says; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    changes = read_group_changes(options["security_groups"])

    def write(tx: Transaction) -> tuple[GroupsWritten, Views]:
        written = flow.update(tx, changes, options["project"])
        return written, security_groups.views(tx, [*written.changes, *written.unchanged])

    written, views = action.write(write, collisions=3)
    before = ["  %s %s: %s" % (key, n, a) for key, c in written.changes.items() for n, (a, _b) in c.items()]
    after = ["  %s %s: %s" % (key, n, b) for key, c in written.changes.items() for n, (_a, b) in c.items()]
    _show(action, "change", after)
    return {
        "changed": bool(written.changes),
        "updated": list(written.changes),
        "unchanged": written.unchanged,
        "security_groups": views,
        "diff": diff("security_groups", _text(before), _text(after)),
    }


def delete(action: LedgerAction) -> dict[str, t.Any]:
    """Delete groups that no port has; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    words = _words(action)
    if not words:
        raise errors.InvalidInput(
            message="no security group is named",
            remedy="Set bootflow_security_group_names or bootflow_security_group_ids; all is never meant.",
        )

    def write(tx: Transaction) -> tuple[GroupsWritten, Views]:
        views = security_groups.views(tx, words)
        return flow.delete(tx, words, options["project"], options["missing_ok"]), views

    written, views = action.write(write)
    deleted = [view for view in views if view["id"] in written.deleted]
    _show(action, "delete", [_line(view) for view in deleted])
    return {
        "changed": bool(deleted),
        "deleted": [{"id": view["id"], "name": view["name"]} for view in deleted],
        "not_found": written.not_found,
        "hosts": written.hosts,
        "diff": diff("security_groups", _text(map(_line, deleted)), ""),
    }


def create_rules(action: LedgerAction) -> dict[str, t.Any]:
    """Add the rules of bootflow_security_group_rules that are missing; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    entries = read_rules(options["security_group_rules"])

    def write(tx: Transaction) -> tuple[GroupsWritten, Views]:
        written = flow.create_rules(tx, entries, options["project"], options["quotas"])
        rows = security_groups.rules(tx, [*written.created, *written.unchanged])
        return written, [security_groups.rule_view(row) for row, _project in rows.values()]

    written, views = action.write(write, collisions=3)
    made = [view for view in views if view["id"] in written.created]
    _show(action, "create", [_rule_line(view) for view in made])
    return {
        "changed": bool(made),
        "created": written.created,
        "unchanged": written.unchanged,
        "security_group_rules": [{**v, "id": None} if v in made and action.check_mode else v for v in views],
        "hosts": written.hosts,
        "diff": diff("security_group_rules", "", _text(map(_rule_line, made))),
    }


def delete_rules(action: LedgerAction) -> dict[str, t.Any]:
    """Delete rules; in check mode, roll it back. Returns the result of the task."""
    options = action.options

    def write(tx: Transaction) -> tuple[GroupsWritten, Views]:
        rows = security_groups.rules(tx, options["security_group_rule_ids"])
        views = [security_groups.rule_view(row) for row, _project in rows.values()]
        return flow.delete_rules(
            tx, options["security_group_rule_ids"], options["project"], options["missing_ok"]
        ), views

    written, views = action.write(write)
    deleted = [view for view in views if view["id"] in written.deleted]
    _show(action, "delete", [_rule_line(view) for view in deleted])
    return {
        "changed": bool(deleted),
        "deleted": written.deleted,
        "not_found": written.not_found,
        "hosts": written.hosts,
        "diff": diff("security_group_rules", _text(map(_rule_line, deleted)), ""),
    }


def read(action: LedgerAction) -> dict[str, t.Any]:
    """List groups, or show some whole. Returns the result of the task."""
    options = action.options
    words = _words(action)
    if options["details"] and not words:
        raise errors.InvalidInput(
            message="no security group is named",
            remedy="Set bootflow_security_group_names or bootflow_security_group_ids.",
        )
    all_groups = options["security_group_names"] is None and options["security_group_ids"] is None
    views = action.open_reader().inspect(security_groups.views, None if all_groups else words, options["project"])
    known = {view["name"] for view in views} | {view["id"] for view in views}
    unknown = sorted(word for word in set(words) if word not in known and canonical(word) not in known)
    if unknown and options["details"]:
        raise errors.SecurityGroupNotFound(id=", ".join(unknown))
    if options["print_table"]:
        tables.show(action.ports.display, _read_lines(options["details"], views))
    return {"changed": False, "security_groups": views}


def change_instances(action: LedgerAction) -> dict[str, t.Any]:
    """Give groups to the ports of instances, or take them away; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    adds, words, selection = options["state"] == "present", _words(action), Selection.from_options(options)
    if adds and not port_filters.are_filtered(action):
        raise errors.NotSupportedYet(
            feature="New security groups of instances with bootflow_firewall_driver: noop",
            remedy="Set bootflow_firewall_driver: nftables for all hosts, as docs/security-groups.md says. %s"
            % NOT_FILTERED,
        )
    changed = action.write(lambda tx: instance_groups.change(tx, selection, words, adds), collisions=3)
    instances, unchanged = (
        [
            {"name": r.display_name, "uuid": r.uuid, "host": r.host, "security_groups": changed.groups[r.uuid][1]}
            for r in rows
        ]
        for rows in (changed.rows, changed.unchanged)
    )
    before = [(r.display_name, changed.groups[r.uuid][0]) for r in changed.rows]
    after = [(r.display_name, changed.groups[r.uuid][1]) for r in changed.rows]
    if options["print_table"]:
        verb = "Would change:" if action.check_mode else "Changed:"
        lines = (
            [verb, *map(_groups_line, after)]
            if after
            else ["Nothing to do: the instances have the groups as requested."]
        )
        tables.show(action.ports.display, lines)
    return {
        "changed": bool(instances),
        "instances": instances,
        "unchanged": unchanged,
        "diff": diff("security_groups", _text(map(_groups_line, before)), _text(map(_groups_line, after))),
    }


def _groups_line(of_instance: tuple[str, t.Sequence[str]]) -> str:
    return "  %s: %s" % (of_instance[0], ", ".join(of_instance[1]) or "none")


def _read_lines(details: bool, views: Views) -> list[str]:
    if not details:
        head = ("SECURITY_GROUP", "PROJECT", "RULES", "DESCRIPTION", "ID")
        rows = [
            (v["name"], v["project"], str(len(v["security_group_rules"])), v["description"] or "-", v["id"])
            for v in views
        ]
        return tables.table(head, rows) if rows else ["No security groups."]
    lines = []
    for view in views:
        lines += [_line(view), *("%s %s" % (_rule_line(rule), rule["id"]) for rule in view["security_group_rules"])]
    return lines


def _show(action: LedgerAction, verb: str, lines: t.Sequence[str]) -> None:
    if action.options["print_table"]:
        head = ("Would %s:" if action.check_mode else "%s:") % (verb if action.check_mode else verb.capitalize())
        tables.show(action.ports.display, [head, *lines] if lines else ["Nothing to do: nothing to %s." % verb])


def _line(view: t.Mapping[str, t.Any]) -> str:
    return "  %s of project %s" % (view["name"], view["project"])


def _rule_line(view: t.Mapping[str, t.Any]) -> str:
    remote = view["remote_ip_prefix"] or view["remote_group_id"] or "all"
    ports = [str(view[n]) for n in ("port_range_min", "port_range_max") if view[n] is not None]
    words = [view["direction"], view["ethertype"], view["protocol"] or "all", "-".join(ports), remote]
    return "  " + " ".join(word for word in words if word)


def _text(lines: t.Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _words(action: LedgerAction) -> list[str]:
    return [*(action.options["security_group_ids"] or ()), *(action.options["security_group_names"] or ())]
