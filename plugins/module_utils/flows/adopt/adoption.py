# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains of other software become instances of the ledger, as they are. No host is contacted, and nothing of a guest is changed.

A guest is a fact, as to Nova's resource tracker: its claim is entered even where its host is beyond its limits then.
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, field

from ...core.adopt.description import LARGEST
from ...core.adopt.verdict import ADOPT, Known, KnownInstance, Node, Verdict, Wishes, judge, subnet_of
from ...core.errors import DomainsNotAdoptable
from ...core.instances.request import ServerRequest
from ...core.model import Flavor, NetworkRequest
from ...core.reading import identifiers
from ...core.request.expand import request_digest
from ...core.request.hostname import instance_hostname
from ...core.resources.numa.topology import HostNUMATopology
from ...core.resources.pci.device import PciDevice
from ...ledger.compute import claims, cleanups, dedicated_resources, history, instances, nodes, ports, requests, runs
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.schema.identity import ledger_id
from ..boot.accept import stored_spec

ACTION = "adopt"  # in the journal
FLAVOR = "adopted"  # name of the flavor, which has the numbers of the domain

Domains = t.Sequence[t.Tuple[str, t.Mapping[str, t.Any]]]  # (host, description)


@dataclass(frozen=True)
class Adopter:
    """Conditions of an adoption. ``required``: names and UUIDs of domains that all have to be adoptable"""

    wishes: Wishes
    user: str = ""
    required: t.Collection[str] = field(default_factory=frozenset)


def adopt(tx: Transaction, domains: Domains, adopter: Adopter) -> list[Verdict]:
    """Enter the adoptable ones of these domains as instances, with their claims, ports and addresses. Returns the verdicts, in order.

    :raises DomainsNotAdoptable: a required domain is not adoptable; nothing was written.
    """
    runs.renew(tx)
    wishes = adopter.wishes
    take_turns(tx, "project", [wishes.project])
    instances.lock(tx, {domain["uuid"] for _host, domain in domains})
    allocator = ports.Allocator(tx, tx.rng, wishes.networks)
    locked = nodes.lock_hosts(tx, sorted({host for host, _domain in domains}))
    verdicts = judge(domains, survey(tx, domains, wishes), wishes)
    refused = [v for v in verdicts if v.reasons and {v.uuid, v.domain} & set(adopter.required)]
    if refused:
        raise DomainsNotAdoptable.from_verdicts(refused, len(verdicts))
    adopted = [v for v in verdicts if v.state == ADOPT]
    if adopted:
        _write(tx, adopted, adopter, allocator, {row.host: row for row in locked})
    return verdicts


def survey(tx: Transaction, domains: Domains, wishes: Wishes) -> Known:
    """Read the ledger, as far as these domains are judged by it."""
    uuids = sorted({domain["uuid"] for _host, domain in domains})
    hosts = {host for host, _domain in domains}
    interfaces = [i for _host, domain in domains for i in domain.get("interfaces") or ()]
    places = {
        (subnet.id, address)
        for interface in interfaces
        for address in interface["addresses"]
        for subnet in filter(None, (subnet_of(address, network) for network in wishes.networks))
    }
    holders = {place: ports.address_holder(tx, *place) for place in sorted(places)}
    due = [c for c in cleanups.of_instances(tx, uuids) if c.host in hosts] if uuids else []
    possible = {domain["name"] for _host, domain in domains} | set(wishes.names.values())
    namesakes = instances.select_live(tx, names=sorted(possible), project=wishes.project)
    return Known(
        ledger_id=ledger_id(tx),
        instances={
            r.uuid: KnownInstance(r.display_name, r.project, r.host, is_adopted(r))
            for r in instances.select_live(tx, uuids=uuids)
        },
        names={r.display_name: r.uuid for r in namesakes},
        nodes=_nodes(tx, hosts),
        cleanups={(c.host, c.instance_uuid) for c in due},
        macs=ports.holders_of_macs(tx, {i["mac"] for i in interfaces if i["mac"]}),
        addresses={place: holder for place, holder in holders.items() if holder},
    )


def is_adopted(row: instances.Instance) -> bool:
    """Whether another software made the guest of the instance."""
    return bool(row.spec.get("adopted"))


def _nodes(tx: Transaction, hosts: t.Collection[str]) -> dict[str, Node]:
    columns = (
        "memory_mb", "memory_mb_used", "local_gb", "local_gb_used", "vcpus", "vcpus_used",
        "ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio",
    )  # fmt: skip
    rows = [r for r in nodes.rows(tx, ("id", "host", "node", *columns)) if r.host in hosts]
    free = dedicated_resources.load(tx, [int(r.id) for r in rows]) if rows else {}
    nodes_by_host = {}
    for row in rows:
        facts = nodes.node_facts(tx, row.host, row.node)
        unclaimed = free.get(int(row.id), dedicated_resources.NONE_FREE)
        nodes_by_host[row.host] = Node(
            limits=(
                row.memory_mb * row.ram_allocation_ratio,
                row.local_gb * row.disk_allocation_ratio,
                row.vcpus * row.cpu_allocation_ratio,
            ),
            used=(row.memory_mb_used, row.local_gb_used, row.vcpus_used),
            machine_types=facts.get("machine_types") or {},
            devices={d["address"]: PciDevice.from_dict(d) for d in facts.get("pci_passthrough_devices") or ()},
            free_devices={device.address for device in unclaimed.pci},
            numa=unclaimed.numa or HostNUMATopology.from_facts(facts.get("numa_topology")),
            whole_disks={disk["path"] for disk in facts.get("isolated_disks") or ()},
        )
    return nodes_by_host


def _write(
    tx: Transaction,
    verdicts: t.Sequence[Verdict],
    adopter: Adopter,
    allocator: ports.Allocator,
    locked: t.Mapping[str, nodes.NodeUsageRow],
) -> None:
    project = adopter.wishes.project
    user = adopter.user or tx.actor
    reservation = identifiers.reservation_id(tx.rng)
    requests.add_reservation(tx, reservation, project, user, tx.request_id)
    spec_ids = requests.new_ids(tx, len(verdicts))
    zones = nodes.zones(tx)
    entries, rows = [], []
    for spec_id, verdict in zip(spec_ids, verdicts):
        request = _request(verdict, project, user)
        networks = [(NetworkRequest(network=p.network.id), p.network) for p in verdict.ports]
        spec = {
            **stored_spec(request, networks, {}),
            "has_volumes": False,
            "cross_az_attach": True,
            "adopted": {"disks": verdict.disks},
        }
        entries.append(requests.Entry(spec_id, request_digest(request), spec))
        row = _row(tx, verdict, request, zones.get(verdict.host))
        place = {"node": locked[verdict.host].node, "reservation_id": reservation, "request_spec_id": spec_id}
        rows.append({**row, **place})
    requests.add_specs(tx, reservation, entries)
    instances.enter_adopted(tx, rows)
    for verdict in verdicts:
        for position, port in enumerate(verdict.ports):
            allocator.adopt(verdict.uuid, position, port.network, port.mac, port.addresses)
        amounts = (verdict.memory_mb, verdict.disk_gb, verdict.vcpus)
        numa = None if verdict.numa is None else verdict.numa.as_dict()
        devices = [device.as_dict() for device in verdict.pci]
        claims.enter(tx, verdict.uuid, int(locked[verdict.host].id), amounts, numa, devices)
    allocator.write()
    ports.bind_each(tx, {v.uuid: v.host for v in verdicts})
    allocator.mark_members()
    nodes.recount(tx, sorted({int(locked[v.host].id) for v in verdicts}))
    uuids = [v.uuid for v in verdicts]
    history.start_actions(tx, uuids, ACTION, tx.request_id, project, tx.actor)
    history.add_events(tx, [(v.uuid, v.host) for v in verdicts], ACTION, history.SUCCESS)
    history.finish_actions(tx, uuids, ACTION)


def _request(verdict: Verdict, project: str, user: str) -> ServerRequest:
    flavor = Flavor(FLAVOR, verdict.memory_mb, verdict.vcpus, root_gb=min(verdict.disk_gb, LARGEST), flavorid=FLAVOR)
    networks = tuple(NetworkRequest(network=port.network.id) for port in verdict.ports)
    return ServerRequest(verdict.name, flavor, None, project=project, user=user, networks=networks)


def _row(tx: Transaction, verdict: Verdict, request: ServerRequest, zone: str | None) -> dict[str, t.Any]:
    return {
        "uuid": verdict.uuid,
        "project": request.project,
        "user_name": request.user,
        "display_name": verdict.name,
        "hostname": instance_hostname(verdict.name, verdict.name, verdict.uuid),
        "domain_name": verdict.domain,
        "launch_index": 0,
        "vm_state": verdict.vm_state,
        "task_state": None,
        "power_state": verdict.power_state,
        "host": verdict.host,
        "launched_on": verdict.host,
        "availability_zone": zone,
        "memory_mb": verdict.memory_mb,
        "vcpus": verdict.vcpus,
        "root_gb": request.flavor.root_gb,
        "ephemeral_gb": 0,
        "swap_mb": 0,
        "config_drive": False,
        "run_id": tx.run.id,
        "created_at": tx.now,
        "updated_at": tx.now,
        "launched_at": tx.now,
        "deleted": instances.LIVE,
    }


def view(verdict: Verdict) -> dict[str, t.Any]:
    """Return a verdict as plain data, for people and playbooks."""
    return {
        "host": verdict.host,
        "domain": verdict.domain,
        "uuid": verdict.uuid,
        "name": verdict.name,
        "state": verdict.state,
        "vm_state": verdict.vm_state,
        "memory_mb": verdict.memory_mb,
        "vcpus": verdict.vcpus,
        "disk_gb": verdict.disk_gb,
        "disks": verdict.disks,
        "ports": [
            {
                "mac_address": p.mac,
                "network": p.network.name,
                "addresses": [address for _subnet, address in p.addresses],
            }
            for p in verdict.ports
        ],
        "pci_devices": [device.address for device in verdict.pci],
        "pinned_cpus": sorted(c for cell in (verdict.numa.cells if verdict.numa else ()) for c in cell.pinned_cpus),
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "notes": list(verdict.notes),
    }
