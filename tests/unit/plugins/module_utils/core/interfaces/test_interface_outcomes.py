# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an interface for each answer that its host may give, and the words for it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import silence
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces import interface_outcomes

PROBLEM = errors.LibvirtError(reason="broken")
#: answer of the host -> the note in the table, and the code of the error
ANSWERS: dict[str, tuple[dict[str, t.Any], str, str | None]] = {
    "done": ({"changed": True, "error": None}, "", None),
    "nothing to do": ({"changed": False, "error": None}, "nothing to do", None),
    "error": ({"changed": False, "error": PROBLEM.as_dict()}, PROBLEM.code, PROBLEM.code),
    "error after it was done": ({"changed": True, "error": PROBLEM.as_dict()}, PROBLEM.code, PROBLEM.code),
    "silence": (silence("h1"), "HostUnreachable", "HostUnreachable"),
}


def item_of(
    port: str, uuid: str = "u", addresses: t.Sequence[str] = ("10.0.2.10",), host: str = "h1"
) -> dict[str, t.Any]:
    item = {
        "port_id": port,
        "uuid": uuid,
        "name": "web",
        "host": host,
        "mac_address": "fa:16:3e:00:00:01",
        "network": "net-2",
    }
    return {**item, "source": "default", "fixed_ips": list(addresses), "new": True}


@pytest.mark.parametrize("kind", ANSWERS)
def test_each_answer_of_a_host(kind: str) -> None:
    answer, note, code = ANSWERS[kind]
    results = interface_outcomes.results_of([item_of("p")], {"p": answer})
    (item,) = results.items
    assert item["host"] == "h1" and results.note_of(item) == note
    assert {key: error.code for key, error in results.failed.items()} == ({"p": code} if code else {})
    assert [error.code for error in results.of_instances["u"]] == ([code] if code else [])
    assert results.done == ({"p"} if kind == "done" else set())
    assert [i["port_id"] for i in results.good] == ([] if code else ["p"])
    assert [i["error"]["code"] for i in results.failed_items] == ([code] if code else [])


def test_errors_are_those_of_their_instances() -> None:
    items = [item_of("a", "u1"), item_of("b", "u1"), item_of("c", "u2", host="h2")]
    answers = {"a": ANSWERS["done"][0], "b": ANSWERS["error"][0], "c": silence("h2")}
    results = interface_outcomes.results_of(items, answers)
    codes = {uuid: [e.code for e in found] for uuid, found in results.of_instances.items()}
    assert codes == {"u1": [PROBLEM.code], "u2": ["HostUnreachable"]}
    assert [(i["instance"], i["uuid"], i["host"]) for i in results.good] == [("web", "u1", "h1")]
    assert [(i["name"], i["host"]) for i in results.failed_items] == [
        ("interface 10.0.2.10 of network net-2, instance web", host) for host in ("h1", "h2")
    ]


def test_an_interface_without_addresses_is_named_by_its_mac() -> None:
    item = item_of("p", addresses=())
    assert interface_outcomes.words(item) == "interface fa:16:3e:00:00:01 of network net-2, instance web"


def test_what_guests_refuse_is_known_and_any_other_failure_is_not() -> None:
    refuses = errors.DeviceDetachFailed(device="net1", reason="in use")
    assert interface_outcomes.refused_by_guests({"b": refuses, "c": PROBLEM, "a": refuses}) == ["a", "b"]


def test_an_interface_that_another_run_detached_meanwhile() -> None:
    lost = interface_outcomes.detached_meanwhile(item_of("p"), None)
    kept = interface_outcomes.detached_meanwhile(item_of("p"), PROBLEM)
    assert "attach another one" in lost.remedy and "HARD" in kept.remedy
    assert PROBLEM.message in kept.message and kept.message.startswith(lost.message)
