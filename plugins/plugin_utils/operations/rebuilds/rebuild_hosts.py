# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check whether hosts may have the images that their instances are rebuilt from, by the scheduler's settings.

Apart from rebuild, so that no other operation, and no rebuild without a new image, loads the scheduler.
"""

from __future__ import annotations

import typing as t

from ....module_utils.core.scheduler import on_rebuild
from ....module_utils.core.settings.request import REQUEST
from ....module_utils.core.settings.scheduling import SCHEDULER
from ....module_utils.flows.boot.schedule import needs_of, request_spec
from ....module_utils.ledger.compute import fleet
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...run.ledger_action import LedgerAction, read_settings
from ...settings import scheduler_settings

_VARIABLES = {**SCHEDULER.options(), **REQUEST.options("default_availability_zone")}


def checker(action: LedgerAction) -> t.Callable[[Transaction, Instance, t.Mapping[str, t.Any]], None]:
    """A function that raises NoValidHost where a filter refuses an instance's host the image of the given request."""
    # Before the transaction: hosts' variables are rendered.
    action.options.update(read_settings(_VARIABLES, {}, action.variable))
    options = scheduler_settings.scheduler_options(action, action.context().now)
    aggregates, host_vars = scheduler_settings.aggregates_of(action), scheduler_settings.vars_for_filters(action)
    accepted: set[tuple[t.Any, ...]] = set()

    def check(tx: Transaction, row: Instance, spec: t.Mapping[str, t.Any]) -> None:
        key = (row.request_spec_id, row.project, row.host, row.node, spec["image"]["id"], spec["image"]["checksum"])
        if row.host is None or key in accepted:
            return
        host_fleet = fleet.read(tx, {row.host}, aggregates, host_vars, needs_of([spec], options))
        request = request_spec(spec, [row.uuid], None, row.project)
        on_rebuild.check_host(host_fleet, request, options, row.host, row.node or row.host)
        accepted.add(key)

    return check
