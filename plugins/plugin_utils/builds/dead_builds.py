# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds of dead runs, settled by the report of their host, with what only its settings tell."""

from __future__ import annotations

import typing as t

from ...module_utils.core.errors import BootflowError
from ...module_utils.core.instances.dead_builds import seen_in
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.recovery import dead_builds
from ...module_utils.flows.recovery.dead_builds import Settled
from ...module_utils.ledger.database import Ledger
from ..run.ledger_action import LedgerAction
from . import domain_builder


def settle_builds(
    action: LedgerAction,
    ledger: Ledger,
    host: str,
    facts: t.Mapping[str, t.Any],
    asked_at: float,
    former_runs: t.Mapping[str, str] | None = None,
) -> Settled:
    """Settle the builds on ``host``, and tell what becomes of guests that were built. :arg facts: its report. See flows.recovery.dead_builds.settle_builds()"""
    settings = HOST.read(action.task_vars["hostvars"][host])

    def machine_type(build: Build) -> str | None:
        try:
            return domain_builder.machine_type(build, settings)
        except BootflowError:  # the host has this machine type no longer; the guest runs
            return None

    settled = ledger.transact(dead_builds.settle_builds, host, seen_in(facts), asked_at, machine_type, former_runs)
    for uuid, name in sorted(settled.adopted.items()):
        text = "%s (%s) is active: its build had ended on %s when its run died."
        action._display.display(text % (name, uuid, host))
    for uuid, name in sorted(settled.kept_builds.items()):
        text = "%s (%s) ended in ERROR, and %s keeps what it has of it: bootflow.compute.show tells why."
        action._display.warning(text % (name, uuid, host))
    return settled
