# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of projects: made, changed and deleted. An instance that has one keeps it; requested_ports.py binds them.

source: Neutron's ports, and Nova's use of them
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import quotas
from ...core.interfaces.port_entries import PortChange, PortEntry, wanted_address
from ...core.networks.fixed_addresses import FixedAddress, match_addresses
from ...core.networks.network import Network
from ...core.reading.problems import Problems
from ...ledger.compute import instances, nodes, ports, project_ports, runs
from ...ledger.compute.ports import PortRow
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.networks import filter_marks
from ...ledger.networks import port_filters as filter_rows
from . import port_groups

#: Fields of a port that filters of hosts are made of.
FILTERED_FIELDS = {"mac_address", "fixed_ips", *port_groups.FIELDS}


@dataclass
class PortsWritten:
    """Ids of ports by what was done. ``changes``: id -> field -> (before, after)."""

    created: list[str] = field(default_factory=list)
    changes: dict[str, dict[str, tuple[t.Any, t.Any]]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)


def create(
    tx: Transaction, entries: t.Sequence[PortEntry], project: str, limits: t.Mapping[str, t.Any]
) -> PortsWritten:
    """Make the ports that the project lacks.

    :arg limits: bootflow_quotas
    :raises InvalidRequest: all refusals (PortExists, MacAddressInUse, FixedIpAlreadyInUse, NoMoreFixedIps, PortLimitExceeded). Nothing is
        written then.
    """
    runs.renew(tx)
    take_turns(tx, "project", [project])
    problems, written = Problems(), PortsWritten()
    wanted = port_groups.Wanted(tx, {entry.path: (project, entry.security.groups) for entry in entries}, problems)
    existing = project_ports.find(tx, [(entry.name, project) for entry in entries])
    rows = {e.name: existing[e.name, project] for e in entries if (e.name, project) in existing}
    addresses = project_ports.addresses(tx, [row.id for row in rows.values()])
    missing = []
    for entry in entries:
        row = rows.get(entry.name)
        if row is None:
            missing.append(entry)
            continue
        difference = _difference(entry, row, [(s, a) for _id, s, a in addresses[row.id]])
        difference += port_groups.difference(tx, row, entry.security, wanted.ids[entry.path])
        if difference:
            problems.add(entry.path, errors.PortExists(name=entry.name, reason="; ".join(difference)))
        written.unchanged.append(row.id)
    if quotas.PORTS in quotas.limited(limits, project) and missing:
        with problems.collect("ports"):
            quotas.check_ports(len(missing), _ports_in_use(tx, project), quotas.limits_of(limits, project))
    _refuse_used_macs(tx, {e.path: (e.mac_address, e.network.id, None) for e in missing}, problems)
    problems.raise_if_any()
    allocator = ports.Allocator(tx, tx.rng, [entry.network for entry in missing])
    for entry in sorted(missing, key=lambda e: not _names_addresses(e.fixed_ips)):  # addresses that are named first
        with problems.collect(entry.path + ".fixed_ips"):
            security = port_groups.of_new_port(entry, wanted.ids[entry.path])
            tags = entry.tags or ()
            key = allocator.make(entry.network, project, entry.name, entry.mac_address, entry.fixed_ips, tags, security)
            written.created.append(key)
    problems.raise_if_any()
    allocator.write()
    allocator.mark_members()
    return written


def _ports_in_use(tx: Transaction, project: str) -> int:
    return instances.ports_in_use(tx, [project]).get(project, 0)


def _names_addresses(fixed_ips: t.Sequence[FixedAddress] | None) -> bool:
    return any(fixed.address is not None for fixed in fixed_ips or ())


def _difference(entry: PortEntry, row: PortRow, has: t.Sequence[tuple[str, str]]) -> list[str]:
    """Return in words how an existing port differs from its entry."""
    words = []
    if row.network_id != entry.network.id:
        words.append("it is of network %s" % row.network_id)
    if entry.mac_address not in (None, row.mac_address):
        words.append("its mac_address is %s" % row.mac_address)
    if entry.fixed_ips is not None:
        missing, surplus = match_addresses(entry.fixed_ips, has)
        if missing or surplus:
            words.append("its addresses are %s" % ", ".join(address for _subnet, address in has))
    if entry.tags is not None and list(entry.tags) != list(row.tags or ()):
        words.append("its tags are %s" % (", ".join(row.tags or ()) or "none"))
    return words


def _refuse_used_macs(
    tx: Transaction, wanted: t.Mapping[str, tuple[str | None, str, str | None]], problems: Problems
) -> None:
    """:arg wanted: path -> MAC address, id of the network, and of the port where it exists"""
    used = ports.owners_of_macs(tx, {mac for mac, _network, _port in wanted.values() if mac is not None})
    seen: set[str] = set()
    for path, (mac, network, port) in wanted.items():
        if mac is not None and (mac in seen or used.get(mac, port) != port):
            error = errors.MacAddressInUse(net_id=network, mac=mac)
            if mac in used:
                error.remedy = "Port %s has it. %s" % (used[mac], error.remedy)
            problems.add(path + ".mac_address", error)
        seen.add(str(mac))


def update(
    tx: Transaction, changes: t.Sequence[PortChange], networks: t.Mapping[str, Network], project: str | None
) -> PortsWritten:
    """Change ports. MAC address and addresses change only while no instance has the port: its guest was configured with them.

    :arg networks: of the inventory, by id. :arg project: of ports that are named; None: any
    :raises InvalidRequest: all refusals (PortNotFound, PortInUse, PortExists, MacAddressInUse, HostDoesNotFilter, addresses). Nothing is written then.
    """
    runs.renew(tx)
    rows = project_ports.find(tx, [(change.port, project) for change in changes])
    owners = filter_rows.owners(tx, [row.id for row in rows.values()])
    take_turns(tx, "project", set(owners.values()))
    take_turns(
        tx, "subnet", [s.id for r in rows.values() if r.network_id in networks for s in networks[r.network_id].subnets]
    )
    rows = project_ports.find(tx, [(change.port, project) for change in changes], lock=True)
    problems, written = Problems(), PortsWritten()
    chosen: list[tuple[PortChange, PortRow]] = []
    for change in changes:
        with problems.collect(change.path + ".port"):
            row = _changeable(rows.get((change.port, project)), change, project, owners)
            if row.id in {other.id for _change, other in chosen}:
                raise errors.InvalidInput(message="port %s is named twice" % row.id, remedy="Write one entry per port.")
            chosen.append((change, row))
    wanted = port_groups.Wanted(
        tx, {c.path: (owners.get(row.id, ""), c.security.groups) for c, row in chosen}, problems
    )
    macs = {c.path: (c.mac_address, row.network_id, row.id) for c, row in chosen}
    _refuse_used_macs(tx, macs, problems)
    names = project_ports.find(tx, [(str(c.name), row.project) for c, row in chosen if c.name is not None])
    addresses = project_ports.addresses(tx, [row.id for _change, row in chosen])
    allocator = ports.Allocator(
        tx, tx.rng, [networks[r.network_id] for _change, r in chosen if r.network_id in networks]
    )
    updating = _Updating(tx, allocator, networks, addresses, problems)
    unfiltered = _hosts_without_filters(tx, chosen)
    new_names: set[tuple[str, str | None]] = set()
    for change, row in chosen:
        if change.name is not None and (change.name, row.project) in new_names:
            error = errors.PortExists(name=change.name, reason="another port of the request gets the name")
            problems.add(change.path + ".name", error)
        new_names.add((str(change.name), row.project))
        namesake = names.get((str(change.name), row.project))
        if namesake is not None and namesake.id != row.id:
            error = errors.PortExists(name=change.name, reason="it is port %s" % namesake.id)
            problems.add(change.path + ".name", error)
        values, changed = updating.change(change, row)
        with problems.collect(change.path):
            port_groups.check_can_be_filtered(networks.get(row.network_id), change.security.enabled)
            security_values, security_changed = port_groups.change(tx, row, change.security, wanted.ids[change.path])
            network = networks.get(row.network_id)
            by_host = network is None or not network.is_logical  # OVN filters the ports of its networks
            if by_host and row.host in unfiltered and port_groups.GROUPS in security_changed:
                raise errors.HostDoesNotFilter(host=row.host)
            values.update(security_values)
            changed.update(security_changed)
        if not changed:
            written.unchanged.append(row.id)
            continue
        written.changes[row.id] = changed
        if values and not problems.errors:
            project_ports.write(tx, row.id, **values)
    problems.raise_if_any()
    filtered = [key for key, changed in written.changes.items() if FILTERED_FIELDS & set(changed)]
    if tx.filters_ports:
        filter_marks.mark_members(tx, filtered)  # that followed the groups that they had
    port_groups.write(tx, written.changes)
    allocator.write()
    if tx.filters_ports:
        filter_marks.mark_members(tx, filtered)
    return written


def _hosts_without_filters(tx: Transaction, chosen: t.Iterable[tuple[PortChange, PortRow]]) -> set[str]:
    """Return the hosts that filter no ports, of ports that are to have security groups."""
    hosts = {row.host for change, row in chosen if row.host is not None and change.security.groups}
    return hosts - nodes.filtering_hosts(tx, hosts)


def _changeable(row: PortRow | None, change: PortChange, project: str | None, owners: t.Mapping[str, str]) -> PortRow:
    """The port, which may be one that a boot made if only its port security changes. :raises BootflowError: see _made_by_project()"""
    if row is not None and not row.preserve_on_delete and change.is_security_only and row.id in owners:
        if project in (None, owners[row.id]):
            return row
    return _made_by_project(row, change.port, project)


def _made_by_project(row: PortRow | None, word: str, project: str | None) -> PortRow:
    """:raises PortNotFound: there is none, or it is another project's. :raises PortInUse: the boot of an instance made it"""
    if row is None or project not in (None, row.project):
        raise errors.PortNotFound(port_id=word)
    if not row.preserve_on_delete:
        raise errors.PortInUse(port_id=word, remedy="It was made for its instance. Detach it: it is deleted then.")
    return row


class _Updating:
    """Changes of ports, with their addresses."""

    def __init__(
        self,
        tx: Transaction,
        allocator: ports.Allocator,
        networks: t.Mapping[str, Network],
        addresses: t.Mapping[str, t.Sequence[tuple[int, str, str]]],
        problems: Problems,
    ):
        self.tx = tx
        self.allocator = allocator
        self.networks = networks
        self.addresses = addresses
        self.problems = problems

    def change(self, change: PortChange, row: PortRow) -> tuple[dict[str, t.Any], dict[str, tuple[t.Any, t.Any]]]:
        """Return the columns to write, and the fields that change: (before, after)."""
        values: dict[str, t.Any] = {}
        asked = (("name", change.name), ("mac_address", change.mac_address), ("tags", change.tags))
        for name, value in asked:
            wanted = list(value) if isinstance(value, tuple) else value
            if wanted is not None and wanted != (getattr(row, name) or ([] if name == "tags" else None)):
                values[name] = wanted
        changed = {name: (getattr(row, name), value) for name, value in values.items()}
        if change.fixed_ips is not None:
            with self.problems.collect(change.path + ".fixed_ips"):
                changed.update(self._readdress(change, row))
        if row.instance_uuid is not None and ("mac_address" in changed or "fixed_ips" in changed):
            self.problems.add(change.path, errors.PortInUse(port_id=change.port))
        return values, changed

    def _readdress(self, change: PortChange, row: PortRow) -> dict[str, tuple[t.Any, t.Any]]:
        network = self.networks.get(row.network_id)
        if network is None:
            raise errors.NetworkNotFound(
                network_id=row.network_id, remedy="Put the network of port %s back into bootflow_networks." % row.id
            )
        has = [(subnet, address) for _id, subnet, address in self.addresses[row.id]]
        wanted = [wanted_address(fixed, network) for fixed in change.fixed_ips or ()]
        missing, surplus = match_addresses(wanted, has)
        if not missing and not surplus:
            return {}
        ports.remove_addresses(
            self.tx, [key for key, subnet, address in self.addresses[row.id] if (subnet, address) in surplus]
        )
        added = self.allocator.add_addresses(row.id, network, missing)
        remaining = [address for subnet, address in has if (subnet, address) not in surplus]
        return {"fixed_ips": ([address for _subnet, address in has], [*remaining, *added])}


def delete(tx: Transaction, words: t.Sequence[str], project: str | None, missing_ok: bool) -> PortsWritten:
    """Delete ports that no instance has, and free their addresses. :arg words: names and ids. :arg project: None: any

    :raises InvalidRequest: all refusals (PortNotFound, PortInUse). Nothing is written then.
    """
    runs.renew(tx)
    problems, written = Problems(), PortsWritten()
    rows = project_ports.find(tx, [(word, project) for word in words], lock=True)
    for word in dict.fromkeys(words):
        row = rows.get((word, project))
        if missing_ok and (row is None or project not in (None, row.project)):
            written.not_found.append(word)
            continue
        with problems.collect("ports[%s]" % word):
            chosen = _made_by_project(row, word, project)
            if chosen.instance_uuid is not None:
                raise errors.PortInUse(port_id=word)
            written.deleted.append(chosen.id)
    problems.raise_if_any()
    written.deleted = list(dict.fromkeys(written.deleted))
    if written.deleted:
        ports.delete(tx, written.deleted)
    return written
