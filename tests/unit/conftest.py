# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same examples in each run, so that a change is judged by what it changed; BOOTFLOW_HISTORIES=N looks for new ones.

The inner loop (scripts/test units) takes --hypothesis-profile=few and -m "not postgres and not slow".
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", derandomize=True, deadline=None)
# Of few examples it cannot be said that too many were thrown away; the profile same says it.
settings.register_profile(
    "few", settings.get_profile("same"), max_examples=10, suppress_health_check=[HealthCheck.filter_too_much]
)
if not os.environ.get("BOOTFLOW_HISTORIES"):
    settings.load_profile("same")

SERVERS = {"postgres", "server", "tls_server"}  # fixtures that start PostgreSQL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if SERVERS & set(getattr(item, "fixturenames", ())) or "postgresql" in map(str, parameters):
            assert "/module_utils/core/" not in item.nodeid, "%s: a pure rule needs no database" % item.nodeid
            item.add_marker("postgres")
