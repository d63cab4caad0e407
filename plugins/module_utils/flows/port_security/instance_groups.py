# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups that instances get and lose: all of their ports do. The hosts that follow are marked.

source: Nova's add_to_instance and remove_from_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.networks import on_hosts
from ...core.reading.problems import Problems
from ...ledger.compute import history, instances, nodes
from ...ledger.compute import ports as port_rows
from ...ledger.compute.instances import Instance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.networks import filter_marks, security_groups
from ...ledger.networks import port_filters as filter_rows
from ..instances import operation
from ..networks.security_groups import known_group

ADD, REMOVE = "add_security_group", "remove_security_group"


@dataclass
class Changed:
    """The instances by whether something changed. ``groups``: uuid -> the ids of its groups before and after."""

    rows: list[Instance] = field(default_factory=list)
    unchanged: list[Instance] = field(default_factory=list)
    groups: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)


def change(tx: Transaction, selection: operation.Selection, words: t.Sequence[str], adds: bool) -> Changed:
    """Give groups to the ports of the selected instances, or take them from these: all of them, or with an error none.

    :arg words: names and ids of groups of the instances' projects
    :raises InvalidInput, InstanceNotFound, InstanceIsLocked: see operation.select() and lock.py
    :raises InvalidRequest: all other refusals (SecurityGroupNotFound, SecurityGroupCannotBeApplied, HostDoesNotFilter)
    """
    if not words:
        raise errors.InvalidInput(
            message="no security group is named",
            remedy="Set bootflow_security_group_names or bootflow_security_group_ids.",
        )
    take_turns(tx, "project", {row.project for row in operation.select(tx, selection, lock=False)})
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection)
    operation.refuse([operation.locked_error(r) for r in rows if operation.is_locked(tx, r)])
    projects = sorted({row.project for row in rows})
    for project in projects:
        security_groups.ensure_default(tx, project)
    groups_found = security_groups.find(tx, [(word, project) for word in words for project in projects])
    problems, changed = Problems(), Changed()
    ports = filter_rows.read(tx, filter_rows.ports_of_instances(tx, [row.uuid for row in rows]))
    have = security_groups.groups_of_ports(tx, ports)
    by_hosts = _filtered_by_hosts(tx, rows) if adds else set()
    hosts_of_rows = {row.host for row in rows if row.host is not None and row.uuid in by_hosts}
    unfiltered = hosts_of_rows - nodes.filtering_hosts(tx, hosts_of_rows)
    wanted: dict[str, list[str]] = {}  # id of a port that changes -> its groups
    for row in rows:
        own = [port for port in ports.values() if port.instance_uuid == row.uuid]
        with problems.collect(row.display_name):
            ids = [
                known_group(groups_found.get((word, row.project)), word, row.project).id
                for word in dict.fromkeys(words)
            ]
            if adds and not (own and all(port.port_security_enabled for port in own)):
                raise errors.SecurityGroupCannotBeApplied()
            ways = {port.id: _groups(have[port.id], ids, adds) for port in own}
            changing = {key: groups for key, groups in ways.items() if set(groups) != set(have[key])}
            if changing and row.uuid in by_hosts and row.host in unfiltered:
                raise errors.HostDoesNotFilter(host=row.host)
            wanted.update(changing)
            before = sorted({key for port in own for key in have[port.id]})
            changed.groups[row.uuid] = before, sorted({key for groups in ways.values() for key in groups})
            (changed.rows if wanted.keys() & ways.keys() else changed.unchanged).append(row)
    problems.raise_if_any()
    if wanted:
        hosts = filter_marks.hosts_of_members(tx, wanted)
        security_groups.set_groups(tx, wanted)
        filter_marks.mark(tx, {*hosts, *filter_marks.hosts_of_members(tx, wanted)})
        _journal(tx, changed.rows, ADD if adds else REMOVE)
    return changed


def _filtered_by_hosts(tx: Transaction, rows: t.Sequence[Instance]) -> set[str]:
    """Return the UUIDs of instances whose ports hosts filter: with other networks than OVN's."""
    networks = port_rows.ports_of(tx, [row.uuid for row in rows])
    return {row.uuid for row in rows if on_hosts.filtered_by_hosts(vars(n) for _port, n in networks[row.uuid])}


def _groups(have: t.Sequence[str], ids: t.Sequence[str], adds: bool) -> list[str]:
    return list(dict.fromkeys([*have, *ids])) if adds else [key for key in have if key not in ids]


def _journal(tx: Transaction, rows: t.Sequence[Instance], action: str) -> None:
    uuids = [row.uuid for row in rows]
    instances.write(tx, uuids, updated_at=tx.now)
    for project in sorted({row.project for row in rows}):
        of_project = [row.uuid for row in rows if row.project == project]
        history.start_actions(tx, of_project, action, tx.request_id, project, tx.actor)
    history.add_events(tx, [(row.uuid, row.host) for row in rows], action, history.SUCCESS)
    history.finish_actions(tx, uuids, action)
