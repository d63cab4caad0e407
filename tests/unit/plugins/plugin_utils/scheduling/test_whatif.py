# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions of what-if, as the action asks them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import whatif
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

FLAVORS = [
    {"name": name, "memory_mb": memory, "vcpus": 1, "root_gb": 1} for name, memory in (("small", 512), ("giant", 10**7))
]


def ask(world: World, **asked: t.Any) -> tuple[dict[str, t.Any], list[str]]:
    """Return the answer and its lines."""
    ports = WorldPorts(world, "q")
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": FLAVORS,
        "bootflow_images": [],
        **{"bootflow_whatif_" + name: value for name, value in asked.items()},
    }
    result = action_of(whatif, ports, variables).act()
    return result, "\n".join(ports.shown).splitlines()


def test_a_flavor_that_fits(world: World) -> None:
    world.report("h1")
    result, lines = ask(world, flavor="small", count=2)
    (answer,) = result["answers"]
    assert (result["fits"], result["changed"], result["lost"]) == (True, False, [])
    assert answer["by_host"][0]["host"] == "h1" and answer["total"] >= 2 and answer["fits"]
    assert [p["count"] for p in answer["placed"]] == [2]
    assert "What if (nothing is changed):" in lines and any(line.startswith("Facts are from") for line in lines)


def test_a_flavor_that_fits_nowhere(world: World) -> None:
    world.report("h1")
    result, lines = ask(world, flavor="giant", count=1)
    assert not result["fits"] and not result.get("failed")
    assert [h["host"] for h in result["answers"][0]["stopped_by"]["turned_down"]] == ["h1"]
    assert any("what stops the next one" in line for line in lines) and result["hosts_down"] == []
    result, _lines = ask(world, flavor="giant", count=1, fail=True)
    assert result["failed"] and result["error_code"] == "NoValidHost"
    assert "whatif: 1 of flavor giant requested, 0 fit." in result["msg"]


def test_a_host_that_would_be_lost(world: World) -> None:
    world.report("h1")
    result, lines = ask(world, n_plus_1=True)
    assert result["fits"] and result["answers"] == [] and [h["host"] for h in result["lost"]] == ["h1"]
    assert "If one of these hosts were lost (nothing is touched):" in lines


@pytest.mark.parametrize(
    ("asked", "error", "named"),
    [
        ({}, errors.InvalidInput, "no question is asked"),
        ({"image": "cirros"}, errors.InvalidInput, "bootflow_whatif_image without bootflow_whatif_flavor"),
        ({"flavor": "small", "count": 3, "limit": 2}, errors.InvalidInput, "must be at least 3"),
        ({"lose": ["h9"]}, errors.ComputeHostNotFound, "h9"),
        ({"flavor": "tiny"}, errors.InvalidRequest, "bootflow_whatif_flavor"),
        (
            {"flavor": "small", "server_group": "a", "scheduler_hints": {"group": "b"}},
            errors.InvalidInput,
            "Name one server group",
        ),
    ],
)
def test_a_question_with_errors(
    world: World, asked: dict[str, t.Any], error: type[errors.BootflowError], named: str
) -> None:
    world.report("h1")
    with pytest.raises(error) as caught:
        ask(world, **asked)
    assert named in "%s %s" % (caught.value.paragraph, getattr(caught.value, "errors", ""))
