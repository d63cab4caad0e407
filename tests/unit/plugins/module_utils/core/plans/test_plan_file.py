# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of a plan: its hash, what it refuses, how a request differs from the planned one."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, InjectedFile
from ansible_collections.bootflow.compute.plugins.module_utils.core.plans import plan_file, plan_states
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, request

CONTENT: dict[str, t.Any] = {
    "version": 1,
    "kind": "boot",
    "id": "p",
    "ledger": "l",
    "created": "2026-01-01T00:00:00Z",
    "expires": "2026-01-01T01:00:00Z",
    "actor": "änn",
    "request": {"digest": "", "entries": []},
    "instances": [{"name": "web", "project": "default", "uuid": "u", "host": "h1", "node": "h1"}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_what_is_written_is_read() -> None:
    plan = plan_file.signed(CONTENT)
    assert plan_file.parse(plan_file.text_of(plan), "f") == plan
    turned = json.dumps(dict(reversed(plan.items())), indent=7)
    assert plan_file.parse(turned, "f") == plan, "the order of keys and spaces do not matter"


@given(st.dictionaries(st.text().filter(lambda n: n != "hash"), JSON, max_size=4))
def test_the_hash_survives_a_file_and_sees_each_change(content: dict[str, t.Any]) -> None:
    plan = plan_file.signed(content)
    again = json.loads(plan_file.text_of(plan))
    assert plan_file.content_hash({k: v for k, v in again.items() if k != "hash"}) == plan["hash"]
    assert plan_file.signed({**content, "new": 1})["hash"] != plan["hash"] or content.get("new") == 1


@pytest.mark.parametrize(
    "text, code",
    [
        ("", "PlanUnreadable"),
        ("[1]", "PlanUnreadable"),
        ("{}", "PlanUnreadable"),
        ('{"id": "\\ud800"}', "PlanUnreadable"),
        ("[" * 100_000, "PlanUnreadable"),
        (json.dumps({**plan_file.signed(CONTENT), "version": 2}), "PlanUnreadable"),
        (json.dumps({**plan_file.signed(CONTENT), "version": True}), "PlanUnreadable"),
        (json.dumps({**plan_file.signed(CONTENT), "instances": {}}), "PlanUnreadable"),
        (json.dumps({**plan_file.signed(CONTENT), "actor": "eve"}), "PlanAltered"),
        (json.dumps({**plan_file.signed(CONTENT), "more": 1}), "PlanAltered"),
        (json.dumps(plan_file.signed({**CONTENT, "kind": "dance"})), "PlanUnreadable"),
        (json.dumps(plan_file.signed({**CONTENT, "instances": [{"name": "web"}]})), "PlanUnreadable"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, code: str) -> None:
    with pytest.raises(errors.BootflowError) as caught:
        plan_file.parse(text, "/plan.json")
    assert caught.value.code == code and "/plan.json" in caught.value.message and caught.value.remedy


def test_a_plan_is_for_its_playbook_and_its_ledger() -> None:
    plan = plan_file.signed(CONTENT)
    plan_file.check_use(plan, "f", "boot", "l")
    with pytest.raises(errors.PlanOfAnotherPlaybook):
        plan_file.check_use(plan, "f", "apply", "l")
    with pytest.raises(errors.PlanOfAnotherLedger):
        plan_file.check_use(plan, "f", "boot", "m")


WEB = request("web", 2, user_data="secret words", injected_files=(InjectedFile("/f", "more secret"),))
OTHER = Flavor(name="small", memory_mb=SMALL.memory_mb + 1, vcpus=1, root_gb=1)


@pytest.mark.parametrize(
    "entries, words",
    [
        ([WEB], []),
        ([WEB, request("db")], ["db is not in the plan"]),
        ([], ["web is not in the request any more"]),
        ([request("web", 3, user_data="secret words", injected_files=WEB.injected_files)], ["web: max_count was 2, is 3"]),
        ([request("web", 2, flavor=OTHER, user_data="secret words", injected_files=WEB.injected_files)], ["flavor.memory_mb was 1024, is 1025"]),
        ([request("web", 2, user_data="other", injected_files=WEB.injected_files)], ["web: user_data"]),
        ([request("web", 2, user_data="secret words", injected_files=WEB.injected_files, description="x")], ["web: description"]),
    ],
)  # fmt: skip
def test_each_difference_of_a_request_is_named(entries: list[t.Any], words: list[str]) -> None:
    planned = plan_file.request_of([WEB])
    assert "secret" not in json.dumps(planned)
    found = plan_file.request_differences(planned, plan_file.request_of(entries))
    assert bool(found) == bool(words)
    for word in words:
        assert any(word in f for f in found), found


def test_another_order_of_entries_is_another_request() -> None:
    one, two = request("a"), request("b")
    found = plan_file.request_differences(plan_file.request_of([one, two]), plan_file.request_of([two, one]))
    assert found == ["the order of its entries"]


def test_many_differences_are_counted() -> None:
    assert plan_file.some_words([str(n) for n in range(7)]) == "0; 1; 2; 3; 4 and 2 more"
    assert plan_file.some_words(["a", "b"]) == "a; b"


def test_runs_of_plans_are_told_from_others() -> None:
    assert plan_states.plan_of(plan_states.run_of("p")) == "p"
    assert plan_states.plan_of("plan:1234:5:6") is None and plan_states.plan_of(None) is None
