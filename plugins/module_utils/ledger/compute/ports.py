# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports and addresses: created and released in one transaction with their instance. Ports that a project made (project_ports.py) are bound to
an instance instead, and unbound where the others are deleted.

An address is taken if its row (subnet, address) exists. Free addresses are known as ranges (free_addresses), so that the next
addresses are found without the taken ones.
"""

from __future__ import annotations

import ipaddress
import random
import typing as t

from ...core import errors
from ...core.model import NetworkRequest
from ...core.networks import ipam
from ...core.networks.fixed_addresses import FixedAddress
from ...core.networks.network import Network
from ...core.networks.network_info import PortRecord
from ...core.networks.subnet import Subnet
from ..db.locks import take_turns
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import free_addresses, instances, ip_allocations, ports, subnet_pools
from . import requests

MAC_ATTEMPTS = 16
HELD = -1  # position of a port whose host has to be cleaned first
LEAVING = -2  # and less: of a port that its guest is losing; no definition of the guest has it any more
RANGES = 200  # of free addresses that are read at once
LOOKED_UP = (50, 1000)  # addresses that are looked up at once: at first, and then


class PortRow:
    """A row of ports. ``position``: of the interface; HELD: it waits for its host to be cleaned; LEAVING or less: see begin_leaving()."""

    id: str
    instance_uuid: str | None  # None: a port that a project made, and that no instance has
    position: int
    network_id: str
    mac_address: str
    host: str | None  # None until its instance has one
    tag: str | None
    created_at: float  # seconds since the epoch
    project: str | None  # None: a boot or attach_interface made it
    name: str | None
    tags: t.Any | None
    preserve_on_delete: bool
    has_own_groups: bool
    port_security_enabled: bool
    allowed_address_pairs: t.Any | None


class SuspiciousPort:
    """Fields that suspicious() reads of a port, for the audit."""

    id: str
    instance_uuid: str | None
    host: str | None
    position: int


class PortSecurity(t.NamedTuple):
    """Port security of a new port. ``groups``: ids of its security groups; None: the default group of its project, where it is enabled."""

    enabled: bool
    groups: t.Collection[str] | None = None
    allowed_address_pairs: t.Sequence[t.Mapping[str, str]] = ()


class Allocator:
    """Allocates ports within one transaction.

    :arg networks: all networks for add(). Two runs in the same subnet take turns.
    :arg given: ids of the existing ports that add() binds; they are locked.
    """

    def __init__(
        self, tx: Transaction, rng: random.Random, networks: t.Iterable[Network], given: t.Collection[str] = ()
    ):
        take_turns(tx, "subnet", [s.id for n in networks for s in n.subnets])
        self.tx = tx
        self.rng = rng
        self.now = tx.now
        self._subnets: dict[str, _FreeAddresses] = {}
        self._port_rows: list[dict[str, t.Any]] = []
        self._ip_rows: list[dict[str, t.Any]] = []
        self._made_rows: list[dict[str, t.Any]] = []
        self._groups: dict[str, t.Collection[str]] = {}  # id of a new port -> ids of its security groups
        self._bindings: dict[str, dict[str, t.Any]] = {}
        self._written: list[str] = []  # ids of ports
        self._owners = _lock(tx, given) if given else {}

    def add(
        self,
        instance_uuid: str,
        requested: t.Sequence[tuple[NetworkRequest, Network]],
        first: int = 0,
        groups: t.Collection[str] = (),
    ) -> list[str]:
        """Plan the ports of one instance, in the order of its interfaces. write() creates them, and mark_members() comes after it. Returns their ids.

        :arg first: the position of the first one.
        :arg groups: ids of the security groups of ports that are made; none: the default group of the project. Existing ports keep theirs.
        :raises FixedIpAlreadyInUse, InvalidIpForSubnet, InvalidIpForAllocationPools, NoMoreFixedIps, PortNotFound, PortInUse:
            nothing was written; the caller's transaction is to be rolled back.
        """
        ids = []
        for position, (request, network) in enumerate(requested, first):
            if request.port is not None:
                self._bind(request.port, instance_uuid, position, request.tag)
                ids.append(request.port)
                continue
            port_id = self.tx.new_id()
            ids.append(port_id)
            for subnet, address in self._addresses(request, network):
                self._ip_rows.append({"subnet_id": subnet.id, "ip_address": address, "port_id": port_id})
            self._port_rows.append(
                {
                    "id": port_id,
                    "instance_uuid": instance_uuid,
                    "position": position,
                    "network_id": network.id,
                    "mac_address": "",  # generated for the whole batch by write()
                    "tag": request.tag,
                    "created_at": self.now,
                    **self._security(port_id, network.port_security_enabled, groups or None),
                }
            )
        return ids

    def adopt(
        self,
        instance_uuid: str,
        position: int,
        network: Network,
        mac_address: str,
        addresses: t.Iterable[tuple[Subnet, str]],
    ) -> str:
        """Plan the port of an interface that a guest has already, with its addresses, whatever the allocation pools. Nothing filters it. Returns its id.

        :raises FixedIpAlreadyInUse: another port has one of the addresses.
        """
        port_id = self.tx.new_id()
        for subnet, address in addresses:
            if not self._in(subnet).reserve(ipam.address_number(address)):
                holder = address_holder(self.tx, subnet.id, address) or "Another guest"
                raise errors.FixedIpAlreadyInUse.held_by(holder, address=address, subnet=subnet.name)
            self._ip_rows.append({"subnet_id": subnet.id, "ip_address": address, "port_id": port_id})
        self._port_rows.append(
            {
                "id": port_id,
                "instance_uuid": instance_uuid,
                "position": position,
                "network_id": network.id,
                "mac_address": mac_address,
                "tag": None,
                "created_at": self.now,
                **self._security(port_id, False, None),
            }
        )
        return port_id

    def _security(self, port_id: str, enabled: bool, groups: t.Collection[str] | None) -> dict[str, bool]:
        """Plan the groups of a port. Returns the columns of its row. :arg groups: None: the default group, where the port has port security"""
        if groups and enabled:
            self._groups[port_id] = groups
        return {"port_security_enabled": enabled, "has_own_groups": groups is not None or not enabled}

    def _bind(self, port_id: str, instance_uuid: str, position: int, tag: str | None) -> None:
        if port_id not in self._owners:
            raise errors.PortNotFound(port_id=port_id)
        if self._owners[port_id] is not None or port_id in self._bindings:
            raise errors.PortInUse(port_id=port_id)
        binding = {"id": port_id, "instance_uuid": instance_uuid, "position": position, "tag": tag}
        self._bindings[port_id] = binding

    def make(
        self,
        network: Network,
        project: str,
        name: str,
        mac_address: str | None = None,
        fixed_ips: t.Sequence[FixedAddress] | None = None,
        tags: t.Sequence[str] = (),
        security: PortSecurity | None = None,
    ) -> str:
        """Plan a port of a project. write() creates it. Returns its id.

        :arg mac_address: None: a generated one. :arg fixed_ips: None: one of each IP version. :arg security: None: as its network says
        :raises BootflowError: see add().
        """
        port_id = self.tx.new_id()
        security = security or PortSecurity(network.port_security_enabled)
        self.add_addresses(port_id, network, [FixedAddress(None, None)] if fixed_ips is None else fixed_ips)
        self._made_rows.append(
            {
                "id": port_id,
                "position": 0,
                "network_id": network.id,
                "mac_address": mac_address or "",
                "created_at": self.now,
                "project": project,
                "name": name,
                "tags": list(tags),
                "preserve_on_delete": True,
                "allowed_address_pairs": list(security.allowed_address_pairs) or None,
                **self._security(port_id, security.enabled, security.groups),
            }
        )
        return port_id

    def add_addresses(self, port_id: str, network: Network, fixed_ips: t.Iterable[FixedAddress]) -> list[str]:
        """Plan more addresses of a port. Returns them. :raises BootflowError: see add()."""
        added = []
        for fixed in fixed_ips:
            request = NetworkRequest(network.id, fixed.subnet, fixed.address)
            for subnet, address in self._addresses(request, network):
                self._ip_rows.append({"subnet_id": subnet.id, "ip_address": address, "port_id": port_id})
                added.append(address)
        return added

    def forget(self, instance_uuid: str) -> None:
        """Drop the planned ports of an instance that was rejected."""
        self._bindings = {k: b for k, b in self._bindings.items() if b["instance_uuid"] != instance_uuid}
        dropped_ids = {r["id"] for r in self._port_rows if r["instance_uuid"] == instance_uuid}
        self._port_rows = [r for r in self._port_rows if r["id"] not in dropped_ids]
        self._groups = {key: groups for key, groups in self._groups.items() if key not in dropped_ids}
        remaining_ids = {r["id"] for r in self._port_rows}
        self._ip_rows = [r for r in self._ip_rows if r["port_id"] in remaining_ids]

    def write(self) -> None:
        """Write the planned ports.

        :raises VirtualInterfaceMacAddressException: no free MAC address was found.
        :raises MacAddressInUse: another port has a requested one.
        """
        self._check_macs()
        to_generate = [row for row in (*self._port_rows, *self._made_rows) if not row["mac_address"]]
        for row, mac in zip(to_generate, self._free_macs(len(to_generate))):
            row["mac_address"] = mac
        numbers_by_subnet: dict[str, set[int]] = {subnet_id: set() for subnet_id in self._subnets}
        for row in self._ip_rows:
            numbers_by_subnet[row["subnet_id"]].add(ipam.address_number(row["ip_address"]))
        for subnet_id, numbers in numbers_by_subnet.items():
            self._subnets[subnet_id].take(numbers)
        bulk.insert(self.tx, ports, self._port_rows)
        bulk.insert(self.tx, ports, self._made_rows)
        bulk.insert(self.tx, ip_allocations, self._ip_rows)
        bulk.update(self.tx, ports, "id", list(self._bindings.values()))
        if self._groups:
            from ..networks import security_groups

            security_groups.add_bindings(self.tx, self._groups)
        self._written += [*(row["id"] for row in (*self._port_rows, *self._made_rows)), *self._bindings]
        self._groups = {}
        self._port_rows, self._ip_rows, self._made_rows, self._bindings, self._subnets = [], [], [], {}, {}

    def mark_members(self) -> None:
        """Note that the filters of other hosts change with the ports that write() has written: they are in the database by now."""
        _mark_members(self.tx, self._written)
        self._written = []

    def _check_macs(self) -> None:
        requested = {row["mac_address"]: row for row in self._made_rows if row["mac_address"]}
        if not requested:
            return
        used = owners_of_macs(self.tx, requested)
        twice = [row for row in self._made_rows if row["mac_address"] and requested[row["mac_address"]] is not row]
        for row in (*twice, *(requested[mac] for mac in used)):
            raise errors.MacAddressInUse(net_id=row["network_id"], mac=row["mac_address"])

    def _free_macs(self, count: int) -> list[str]:
        free_macs: list[str] = []
        for _attempt in range(MAC_ATTEMPTS):
            if len(free_macs) == count:
                break
            drawn = dict.fromkeys(
                ipam.new_mac(self.rng, self.tx.context.base_mac) for _draw in range(count - len(free_macs))
            )
            used_macs = set(
                self.tx.execute(
                    sa.select(ports.c.mac_address).where(bulk.among(self.tx, ports.c.mac_address, drawn))
                ).scalars()
            )
            free_macs += [m for m in drawn if m not in used_macs and m not in free_macs]
        if len(free_macs) < count:
            raise errors.VirtualInterfaceMacAddressException()
        return free_macs

    def _addresses(self, request: NetworkRequest, network: Network) -> list[tuple[Subnet, str]]:
        subnets = [s for s in network.subnets if request.subnet in (None, s.id, s.name)]
        if request.fixed_ip is not None:
            return [self._fixed(request.fixed_ip, subnets, network)]
        addresses = []
        # One address of each IP version, from the first subnet with a free one, as in Neutron.
        for version in (4, 6):
            candidates = [s for s in subnets if s.ip_version == version]
            if not candidates:
                continue
            for subnet in candidates:
                number = self._in(subnet).next()
                if number is None:
                    continue
                addresses.append((subnet, ipam.address_text(number, version)))
                break
            else:
                raise errors.NoMoreFixedIps(
                    net=network.name, remedy="Delete instances, or widen the allocation_pools of its subnets."
                )
        return addresses

    def _fixed(self, address: str, subnets: t.Sequence[Subnet], network: Network) -> tuple[Subnet, str]:
        refusal: errors.BootflowError = errors.InvalidIpForSubnet(address=address, subnet=network.name)
        for subnet in subnets:
            try:
                ipam.check_fixed_ip(subnet, address, network.enforce_allocation_pools, network.is_managed)
            except errors.BootflowError as e:
                if not isinstance(refusal, errors.InvalidIpForAllocationPools):
                    refusal = e
                continue
            number = ipaddress.ip_address(address)
            if not self._in(subnet).reserve(int(number)):
                holder = address_holder(self.tx, subnet.id, str(number)) or "Another entry of the request"
                raise errors.FixedIpAlreadyInUse.held_by(holder, address=address, subnet=subnet.name)
            return subnet, str(number)
        raise refusal

    def _in(self, subnet: Subnet) -> _FreeAddresses:
        if subnet.id not in self._subnets:
            self._subnets[subnet.id] = _FreeAddresses(self.tx, subnet)
        return self._subnets[subnet.id]


def _mark_members(tx: Transaction, ids: t.Collection[str]) -> None:
    """Note that the filters of other hosts change, as ports come or go. Ports that go still exist."""
    if tx.filters_ports and ids:
        from ..networks import filter_marks

        filter_marks.mark_members(tx, ids)


def _lock(tx: Transaction, ids: t.Collection[str]) -> dict[str, str | None]:
    """Return the instances that have these ports; None: none. Ports that do not exist are left out."""
    c = ports.c
    query = sa.select(c.id, c.instance_uuid).where(bulk.among(tx, c.id, sorted(set(ids)))).order_by(c.id)
    return {r.id: r.instance_uuid for r in tx.execute(query.with_for_update())}


def owners_of_macs(tx: Transaction, macs: t.Collection[str]) -> dict[str, str]:
    """Return the MAC addresses in use -> the ids of their ports."""
    query = sa.select(ports.c.mac_address, ports.c.id).where(bulk.among(tx, ports.c.mac_address, sorted(macs)))
    return dict(tx.execute(query).all()) if macs else {}


def holders_of_macs(tx: Transaction, macs: t.Collection[str]) -> dict[str, str]:
    """Return the MAC addresses in use -> in words which port has each."""
    p, i = ports.c, instances.c
    query = sa.select(p.mac_address, p.id, p.name, i.display_name).select_from(
        ports.outerjoin(instances, i.uuid == p.instance_uuid)
    )
    rows = tx.execute(query.where(bulk.among(tx, p.mac_address, sorted(macs)))).all() if macs else []
    return {r.mac_address: _port_words(r.id, r.name, r.display_name) for r in rows}


def _port_words(port_id: str, name: str | None, instance: str | None) -> str:
    return "port %s%s" % (name or port_id, " of instance %s" % instance if instance else "")


def address_holder(tx: Transaction, subnet_id: str, address: str) -> str:
    """Return in words which port has the address; "": none."""
    c, p, i = ip_allocations.c, ports.c, instances.c
    query = (
        sa.select(p.id, p.name, i.display_name, i.deleted)
        .select_from(ip_allocations.join(ports, p.id == c.port_id).outerjoin(instances, i.uuid == p.instance_uuid))
        .where(c.subnet_id == subnet_id, c.ip_address == address)
    )
    row = tx.execute(query).first()
    if row is None:
        return ""
    port = "Port %s" % (row.name or row.id)
    if row.display_name is None:
        return port
    return "%s of %sinstance %s" % (port, "the deleted " if row.deleted else "", row.display_name)


class _FreeAddresses:
    """The free addresses of a subnet, while this transaction has its lock."""

    def __init__(self, tx: Transaction, subnet: Subnet):
        self.tx = tx
        self.subnet = subnet
        self.pools = ipam.pool_ranges(subnet)
        self._given: set[int] = set()  # by this transaction
        self._wrong: set[int] = set()  # in the ranges, and not free
        self._begun: dict[int, ipam.Range] = {}  # the ranges that addresses were given from, by their first
        self._numbers = self._ascending()  # one iterator for the batch: it never starts over

    def next(self) -> int | None:
        """The lowest free address of the pools, each once; None: there is none left."""
        for number in self._numbers:
            if number not in self._given:
                self._given.add(number)
                return number
        return None

    def reserve(self, number: int) -> bool:
        """Whether this address, in the pools or not, was free; it is this transaction's then."""
        c = ip_allocations.c
        allocation = (c.subnet_id == self.subnet.id, c.ip_address == ipam.address_text(number, self.subnet.ip_version))
        if number in self._given or self.tx.execute(sa.select(c.id).where(*allocation)).first() is not None:
            return False
        self._given.add(number)
        return True

    def take(self, numbers: t.Collection[int]) -> None:
        """Write that these addresses, and no others that were given, are not free any more."""
        for number in numbers:
            if not any(first <= number <= last for first, last in self._begun.values()):
                self._begun.update(self._around(number))
        if not self._begun:
            return
        c = free_addresses.c
        keys = [self._key(first) for first in self._begun]
        self.tx.execute(
            free_addresses.delete().where(c.subnet_id == self.subnet.id, bulk.among(self.tx, c.lowest, keys))
        )
        self._add(ipam.without(self._begun.values(), self._wrong.union(numbers)))

    def _ascending(self) -> t.Iterator[int]:
        after = ""
        searched = False
        while True:
            rows = self._rows(after)
            if not rows:
                if searched or after:
                    return
                self._search()
                searched = True
                continue
            for first, last in rows:
                self._begun[first] = first, last
                yield from self._not_taken(first, last)
            after = self._key(rows[-1][0])

    def _not_taken(self, first: int, last: int) -> t.Iterator[int]:
        c = ip_allocations.c
        count, later = LOOKED_UP
        while first <= last:
            some = range(first, min(first + count, last + 1))
            texts = {ipam.address_text(number, self.subnet.ip_version): number for number in some}
            allocations = (c.subnet_id == self.subnet.id, bulk.among(self.tx, c.ip_address, texts))
            self._wrong.update(
                texts[text] for text in self.tx.execute(sa.select(c.ip_address).where(*allocations)).scalars()
            )
            yield from (number for number in some if number not in self._wrong)
            first, count = some.stop, later

    def _rows(self, after: str) -> list[ipam.Range]:
        """The next free ranges; none too if they were made for other pools."""
        p, f = subnet_pools.c, free_addresses.c
        query = (
            sa.select(p.pools, f.lowest, f.highest)
            .join(free_addresses, f.subnet_id == p.subnet_id)
            .where(p.subnet_id == self.subnet.id, f.lowest > after)
            .order_by(f.lowest)
            .limit(RANGES)
        )
        wanted = self._stored_pools()
        return [(int(first, 16), int(last, 16)) for pools, first, last in self.tx.execute(query) if pools == wanted]

    def _around(self, number: int) -> dict[int, ipam.Range]:
        """The free range with this address, if it is in one."""
        c = free_addresses.c
        query = sa.select(c.lowest, c.highest).where(c.subnet_id == self.subnet.id, c.lowest <= self._key(number))
        row = self.tx.execute(query.order_by(c.lowest.desc()).limit(1)).first()
        free_range = None if row is None else (int(row.lowest, 16), int(row.highest, 16))
        return {free_range[0]: free_range} if free_range is not None and number <= free_range[1] else {}

    def _search(self) -> None:
        """Make the free ranges from all addresses that are taken."""
        change, subnet_id = ip_allocations.c, self.subnet.id
        rows = self.tx.execute(sa.select(change.ip_address).where(change.subnet_id == subnet_id))
        used = {int(ipaddress.ip_address(r.ip_address)) for r in rows}
        self.tx.execute(free_addresses.delete().where(free_addresses.c.subnet_id == subnet_id))
        self._begun.clear()
        self._add(ipam.without(self.pools, used))
        pools = self._stored_pools()
        done = self.tx.execute(subnet_pools.update().where(subnet_pools.c.subnet_id == subnet_id).values(pools=pools))
        if done.rowcount == 0:
            self.tx.execute(subnet_pools.insert().values(subnet_id=subnet_id, pools=pools))

    def _add(self, ranges: t.Iterable[ipam.Range]) -> None:
        rows = [{"subnet_id": self.subnet.id, "lowest": self._key(f), "highest": self._key(n)} for f, n in ranges]
        bulk.insert(self.tx, free_addresses, rows)

    def _stored_pools(self) -> list[list[str]]:
        return [[self._key(first), self._key(last)] for first, last in self.pools]

    def _key(self, number: int) -> str:
        return _key(number, self.subnet.ip_version)


def _key(number: int, version: int) -> str:
    """An address as free_addresses has it."""
    return "%08x" % number if version == 4 else "%032x" % number


def _free(tx: Transaction, condition: sa.ColumnElement[bool]) -> None:
    """Remove the allocations that meet the condition: their addresses are free again.

    Only the transaction that removes an allocation enters its address as free: the rows are locked before.
    """
    c, s = ip_allocations.c, subnet_pools.c
    query = sa.select(c.id, c.subnet_id, c.ip_address).where(condition).order_by(c.id).with_for_update()
    rows = tx.execute(query).all()
    if not rows:
        return
    tx.execute(ip_allocations.delete().where(bulk.among(tx, c.id, [r.id for r in rows])))
    known = sa.select(s.subnet_id, s.pools).where(bulk.among(tx, s.subnet_id, sorted({r.subnet_id for r in rows})))
    pools = dict(tx.execute(known).all())
    free = []
    for row in rows:
        address = ipaddress.ip_address(row.ip_address)
        key = _key(int(address), address.version)
        if any(first <= key <= last for first, last in pools.get(row.subnet_id, ())):
            free.append({"subnet_id": row.subnet_id, "lowest": key, "highest": key})
    bulk.insert(tx, free_addresses, free, if_new=True)


# uuid of an instance -> its ports in the order of the interfaces, each with its network as stored.
PortsOf = t.Dict[str, t.List[t.Tuple[PortRecord, Network]]]


def ports_of(tx: Transaction, uuids: t.Sequence[str], leaving: bool = False) -> PortsOf:
    """Return the ports of these instances; or, with ``leaving``, the ports that they are losing."""
    ports_by_uuid: PortsOf = {u: [] for u in uuids}
    if not ports_by_uuid:
        return {}
    ports_of_instances = bulk.among(tx, ports.c.instance_uuid, uuids)
    addresses: dict[str, list[dict[str, str]]] = {}
    rows = tx.execute(
        sa.select(ip_allocations.c.port_id, ip_allocations.c.subnet_id, ip_allocations.c.ip_address)
        .join(ports, ports.c.id == ip_allocations.c.port_id)
        .where(ports_of_instances)
        .order_by(ip_allocations.c.id)
    )
    for port_id, subnet_id, ip_address in rows:
        addresses.setdefault(port_id, []).append({"subnet_id": subnet_id, "ip_address": ip_address})
    which = ports.c.position <= LEAVING if leaving else ports.c.position >= 0
    query = sa.select(ports).where(ports_of_instances, which)
    port_rows = tx.rows(query.order_by(ports.c.instance_uuid, ports.c.position), PortRow)
    networks = _networks_of(tx, {str(r.instance_uuid) for r in port_rows})
    for row in port_rows:
        uuid = str(row.instance_uuid)
        record = PortRecord(
            id=row.id,
            network_id=row.network_id,
            mac_address=row.mac_address,
            fixed_ips=tuple(addresses.get(row.id, ())),
            instance_uuid=row.instance_uuid,
            tag=row.tag,
            preserve_on_delete=bool(row.preserve_on_delete),
            host=row.host,
            name=row.name,
        )
        ports_by_uuid[uuid].append((record, networks[uuid][row.network_id]))
    return ports_by_uuid


def next_positions(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, int]:
    """Return uuid -> the position of the next interface of the instance: interfaces that may come back keep theirs."""
    c = ports.c
    positions = dict.fromkeys(uuids, 0)
    query = sa.select(c.instance_uuid, c.position).where(bulk.among(tx, c.instance_uuid, uuids))
    for uuid, position in tx.execute(query):
        used_position = LEAVING - position if position <= LEAVING else position
        positions[uuid] = max(positions[uuid], used_position + 1)
    return positions


def owners(tx: Transaction, ids: t.Sequence[str]) -> dict[str, str]:
    """Port id -> uuid of its instance."""
    query = sa.select(ports.c.id, ports.c.instance_uuid).where(bulk.among(tx, ports.c.id, ids))
    return {r.id: r.instance_uuid for r in tx.execute(query)} if ids else {}


def instances_with_own_groups(tx: Transaction, uuids: t.Collection[str]) -> set[str]:
    """Return the instances that have a port with other security groups than the default group, or without port security."""
    if not uuids:
        return set()
    c = ports.c
    query = sa.select(c.instance_uuid).where(bulk.among(tx, c.instance_uuid, sorted(uuids)), c.has_own_groups.is_(True))
    return set(tx.execute(query).scalars())


def subnets_of(tx: Transaction, uuid: str) -> set[str]:
    """The ids of the subnets that the instance has addresses of, also on ports that are leaving."""
    c = ip_allocations.c
    query = sa.select(c.subnet_id).join(ports, ports.c.id == c.port_id).where(ports.c.instance_uuid == uuid)
    return set(tx.execute(query.distinct()).scalars())


def had(tx: Transaction, ids: t.Sequence[str]) -> set[str]:
    """Return the ports that are in the definitions of their instances' guests."""
    query = sa.select(ports.c.id).where(bulk.among(tx, ports.c.id, ids), ports.c.position >= 0)
    return set(tx.execute(query).scalars()) if ids else set()


def begin_leaving(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Mark ports that their guests are losing: definitions of guests leave them out from now on, and their addresses are not given
    away before end_leaving()."""
    _mirror(tx, ids, ports.c.position >= 0)


def stay(tx: Transaction, ids: t.Sequence[str]) -> None:
    """These ports were leaving, and are their guests' again."""
    _mirror(tx, ids, ports.c.position <= LEAVING)


def _mirror(tx: Transaction, ids: t.Sequence[str], which: sa.ColumnElement[bool]) -> None:
    conditions = (bulk.among(tx, ports.c.id, ids), which)
    tx.execute(ports.update().where(*conditions).values(position=LEAVING - ports.c.position))


def end_leaving(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Delete ports that left, and free their addresses; unbind ports that outlive their instances."""
    _give_up(tx, sa.and_(bulk.among(tx, ports.c.id, ids), ports.c.position <= LEAVING))


def _give_up(tx: Transaction, condition: sa.ColumnElement[bool]) -> int:
    """Take these ports from their instances. Ports that projects made keep their addresses and are bound to no instance; the others
    are deleted. Returns the number of ports."""
    c = ports.c
    if tx.filters_ports:
        _mark_members(tx, list(tx.execute(sa.select(c.id).where(condition)).scalars()))
    unbinding = ports.update().where(condition, c.preserve_on_delete.is_(True))
    count = int(tx.execute(unbinding.values(instance_uuid=None, host=None, position=0, tag=None)).rowcount)
    made_by_boots = sa.and_(condition, c.preserve_on_delete.is_(False))
    _free(tx, ip_allocations.c.port_id.in_(sa.select(c.id).where(made_by_boots)))
    return count + int(tx.execute(ports.delete().where(made_by_boots)).rowcount)


def holds_kept(tx: Transaction, uuid: str, host: str) -> bool:
    """Whether the instance has a port on ``host`` that outlives it: no other port can take its place elsewhere."""
    c = ports.c
    query = sa.select(c.id).where(c.instance_uuid == uuid, c.host == host, c.preserve_on_delete.is_(True))
    return tx.execute(query.limit(1)).first() is not None


def follow_leaving(tx: Transaction, uuid: str, source: str, host: str) -> None:
    """The guest of this instance went from ``source`` to ``host`` while it ran, and took along what it is losing: the addresses are not free
    when its former host is cleaned."""
    leaving_ports = (ports.c.instance_uuid == uuid, ports.c.host == source, ports.c.position <= LEAVING)
    tx.execute(ports.update().where(*leaving_ports).values(host=host))


def _networks_of(tx: Transaction, uuids: t.Collection[str]) -> dict[str, dict[str, Network]]:
    """uuid -> the networks of its request by id, as the inventory had them when it was accepted; each request is read once."""
    if not uuids:
        return {}
    c = instances.c
    query = sa.select(c.uuid, c.request_spec_id).where(bulk.among(tx, c.uuid, sorted(uuids)))
    spec_ids = dict(tx.execute(query).all())
    stored = requests.networks(tx, spec_ids.values())
    networks = {key: {n["id"]: network_from(n) for n in rows} for key, rows in stored.items()}
    return {uuid: networks[key] for uuid, key in spec_ids.items()}


def bind(tx: Transaction, uuids: t.Sequence[str], host: str) -> None:
    """Bind the ports of these instances to ``host``."""
    active_ports = (bulk.among(tx, ports.c.instance_uuid, uuids), ports.c.position >= 0)
    tx.execute(ports.update().where(*active_ports).values(host=host))


def bind_each(tx: Transaction, hosts: t.Mapping[str, str]) -> None:
    """Bind the ports of each instance (uuid -> host) to its host."""
    if not hosts:
        return
    rows = [
        {"id": r.id, "host": hosts[r.instance_uuid]}
        for r in tx.execute(
            sa.select(ports.c.id, ports.c.instance_uuid).where(
                bulk.among(tx, ports.c.instance_uuid, hosts), ports.c.position >= 0
            )
        )
    ]
    bulk.update(tx, ports, "id", rows)


def unbind(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """Bind the ports of these instances to no host. They stay, with their addresses."""
    of_instances = (bulk.among(tx, ports.c.instance_uuid, sorted(uuids)), ports.c.position >= 0)
    tx.execute(ports.update().where(*of_instances).values(host=None))


def release(tx: Transaction, uuids: t.Sequence[str]) -> int:
    """Delete the ports of these instances and free their addresses, or unbind the ports that outlive them; ports kept by hold() stay."""
    if not uuids:
        return 0
    return _give_up(tx, sa.and_(bulk.among(tx, ports.c.instance_uuid, uuids), ports.c.position != HELD))


def hold(tx: Transaction, uuid: str, host: str) -> None:
    """Keep the instance's addresses on ``host`` taken although it is built elsewhere or deleted, because a guest there may
    still use them. release_on() ends it."""
    tx.execute(ports.update().where(ports.c.instance_uuid == uuid, ports.c.host == host).values(position=HELD))


def release_on(tx: Transaction, cleaned: t.Collection[tuple[str, str]]) -> None:
    """Give up the ports that instances have on hosts that were cleaned of them. {(host, instance's uuid)}"""
    condition = bulk.among(tx, ports.c.instance_uuid, sorted({uuid for _host, uuid in cleaned}))
    rows = tx.execute(sa.select(ports.c.id, ports.c.host, ports.c.instance_uuid).where(condition)) if cleaned else ()
    ids = [r.id for r in rows if (r.host, r.instance_uuid) in cleaned]
    if ids:
        _give_up(tx, bulk.among(tx, ports.c.id, ids))


def network_from(data: t.Mapping[str, t.Any]) -> Network:
    """A Network from asdict()'s data."""
    subnets = tuple(
        Subnet(**{**s, **{k: tuple(s[k]) for k in ("dns_nameservers", "host_routes", "allocation_pools")}})
        for s in data["subnets"]
    )
    return Network(**{**data, "subnets": subnets})


# --- for the audit ------------------------------------------------------------------------------------------------------


def suspicious(tx: Transaction) -> list[SuspiciousPort]:
    """Return ports of deleted instances, ports held until a host is cleaned, and ports that guests are losing."""
    c = ports.c
    query = sa.select(c.id, c.instance_uuid, c.host, c.position).join(instances, instances.c.uuid == c.instance_uuid)
    return tx.rows(query.where(sa.or_(instances.c.deleted != "", c.position <= HELD)), SuspiciousPort)


def addresses_of(tx: Transaction, port_ids: t.Iterable[str]) -> dict[str, list[str]]:
    """port id -> its addresses."""
    addresses: dict[str, list[str]] = {}
    c = ip_allocations.c
    condition = bulk.among(tx, c.port_id, sorted(port_ids))
    for row in tx.execute(sa.select(c.port_id, c.ip_address).where(condition).order_by(c.id)):
        addresses.setdefault(row.port_id, []).append(row.ip_address)
    return addresses


def addresses_without_port(tx: Transaction) -> list[tuple[int, str]]:
    """(id, address) of the allocations without a port."""
    c = ip_allocations.c
    port = sa.select(ports.c.id).where(ports.c.id == c.port_id)
    query = sa.select(c.id, c.ip_address).where(~port.exists()).order_by(c.id)
    return [(r.id, r.ip_address) for r in tx.execute(query)]


def remove(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Remove ports with their addresses; unbind ports that outlive their instances."""
    _give_up(tx, bulk.among(tx, ports.c.id, ids))


def delete(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Delete ports with their addresses, also ports that outlive their instances."""
    _mark_members(tx, ids)
    _free(tx, bulk.among(tx, ip_allocations.c.port_id, ids))
    tx.execute(ports.delete().where(bulk.among(tx, ports.c.id, ids)))


def remove_addresses(tx: Transaction, ids: t.Sequence[int]) -> None:
    """Remove these allocations."""
    _free(tx, bulk.among(tx, ip_allocations.c.id, ids))
