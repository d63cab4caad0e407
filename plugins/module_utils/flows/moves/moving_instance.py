# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances on their way from host to host, with the rows of their moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.instances import states
from ...ledger.compute import cleanups, instances, ports
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction


@dataclass(frozen=True)
class MovingInstance:
    """An instance on its way, with the row of its move."""

    row: Instance
    move: MoveRow

    @property
    def uuid(self) -> str:
        return self.row.uuid

    @property
    def at_destination(self) -> bool:
        """Whether it is where its move takes it."""
        return ledger_moves.is_at_destination(self.move, self.row.host, self.row.request_spec_id)

    @property
    def part_to_clean(self) -> str:
        """What is cleaned of it where it was to go to, but does not."""
        return cleanups.NEW if ledger_moves.is_same_host_resize(self.move) else cleanups.ALL

    @property
    def made_for(self) -> str:
        """The mark that its new host gives what it makes for the move."""
        return ledger_moves.made_for(self.move)

    @property
    def runs(self) -> bool:
        """Whether its guest runs when all is done."""
        return self.move.old_vm_state == states.ACTIVE


def relocate(tx: Transaction, places: t.Sequence[tuple[str, str, str, dict[str, t.Any] | None]]) -> None:
    """Write where these locked instances are. :arg places: (uuid, host, node, limits of the claim)"""
    if places:
        names = ("uuid", "host", "node", "limits")
        instances.relocate(tx, [{**dict(zip(names, p)), "launched_on": p[1]} for p in places])
        ports.bind_each(tx, {p[0]: p[1] for p in places})
