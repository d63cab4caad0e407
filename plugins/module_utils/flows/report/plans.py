# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as its file and the ledger have it."""

from __future__ import annotations

from ...core import errors
from ...core.plans import plan_file
from ...core.plans.plan_states import EXPIRED, HELD
from ...core.report.figures import RESOURCES, Place, Plan
from ...ledger.db.transaction import Transaction
from ...ledger.plans import plans


def plan(tx: Transaction, content: plan_file.Plan, file: str) -> Plan:
    """Return the plan of a file, whatever its state is. :arg file: its path, for messages

    :raises PlanNotFound: the ledger does not know it. :raises PlanAltered: the ledger has another hash.
    """
    row = plans.read(tx, content["id"])
    if row is None:
        raise errors.PlanNotFound(plan=content["id"])
    if row.hash != content[plan_file.HASH]:
        raise errors.PlanAltered(file=file)
    state = plans.state_of(row, tx.now)
    return Plan(
        id=row.id,
        kind=row.kind,
        state=state,
        since=row.expires_at if state in (HELD, EXPIRED) else row.changed_at,
        actor=row.actor,
        created=row.created_at,
        places=[
            Place(
                uuid=instance["uuid"],
                name=instance["name"],
                project=instance["project"],
                flavor=instance["flavor"],
                host=instance["host"],
                node=instance["node"],
                amounts={resource: instance["claims"][resource] for resource in RESOURCES},
                addresses=[address for port in instance["ports"] for address in port["addresses"]],
            )
            for instance in content["instances"]
        ],
    )
