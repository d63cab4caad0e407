# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes and snapshots that the backends of the current host have to make, extend and remove, each by its driver."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.volumes.work import BackendWork, WorkResult
from ..run.ledger_action import LedgerAction
from .drivers.registry import volume_driver


def work_on(action: LedgerAction, works: t.Sequence[BackendWork]) -> dict[str, WorkResult]:
    """Do it, one backend after the other. Returns backend -> what the ledger is to hear; it never raises."""
    results: dict[str, WorkResult] = {}
    unreachable: errors.BootflowError | None = None
    for work in works:
        if unreachable is None:
            try:
                results[work.backend] = volume_driver(work.configuration).work(action, work)
                continue
            except errors.BootflowError as e:
                problem = e
            except Exception as e:  # any exception: the other backends continue, and the play too
                problem = action.unexpected(e)
            if isinstance(problem, errors.HostUnreachable):
                unreachable = problem
        else:
            problem = unreachable  # the others are on the same host
        results[work.backend] = WorkResult(error=problem)
    return results
