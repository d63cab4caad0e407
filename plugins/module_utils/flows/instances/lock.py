# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that are locked and unlocked: only who locked one may act on it. No host has a part in it.

source: Nova's compute.api.API.lock and unlock
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...ledger.compute import history, instances
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from . import operation

MOST_REASON = 255  # characters. source: Nova's API


@dataclass
class Changed:
    """The instances, as they were."""

    rows: list[Instance] = field(default_factory=list)
    unchanged: list[Instance] = field(default_factory=list)


def lock(tx: Transaction, selection: operation.Selection, reason: str = "") -> Changed:
    """Lock the selected instances for this user: all of them, or with an error none. A new reason replaces an older one.

    :raises InvalidInput, InstanceNotFound: see operation.begin(); or the reason is too long.
    :raises InstanceIsLocked: by another user.
    """
    if len(reason) > MOST_REASON:
        raise errors.InvalidInput(
            reason="bootflow_locked_reason has %d characters" % len(reason),
            remedy="Shorten it to at most %d." % MOST_REASON,
        )
    rows = _select(tx, selection)
    operation.refuse([operation.locked_error(r) for r in rows if operation.is_locked(tx, r)])
    changed = Changed()
    for row in rows:
        is_new = row.locked_by is None or (reason and reason != row.locked_reason)
        (changed.rows if is_new else changed.unchanged).append(row)
    _write(
        tx, changed.rows, "lock", {"locked_reason": reason or None}, locked_by=tx.actor, locked_reason=reason or None
    )
    return changed


def unlock(tx: Transaction, selection: operation.Selection, override: bool = False) -> Changed:
    """Unlock them. :arg override: also what another user locked

    :raises BootflowError: see lock().
    """
    rows = _select(tx, selection)
    if not override:
        operation.refuse([operation.locked_error(r) for r in rows if operation.is_locked(tx, r)])
    changed = Changed([r for r in rows if r.locked_by is not None], [r for r in rows if r.locked_by is None])
    _write(tx, changed.rows, "unlock", {}, locked_by=None, locked_reason=None)
    return changed


def _select(tx: Transaction, selection: operation.Selection) -> list[Instance]:
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection)
    return rows


def _write(
    tx: Transaction, rows: t.Sequence[Instance], action: str, payload: t.Mapping[str, t.Any], **values: t.Any
) -> None:
    """``values``, with action, event and notification."""
    uuids = [r.uuid for r in rows]
    instances.write(tx, uuids, updated_at=tx.now, **values)
    for project in sorted({r.project for r in rows}):
        project_uuids = [r.uuid for r in rows if r.project == project]
        history.start_actions(tx, project_uuids, action, tx.request_id, project, tx.actor)
    history.add_events(tx, [(r.uuid, r.host) for r in rows], action, history.SUCCESS)
    history.finish_actions(tx, uuids, action)
    history.notify_each(tx, {r.uuid: {"host": r.host, **payload} for r in rows}, "compute.instance.%s" % action)
