# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How random histories are run: the same in each run, or with a number in BOOTFLOW_HISTORIES as many others."""

from __future__ import annotations

import os
import typing as t

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .examples import examples

SEARCHED = int(os.environ.get("BOOTFLOW_HISTORIES", "0"))


def run_histories(machine: type[t.Any], count: int) -> None:
    """:arg count: how many, where the environment does not say."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=SEARCHED or examples(count),
            derandomize=not SEARCHED,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
