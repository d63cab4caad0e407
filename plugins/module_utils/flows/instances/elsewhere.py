# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances with a copy that another host than the ledger's reported: nothing defines or starts a second guest."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import states
from ...core.instances.power_states import POWER_STATES
from ...core.instances.power_sync import OFF
from ...ledger.compute import nodes, sightings
from ...ledger.compute.instances import InstanceRow
from ...ledger.compute.sightings import Sighting
from ...ledger.db.transaction import Transaction


def refusals(tx: Transaction, rows: t.Iterable[InstanceRow]) -> dict[str, errors.InstanceElsewhere]:
    """Return uuid -> why this instance cannot be defined, started or moved now.

    A domain that is off on another host does not block an instance whose own host has its domain: it is an orphan there, which audit reports.
    """
    rows = list(rows)
    homes = {r.uuid: (str(r.host), str(r.node)) for r in rows if r.host is not None}
    offloaded = {r.uuid for r in rows if r.host is None and r.vm_state == states.SHELVED_OFFLOADED}
    sightings_by_uuid = sightings.elsewhere(tx, {*homes, *offloaded})
    refused = {}
    at_home: dict[tuple[str, str], set[str]] = {}
    for uuid, seen in sightings_by_uuid.items():
        with_power = [s for s in seen if s.power_state is not None and s.power_state not in OFF]
        if uuid in offloaded:
            words = _words((with_power or seen)[0])
            refused[uuid] = errors.InstanceElsewhere(instance_uuid=uuid, host="no host", found=words)
            continue
        home = homes[uuid]
        if home not in at_home:
            at_home[home] = {d["uuid"] for d in nodes.node_facts(tx, *home).get("domains", ())}
        if with_power or uuid not in at_home[home]:
            refused[uuid] = errors.InstanceElsewhere(
                instance_uuid=uuid, host=home[0], found=_words((with_power or seen)[0])
            )
    return refused


def _words(seen: Sighting) -> str:
    """Return the words for the host's report."""
    if seen.power_state is None:
        return "%s has the disks of the instance" % seen.host
    return "%s has the domain of the instance (%s)" % (seen.host, POWER_STATES[seen.power_state].lower())


def hosts_of(tx: Transaction, uuids: t.Collection[str]) -> dict[str, set[str]]:
    """Return uuid -> the hosts that have something of the instance, and so cannot be its destination."""
    return {uuid: {s.host for s in seen} for uuid, seen in sightings.elsewhere(tx, uuids).items()}


def running_on(tx: Transaction, uuids: t.Collection[str]) -> dict[str, str]:
    """uuid -> the other host that reported its guest with power."""
    other_hosts = {}
    for uuid, seen in sightings.elsewhere(tx, uuids).items():
        hosts = [s.host for s in seen if s.power_state is not None and s.power_state not in OFF]
        if hosts:
            other_hosts[uuid] = hosts[0]
    return other_hosts
