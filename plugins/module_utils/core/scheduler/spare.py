# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N+1: which hosts could be lost, with room for their guests on the others."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..instances.server_groups import ServerGroup
from .columns import Fleet
from .options import SchedulerOptions
from .placement import _candidates
from .registry import make_filters, make_weighers, user_classes
from .request_spec import RequestSpec
from .whatif import Filling

Loads = t.Mapping[str, t.Sequence[RequestSpec]]  # host -> what is on it; the instance_uuids of a spec are on that host


def hosts_that_can_be_lost(
    fleet: Fleet, loads: Loads, options: SchedulerOptions, hosts: t.Iterable[str] | None = None
) -> list[dict[str, t.Any]]:
    """For each host, where its guests would go if it failed. The fleet is left as it was.

    The guests are placed on the other hosts, the largest first (memory, then vCPUs, then disk), by the filters and
    weighers of ``options``; a host that was forced when they were booted counts no more, and members of a server group that
    were on the lost host are there no longer.

    Returns [{host, fits, moved: [{instance_uuid, host, node}], stuck: [{instance_uuid, reason, filters}]}] in the order of the
    fleet, a host with several nodes once.

    :arg hosts: only these are asked about.
    :raises InvalidInput: unknown filters or weighers.
    """
    user = user_classes(options)
    quiet = replace(options, explain=False)
    make_filters(quiet, user)  # a wrong name is told where nothing has to be placed, too
    make_weighers(quiet, user)
    wanted = None if hosts is None else set(hosts)
    names = [n for n in dict.fromkeys(fleet.values("host")) if wanted is None or n in wanted]
    return [_without(fleet, name, loads.get(name, ()), quiet) for name in names]


def _size(spec: RequestSpec) -> tuple[int, int, int]:
    return spec.memory_mb, spec.vcpus, spec.disk_gb


def _without(fleet: Fleet, host: str, load: t.Sequence[RequestSpec], options: SchedulerOptions) -> dict[str, t.Any]:
    moved: list[dict[str, t.Any]] = []
    stuck: list[dict[str, t.Any]] = []
    fillings: list[Filling] = []
    try:
        for spec in sorted(load, key=_size, reverse=True):
            homeless = _homeless(spec, host)
            filling = Filling(fleet, homeless, options)
            fillings.append(filling)
            candidates, why_none = _candidates(fleet, homeless)
            filling.fill(candidates, spec.num_instances, why_none)
            for uuid, row in zip(spec.instance_uuids, filling.taken):
                moved.append({"instance_uuid": uuid, "host": fleet.hosts[row].host, "node": fleet.hosts[row].nodename})
            for uuid in spec.instance_uuids[len(filling.taken) :]:
                refusal = filling.refusal(uuid)
                stuck.append({"instance_uuid": uuid, "reason": refusal.message, "filters": refusal.details["filters"]})
    finally:
        for filling in reversed(fillings):
            filling.give_back()
            if filling.spec.instance_group is not None:
                fleet._group_counts.pop(filling.spec.instance_group.id, None)
    return {"host": host, "fits": not stuck, "moved": moved, "stuck": stuck}


def _homeless(spec: RequestSpec, host: str) -> RequestSpec:
    """What is asked for a guest of a host that is gone."""
    group = spec.instance_group
    return replace(
        spec,
        force_host=None,
        force_node=None,
        retry_hosts=(),
        ignore_hosts=[*spec.ignore_hosts, host],
        instance_group=None if group is None else _without_host(group, host),
    )


def _without_host(group: ServerGroup, host: str) -> ServerGroup:
    """A group of its own name, so that what the fleet counts for it is not mixed up with that of the whole one."""
    left = {h: n for h, n in group.host_counts.items() if h != host}
    return replace(group, id="%s without %s" % (group.id, host), host_counts=left)
