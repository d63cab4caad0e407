# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of several instances of a host: the others do not fail with one that takes too long."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshots import LEFT
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.plugin_utils.images import give_snapshot, host_images
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.snapshots import snapshot
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction

LATE = errors.HostTimeout(host="kvm1", module="m", seconds=1)
STORES = read_stores(
    [
        {"name": "here", "path": "/srv/images"},
        {"name": "nfs", "path": "/net/images", "kind": "shared"},
        {"name": "far", "path": "/srv/images", "kind": "host", "host": "kvm9"},
    ],
    ["kvm1", "kvm9"],
)
IDS = ["u%d" % number for number in range(7)]


def action() -> LedgerAction:
    return t.cast(
        LedgerAction,
        types.SimpleNamespace(
            task_vars={"inventory_hostname": "kvm1"}, check_mode=False, _connection=types.SimpleNamespace(become=None)
        ),
    )


@pytest.mark.parametrize(("store", "late", "count"), [("here", IDS[:1], 7), ("nfs", IDS[:2], 4), ("far", IDS, 1)])
def test_an_image_that_takes_too_long_costs_few_others(
    store: str, late: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[str]] = []

    def make(_self: object, items: t.Sequence[dict[str, t.Any]], *_more: object) -> tuple[t.Any, t.Any]:
        groups.append([item["uuid"] for item in items])
        if len(groups) == 1:
            raise LATE
        return {item["uuid"]: {"size": 1} for item in items}, {}

    monkeypatch.setattr(snapshot, "store_of", lambda _action: STORES.get(store))
    monkeypatch.setattr(host_images.HostImages, "_make", make)
    items = [{"uuid": uuid, "removed": []} for uuid in IDS]
    answers, problems = snapshot.Snapshot(action()).on_host(items, ())
    assert len(groups) == count and [uuid for group in groups for uuid in group] == IDS
    assert problems == dict.fromkeys(late, LATE)
    assert [uuid for uuid, answer in answers.items() if LEFT not in answer] == IDS[len(late) :]


def test_files_that_have_arrived_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def received(_action: object, _store: object, image: dict[str, str], answer: dict[str, t.Any]) -> dict[str, t.Any]:
        asked.append(image["id"])
        if image["id"] == "u1":
            full = errors.DiskFull(host="kvm9", path="/srv/images", reason="full").as_dict()
            return {"outcomes": {"u1": {"changed": False, "error": full}}}
        if image["id"] == "u3":
            raise LATE
        return {"outcomes": {image["id"]: {**answer, "error": None}}}

    monkeypatch.setattr(give_snapshot, "_received", received)
    given = [({"id": uuid}, {"size": 1, "checksum": "ab"}) for uuid in IDS]
    outcomes, failed = give_snapshot.receive(action(), STORES.get("far"), given)
    assert asked == IDS and sorted(outcomes) == [uuid for uuid in IDS if uuid != "u3"]
    assert outcomes["u1"][LEFT] is False and LEFT not in outcomes["u0"]
    assert sorted(failed) == ["u1", "u3"] and failed["u3"] is LATE
