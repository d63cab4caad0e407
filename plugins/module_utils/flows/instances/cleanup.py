# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a cleanup of instances on a host, and what a run finds there of instances that it has lost."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.instances import states
from ...ledger.compute import cleanups, instances
from ...ledger.db.transaction import Transaction
from ..attachments import life

Parts = t.Mapping[t.Tuple[str, str], str]  # (host, uuid) -> cleanups.OLD or NEW


def parts_on(host: str, parts: t.Mapping[str, str]) -> Parts:
    """Return the parts on one host, for which cleanups.begin() returned this."""
    return {(host, uuid): part for uuid, part in parts.items()}


def finish(tx: Transaction, cleaned: t.Mapping[str, t.Collection[str]], partly: Parts | None = None) -> None:
    """The hosts have nothing of these instances: their volumes, claims and addresses there are free. {host: uuids}

    :arg partly: of these only a part was cleaned: they were there, and stayed, when their hosts were asked
    """
    pairs = {(host, uuid) for host, uuids in cleaned.items() for uuid in uuids}
    pairs -= _pairs_kept_on_hosts(tx, pairs)
    parts = {**cleanups.of_a_part(tx, pairs), **{pair: part for pair, part in (partly or {}).items() if pair in pairs}}
    life.hosts_cleaned(tx, pairs - set(parts))  # before any node is locked
    cleanups.done(tx, pairs, parts)


def _pairs_kept_on_hosts(tx: Transaction, pairs: t.Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the instances on hosts that owe no cleanup of them any more: they came after another run had cleaned the host, and this run reports late."""
    kept_pairs = instances.pairs_to_keep(tx, pairs)
    if kept_pairs:
        kept_pairs -= {
            (r.host, r.instance_uuid) for r in cleanups.of_instances(tx, sorted({uuid for _host, uuid in kept_pairs}))
        }
    return kept_pairs


@dataclass
class Lost:
    """Instances on which a run worked until another took its place."""

    #: uuid -> name of the domain, of instances that the host is to have no longer
    domains_to_remove: dict[str, str] = field(default_factory=dict)
    off: list[str] = field(default_factory=list)  # uuids of soft-deleted instances: their guests are to be off


def lost_on(tx: Transaction, host: str, uuids: t.Collection[str]) -> Lost:
    """Return the work on ``host`` for instances for which this run made something there, although it had lost them by then."""
    work = Lost()
    soft = (states.SOFT_DELETED, states.SOFT_DELETING)
    for row in instances.whatever_became_of(tx, uuids):
        if row.deleted == instances.LIVE and row.run_id == tx.run.id and row.task_state != states.DELETING:
            continue
        if row.deleted != instances.LIVE or row.task_state == states.DELETING or row.host != host:
            work.domains_to_remove[row.uuid] = row.domain_name
        elif row.vm_state in soft or row.task_state in soft:
            work.off.append(row.uuid)
    return work


def left_behind(tx: Transaction, uuid: str, host: str, reason: str) -> bool:
    """Record a cleanup for a late worker that could not remove what it made, unless the instance is still on the host."""
    row = instances.any_of(tx, uuid)
    if row is None or (row.deleted == instances.LIVE and row.host == host):
        return False
    cleanups.add(tx, cleanups.Due(host, uuid, row.domain_name, reason))
    return True
