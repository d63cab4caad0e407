# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a host that is prepared waits for the first of its guests."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible import constants

from ansible_collections.bootflow.compute.plugins.plugin_utils.moves import live_settings


@pytest.mark.parametrize(
    "sources, destinations, seconds",
    [
        (1, 1, 120.0),
        (3, 1, 120.0),
        (1, 2, 120.0 + 5 * 40.0),  # the other one has its limits for networks, volumes and disks
        (1, 9, 120.0 + 3 * 5 * 40.0),  # four at a time
        (4, 1, 120.0),
        (5, 1, live_settings._LONG),  # the fifth begins when another has ended
    ],
)
def test_patience(sources: int, destinations: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_FORKS", 4)
    variables = {"bootflow_work_timeout": 10}
    action: t.Any = types.SimpleNamespace(
        task_vars=variables, variable=lambda name, default=None: variables.get(name, default), options={}
    )
    hosts = [["h%d" % n for n in range(count)] for count in (sources, destinations)]
    assert live_settings.patience(action, *hosts) == seconds
