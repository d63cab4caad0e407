# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unshelves on a host: each failure is that of its instance, and a host that got an instance in vain is cleaned at once."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import hard_reboot, power_work
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.cleaning import Cleaned
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.shelves import unshelve
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction

BROKEN = errors.LibvirtError(reason="broken")
RUNS = {"changed": True, "power_state": states.RUNNING}


def item(uuid: str, builds: bool, lacking: bool = False) -> dict[str, t.Any]:
    return {"uuid": uuid, "domain": "instance-" + uuid, "builds": builds, **({"lacking": True} if lacking else {})}


@pytest.fixture
def work() -> unshelve.Unshelve:
    return unshelve.Unshelve(t.cast(LedgerAction, types.SimpleNamespace(check_mode=False)))


def test_a_build_whose_volumes_are_not_connected_leaves_nothing(
    work: unshelve.Unshelve, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def clean(_action: object, instances: t.Sequence[dict[str, t.Any]]) -> Cleaned:
        asked.extend(i["uuid"] for i in instances)
        return Cleaned({"u2": BROKEN}, {})

    monkeypatch.setattr(unshelve, "clean_host", clean)
    items = [item("u1", True), item("u2", True), item("u3", False)]
    assert work.undo_on_host(items) == {"u1": {unshelve.CLEANED: True}, "u2": {unshelve.CLEANED: False}}
    assert asked == ["u1", "u2"], "an instance that was there before stays there"


@pytest.mark.parametrize("fails", [BROKEN, errors.InstanceNotFound(instance_id="u1")])
def test_guests_on_their_host(
    work: unshelve.Unshelve, monkeypatch: pytest.MonkeyPatch, fails: errors.BootflowError
) -> None:
    """Domains that have the former targets of their volumes are written again. The others do not fail with them."""
    started: list[str] = []
    redefined = errors.LibvirtError(reason="refused")

    def reboot(_self: object, _items: object, _fresh: object) -> t.Any:
        raise redefined

    def start(_self: object, items: t.Sequence[t.Mapping[str, t.Any]], _fresh: object) -> t.Any:
        started.extend(i["uuid"] for i in items)
        return {"u2": RUNS}, {"u1": fails}

    monkeypatch.setattr(hard_reboot.HardReboot, "on_host", reboot)
    monkeypatch.setattr(power_work.PowerWork, "on_host", start)
    answers, problems = work.on_host([item("u1", False), item("u2", False), item("u3", False, lacking=True)], ())
    assert started == ["u1", "u2"] and answers == {"u2": RUNS}
    assert problems == {"u1": fails, "u3": redefined}
    assert "shelve_offload" in problems["u3"].remedy
    assert ("shelve_offload" in problems["u1"].remedy) is isinstance(fails, errors.InstanceNotFound)
