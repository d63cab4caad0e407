# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups of projects, their rules, and which ports have them."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import quotas
from ...core.networks.security_rules import DEFAULT, Rule, default_group_id, rules_of_default_group
from ...core.reading.setting import canonical
from ...core.times import utc
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.security_tables import port_security_groups, security_group_rules, security_groups
from ..schema.tables import claims, compute_nodes, instances, ports


class GroupRow:
    """A row of security_groups."""

    id: str
    project: str
    name: str
    description: str
    created_at: float  # seconds since the epoch


class RuleRow:
    """A row of security_group_rules."""

    id: str
    security_group_id: str
    direction: str
    ethertype: str
    protocol: str | None
    port_range_min: int | None
    port_range_max: int | None
    remote_ip_prefix: str | None
    remote_group_id: str | None
    description: str
    created_at: float  # seconds since the epoch


class OwnedRule(RuleRow):
    """A row of security_group_rules with the project of its group."""

    project: str


Found = t.Dict[t.Tuple[str, t.Optional[str]], GroupRow]


def ensure_default(tx: Transaction, project: str) -> str:
    """Make the default group of the project if it is missing. Returns its id."""
    group_id = default_group_id(project)
    values = {"id": group_id, "project": project, "name": DEFAULT, "description": "Default security group"}
    if insert_new(tx, security_groups, **values, created_at=tx.now):
        add_rules(tx, group_id, rules_of_default_group(group_id))
    return group_id


def add(tx: Transaction, project: str, name: str, description: str, rules: t.Sequence[Rule]) -> str:
    """Write a group with its rules. Returns its id."""
    group_id = tx.new_id()
    row = {"id": group_id, "project": project, "name": name, "description": description, "created_at": tx.now}
    bulk.insert(tx, security_groups, [row])
    add_rules(tx, group_id, rules)
    return group_id


def add_rules(tx: Transaction, group_id: str, rules: t.Sequence[Rule]) -> list[str]:
    """Write rules of a group. Returns their ids."""
    rows = [
        {
            "id": tx.new_id(),
            "security_group_id": group_id,
            "direction": rule.direction,
            "ethertype": rule.ethertype,
            "protocol": rule.protocol,
            "port_range_min": rule.port_range_min,
            "port_range_max": rule.port_range_max,
            "remote_ip_prefix": rule.remote_ip_prefix,
            "remote_group_id": rule.remote_group_id,
            "description": rule.description,
            "created_at": tx.now,
        }
        for rule in rules
    ]
    bulk.insert(tx, security_group_rules, rows)
    return [str(row["id"]) for row in rows]


def find(tx: Transaction, named: t.Iterable[tuple[str, str | None]]) -> Found:
    """Return the groups by (name or id, project). An id finds the groups of all projects, a name the groups of the project; for None, the only
    group of this name.

    :raises InvalidInput: several projects have a group of the name.
    """
    pairs = list(dict.fromkeys(named))
    if not pairs:
        return {}
    c = security_groups.c
    words = sorted({word for word, _project in pairs})
    ids = bulk.among(tx, c.id, sorted({canonical(word) for word in words}))
    query = sa.select(security_groups).where(sa.or_(ids, bulk.among(tx, c.name, words))).order_by(c.id)
    rows = tx.rows(query, GroupRow)
    by_id = {row.id: row for row in rows}
    groups_found: Found = {}
    for word, project in pairs:
        namesakes = [row for row in rows if row.name == word and project in (None, row.project)]
        row = by_id.get(canonical(word))
        if row is not None:
            groups_found[word, project] = row
        elif len(namesakes) > 1:
            raise errors.InvalidInput(
                message="%d projects have a security group %s" % (len(namesakes), word),
                remedy="Name it by its id, or set bootflow_project.",
            )
        elif namesakes:
            groups_found[word, project] = namesakes[0]
    return groups_found


def lock(tx: Transaction, ids: t.Collection[str]) -> set[str]:
    """Return which of the groups exist; they are not deleted before this transaction ends."""
    c = security_groups.c
    query = sa.select(c.id).where(bulk.among(tx, c.id, sorted(set(ids)))).order_by(c.id).with_for_update()
    return set(tx.execute(query).scalars())


def usage(tx: Transaction, project: str) -> dict[str, int]:
    """Return how many groups and rules the project has."""
    g, r = security_groups.c, security_group_rules.c
    groups = tx.execute(sa.select(sa.func.count()).select_from(security_groups).where(g.project == project)).scalar()
    joined = security_group_rules.join(security_groups, g.id == r.security_group_id)
    rules = tx.execute(sa.select(sa.func.count()).select_from(joined).where(g.project == project)).scalar()
    return {quotas.SECURITY_GROUPS: int(groups or 0), quotas.SECURITY_GROUP_RULES: int(rules or 0)}


def rules_of(tx: Transaction, group_ids: t.Collection[str]) -> dict[str, list[RuleRow]]:
    """Return id of a group -> its rules, the oldest first."""
    groups_found: dict[str, list[RuleRow]] = {key: [] for key in group_ids}
    c = security_group_rules.c
    query = sa.select(security_group_rules).where(bulk.among(tx, c.security_group_id, sorted(groups_found)))
    for row in tx.rows(query.order_by(c.created_at, c.id), RuleRow) if groups_found else ():
        groups_found[row.security_group_id].append(row)
    return groups_found


def rule_of(row: RuleRow) -> Rule:
    """Return the rule of a row."""
    return Rule(
        row.direction,
        row.ethertype,
        row.protocol,
        row.port_range_min,
        row.port_range_max,
        row.remote_ip_prefix,
        row.remote_group_id,
        row.description,
    )


def rules(tx: Transaction, ids: t.Collection[str]) -> dict[str, tuple[RuleRow, str]]:
    """Return id of a rule -> its row and the project of its group."""
    r, g = security_group_rules.c, security_groups.c
    joined = security_group_rules.join(security_groups, g.id == r.security_group_id)
    query = sa.select(security_group_rules, g.project).select_from(joined).where(bulk.among(tx, r.id, sorted(ids)))
    return {row.id: (row, row.project) for row in tx.rows(query, OwnedRule)} if ids else {}


def delete_rules(tx: Transaction, ids: t.Collection[str]) -> None:
    """Delete rules."""
    tx.execute(security_group_rules.delete().where(bulk.among(tx, security_group_rules.c.id, sorted(ids))))


def write(tx: Transaction, group_id: str, **values: t.Any) -> None:
    """Change columns of a group."""
    tx.execute(security_groups.update().where(security_groups.c.id == group_id).values(**values))


def delete(tx: Transaction, ids: t.Collection[str]) -> None:
    """Delete groups with their rules, and the rules of others that name them, as Neutron does. No port has them."""
    c = security_group_rules.c
    chosen = sorted(ids)
    own, others = bulk.among(tx, c.security_group_id, chosen), bulk.among(tx, c.remote_group_id, chosen)
    tx.execute(security_group_rules.delete().where(sa.or_(own, others)))
    tx.execute(security_groups.delete().where(bulk.among(tx, security_groups.c.id, chosen)))


def in_use(tx: Transaction, ids: t.Collection[str]) -> set[str]:
    """Return which of the groups ports name. A port that names none has a default group, which is never deleted."""
    c = port_security_groups.c
    query = sa.select(c.security_group_id).where(bulk.among(tx, c.security_group_id, sorted(ids))).distinct()
    return set(tx.execute(query).scalars()) if ids else set()


# --- ports ------------------------------------------------------------------------------------------------------------

_PROJECT = sa.func.coalesce(ports.c.project, instances.c.project)
_PORTS = ports.outerjoin(instances, instances.c.uuid == ports.c.instance_uuid)


def set_groups(tx: Transaction, groups: t.Mapping[str, t.Collection[str]]) -> None:
    """Write which groups these ports have. :arg groups: id of a port -> ids of its groups, maybe none"""
    if not groups:
        return
    c = port_security_groups.c
    tx.execute(port_security_groups.delete().where(bulk.among(tx, c.port_id, sorted(groups))))
    tx.execute(ports.update().where(bulk.among(tx, ports.c.id, sorted(groups))).values(has_own_groups=True))
    add_bindings(tx, groups)


def add_bindings(tx: Transaction, groups: t.Mapping[str, t.Collection[str]]) -> None:
    """Write the groups of new ports, whose rows say has_own_groups."""
    rows = [{"port_id": port, "security_group_id": key} for port, keys in groups.items() for key in dict.fromkeys(keys)]
    bulk.insert(tx, port_security_groups, rows)


def groups_of_ports(tx: Transaction, ids: t.Collection[str]) -> dict[str, list[str]]:
    """Return id of a port -> ids of its groups: its own, or the default group of its project."""
    if not ids:
        return {}
    c = port_security_groups.c
    query = sa.select(ports.c.id, ports.c.has_own_groups, _PROJECT.label("owner")).select_from(_PORTS)
    groups: dict[str, list[str]] = {}
    for row in tx.execute(query.where(bulk.among(tx, ports.c.id, sorted(ids)))):
        groups[row.id] = [] if row.has_own_groups else [default_group_id(row.owner)]
    bindings = sa.select(c.port_id, c.security_group_id).where(bulk.among(tx, c.port_id, sorted(ids)))
    for row in tx.execute(bindings.order_by(c.port_id, c.security_group_id)):
        if row.port_id in groups:
            groups[row.port_id].append(row.security_group_id)
    return groups


def instances_with_own(tx: Transaction, uuids: t.Collection[str]) -> set[str]:
    """Return which of the instances have a port with its own groups."""
    if not uuids:
        return set()
    c = port_security_groups.c
    query = sa.select(ports.c.instance_uuid).select_from(ports.join(port_security_groups, c.port_id == ports.c.id))
    return set(tx.execute(query.where(bulk.among(tx, ports.c.instance_uuid, sorted(uuids))).distinct()).scalars())


def ports_with_own(tx: Transaction, ids: t.Collection[str]) -> set[str]:
    """Return which of the ports have groups other than by default."""
    c = port_security_groups.c
    query = sa.select(c.port_id).where(bulk.among(tx, c.port_id, sorted(ids))).distinct()
    return set(tx.execute(query).scalars()) if ids else set()


def names_of_instances(tx: Transaction, uuids: t.Collection[str]) -> dict[str, list[str]]:
    """Return uuid -> the names of the groups that ports of the instance have, sorted."""
    query = sa.select(ports.c.id, ports.c.instance_uuid).where(bulk.among(tx, ports.c.instance_uuid, sorted(uuids)))
    owners = {row.id: row.instance_uuid for row in tx.execute(query)} if uuids else {}
    ids = groups_of_ports(tx, owners)
    c = security_groups.c
    named = sa.select(c.id, c.name).where(bulk.among(tx, c.id, sorted({key for keys in ids.values() for key in keys})))
    names = {row.id: row.name for row in tx.execute(named)} if ids else {}
    groups: dict[str, set[str]] = {uuid: set() for uuid in uuids}
    for port, keys in ids.items():
        groups[owners[port]].update(
            names.get(key, DEFAULT) for key in keys
        )  # a default group is made with its first use
    return {uuid: sorted(keys) for uuid, keys in groups.items()}


def ports_with(tx: Transaction, group_ids: t.Collection[str]) -> dict[str, list[str]]:
    """Return id of a group -> ids of the ports that have it."""
    members: dict[str, list[str]] = {key: [] for key in group_ids}
    if not members:
        return {}
    c, g = port_security_groups.c, security_groups.c
    named = sa.select(c.security_group_id, c.port_id).where(bulk.among(tx, c.security_group_id, sorted(members)))
    for row in tx.execute(named):
        members[row.security_group_id].append(row.port_id)
    defaults = sa.select(g.id, g.project).where(bulk.among(tx, g.id, sorted(members)), g.name == DEFAULT)
    for group_id, project in tx.execute(defaults).all():
        without = (ports.c.has_own_groups.is_(False), _PROJECT == project)
        members[group_id] += tx.execute(sa.select(ports.c.id).select_from(_PORTS).where(*without)).scalars()
    return members


def naming(tx: Transaction, group_ids: t.Collection[str]) -> set[str]:
    """Return the ids of the groups that have a rule whose other side is one of these."""
    c = security_group_rules.c
    query = sa.select(c.security_group_id).where(bulk.among(tx, c.remote_group_id, sorted(group_ids))).distinct()
    return set(tx.execute(query).scalars()) if group_ids else set()


def hosts_of_ports(tx: Transaction, ids: t.Collection[str]) -> dict[str, set[str]]:
    """Return id of a port -> the hosts where its guest is, or may be: bound hosts, and hosts on which the instance has a claim."""
    hosts: dict[str, set[str]] = {key: set() for key in ids}
    if not hosts:
        return {}
    these = bulk.among(tx, ports.c.id, sorted(hosts))
    for row in tx.execute(sa.select(ports.c.id, ports.c.host).where(these, ports.c.host.is_not(None))):
        hosts[row.id].add(row.host)
    joined = ports.join(claims, claims.c.instance_uuid == ports.c.instance_uuid).join(
        compute_nodes, compute_nodes.c.id == claims.c.compute_node_id
    )
    for row in tx.execute(sa.select(ports.c.id, compute_nodes.c.host).select_from(joined).where(these)):
        hosts[row.id].add(row.host)
    return hosts


def hosts_with(tx: Transaction, group_ids: t.Collection[str]) -> set[str]:
    """Return the hosts to which ports with one of these groups are bound, and hosts to which guests with such ports move: the filters that came
    before them know no member that is newer."""
    if not group_ids:
        return set()
    c, g = port_security_groups.c, security_groups.c
    ids = sorted(group_ids)
    with_groups = ports.join(port_security_groups, c.port_id == ports.c.id)
    hosts = _hosts(tx, with_groups, bulk.among(tx, c.security_group_id, ids))
    defaults = sa.select(g.project).where(bulk.among(tx, g.id, ids), g.name == DEFAULT)
    for project in tx.execute(defaults).scalars().all():
        hosts |= _hosts(tx, _PORTS, ports.c.has_own_groups.is_(False), _PROJECT == project)
    return hosts


def _hosts(tx: Transaction, rows: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> set[str]:
    """Return the hosts of the bound ports among these rows, and other hosts on which their instances have a claim."""
    bound = sa.select(ports.c.host).select_from(rows).where(*conditions, ports.c.host.is_not(None))
    claimed = rows.join(claims, claims.c.instance_uuid == ports.c.instance_uuid)
    nodes = claimed.join(compute_nodes, compute_nodes.c.id == claims.c.compute_node_id)
    moving = sa.select(compute_nodes.c.host).select_from(nodes).where(*conditions, compute_nodes.c.host != ports.c.host)
    return set(tx.execute(sa.union(bound, moving)).scalars())


def ports_on(tx: Transaction, hosts: t.Collection[str]) -> list[str]:
    """Return the ids of the ports that guests on these hosts have or are about to have."""
    if not hosts:
        return []
    on_hosts = sa.select(ports.c.id).where(bulk.among(tx, ports.c.host, sorted(hosts)))
    joined = ports.join(claims, claims.c.instance_uuid == ports.c.instance_uuid).join(
        compute_nodes, compute_nodes.c.id == claims.c.compute_node_id
    )
    arriving = sa.select(ports.c.id).select_from(joined).where(bulk.among(tx, compute_nodes.c.host, sorted(hosts)))
    return sorted(set(tx.execute(sa.union(on_hosts, arriving)).scalars()))


# --- views ------------------------------------------------------------------------------------------------------------


def views(tx: Transaction, words: t.Sequence[str] | None = None, project: str | None = None) -> list[dict[str, t.Any]]:
    """Return all groups, or the groups with these names or ids, as plain data with their rules. :arg project: only its groups"""
    c = security_groups.c
    query = sa.select(security_groups)
    if words is not None:
        ids = bulk.among(tx, c.id, sorted({canonical(word) for word in words}))
        query = query.where(sa.or_(ids, bulk.among(tx, c.name, sorted(set(words)))))
    if project is not None:
        query = query.where(c.project == project)
    rows = tx.rows(query.order_by(c.project, c.created_at, c.id), GroupRow)
    groups_found = rules_of(tx, [row.id for row in rows])
    return [
        {
            "id": row.id,
            "name": row.name,
            "project": row.project,
            "description": row.description,
            "created_at": utc(row.created_at),
            "security_group_rules": [rule_view(rule) for rule in groups_found[row.id]],
        }
        for row in rows
    ]


def rule_view(row: RuleRow) -> dict[str, t.Any]:
    """Return a rule as plain data."""
    return {
        "id": row.id,
        "security_group_id": row.security_group_id,
        "direction": row.direction,
        "ethertype": row.ethertype,
        "protocol": row.protocol,
        "port_range_min": row.port_range_min,
        "port_range_max": row.port_range_max,
        "remote_ip_prefix": row.remote_ip_prefix,
        "remote_group_id": row.remote_group_id,
        "description": row.description,
        "created_at": utc(row.created_at),
    }
