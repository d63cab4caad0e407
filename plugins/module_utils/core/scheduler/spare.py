# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N+1: the hosts whose guests would fit on the other hosts."""

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

Loads = t.Mapping[str, t.Sequence[RequestSpec]]  # host -> its guests; the instance_uuids of a spec are on that host


def hosts_that_can_be_lost(
    fleet: Fleet, loads: Loads, options: SchedulerOptions, hosts: t.Iterable[str] | None = None
) -> list[dict[str, t.Any]]:
    """For each host, where its guests would go if it failed. The fleet is left unchanged.

    A machine with several names is lost with all of them. The guests are placed on the other hosts, the largest first (memory, then
    vCPUs, then disk), by the filters and weighers of ``options``. A host forced at boot no longer counts, and the lost host has no
    members of server groups.

    Returns [{host, fits, moved: [{instance_uuid, host, node}], stuck: [{instance_uuid, reason, filters}]}] in the order of the
    fleet, a host with several nodes once.

    :arg hosts: only these are evaluated.
    :raises InvalidInput: unknown filters or weighers.
    """
    user = user_classes(options)
    quiet = replace(options, explain=False)
    make_filters(quiet, user)  # reports a wrong name even if nothing has to be placed
    make_weighers(quiet, user)
    wanted = None if hosts is None else set(hosts)
    names = [n for n in dict.fromkeys(fleet.values("host")) if wanted is None or n in wanted]
    return [{"host": name, **_without(fleet, sorted(fleet.names_of(name)), loads, quiet)} for name in names]


def hosts_that_leave_together(
    fleet: Fleet, loads: Loads, options: SchedulerOptions, hosts: t.Sequence[str]
) -> dict[str, t.Any]:
    """Return where the guests of ``hosts`` would go if all of these hosts were out of use at once: {fits, moved, stuck}, as in hosts_that_can_be_lost().

    :raises InvalidInput: unknown filters or weighers.
    """
    quiet, user = replace(options, explain=False), user_classes(options)
    make_filters(quiet, user)
    make_weighers(quiet, user)
    known = set(fleet.values("host"))
    names = {name for host in hosts if host in known for name in fleet.names_of(host)}
    return _without(fleet, sorted(names | set(hosts)), loads, quiet)


def _size(spec: RequestSpec) -> tuple[int, int, int]:
    return spec.memory_mb, spec.vcpus, spec.disk_gb


def _without(fleet: Fleet, names: t.Sequence[str], loads: Loads, options: SchedulerOptions) -> dict[str, t.Any]:
    """:arg names: of the hosts that are out of use"""
    load = [spec for name in names for spec in loads.get(name, ())]
    moved: list[dict[str, t.Any]] = []
    stuck: list[dict[str, t.Any]] = []
    fillings: list[Filling] = []
    try:
        for spec in sorted(load, key=_size, reverse=True):
            homeless = _homeless(spec, names)
            filling = Filling(fleet, homeless, options)
            fillings.append(filling)
            candidates, why_none = _candidates(fleet, homeless)
            filling.fill(candidates, spec.num_instances, why_none)
            for uuid, row in zip(spec.instance_uuids, filling.chosen_rows):
                moved.append({"instance_uuid": uuid, "host": fleet.hosts[row].host, "node": fleet.hosts[row].nodename})
            for uuid in spec.instance_uuids[len(filling.chosen_rows) :]:
                refusal = filling.refusal(uuid)
                stuck.append({"instance_uuid": uuid, "reason": refusal.message, "filters": refusal.details["filters"]})
    finally:
        for filling in reversed(fillings):
            filling.undo()
            if filling.spec.instance_group is not None:
                fleet._group_counts.pop(filling.spec.instance_group.id, None)
    return {"fits": not stuck, "moved": moved, "stuck": stuck}


def _homeless(spec: RequestSpec, hosts: t.Sequence[str]) -> RequestSpec:
    """The request for a guest of a lost host. :arg hosts: its names"""
    group = spec.instance_group
    return replace(
        spec,
        force_host=None,
        force_node=None,
        retry_hosts=(),
        ignore_hosts=[*spec.ignore_hosts, *hosts],
        instance_group=None if group is None else _without_hosts(group, hosts),
    )


def _without_hosts(group: ServerGroup, hosts: t.Sequence[str]) -> ServerGroup:
    """The group without these hosts, under another name: the fleet counts the members of each name."""
    remaining = {h: n for h, n in group.host_counts.items() if h not in hosts}
    return replace(group, id="%s without %s" % (group.id, " ".join(hosts)), host_counts=remaining)
