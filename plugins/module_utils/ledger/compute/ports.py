# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports and addresses: created and released in one transaction with their instance.

An address is taken if its row (subnet, address) exists.
"""

from __future__ import annotations

import ipaddress
import random
import typing as t
import uuid as uuid_module
from dataclasses import asdict

from ...core import errors
from ...core.model import Network, NetworkRequest, Subnet
from ...core.networks import ipam
from ...core.networks.network_info import PortRecord
from ..db import bulk
from ..db.locks import take_turns
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.tables import instances, ip_allocations, ports

MAC_ATTEMPTS = 16
HELD = -1  # position of a port whose host has to be cleaned first


class PortRow:
    """A row of ports. ``position``: of the interface; HELD: it waits for its host to be cleaned."""

    id: str
    instance_uuid: str
    position: int
    network_id: str
    mac_address: str
    host: str | None  # None until its instance has one
    tag: str | None
    network: dict[str, t.Any]  # the network as the inventory had it
    created_at: float  # seconds since the epoch


class SuspiciousPort:
    """What suspicious() reads of a port, for the audit."""

    id: str
    instance_uuid: str
    host: str | None
    position: int


class Allocator:
    """Allocates ports within one transaction; reads the addresses of a subnet once for a whole batch.

    :arg networks: all networks for add(). Two runs in the same subnet take turns.
    """

    def __init__(self, tx: Transaction, rng: random.Random, networks: t.Iterable[Network]):
        take_turns(tx, "subnet", [s.id for n in networks for s in n.subnets])
        self.tx = tx
        self.rng = rng
        self.now = tx.now
        self._used: dict[str, set[int]] = {}
        self._free: dict[str, t.Iterator[str]] = {}
        self._port_rows: list[dict[str, t.Any]] = []
        self._ip_rows: list[dict[str, t.Any]] = []

    def add(self, instance_uuid: str, requested: t.Sequence[tuple[NetworkRequest, Network]]) -> None:
        """Plan the ports of one instance, in the order of its interfaces. write() creates them.

        :raises FixedIpAlreadyInUse, InvalidIpForSubnet, InvalidIpForAllocationPools, NoMoreFixedIps:
            nothing was written; the caller's transaction is to be rolled back.
        """
        for position, (request, network) in enumerate(requested):
            port_id = str(uuid_module.UUID(int=self.rng.getrandbits(128), version=4))
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
                    "network": asdict(network),
                    "created_at": self.now,
                }
            )

    def forget(self, instance_uuid: str) -> None:
        """Drop the planned ports of an instance that was rejected."""
        gone = {r["id"] for r in self._port_rows if r["instance_uuid"] == instance_uuid}
        self._port_rows = [r for r in self._port_rows if r["id"] not in gone]
        kept = {r["id"] for r in self._port_rows}
        self._ip_rows = [r for r in self._ip_rows if r["port_id"] in kept]

    def write(self) -> None:
        """Write the planned ports.

        :raises VirtualInterfaceMacAddressException: no free MAC address was found.
        """
        for row, mac in zip(self._port_rows, self._free_macs(len(self._port_rows))):
            row["mac_address"] = mac
        if self._port_rows:
            self.tx.execute(ports.insert(), self._port_rows)
        if self._ip_rows:
            self.tx.execute(ip_allocations.insert(), self._ip_rows)
        self._port_rows, self._ip_rows = [], []

    def _free_macs(self, count: int) -> list[str]:
        found: list[str] = []
        for _attempt in range(MAC_ATTEMPTS):
            if len(found) == count:
                break
            drawn = dict.fromkeys(
                ipam.new_mac(self.rng, self.tx.context.base_mac) for _each in range(count - len(found))
            )
            taken = set(
                self.tx.execute(
                    sa.select(ports.c.mac_address).where(bulk.among(self.tx, ports.c.mac_address, drawn))
                ).scalars()
            )
            found += [m for m in drawn if m not in taken and m not in found]
        if len(found) < count:
            raise errors.VirtualInterfaceMacAddressException()
        return found

    def _addresses(self, request: NetworkRequest, network: Network) -> list[tuple[Subnet, str]]:
        subnets = [s for s in network.subnets if request.subnet in (None, s.id, s.name)]
        if request.fixed_ip is not None:
            return [self._fixed(request.fixed_ip, subnets, network)]
        found = []
        # One address of each IP version, from the first subnet with a free one, as in Neutron.
        for version in (4, 6):
            candidates = [s for s in subnets if s.ip_version == version]
            if not candidates:
                continue
            for subnet in candidates:
                address = next(self._free_in(subnet), None)
                if address is None:
                    continue
                self._used_in(subnet).add(int(ipaddress.ip_address(address)))
                found.append((subnet, address))
                break
            else:
                raise errors.NoMoreFixedIps(
                    net=network.name, remedy="Delete instances, or widen the allocation_pools of its subnets."
                )
        return found

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
            if int(number) in self._used_in(subnet):
                raise errors.FixedIpAlreadyInUse(address=address, subnet=subnet.name)
            self._used_in(subnet).add(int(number))
            return subnet, str(number)
        raise refusal

    def _free_in(self, subnet: Subnet) -> t.Iterator[str]:
        # One iterator for the batch: it sees addresses as they are used, and never starts over.
        if subnet.id not in self._free:
            self._free[subnet.id] = ipam.free_addresses(subnet, self._used_in(subnet))
        return self._free[subnet.id]

    def _used_in(self, subnet: Subnet) -> set[int]:
        if subnet.id not in self._used:
            rows = self.tx.execute(
                sa.select(ip_allocations.c.ip_address).where(ip_allocations.c.subnet_id == subnet.id)
            )
            self._used[subnet.id] = {int(ipaddress.ip_address(r.ip_address)) for r in rows}
        return self._used[subnet.id]


# uuid of an instance -> its ports in the order of the interfaces, each with its network as stored.
PortsOf = t.Dict[str, t.List[t.Tuple[PortRecord, Network]]]


def ports_of(tx: Transaction, uuids: t.Sequence[str]) -> PortsOf:
    """The ports of these instances."""
    found: PortsOf = {u: [] for u in uuids}
    if not found:
        return {}
    mine = bulk.among(tx, ports.c.instance_uuid, uuids)
    addresses: dict[str, list[dict[str, str]]] = {}
    rows = tx.execute(
        sa.select(ip_allocations.c.port_id, ip_allocations.c.subnet_id, ip_allocations.c.ip_address)
        .join(ports, ports.c.id == ip_allocations.c.port_id)
        .where(mine)
        .order_by(ip_allocations.c.id)
    )
    for port_id, subnet_id, ip_address in rows:
        addresses.setdefault(port_id, []).append({"subnet_id": subnet_id, "ip_address": ip_address})
    query = sa.select(ports).where(mine, ports.c.position >= 0)
    for r in tx.rows(query.order_by(ports.c.instance_uuid, ports.c.position), PortRow):
        record = PortRecord(
            id=r.id,
            network_id=r.network_id,
            mac_address=r.mac_address,
            fixed_ips=tuple(addresses.get(r.id, ())),
            instance_uuid=r.instance_uuid,
            tag=r.tag,
            preserve_on_delete=False,
            host=r.host,
        )
        found[r.instance_uuid].append((record, network_from(r.network)))
    return found


def bind(tx: Transaction, uuids: t.Sequence[str], host: str) -> None:
    """Bind the ports of these instances to ``host``."""
    mine = (bulk.among(tx, ports.c.instance_uuid, uuids), ports.c.position >= 0)
    tx.execute(ports.update().where(*mine).values(host=host))


def bind_each(tx: Transaction, hosts: t.Mapping[str, str]) -> None:
    """Bind the ports of each instance (uuid -> host) to its host."""
    rows = [
        {"id": r.id, "host": hosts[r.instance_uuid]}
        for r in tx.execute(
            sa.select(ports.c.id, ports.c.instance_uuid).where(
                bulk.among(tx, ports.c.instance_uuid, hosts), ports.c.position >= 0
            )
        )
    ]
    bulk.update(tx, ports, "id", rows)


def release(tx: Transaction, uuids: t.Sequence[str]) -> int:
    """Delete the ports of these instances and free their addresses; ports kept by hold() stay."""
    if not uuids:
        return 0
    mine = sa.and_(bulk.among(tx, ports.c.instance_uuid, uuids), ports.c.position >= 0)
    tx.execute(ip_allocations.delete().where(ip_allocations.c.port_id.in_(sa.select(ports.c.id).where(mine))))
    return int(tx.execute(ports.delete().where(mine)).rowcount)


def hold(tx: Transaction, uuid: str, host: str) -> None:
    """Keep the instance's addresses on ``host`` taken although it is built elsewhere or deleted, because a guest there may
    still use them. release_on() ends it."""
    tx.execute(
        ports.update()
        .where(ports.c.instance_uuid == uuid, ports.c.host == host, ports.c.position >= 0)
        .values(position=HELD)
    )


def release_on(tx: Transaction, cleaned: t.Collection[tuple[str, str]]) -> None:
    """Delete the ports that instances have on hosts that were cleaned of them. {(host, instance's uuid)}"""
    mine = bulk.among(tx, ports.c.instance_uuid, sorted({uuid for _host, uuid in cleaned}))
    rows = tx.execute(sa.select(ports.c.id, ports.c.host, ports.c.instance_uuid).where(mine)) if cleaned else ()
    ids = [r.id for r in rows if (r.host, r.instance_uuid) in cleaned]
    if ids:
        tx.execute(ip_allocations.delete().where(bulk.among(tx, ip_allocations.c.port_id, ids)))
        tx.execute(ports.delete().where(bulk.among(tx, ports.c.id, ids)))


def network_from(data: t.Mapping[str, t.Any]) -> Network:
    """A Network from asdict()'s data."""
    subnets = tuple(
        Subnet(**{**s, **{k: tuple(s[k]) for k in ("dns_nameservers", "host_routes", "allocation_pools")}})
        for s in data["subnets"]
    )
    return Network(**{**data, "subnets": subnets})


# --- for the audit ------------------------------------------------------------------------------------------------------


def suspicious(tx: Transaction) -> list[SuspiciousPort]:
    """Ports of deleted instances, and ports held until a host is cleaned (position below 0)."""
    c = ports.c
    query = sa.select(c.id, c.instance_uuid, c.host, c.position).join(instances, instances.c.uuid == c.instance_uuid)
    return tx.rows(query.where(sa.or_(instances.c.deleted != "", c.position < 0)), SuspiciousPort)


def addresses_of(tx: Transaction, port_ids: t.Iterable[str]) -> dict[str, list[str]]:
    """port id -> its addresses."""
    found: dict[str, list[str]] = {}
    c = ip_allocations.c
    mine = bulk.among(tx, c.port_id, sorted(port_ids))
    for row in tx.execute(sa.select(c.port_id, c.ip_address).where(mine).order_by(c.id)):
        found.setdefault(row.port_id, []).append(row.ip_address)
    return found


def addresses_without_port(tx: Transaction) -> list[tuple[int, str]]:
    """(id, address) of the allocations without a port."""
    c = ip_allocations.c
    port = sa.select(ports.c.id).where(ports.c.id == c.port_id)
    query = sa.select(c.id, c.ip_address).where(~port.exists()).order_by(c.id)
    return [(r.id, r.ip_address) for r in tx.execute(query)]


def remove(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Remove ports with their addresses."""
    tx.execute(ip_allocations.delete().where(bulk.among(tx, ip_allocations.c.port_id, ids)))
    tx.execute(ports.delete().where(bulk.among(tx, ports.c.id, ids)))


def remove_addresses(tx: Transaction, ids: t.Sequence[int]) -> None:
    """Remove these allocations."""
    tx.execute(ip_allocations.delete().where(bulk.among(tx, ip_allocations.c.id, ids)))
