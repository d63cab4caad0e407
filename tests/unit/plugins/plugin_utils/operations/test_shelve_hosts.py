# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of shelved instances that come into the store of another host: a guest without an image is off."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshots import LEFT
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import operation_outcomes, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.operation_outcomes import Answers
from ansible_collections.bootflow.compute.plugins.plugin_utils.images import host_images
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import power_work
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.shelves import shelve
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.snapshots import snapshot
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction

STORE = read_stores(
    [{"name": "far", "path": "/srv/images", "kind": "host", "host": "kvm9"}], ["kvm1", "kvm9"]
).default()
FULL = errors.DiskFull(host="kvm9", path="/srv/images", reason="full")
OFF = {"changed": True, "power_state": states.SHUTDOWN}
ITEMS = {
    "u1": {"uuid": "u1", "host": "kvm1", "image": {"id": "i1", "name": "web-shelved"}, "removed": [], "leaves": True},
    "u2": {"uuid": "u2", "host": "kvm9", "image": {"id": "i2", "name": "db-shelved"}, "removed": [], "leaves": True},
    "u3": {"uuid": "u3", "host": "kvm1", "leaves": True},  # its root is a volume
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> shelve.Shelve:
    monkeypatch.setattr(snapshot, "store_of", lambda _action: STORE)
    action = types.SimpleNamespace(task_vars={"inventory_hostname": "kvm1"}, check_mode=False)
    return shelve.Shelve(t.cast(LedgerAction, action))


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({"u1": {"size": 1}}, None),
        ({"u1": {"error": FULL.as_dict(), LEFT: False}}, "DiskFull"),
        (None, "HostUnreachable"),
        ({}, "HostUnreachable"),
    ],
)
def test_the_host_of_the_store(work: shelve.Shelve, outcomes: Answers | None, code: str | None) -> None:
    answers: Answers = {uuid: dict(OFF) for uuid in ITEMS}
    stored = work.with_stored("kvm9", ITEMS, answers, outcomes)
    assert stored["u2"] == stored["u3"] == OFF, "the store host receives nothing for them"
    error = stored["u1"].get("error") or {}
    assert error.get("code") == code
    outcome = operation_outcomes.outcome_of(stored["u1"], errors.from_dict(error) if error else None)
    assert (outcome.vm_state, outcome.power_state) == (states.STOPPED if code else None, states.SHUTDOWN)


def test_a_guest_that_stays_on_has_no_image(work: shelve.Shelve, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = errors.LibvirtError(reason="broken")
    made: list[str] = []

    def shut_down(_self: object, items: t.Any, _fresh: object) -> tuple[t.Any, t.Any]:
        return {i["uuid"]: dict(OFF) for i in items if i["uuid"] != "u2"}, {"u2": broken}

    def make(_self: object, items: t.Any, *_more: object) -> tuple[t.Any, t.Any]:
        made.extend(i["uuid"] for i in items)
        raise FULL

    monkeypatch.setattr(power_work.PowerWork, "on_host", shut_down)
    monkeypatch.setattr(host_images.HostImages, "_make", make)
    answers, problems = work.on_host(list(ITEMS.values()), ())
    assert made == ["u1"] and problems == {"u1": FULL, "u2": broken}
    assert answers["u2"] == {LEFT: False}, "it is as it was, and the store was not asked"
    assert (answers["u1"]["vm_state"], answers["u1"]["power_state"]) == (states.STOPPED, states.SHUTDOWN)
    assert answers["u3"] == OFF
