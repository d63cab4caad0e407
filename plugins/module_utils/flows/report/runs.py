# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run as the ledger has it: its actions on instances, and the steps of each; and why instances are in ERROR."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.report import refusals
from ...core.report.figures import Refusal, Rejection, Run, Span, Work
from ...core.scheduler.smallest_change import lacking
from ...ledger import report
from ...ledger.compute import history
from ...ledger.compute.history import LastFault
from ...ledger.db.transaction import Transaction


def run(tx: Transaction, request_id: str | None, limit: int) -> Run | None:
    """Return the run of a request id; without one the newest that built instances, None if there was none.

    :arg limit: how many instances have their steps: failed ones first, then the slowest.
    :raises InvalidInput: no action has the request id.
    """
    wanted = request_id if request_id is not None else report.newest_boot(tx)
    if wanted is None:
        return None
    rows = report.actions_of_run(tx, wanted)
    if not rows:
        raise errors.InvalidInput(
            reason="no action in the ledger has the request id %s" % wanted,
            remedy="Set bootflow_report_run to a request_id of the playbook show, or leave it out for the newest boot.",
        )
    begin = min(row.start_time for row in rows)

    def urgency(row: report.NamedAction) -> tuple[t.Any, ...]:
        seconds = (tx.now if row.finish_time is None else row.finish_time) - row.start_time
        return row.message != history.ERROR, -seconds, row.display_name or "", row.instance_uuid

    chosen = sorted(rows, key=urgency)[:limit]
    steps = report.steps_since(tx, sorted({row.instance_uuid for row in chosen}), begin)
    ends = [row.finish_time for row in rows if row.finish_time is not None]
    return Run(
        request_id=wanted,
        user=rows[0].user_name,
        begin=begin,
        end=max(ends) if len(ends) == len(rows) else None,
        total=len(rows),
        failed=sum(row.message == history.ERROR for row in rows),
        works=[_work(row, steps.get(row.instance_uuid, ()), tx.now) for row in chosen],
    )


def _work(row: report.NamedAction, steps: t.Sequence[report.Step], now: float) -> Work:
    end = now if row.finish_time is None else row.finish_time
    return Work(
        uuid=row.instance_uuid,
        name=row.display_name or row.instance_uuid,
        project=row.project,
        action=row.action,
        begin=row.start_time,
        end=row.finish_time,
        failed=row.message == history.ERROR,
        spans=[
            Span(
                *(step.instance_uuid, step.event, step.host, step.start_time, step.finish_time, step.result),
                details=(step.details or "").partition("\n")[0],
            )
            for step in steps
            if row.start_time <= step.start_time <= end
        ],
    )


def refused(tx: Transaction) -> list[Refusal]:
    """Return why instances are in ERROR, each reason once, the newest first."""
    rows = report.failed_instances(tx)
    uuids = [row.uuid for row in rows]
    faults, payloads = history.last_faults(tx, uuids), report.explanations(tx, uuids)
    return refusals.grouped(
        (row.display_name, _refusal(row, faults[row.uuid], payloads.get(row.uuid, {})))
        for row in rows
        if row.uuid in faults
    )


def _refusal(row: report.FailedInstance, fault: LastFault, payload: t.Mapping[str, t.Any]) -> Refusal:
    # An earlier boot may have found no host too: the explanation has to be that of this fault.
    overview = payload.get("explanation") if payload.get("reason") == fault["message"] else None
    near = overview and overview["nearest_miss"]
    return Refusal(
        names=[row.display_name],
        total=1,
        code=fault["code"],
        message=fault["message"],
        remedy=fault["remedy"],
        newest=fault["created_at"],
        hosts=overview["hosts"] if overview else 0,
        rejections=[_rejection(rejection) for rejection in overview["rejected"]] if overview else (),
        nearest=near["text"] if near else "",
        change=(near["smallest_change"] or "") if near else "",
    )


def _rejection(data: t.Mapping[str, t.Any]) -> Rejection:
    missing = lacking(data) if data["missing"] is not None else ""
    return Rejection(data["filter"], data["hosts"], data["best"], data["reason"], missing)
