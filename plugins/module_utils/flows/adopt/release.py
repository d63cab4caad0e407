# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adopted instances leave the ledger, and their domains stay as they are."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...ledger.compute import claims, history, instances, nodes, ports, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ..instances import operation
from ..instances.operation import Operation, Selection
from .adoption import is_adopted

RELEASE = Operation("release")


def begin(
    tx: Transaction, selection: Selection, known_hosts: t.Collection[str]
) -> tuple[list[Instance], t.Collection[str]]:
    """Return (the selected instances, which can all be released; the hosts that are forced down). Writes nothing of them.

    A host that is forced down is not asked, and may be gone for good: the mark of the ledger stays there, and does not prevent another adoption.

    :raises InstanceNotAdopted: this collection made one of them. :raises BootflowError: see operation.begin()
    """
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection, known_hosts)
    down = nodes.forced_down(tx)
    check(tx, rows, {*known_hosts, *down})
    return rows, down


def check(tx: Transaction, rows: t.Sequence[Instance], known_hosts: t.Collection[str] | None = None) -> None:
    """Check that these locked instances can be released. :raises BootflowError: see begin()"""
    dead = operation.dead_runs(tx, rows)
    refused: list[errors.BootflowError] = []
    for row in rows:
        try:
            operation.check(tx, RELEASE, row, dead, known_hosts)
            if not is_adopted(row):
                raise errors.InstanceNotAdopted(instance=row.display_name)
        except errors.BootflowError as error:
            refused.append(error)
    operation.refuse(refused)


def finish(tx: Transaction, uuids: t.Collection[str]) -> list[Instance]:
    """Release these instances, whose domains have no mark of the ledger any more. Returns the released ones.

    :raises BootflowError: one of them cannot be released any more, as another run works on it; nothing is written then.
    """
    runs.renew(tx)
    rows = instances.select_live(tx, uuids=sorted(uuids), lock=True)
    check(tx, rows)
    released = [row.uuid for row in rows]
    for project in sorted({row.project for row in rows}):
        of_project = [row.uuid for row in rows if row.project == project]
        history.start_actions(tx, of_project, RELEASE.action, tx.request_id, project, tx.actor)
    history.add_events(tx, [(row.uuid, str(row.host)) for row in rows], RELEASE.name, history.SUCCESS)
    ports.release(tx, released)
    claims.release(tx, released)
    instances.bury(tx, released)
    history.finish_actions(tx, released, RELEASE.action)
    return rows
