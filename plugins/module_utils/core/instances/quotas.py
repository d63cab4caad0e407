# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The number of instances within a project's quotas. source: Nova's check_num_instances_quota.

Resources: instances, cores, ram (MB) and, if the caller counts them, ports. -1 or a missing limit means unlimited.
DEFAULTS has the other limits, with their values unless the quotas say otherwise.
"""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput, OverQuota, PortLimitExceeded
from ..reading.limits import UNLIMITED, is_volume_resource, limit_of_quota, mapping_of_quotas
from ..reading.nearest import question

if t.TYPE_CHECKING:
    from .request import ServerRequest
    from .server_groups import ServerGroup

#: in the order of Nova's texts
RESOURCES = ("instances", "cores", "ram")
PORTS = "ports"
SERVER_GROUPS = "server_groups"
SERVER_GROUP_MEMBERS = "server_group_members"
#: source: Neutron's quota_security_group and quota_security_group_rule
SECURITY_GROUPS = "security_groups"
SECURITY_GROUP_RULES = "security_group_rules"
#: of one instance
METADATA_ITEMS = "metadata_items"
INJECTED_FILES = "injected_files"
INJECTED_FILE_CONTENT_BYTES = "injected_file_content_bytes"
INJECTED_FILE_PATH_LENGTH = "injected_file_path_length"
#: the defaults, as in Nova
DEFAULTS = {
    SERVER_GROUPS: 10,
    SERVER_GROUP_MEMBERS: 10,
    SECURITY_GROUPS: 10,
    SECURITY_GROUP_RULES: 100,
    METADATA_ITEMS: 128,
    INJECTED_FILES: 5,
    INJECTED_FILE_CONTENT_BYTES: 10240,
    INJECTED_FILE_PATH_LENGTH: 255,
}

Amounts = t.Mapping[str, int]


def limits_of(quotas: t.Optional[t.Mapping[str, t.Any]], project: str) -> dict[str, int]:
    """Return the limits of one project from bootflow_quotas: {instances, cores, ram, ports, the names of DEFAULTS, projects: {name:
    the same}}. core.volumes.quotas reads the keys of volumes.

    :raises InvalidInput: not a mapping, an unknown resource, or a limit that is not an integer from -1 to 2147483647.
    """
    limits = {**dict.fromkeys((*RESOURCES, PORTS), UNLIMITED), **DEFAULTS}
    quotas = mapping_of_quotas(quotas, "the quotas")
    projects = mapping_of_quotas(quotas.get("projects"), "projects of the quotas")
    where_mine = "quotas of project %s" % project
    project_quotas = mapping_of_quotas(projects.get(project), "the " + where_mine)
    for where, source in (("quotas", quotas), (where_mine, project_quotas)):
        for name, value in source.items():
            if (name == "projects" and source is quotas) or is_volume_resource(name):
                continue
            if name not in limits:
                raise InvalidInput(
                    reason="%s: unknown resource %r" % (where, name),
                    remedy="%sKnown: %s." % (question(str(name), limits), ", ".join(limits)),
                )
            limits[name] = limit_of_quota(value, where, name)
    return limits


def limited(quotas: t.Optional[t.Mapping[str, t.Any]], project: str) -> frozenset[str]:
    """The resources of instances, and ports, that are limited for the project: its usage of others need not be counted.

    :raises InvalidInput: see limits_of().
    """
    limits = limits_of(quotas, project)
    return frozenset(name for name in (*RESOURCES, PORTS) if _limit(limits, name) is not None)


def needs(request: ServerRequest) -> dict[str, int]:
    """The amounts of one instance of the request."""
    return {
        "instances": 1,
        "cores": request.flavor.vcpus,
        "ram": request.flavor.memory_mb,
        PORTS: sum(network.port is None for network in request.networks),
    }


def fit_count(requests: t.Sequence[ServerRequest], usage: Amounts, limits: Amounts) -> list[int]:
    """The number of instances of each request: the largest n with min_count <= n <= max_count that fits.

    The requests are of one project and booted together or not at all: first every min_count is reserved, then they
    grow to their max_count in order, so that a large first request never takes a later one's minimum.

    :arg usage: what the project already uses.
    :raises OverQuota: a minimum does not fit; the text is Nova's.
    :raises PortLimitExceeded: only the ports are short.
    """
    used = {name: int(usage.get(name, 0)) for name in (*RESOURCES, PORTS)}
    for request in requests:
        _take(used, request, request.min_count, limits)
    counts = []
    for request in requests:
        more = min(request.max_count - request.min_count, _room(needs(request), used, limits))
        _add(used, needs(request), more)
        counts.append(request.min_count + more)
    return counts


def fit_projects(
    requests: t.Sequence[ServerRequest],
    usages: t.Mapping[str, Amounts],
    quotas: t.Optional[t.Mapping[str, t.Any]],
) -> list[int]:
    """fit_count() for requests of several projects, in the order of ``requests``.

    :arg usages: by project; a missing project uses nothing.
    :arg quotas: bootflow_quotas, see limits_of().
    """
    counts = [0] * len(requests)
    for project in dict.fromkeys(request.project for request in requests):
        places = [place for place, request in enumerate(requests) if request.project == project]
        fitted = fit_count([requests[place] for place in places], usages.get(project, {}), limits_of(quotas, project))
        for place, count in zip(places, fitted):
            counts[place] = count
    return counts


def check_server_groups(groups: t.Iterable[ServerGroup], quotas: t.Optional[t.Mapping[str, t.Any]]) -> None:
    """Check the quota of server groups of every project.

    :raises OverQuota: a project has more than its quota; the text is Nova's.
    """
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.project] = counts.get(group.project, 0) + 1
    for project, count in counts.items():
        limit = _limit(limits_of(quotas, project), SERVER_GROUPS)
        if limit is not None and count > limit:
            raise OverQuota(
                message="Quota exceeded, too many server groups: project %s has %d of %d" % (project, count, limit),
                remedy="Remove groups from bootflow_server_groups, or raise server_groups in bootflow_quotas.",
            )


def check_group_members(group: ServerGroup, members: int, new: int, limits: Amounts) -> None:
    """Check whether all ``new`` instances may join a group with ``members``.

    :arg limits: of the group's project, see limits_of().
    :raises OverQuota: the text is Nova's.
    """
    limit = _limit(limits, SERVER_GROUP_MEMBERS)
    if limit is not None and new > 0 and members + new > limit:
        raise OverQuota(
            message="Quota exceeded, too many servers in group: %d more in group %s, which has %d of %d"
            % (new, group.name, members, limit),
            remedy="Request fewer, use another group, or raise server_group_members in bootflow_quotas.",
        )


def check_ports(new: int, used: int, limits: Amounts) -> None:
    """Check whether a project may have ``new`` more ports in addition to the ``used`` ones.

    :arg limits: of the project, see limits_of().
    :raises PortLimitExceeded: it may not.
    """
    if _exceeds(PORTS, new, {PORTS: used}, limits):
        raise PortLimitExceeded(remedy="Detach interfaces, delete instances, or raise ports in bootflow_quotas.")


def check_security_groups(new: Amounts, used: Amounts, limits: Amounts, project: str) -> None:
    """Check whether a project may have more security groups and rules. :arg new: {SECURITY_GROUPS, SECURITY_GROUP_RULES}

    :arg limits: of the project, see limits_of().
    :raises OverQuota: it may not.
    """
    overs = [name for name in (SECURITY_GROUPS, SECURITY_GROUP_RULES) if _exceeds(name, new[name], used, limits)]
    if overs:
        raise OverQuota(
            message="Quota exceeded for resources: %s. Project %s has %s of %s"
            % (overs, project, ", ".join(str(used[n]) for n in overs), ", ".join(str(limits[n]) for n in overs)),
            remedy="Delete security groups or rules, or raise %s in bootflow_quotas." % " and ".join(overs),
        )


def _limit(limits: Amounts, name: str) -> t.Optional[int]:
    limit = limits.get(name, UNLIMITED)
    return None if limit is None or limit < 0 else limit


def _room(need: Amounts, used: Amounts, limits: Amounts) -> int:
    """The number of instances that still fit; a very large number without limits."""
    room = 2**31
    for name, amount in need.items():
        limit = _limit(limits, name)
        if limit is not None and amount > 0:
            room = min(room, max(0, limit - used[name]) // amount)
    return room


def _add(used: dict[str, int], need: Amounts, count: int) -> None:
    for name, amount in need.items():
        used[name] += amount * count


def _take(used: dict[str, int], request: ServerRequest, count: int, limits: Amounts) -> None:
    need = needs(request)
    if _room(need, used, limits) >= count:
        _add(used, need, count)
        return
    # the text names the largest requested number, as in Nova
    asked = {name: need[name] * request.max_count for name in RESOURCES}
    overs = [name for name in RESOURCES if _exceeds(name, need[name] * count, used, limits)]
    if not overs:
        raise PortLimitExceeded(
            remedy="Request fewer instances or networks, or raise ports in bootflow_quotas.", request=request.name
        )
    shown = {name: str(amount) for name, amount in asked.items()}
    if request.min_count != request.max_count:
        shown["instances"] = "%d-%d" % (request.min_count, request.max_count)
    raise OverQuota(
        overs=", ".join(overs),
        req=", ".join(shown[name] for name in overs),
        used=", ".join(str(used[name]) for name in overs),
        allowed=", ".join(str(limits[name]) for name in overs),
        request=request.name,
    )


def check_again(needed: Amounts, used: Amounts, limits: Amounts, project: str) -> None:
    """Check whether instances that did not count for a while fit into the quota of their project.

    :arg needed: {instances, cores, ram} of these.
    :raises OverQuota: they do not. source: Nova's compute.api.API.restore
    """
    overs = [name for name in RESOURCES if _exceeds(name, needed[name], used, limits)]
    if overs:
        raise OverQuota(
            overs=", ".join(overs),
            req=", ".join(str(needed[name]) for name in overs),
            used=", ".join(str(used[name]) for name in overs),
            allowed=", ".join(str(limits[name]) for name in overs),
            project=project,
        )


def _exceeds(name: str, amount: int, used: Amounts, limits: Amounts) -> bool:
    limit = _limit(limits, name)
    return limit is not None and amount > 0 and used[name] + amount > limit
