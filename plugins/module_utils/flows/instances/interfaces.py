# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces that existing instances get and lose: begun here, done by the hosts, finished here.

The ports are the truth, and no run owns them. One that is attached is its instance's from the beginning, so that whatever defines the guest
meanwhile gives it the interface. One that is detached is in no definition from the beginning (ports.begin_leaving), and keeps its addresses
until its host said that the guest has lost it. A run that dies leaves one or the other, and running the same command again continues.
source: Nova's compute API attach_interface and detach_interface
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import quotas
from ...core.interfaces.entries import STATUSES, NamedInterface, WantedInterface, take_met
from ...core.model import NetworkRequest
from ...core.networks import on_hosts
from ...core.networks.network import Network
from ...core.networks.network_info import PortRecord
from ...core.request.networks import check_overlap
from ...ledger.compute import history, instances, nodes, ports, project_ports, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.networks import security_groups
from ..networks import requested_ports
from . import operation, redefine
from .hot_plug import Beginning, Refused
from .operation import Operation

ATTACH = Operation("attach_interface", "interface_attach")
DETACH = Operation("detach_interface", "interface_detach")

EntryT = t.TypeVar("EntryT", WantedInterface, NamedInterface)


@dataclass(frozen=True)
class Interface:
    """A port of an instance, with its network."""

    row: Instance
    port: PortRecord
    network: Network


@dataclass
class Begun:
    """``interfaces``: for their hosts; ``new``: ids of the ports that this run made, or took from their guests; ``unchanged``: nothing is to
    be done; ``refused``: entries that do not stop the others."""

    interfaces: list[Interface] = field(default_factory=list)
    new: set[str] = field(default_factory=set)
    unchanged: list[str] = field(default_factory=list)
    refused: list[Refused[t.Any]] = field(default_factory=list)


# --- begun --------------------------------------------------------------------------------------------------------------


class _Entries(Beginning[EntryT]):
    """The entries by their instances, which are locked."""

    def __init__(
        self,
        tx: Transaction,
        plug: Operation,
        entries: t.Sequence[EntryT],
        project: str | None,
        known_hosts: t.Collection[str] | None,
    ):
        super().__init__(tx, plug, known_hosts)
        candidates = operation.by_words(tx, (e.instance for e in entries), project)
        self.rows: dict[str, Instance] = {}
        self.entries: dict[str, list[EntryT]] = {}
        for entry in entries:
            with self.problems.collect(entry.path + ".instance"):
                row = operation.meant(tx, candidates, entry.instance, project)
                self.rows[row.uuid] = row
                self.entries.setdefault(row.uuid, []).append(entry)
        self.problems.raise_if_any()
        self.read_runs(self.rows.values())

    @property
    def uuids(self) -> list[str]:
        return sorted(self.rows)

    def may_begin(self, uuid: str) -> bool:
        """Whether the instance is in a state that allows it; else its entries are refused."""
        with self.refusing(self.rows[uuid], *self.entries[uuid]):
            self.check(self.rows[uuid])
            return True
        return False


def begin_attach(
    tx: Transaction,
    entries: t.Sequence[WantedInterface],
    networks: t.Mapping[str, Network],
    project: str | None,
    known_hosts: t.Collection[str] | None,
    limits: t.Mapping[str, t.Any],
) -> Begun:
    """Make the ports that are missing. Existing ones go to the hosts, too: a run may have died before their guests had them.

    :arg networks: of the inventory, by id. :arg known_hosts: the inventory's; None: any. :arg limits: bootflow_quotas
    :raises InvalidRequest: an instance does not exist, or nothing can begin; nothing is written then.
    """
    if limits:  # turns are taken before any row is locked
        named = operation.by_words(tx, (e.instance for e in entries), project, lock=False)
        take_turns(tx, "project", {row.project for rows in named.values() for row in rows})
    by_instance = _Entries(tx, ATTACH, entries, project, known_hosts)
    given = _given_ports(tx, by_instance)
    used = [e.request.network for e in entries] + [row.network_id for row in given.values()]
    named_networks = [networks[key] for key in used if key is not None and key in networks]
    allocator = ports.Allocator(tx, tx.rng, named_networks, [row.id for row in given.values()])
    adding = _Adding(tx, by_instance, allocator, limits, named_networks, given)
    for uuid in by_instance.uuids:
        if by_instance.may_begin(uuid):
            adding.add(uuid, networks)
    by_instance.raise_if_none(bool(adding.wanted))
    allocator.write()
    allocator.mark_members()
    for uuid, added in adding.networks.items():
        redefine.add_networks(tx, by_instance.rows[uuid], added)
        ports.bind(tx, [uuid], str(by_instance.rows[uuid].host))
    begun = Begun(_interfaces(tx, by_instance.rows, adding.wanted), adding.new, refused=by_instance.refused)
    _start(tx, ATTACH, begun.interfaces)
    return begun


def _given_ports(tx: Transaction, by_instance: _Entries[WantedInterface]) -> project_ports.Found:
    """Return the existing ports that the entries name, by word and project of the instance."""
    named = [
        (e.request.port, by_instance.rows[uuid].project)
        for uuid, entries in by_instance.entries.items()
        for e in entries
        if e.request.port is not None
    ]
    return project_ports.find(tx, named)


class _Adding:
    """The wanted ports, including existing ones."""

    def __init__(
        self,
        tx: Transaction,
        by_instance: _Entries[WantedInterface],
        allocator: ports.Allocator,
        limits: t.Mapping[str, t.Any],
        named_networks: t.Iterable[Network],
        given: project_ports.Found,
    ):
        self.by_instance = by_instance
        self.allocator = allocator
        self.wanted: list[str] = []  # ids
        self.new: set[str] = set()
        self.networks: dict[str, list[Network]] = {}  # uuid -> the networks of its new ports
        self._given = given
        self._existing = ports.ports_of(tx, by_instance.uuids)
        self._positions = ports.next_positions(tx, by_instance.uuids)
        self._reported: dict[tuple[str, str], on_hosts.Reported] = {}
        if on_hosts.needed(map(vars, named_networks)):
            hosts = {row.host for row in by_instance.rows.values() if row.host is not None}
            self._reported = nodes.reported_networks(tx, hosts)
        self._grouped, self._unfiltered = self._read_filters(tx, given)
        projects = {row.project for row in by_instance.rows.values()}
        self._limits = {p: quotas.limits_of(limits, p) for p in projects if quotas.PORTS in quotas.limited(limits, p)}
        self._used = instances.ports_in_use(tx, self._limits) if self._limits else {}

    def _read_filters(self, tx: Transaction, given: project_ports.Found) -> tuple[set[str], set[str]]:
        """Return the ids of instances and given ports that have security groups, and the hosts that filter no ports."""
        uuids, port_ids = list(self.by_instance.rows), {port.id for port in given.values()}
        grouped = security_groups.instances_with_own(tx, uuids) | security_groups.ports_with_own(tx, port_ids)
        hosts = {row.host for row in self.by_instance.rows.values() if row.host is not None}
        return grouped, hosts - nodes.filtering_hosts(tx, hosts) if grouped else set()

    def add(self, uuid: str, networks: t.Mapping[str, Network]) -> None:
        row, entries = self.by_instance.rows[uuid], self.by_instance.entries[uuid]
        met = take_met(entries, [port for port, _network in self._existing[uuid]])
        self.wanted += [port.id for port in met.values()]
        have = [network for _port, network in self._existing[uuid]]
        for number, entry in enumerate(entries):
            if number in met:
                continue
            try:
                request, network = self._resolved(row, entry, networks)
                self._check_host(row, network)
                if not network.is_logical:  # OVN filters its ports, whatever the host does
                    self._check_filters(row, request)
                check_overlap(network, have)
                if request.port is None and row.project in self._limits:
                    quotas.check_ports(1, self._used.get(row.project, 0), self._limits[row.project])
                (port_id,) = self.allocator.add(uuid, [(request, network)], self._positions[uuid])
            except errors.BootflowError as e:
                e.status = STATUSES.get(e.code, e.status)
                self.by_instance.refuse(row, entry, e)
                continue
            self._positions[uuid] += 1
            self._used[row.project] = self._used.get(row.project, 0) + int(request.port is None)
            self.new.add(port_id)
            self.wanted.append(port_id)
            have.append(network)
            self.networks.setdefault(uuid, []).append(network)

    def _resolved(
        self, row: Instance, entry: WantedInterface, networks: t.Mapping[str, Network]
    ) -> tuple[NetworkRequest, Network]:
        """:raises PortNotFound, PortNotUsable, PortInUse, NetworkNotFound: the port cannot be attached"""
        word = entry.request.port
        if word is None:
            return entry.request, networks[str(entry.request.network)]
        port = requested_ports.usable(self._given.get((word, row.project)), word, row.project, row.uuid)
        return requested_ports.bound(entry.request, port), requested_ports.network_of(port, networks)

    def _check_host(self, row: Instance, network: Network) -> None:
        """:raises HostLacksNetwork: the instance's host reported that it lacks the network"""
        host, node = str(row.host), str(row.node)
        for wanted in on_hosts.needed([vars(network)]):
            lack = wanted.lack(self._reported.get((host, node)))
            if lack:
                error = wanted.refusal(lack, host)
                error.remedy = "%s Then run bootflow.compute.heartbeat, so that the host reports it." % error.remedy
                raise error

    def _check_filters(self, row: Instance, request: NetworkRequest) -> None:
        """:raises HostDoesNotFilter: the instance or the given port has security groups, and the instance's host filters no ports"""
        if row.host in self._unfiltered and self._grouped & {row.uuid, request.port}:
            raise errors.HostDoesNotFilter(host=row.host)


def begin_detach(
    tx: Transaction,
    entries: t.Sequence[NamedInterface],
    networks: t.Collection[str],
    project: str | None,
    known_hosts: t.Collection[str],
) -> Begun:
    """Take the ports out of the definitions of their guests. Half detached ones of an earlier run continue.

    :arg networks: names and ids of the inventory's.
    :raises InvalidRequest: see begin_attach().
    """
    by_instance = _Entries(tx, DETACH, entries, project, known_hosts)
    attached, leaving = (ports.ports_of(tx, by_instance.uuids, leaving=is_leaving) for is_leaving in (False, True))
    unchanged: list[str] = []
    chosen: list[str] = []
    for uuid in by_instance.uuids:
        row, meant = by_instance.rows[uuid], {}
        for entry in by_instance.entries[uuid]:
            ways = [
                [p for p, n in ports_by_uuid[uuid] if entry.is_met_by(p, n.name)]
                for ports_by_uuid in (leaving, attached)
            ]
            its_ports = ways[0] or ways[1]
            known = entry.network is None or entry.network in networks or bool(its_ports)
            if not known:
                by_instance.refuse(row, entry, errors.NetworkNotFound(network_id=entry.network))
            elif len(its_ports) > 1 and not ways[0]:
                by_instance.refuse(row, entry, _several(row, entry, its_ports))
            elif its_ports:
                meant[entry.path] = [p.id for p in its_ports]
            else:
                unchanged.append("%s (%s)" % (row.display_name, entry.words))
        by_instance.entries[uuid] = [entry for entry in by_instance.entries[uuid] if entry.path in meant]
        if meant and by_instance.may_begin(uuid):
            chosen += [port_id for port_ids in meant.values() for port_id in port_ids]
    by_instance.raise_if_none(bool(chosen or unchanged))
    ids = list(dict.fromkeys(chosen))
    ports.begin_leaving(tx, ids)
    begun = Begun(_interfaces(tx, by_instance.rows, ids, leaving=True), set(ids), unchanged, by_instance.refused)
    _start(tx, DETACH, begun.interfaces)
    return begun


def _several(row: Instance, entry: NamedInterface, its_ports: t.Sequence[PortRecord]) -> errors.BootflowError:
    shown = ["%s (%s)" % (p.id, ", ".join(f["ip_address"] for f in p.fixed_ips) or p.mac_address) for p in its_ports]
    return errors.InvalidInput(
        message="instance %s has %d interfaces of %s" % (row.display_name, len(its_ports), entry.words),
        remedy="Name one of these ports with port_id: %s." % ", ".join(shown),
    )


def _interfaces(
    tx: Transaction, rows: t.Mapping[str, Instance], ids: t.Sequence[str], leaving: bool = False
) -> list[Interface]:
    ports_by_uuid = ports.ports_of(tx, sorted(rows), leaving=leaving) if ids else {}
    wanted = set(ids)
    return [
        Interface(rows[uuid], port, network)
        for uuid, instance_ports in ports_by_uuid.items()
        for port, network in instance_ports
        if port.id in wanted
    ]


def _start(tx: Transaction, plug: Operation, begun_interfaces: t.Sequence[Interface]) -> None:
    rows = {interface.row.uuid: interface.row for interface in begun_interfaces}
    operation.start(tx, plug, list(rows.values()))
    history.start_events_on(tx, {uuid: row.host for uuid, row in rows.items()}, plug.name)


# --- done by the hosts --------------------------------------------------------------------------------------------------


def find_detached(tx: Transaction, ids: t.Sequence[str]) -> set[str]:
    """Return the ports that another run has detached, or begun to, since they were read: their guests may have got them too late."""
    return set(ids) - ports.had(tx, ids)


def to_detach(tx: Transaction, ids: t.Sequence[str], host: str) -> set[str]:
    """Take these new ports out of the definitions again: their guests could not get them. Returns the ports that are in none now.

    The others stay: the instance is on another host meanwhile, or a run works on it that may give its guest the interface.
    """
    may = _still(tx, ids, host)
    ports.begin_leaving(tx, sorted(may))
    return may


def free_addresses(tx: Transaction, ids: t.Sequence[str], host: str) -> set[str]:
    """Free the addresses of ports that ``host`` reports as detached from their guests. Returns the ports that are gone.

    The others keep their addresses: the instance is on another host meanwhile, where its guest may have brought the interface, or a run
    works on it.
    """
    may = _still(tx, ids, host)
    ports.end_leaving(tx, sorted(may))
    return may


def keep_attached(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Keep these ports as interfaces of their guests, which have not released them."""
    ports.stay(tx, ids)


def _still(tx: Transaction, ids: t.Sequence[str], host: str) -> set[str]:
    """Return the ports whose instance is on ``host`` and in no task, or does not exist any more; the instances are locked."""
    owners = ports.owners(tx, ids)
    living = {r.uuid: r for r in instances.select_live(tx, uuids=sorted(set(owners.values())), lock=True)}
    uuids_at_rest = {u for u in owners.values() if u not in living or _is_at_rest(living[u], host)}
    return {key for key, uuid in owners.items() if uuid in uuids_at_rest}


def _is_at_rest(row: Instance, host: str) -> bool:
    return row.host == host and row.task_state is None


# --- finished -----------------------------------------------------------------------------------------------------------


def finish(tx: Transaction, plug: Operation, outcomes: t.Mapping[str, t.Sequence[errors.BootflowError]]) -> None:
    """Close the journal. :arg outcomes: uuid -> why interfaces of the instance failed; none: all are done"""
    runs.renew(tx)
    failed = {uuid: problems[0] for uuid, problems in outcomes.items() if problems}
    hosts = instances.hosts_of(tx, outcomes)
    history.add_faults(tx, failed, hosts)
    operation.journal(tx, plug, sorted(set(outcomes) - set(failed)), failed, hosts)
