# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exchanging volumes of existing instances for others: begun here, done by the hosts; attach.finish() reports the results.

source: Nova's API.swap_volume (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.reading.problems import Problems
from ...core.volumes import states, swap_rules
from ...core.volumes.attachment import DONE
from ...ledger.compute import nodes
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.volumes import VolumeRow
from ..attachments import swaps
from ..attachments.life import Connectors
from ..attachments.swaps import Pair
from ..volumes import dead_uploads
from . import attach, attachment_requests, operation
from .attach import SWAP, Begun, Reach
from .hot_plug import Beginning

FIELDS = ("instance", "old_volume", "new_volume")


@dataclass
class SwapRequest:
    """One entry of bootflow_volume_swaps. ``volume``: the one that the instance has."""

    path: str
    guest: Instance
    volume: VolumeRow
    new_volume: VolumeRow


# --- begun --------------------------------------------------------------------------------------------------------------


def begin_swap(
    tx: Transaction,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    connectors: Connectors,
    cross_az_attach: bool,
    reach: Reach = lambda hosts: None,
) -> Begun:
    """Reserve the new volumes, and mark the old ones as detaching. What cannot begin now is refused alone.

    :arg entries: bootflow_volume_swaps. :raises InvalidRequest: see attach.begin_attach().
    """
    beginning: Beginning[SwapRequest] = Beginning(tx, SWAP)
    begun = Begun(refused=t.cast("t.Any", beginning.refused))
    requests = _read(tx, entries, project, beginning.problems)
    wrong = bool(beginning.problems.errors)
    by_volume = attachments.of_volumes(tx, [v.id for r in requests for v in (r.volume, r.new_volume)])
    beginning.read_runs([r.guest for r in requests])
    ids = []
    for request in requests:
        with beginning.refusing(request.guest, request):
            old, new = (by_volume.get(v.id, []) for v in (request.volume, request.new_volume))
            if _is_swapped(request.guest, old, new):
                begun.unchanged.append(request.new_volume.name or request.new_volume.id)
                continue
            ids.append(_begin(tx, request, old, new, beginning, connectors, cross_az_attach, reach))
    beginning.raise_if_none(not wrong and bool(ids))
    return attach.journal_begin(tx, SWAP, begun, ids)


def _is_swapped(guest: Instance, old: t.Sequence[Attachment], new: t.Sequence[Attachment]) -> bool:
    """Whether the instance has the new volume, and not the old one."""
    has = [{a.instance_uuid for a in rows if a.attach_status == states.ATTACHED} for rows in (old, new)]
    return guest.uuid in has[1] - has[0]


def _begin(
    tx: Transaction,
    request: SwapRequest,
    old: t.Sequence[Attachment],
    new: t.Sequence[Attachment],
    beginning: Beginning[SwapRequest],
    connectors: Connectors,
    cross_az_attach: bool,
    reach: Reach,
) -> str:
    guest = request.guest
    for volume, rows in ((request.volume, old), (request.new_volume, new)):
        attachments.check_not_locked(tx, volume, rows)
    swaps.check_not_swapped(tx, [*old, *new])
    zone = nodes.zone_of(tx, guest.host, guest.node)
    row, detaching, _attaching = swap_rules.check_swap(
        volumes.to_volume(request.volume),
        volumes.to_volume(request.new_volume),
        guest.uuid,
        [a for a in old if a.beside == attachments.OWN],
        new,
        zone,
        cross_az_attach,
    )
    beginning.check(guest)
    if (row.attached_host, row.connection) != (guest.host, DONE):
        raise errors.InvalidVolume(
            reason="volume %s is not connected to host %s since a fault" % (row.volume_id, guest.host),
            remedy="Reboot the instance hard: that connects it.",
        )
    pool_hosts = [v.pool_host for v in (request.volume, request.new_volume)]
    reach([*(volumes.host_of(p) for p in pool_hosts if p), str(guest.host)])
    connector = connectors(str(guest.host), nodes.node_facts(tx, str(guest.host), str(guest.node)))
    return swaps.begin(tx, row, request.new_volume, detaching, connector, zone, cross_az_attach)


def _read(
    tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], project: str | None, refusals: Problems
) -> list[SwapRequest]:
    """The requests with the rows of their instances and volumes, locked: instances by uuid, then volumes by id."""
    sound: list[tuple[str, t.Mapping[str, t.Any]]] = []
    named: set[str] = set()
    for index, entry in enumerate(entries):
        path = "volume_swaps[%d]" % index
        with refusals.collect(path):
            attachment_requests.check_texts(entry, FIELDS, FIELDS, "a swap")
            words = attachment_requests.with_uuids(entry, FIELDS)
            sound.append((path, words))
    guests = operation.by_words(tx, [str(w["instance"]) for _p, w in sound], project)
    dead_uploads.end_dead(tx)
    rows = volumes.find(tx, (str(w[n]) for _p, w in sound for n in FIELDS[1:]), project, lock=True)
    requests: list[SwapRequest] = []
    for path, entry in sound:
        values: dict[str, t.Any] = {}
        with refusals.collect(path + ".instance"):
            values["guest"] = operation.meant(tx, guests, entry["instance"], project)
        for name, field in zip(FIELDS[1:], ("volume", "new_volume")):
            with refusals.collect("%s.%s" % (path, name)):
                volume = attachment_requests.volume_named(rows, entry[name])
                if volume.id in named:
                    again = "volume %s is named twice" % entry[name]
                    raise errors.InvalidInput(reason=again, remedy="Name each volume once.")
                named.add(volume.id)
                values[field] = volume
        if len(values) == len(FIELDS):
            requests.append(SwapRequest(path, **values))
    return requests


# --- done by the hosts --------------------------------------------------------------------------------------------------


def to_swap(tx: Transaction, host: str) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of this run on compute host ``host``: exported ones whose guests are to switch to the new volumes, and pairs of
    dead runs, which only are to be settled.
    """
    pairs = [p for p in swaps.open_pairs(tx, run_id=tx.run.id) if p.old.attached_host == host]
    begun = volume_history.open_changes(tx, SWAP.name)
    to_copy = [p for p in pairs if p.new.id in begun and p.new.export == DONE]
    return to_copy, [p for p in pairs if p.new.id not in begun]


def failed(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> None:
    """Enter failures, after which the guests have the old volumes. {id of the new attachment: why}"""
    rows = attachments.select(tx, ids=failures, run_id=tx.run.id, lock=True)
    faults = [volume_history.Fault(r.volume_id, failures[r.id], r.attached_host) for r in rows]
    volume_history.add_faults(tx, faults)
    volume_history.note_changes(tx, failures)
    swaps.undone(tx, list(failures))


def undecided(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> None:
    """Journal why the host does not tell what its guests have. The pairs stay as they are. {id of the new attachment: why}"""
    rows = attachments.select(tx, ids=failures)
    volume_history.add_faults(tx, [volume_history.Fault(r.volume_id, failures[r.id], r.attached_host) for r in rows])
    volume_history.note_changes(tx, failures)
