# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduler hints of an entry: their form, that they do not contradict each other, and that something reads them.

source: Nova's schema of os:scheduler_hints, _get_requested_instance_group and setup_instance_group.
Nova ignores a hint whose filter is not enabled. Here it is rejected, because it would silently have no effect.
"""

from __future__ import annotations

import ipaddress
import json
import typing as t
import uuid

from ..errors import BootflowError, InvalidInput, NotSupportedYet, UnsupportedPolicyException
from ..instances.server_groups import AFFINITY, ANTI_AFFINITY, SOFT_AFFINITY, ServerGroup
from ..reading.nearest import question
from ..reading.problems import Problems
from ..scheduler.filters.json_query import OPERATORS, QueryError, compile_query, parse_query
from .catalogue import Catalogue
from .options import RequestOptions

GROUP = "group"
#: hint -> the filter of Nova that reads it
FILTER_OF_HINT = {
    "same_host": "SameHostFilter",
    "different_host": "DifferentHostFilter",
    "query": "JsonFilter",
    "build_near_host_ip": "SimpleCIDRAffinityFilter",
    "cidr": "SimpleCIDRAffinityFilter",
}
#: hints for cells, which do not exist here
_CELLS = frozenset(("target_cell", "different_cell"))


def requested_hints(
    hints: t.Mapping[str, t.Any],
    project: str,
    catalogue: Catalogue,
    options: RequestOptions,
    path: str,
    problems: Problems,
) -> tuple[dict[str, t.Any], t.Optional[ServerGroup]]:
    """The hints in canonical form, and the server group that they name.

    ``group`` becomes the group's id, ``same_host`` and ``different_host`` lists without duplicates (UUIDs in canonical
    form; the ledger resolves names), ``query`` JSON text, addresses their short form. Hints without effect (an empty
    list or query) are left out.
    """
    read_hints: dict[str, t.Any] = {}
    group = None
    for name, value in hints.items():
        at = "%s.%s" % (path, name)
        error = _unread(str(name), options)
        if error is not None:
            problems.add(at, error)
            continue
        with problems.collect(at):
            if name == GROUP:
                group = catalogue.server_group(project, value)
                _check_enforced(group, options)
                read_hints[name] = group.id
            elif name in _READERS and name not in options.extra_hint_names:
                read = _READERS[name](value)
                if read:
                    read_hints[name] = read
            else:
                read_hints[name] = value
    for name, contradiction in _contradictions(read_hints, options):
        problems.add("%s.%s" % (path, name), contradiction)
    return read_hints, group


def _bad_query(reason: str) -> InvalidInput:
    return InvalidInput(
        message="The query is not valid: %s" % reason,
        remedy='Write JSON such as ["and", [">=", "$free_ram_mb", 1024], ["=", "$host", "kvm1"]]; the operators are: %s.'
        % " ".join(OPERATORS),
    )


def _shown(value: t.Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _query(value: t.Any) -> str:
    """JSON text; "" for an empty query."""
    try:
        query = parse_query(value)
        compile_query(query)
        return json.dumps(query) if query else ""
    except (QueryError, TypeError, RecursionError) as error:
        raise _bad_query(str(error)) from None


def _instances(value: t.Any) -> list[str]:
    requested = [value] if isinstance(value, str) else list(value)
    return list(dict.fromkeys(_canonical(item) for item in requested))


def _canonical(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(text)


def _address(value: t.Any) -> str:
    return str(ipaddress.ip_address(value))


_READERS: dict[t.Any, t.Callable[[t.Any], t.Any]] = {
    "same_host": _instances,
    "different_host": _instances,
    "query": _query,
    "build_near_host_ip": _address,
    "cidr": str,
}


def _unread(name: str, options: RequestOptions) -> t.Optional[BootflowError]:
    """Why a hint would have no effect; None: something reads it."""
    read = options.hints_read or ()
    if name == GROUP or name in options.extra_hint_names or name in read:
        return None
    if name in _CELLS:
        return NotSupportedYet(
            feature="Scheduler hint %s (cells)" % name, remedy="Leave the hint out: bootflow.compute has no cells."
        )
    if name in FILTER_OF_HINT:
        if options.hints_read is None:
            return None
        return InvalidInput(
            message="Scheduler hint %s would be ignored: %s is not enabled" % (name, FILTER_OF_HINT[name]),
            remedy="Add %s to bootflow_enabled_filters, or leave the hint out." % FILTER_OF_HINT[name],
        )
    read = FILTER_OF_HINT if options.hints_read is None else options.hints_read
    return InvalidInput(
        message="Scheduler hint %s would be ignored: no filter reads it" % ascii(name),
        remedy="%sLeave the hint out, or name it in bootflow_scheduler_hint_names if one of your filters reads it."
        % question(name, [GROUP, *read, *options.extra_hint_names]),
    )


def _check_enforced(group: ServerGroup, options: RequestOptions) -> None:
    """:raises UnsupportedPolicyException: no enabled filter or weigher enforces the group's policy."""
    if group.policy in (AFFINITY, ANTI_AFFINITY):
        names, setting = options.enabled_filters, "bootflow_enabled_filters"
        wanted = "ServerGroupAffinityFilter" if group.policy == AFFINITY else "ServerGroupAntiAffinityFilter"
    else:
        names, setting = options.enabled_weighers, "bootflow_weighers"
        soft = group.policy == SOFT_AFFINITY
        wanted = "ServerGroupSoftAffinityWeigher" if soft else "ServerGroupSoftAntiAffinityWeigher"
    if names is not None and wanted not in names:
        raise UnsupportedPolicyException(
            reason="%s not configured" % wanted,
            remedy="Add %s to %s, or leave the hint group out." % (wanted, setting),
        )


def _contradictions(hints: t.Mapping[str, t.Any], options: RequestOptions) -> t.Iterator[tuple[str, BootflowError]]:
    own = options.extra_hint_names
    if "same_host" not in own and "different_host" not in own:
        both = [i for i in hints.get("same_host", ()) if i in hints.get("different_host", ())]
        if both:
            yield (
                "same_host",
                InvalidInput(
                    message="same_host and different_host both name %s" % ", ".join(map(_shown, both)),
                    remedy="Take each instance out of one of the two.",
                ),
            )
    if "cidr" in hints and "cidr" not in own:
        if "build_near_host_ip" not in hints:
            yield (
                "cidr",
                InvalidInput(
                    message="cidr would be ignored without build_near_host_ip",
                    remedy="Give build_near_host_ip too, or leave cidr out.",
                ),
            )
            return
        try:
            ipaddress.ip_network(hints["build_near_host_ip"] + hints["cidr"], strict=False)
        except ValueError:
            yield (
                "cidr",
                InvalidInput(
                    message="%s%s is not a network" % (hints["build_near_host_ip"], hints["cidr"]),
                    remedy="Write the prefix as a length, such as /24.",
                ),
            )
