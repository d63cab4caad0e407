# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Port security of ports of projects: the groups that entries name, and what becomes of a port.

source: Neutron's portsecurity, securitygroups and allowedaddresspairs
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.interfaces.port_entries import PortEntry
from ...core.interfaces.port_security import GivenSecurity, check_together
from ...core.networks.network import Network
from ...core.networks.security_rules import DEFAULT
from ...core.reading.problems import Problems
from ...ledger.compute.ports import PortRow, PortSecurity
from ...ledger.db.transaction import Transaction
from ...ledger.networks import security_groups
from .security_groups import known_group

GROUPS, PAIRS, ENABLED = FIELDS = ("security_groups", "allowed_address_pairs", "port_security_enabled")

Changes = t.Dict[str, t.Tuple[t.Any, t.Any]]


class Wanted:
    """The groups that entries name. ``ids``: path -> the ids of the entry's groups; None: it names none. The transaction has the turns of the projects."""

    def __init__(self, tx: Transaction, named: t.Mapping[str, tuple[str, t.Sequence[str] | None]], problems: Problems):
        """:arg named: path -> (project, names or ids of groups). Refusals are added to ``problems``."""
        for project in sorted({project for project, words in named.values() if words and DEFAULT in words}):
            security_groups.ensure_default(tx, project)
        rows = security_groups.find(tx, [(word, project) for project, words in named.values() for word in words or ()])
        self.ids: dict[str, list[str] | None] = {}
        for path, (project, words) in named.items():
            self.ids[path] = None if words is None else []
            for word in words or ():
                with problems.collect(path + ".security_groups"):
                    group = known_group(rows.get((word, project)), word, project)
                    t.cast("list[str]", self.ids[path]).append(group.id)


def of_new_port(entry: PortEntry, groups: t.Sequence[str] | None) -> PortSecurity:
    """Return the port security of a new port. :raises BootflowError: groups or address pairs without port security, or port security that cannot be"""
    given = entry.security
    check_can_be_filtered(entry.network, given.enabled)
    enabled = entry.network.port_security_enabled if given.enabled is None else given.enabled
    check_together(enabled, groups or (), given.pairs or ())
    return PortSecurity(enabled, groups, t.cast("t.Sequence[t.Mapping[str, str]]", given.pairs or ()))


def check_can_be_filtered(network: Network | None, enabled: bool | None) -> None:
    """:raises NetworkCannotBeFiltered: port security is requested in a network whose ports no host filters"""
    if enabled and network is not None and not network.can_be_filtered:
        raise errors.NetworkCannotBeFiltered(network=network.name, type=network.type)


def difference(tx: Transaction, row: PortRow, given: GivenSecurity, groups: t.Sequence[str] | None) -> list[str]:
    """Return in words how an existing port differs from its entry."""
    words = []
    if given.enabled is not None and given.enabled != bool(row.port_security_enabled):
        words.append("its port_security_enabled is %s" % str(bool(row.port_security_enabled)).lower())
    if groups is not None:
        has = security_groups.groups_of_ports(tx, [row.id])[row.id]
        if set(has) != set(groups):
            words.append("its security_groups are %s" % (", ".join(has) or "none"))
    if given.pairs is not None and list(given.pairs) != list(row.allowed_address_pairs or ()):
        words.append("its allowed_address_pairs differ")
    return words


def change(
    tx: Transaction, row: PortRow, given: GivenSecurity, groups: t.Sequence[str] | None
) -> tuple[dict[str, t.Any], Changes]:
    """Return the columns to write, and the fields that change: (before, after). write() writes the groups.

    :raises PortSecurityPortHasSecurityGroup, AddressPairAndPortSecurityRequired: the port would have them without port security
    """
    if not given:
        return {}, {}
    has = security_groups.groups_of_ports(tx, [row.id])[row.id]
    enabled_before, pairs_before = bool(row.port_security_enabled), list(row.allowed_address_pairs or ())
    enabled = enabled_before if given.enabled is None else given.enabled
    pairs = pairs_before if given.pairs is None else list(given.pairs)
    wanted = has if groups is None else sorted(set(groups))
    if given.enabled is False and groups is None and not row.has_own_groups:
        wanted = []  # no request gave it the default group
    check_together(enabled, wanted, pairs)
    fields = {GROUPS: (has, wanted), PAIRS: (pairs_before, pairs), ENABLED: (enabled_before, enabled)}
    changed = {name: (before, after) for name, (before, after) in fields.items() if before != after}
    values: dict[str, t.Any] = {ENABLED: enabled} if ENABLED in changed else {}
    if PAIRS in changed:
        values[PAIRS] = pairs or None
    return values, changed


def write(tx: Transaction, changes: t.Mapping[str, Changes]) -> None:
    """Write the groups of ports that change. :arg changes: id of a port -> what change() returned of it"""
    security_groups.set_groups(tx, {key: changed[GROUPS][1] for key, changed in changes.items() if GROUPS in changed})
