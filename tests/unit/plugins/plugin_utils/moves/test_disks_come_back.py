# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks in a pool of instances that come back to their source hosts."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.moves import cold_hosts

ITEMS = {u: {"made_for": "move of " + u, "lost": u != "a"} for u in ("a", "b", "c")}


def test_lost_destinations_are_fenced_before_disks_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[t.Any, ...]] = []
    refused = errors.StorageClusterUnavailable(pool="vms", reason="no answer within 5 s")

    def open_disks(action: t.Any, uuids: t.Any, state: str = "open", rolls_back: t.Any = None) -> t.Any:
        calls.append((state, list(uuids), rolls_back))
        return {"c": refused} if state == "fenced" else {}

    monkeypatch.setattr(cold_hosts, "open_disks", open_disks)
    move: t.Any = types.SimpleNamespace(action=None, items=lambda: ITEMS)
    assert cold_hosts.ColdHosts._bring_disks_back(move, ["a", "b", "c"]) == {"c": refused}
    assert calls == [
        ("fenced", ["b", "c"], None),
        ("open", ["a", "b"], {"a": "move of a", "b": "move of b"}),
    ]
