# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets for plans of live migrations, and what must hold of each plan."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.rebalance.plan_data import Aims, Guest, Plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.rebalance.planning import make_plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..scheduler.reference import make_options

NOW = 1000.0
OPTIONS: SchedulerOptions = make_options(now=NOW)


def flavor(memory_mb: int, vcpus: int = 1, disk_gb: int = 1) -> Flavor:
    return Flavor("f%d" % memory_mb, memory_mb, vcpus, disk_gb)


@dataclass
class Ground:
    """Hosts by their names, each with what it has, and guests. Each host is used by its guests alone."""

    hosts: dict[str, dict[str, t.Any]]
    guests: list[Guest] = field(default_factory=list)

    def add(self, host: str, *uuids: str, memory_mb: int = 1024, vcpus: int = 1, **more: t.Any) -> None:
        of_guest = {name: more.pop(name) for name in ("stays", "barred", "disk_bytes") if name in more}
        for uuid in uuids:
            spec = RequestSpec([uuid], flavor(memory_mb, vcpus), **more)
            self.guests.append(Guest(uuid, uuid, host, host, spec, **of_guest))

    def group(self, policy: str, *uuids: str) -> None:
        """Have these guests in one server group."""
        counts: dict[str, int] = {}
        for guest in self.guests:
            if guest.uuid in uuids:
                counts[guest.host] = counts.get(guest.host, 0) + 1
        group = ServerGroup("g-" + uuids[0], "g", policy, members=frozenset(uuids), host_counts=counts)
        self.guests = [
            replace(g, spec=replace(g.spec, instance_group=group)) if g.uuid in uuids else g for g in self.guests
        ]

    def states(self, places: t.Mapping[str, str] | None = None) -> list[HostState]:
        """The hosts with their guests. :arg places: guest -> its host, of guests that moved"""
        states = []
        for name, given in self.hosts.items():
            load = [g.spec for g in self.guests if (places or {}).get(g.uuid, g.host) == name]
            fields: dict[str, t.Any] = {"memory_mb": 8192, "local_gb": 100, "vcpus": 8, "ram_allocation_ratio": 1.0}
            fields.update(cpu_allocation_ratio=1.0, updated_at=NOW, **given)
            fields.update(
                memory_mb_used=sum(s.memory_mb for s in load),
                local_gb_used=sum(s.disk_gb for s in load),
                vcpus_used=sum(s.vcpus for s in load),
                num_instances=len(load),
            )
            states.append(HostState(name, name, **fields))
        return states

    def fleet(self, places: t.Mapping[str, str] | None = None) -> Fleet:
        return Fleet(self.states(places))

    def plan(self, options: SchedulerOptions = OPTIONS, **aims: t.Any) -> Plan:
        return make_plan(self.fleet, self.guests, options, Aims(**aims))

    def moves(self, options: SchedulerOptions = OPTIONS, **aims: t.Any) -> list[tuple[str, str, str]]:
        return [(s.uuid, s.source, s.destination) for s in self.plan(options, **aims).steps]


def can_be_lost(ground: Ground, places: t.Mapping[str, str], lost: str) -> bool:
    """Return whether guests of a host have places on the others, by trying all of them: memory and vCPUs, zones, anti-affinity."""
    load = [g for g in ground.guests if places[g.uuid] == lost]
    others = [s for s in ground.states(places) if s.host != lost]
    kinds = sorted(load, key=lambda g: (-g.spec.memory_mb, -g.spec.vcpus, g.uuid))
    seen: set[t.Any] = set()

    def fits(number: int, room: tuple[tuple[int, int], ...], on: tuple[tuple[str, ...], ...]) -> bool:
        if number == len(kinds):
            return True
        if (number, room, on) in seen:
            return False
        seen.add((number, room, on))
        this = kinds[number].spec
        for position, state in enumerate(others):
            memory, vcpus = room[position]
            zone = this.availability_zone
            if zone is not None and zone not in (state.availability_zones or ("nova",)):
                continue
            group = this.instance_group
            if group is not None and group.id in on[position]:
                continue
            if memory < this.memory_mb or vcpus < this.vcpus:
                continue
            rest = [*room]
            rest[position] = memory - this.memory_mb, vcpus - this.vcpus
            members = [*on]
            if group is not None:
                members[position] = (*members[position], group.id)
            if fits(number + 1, tuple(rest), tuple(members)):
                return True
        return False

    room = tuple((s.memory_mb - s.memory_mb_used, s.vcpus - s.vcpus_used) for s in others)
    on = tuple(
        tuple(g.spec.instance_group.id for g in ground.guests if places[g.uuid] == s.host and g.spec.instance_group)
        for s in others
    )
    return fits(0, room, on)


def fewest(ground: Ground, score: t.Callable[[t.Mapping[str, str]], float], goal: float, most: int) -> int | None:
    """Return the least number of guests that have to go elsewhere for a score of at most ``goal``, by trying all ways; None: more than ``most``."""
    start = {g.uuid: g.host for g in ground.guests}
    for count in range(most + 1):
        for uuids in itertools.combinations(sorted(start), count):
            for hosts in itertools.product(ground.hosts, repeat=count):
                if score({**start, **dict(zip(uuids, hosts))}) <= goal + 1e-9:
                    return count
    return None
