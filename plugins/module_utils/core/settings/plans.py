# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of plans that hold places."""

from __future__ import annotations

from ..reading.setting import PATH, Setting, Table

PLANS = Table(
    (
        Setting(
            "plan",
            PATH,
            help="Playbooks `boot`, `resize`, `migrate`, `drain`, `apply`: file on the controller with the plan that is done, exactly or not at all.",
        ),
        Setting(
            "plan_out",
            PATH,
            help="Playbooks `boot`, `resize`, `migrate`, `drain`, `apply` with `--check`: file on the controller for the plan, whose places are held.",
        ),
        Setting(
            "plan_ttl",
            int,
            3600,
            "How long a plan of `bootflow_plan_out` holds its places.",
            least=1,
            most=30 * 86400,
            unit="seconds",
        ),
    )
)

PLAN_DISCARD = Table(
    (
        Setting(
            "plan_discard",
            list,
            help="Playbook `plans`: ids of plans to be given up.",
            option="discard",
            default_text="none",
        ),
    )
)
