# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances in the results of moves: as the stage ``begin`` returns them, and in the report of the stage ``finish``."""

from __future__ import annotations

import typing as t

from ...module_utils.core.instances import states
from ...module_utils.core.instances.power_states import POWER_STATES
from ...module_utils.flows.moves.moving_instance import MovingInstance
from ...module_utils.ledger.compute.instances import Instance
from ..run import tables
from ..run.stages import Failed, Item, Items, Result, Stages

#: What to do after a resize or cold migration.
WHAT_NOW = (
    "%s: bootflow.compute.confirm_resize keeps this, bootflow.compute.revert_resize brings back what was. Until then the room of"
    " both is reserved."
)


def item_of(moving_instance: MovingInstance) -> Item:
    """Return what all stages must know of an instance."""
    return {
        "uuid": moving_instance.uuid,
        "name": moving_instance.row.display_name,
        "domain": moving_instance.row.domain_name,
        "source": moving_instance.move.source_compute,
        "destination": moving_instance.move.dest_compute,
        "vm_state": moving_instance.row.vm_state,
        "made_for": moving_instance.made_for,
    }


def as_it_is(row: Instance) -> Item:
    """Return an instance with which the operation does nothing, for the result of the stage ``begin``."""
    return {
        "name": row.display_name,
        "uuid": row.uuid,
        "host": row.host,
        "vm_state": row.vm_state,
        "power_state": row.power_state,
    }


def not_placed(rows: t.Mapping[str, Instance], failed: Failed) -> list[Item]:
    """Return the instances for which no host was found. :arg rows: of these, and of others"""
    return [{**as_it_is(rows[u]), "error": e.as_dict()} for u, e in failed.items()]


def line_of(unchanged: Item, why: str) -> tuple[t.Any, ...]:
    """Return a row of the table, for ``more`` of report(). :arg unchanged: see as_it_is()"""
    power = POWER_STATES.get(unchanged["power_state"])
    return unchanged["name"], unchanged["uuid"], None, unchanged["host"], unchanged["vm_state"], power, why


def report(
    stages: Stages,
    shown: t.Sequence[Item],
    unplaced_items: Items,
    note_of: t.Callable[[Item], str] = lambda item: "",
    more: t.Sequence[t.Sequence[t.Any]] = (),
    to_source: bool = False,
    before: t.Mapping[str, str] | None = None,
) -> Result:
    """Return the result of the stage ``finish``, which failed if an instance did. People get its table, if they want one.

    :arg shown: each has its name, uuid, source, destination, host, vm_state, power_state and error. :arg unplaced_items: not_placed()
    :arg note_of: what the table says of one of ``shown`` that has no error. :arg more: further rows of it, see line_of()
    :arg to_source: the instances return to their sources. :arg before: uuid -> the vm_state that check mode tells, too
    """
    check_mode = stages.action.check_mode
    rows: list[t.Sequence[t.Any]] = []
    for item in shown:
        note = item["error"]["code"] if item["error"] else note_of(item)
        ends = (item["destination"], item["source"]) if to_source else (item["source"], item["destination"])
        was = (before or {}).get(item["uuid"], item["vm_state"]) if check_mode else item["vm_state"]
        rows.append((item["name"], item["uuid"], *ends, tables.change(was, item["vm_state"]), _power(item), note))
    rows += [
        (i["name"], i["uuid"], i["host"], None, i["vm_state"], _power(i), i["error"]["code"]) for i in unplaced_items
    ]
    rows += more
    waiting = [row[0] for row in rows if row[4] == states.RESIZED]
    if check_mode or stages.options.get("follow_file"):  # apply confirms them itself
        waiting = []
    head = ("INSTANCE", "UUID", "FROM", "TO", "VM_STATE", "POWER_STATE", "NOTE")
    stages.table(head, rows, [WHAT_NOW % ", ".join(waiting)] if waiting else [])
    return stages.finish([*shown, *unplaced_items], shown)


def _power(item: t.Mapping[str, t.Any]) -> str | None:
    return POWER_STATES.get(item["power_state"]) if item["power_state"] else None
