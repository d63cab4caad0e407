# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds and states of plans that hold places, and the runs that stand for them in the ledger."""

from __future__ import annotations

BOOT, APPLY, DRAIN, RESIZE, MIGRATE = "boot", "apply", "drain", "resize", "migrate"
KINDS = (BOOT, APPLY, DRAIN, RESIZE, MIGRATE)  # the playbooks that a plan may be of
#: Kinds whose places can be held.
HELD_KINDS = (BOOT, RESIZE, MIGRATE, DRAIN, APPLY)

HELD, USED, DISCARDED, EXPIRED = "held", "used", "discarded", "expired"
STATES = (HELD, USED, DISCARDED, EXPIRED)

#: Beginning of the id of the run that owns what a plan holds. Ids of other runs begin with the name of a host, which has no slash.
PREFIX = "plan/"


def run_of(plan_id: str) -> str:
    """Return the id of the run that owns what the plan holds."""
    return PREFIX + plan_id


def plan_of(run_id: str | None) -> str | None:
    """Return the id of the plan that the run stands for; None: it is another run."""
    return run_id[len(PREFIX) :] if run_id is not None and run_id.startswith(PREFIX) else None
