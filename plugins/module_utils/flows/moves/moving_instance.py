# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances on their way from host to host, with the rows of their moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.instances import move_life, states
from ...ledger.compute import cleanups, instances, ports
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction


@dataclass(frozen=True)
class MovingInstance:
    """A moving instance, with the row of its move."""

    row: Instance
    move: MoveRow

    @property
    def uuid(self) -> str:
        return self.row.uuid

    @property
    def at_destination(self) -> bool:
        """Whether the instance is on the destination; of a resize on its own host, whether it has the new flavor."""
        return ledger_moves.is_at_destination(self.move, self.row.host, self.row.request_spec_id)

    @property
    def is_consistent(self) -> bool:
        """Whether the status of the move is one that the state of the instance admits. After a change of the ledger by hand it may not be."""
        where = move_life.DESTINATION if self.at_destination else move_life.SOURCE
        kind = self.move.migration_type
        return self.move.status in move_life.open_statuses(kind, self.row.vm_state, self.row.task_state, where)

    @property
    def part_to_clean(self) -> str:
        """The part of the instance that the destination is to be cleaned of, if the instance is not there."""
        return cleanups.NEW if ledger_moves.is_same_host_resize(self.move) else cleanups.ALL

    @property
    def made_for(self) -> str:
        """The mark that the destination gives what it makes for the move."""
        return ledger_moves.made_for(self.move)

    @property
    def runs(self) -> bool:
        """Whether the guest is to run when the move is over."""
        return self.move.old_vm_state == states.ACTIVE


def relocate(tx: Transaction, places: t.Sequence[tuple[str, str, str, dict[str, t.Any] | None]]) -> None:
    """Write the hosts of these locked instances, and bind their ports there.

    :arg places: (uuid, host, node, limits of the claim)
    """
    if places:
        names = ("uuid", "host", "node", "limits")
        instances.relocate(tx, [{**dict(zip(names, p)), "launched_on": p[1]} for p in places])
        ports.bind_each(tx, {p[0]: p[1] for p in places})
