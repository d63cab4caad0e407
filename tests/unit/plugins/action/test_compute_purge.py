# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the purge of a host is asked to keep, and what it prints."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import compute_purge
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, NET, World

BASE = "/var/lib/bootflow/instances/_base/"
FOUND = {
    "changed": True,
    "images": [
        {"path": BASE + "a-0123456789abcdef", "size": 1536 * 2**20, "age": 172800},
        {"path": BASE + "b.part", "size": 512, "age": 100000},
    ],
    "networks": ["old"],
    "diff": [],
}
NOTHING: dict[str, t.Any] = {"changed": False, "images": [], "networks": [], "diff": []}


def purge(
    world: World, answer: t.Any, check_mode: bool = False, **variables: t.Any
) -> tuple[dict[str, t.Any], dict[str, t.Any], WorldPorts]:
    """The result, the arguments of the host's module, what was displayed."""
    asked: dict[str, t.Any] = {}

    def module(name: str, arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        assert name == "compute_unused"
        asked.update(arguments)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    ports = WorldPorts(world, "a", module)
    result = action_of(compute_purge, ports, {"inventory_hostname": "h1", **variables}, check_mode).act()
    return result, asked, ports


def test_what_instances_of_the_ledger_need_is_kept_and_so_is_what_the_inventory_declares(world: World) -> None:
    world.report("h1")
    _result, asked, _ports = purge(world, NOTHING)
    assert asked["keep_images"] == asked["keep_networks"] == []
    assert (asked["minimum_age"], asked["images"], asked["networks"]) == (86400, True, True)
    world.boot("building", until="networking")
    declared = [{"name": "shop", "source": "bf-shop", "manage": True, "subnets": [{"cidr": "10.9.0.0/24"}]}]
    used = NET.source or NET.name
    _result, asked, _ports = purge(world, NOTHING, bootflow_networks=declared)
    assert (asked["keep_images"], asked["keep_networks"]) == ([IMAGE.id], sorted(["bf-shop", used]))
    options: dict[str, t.Any] = {"bootflow_networks": declared, "bootflow_remove_unused_networks": "all"}
    assert purge(world, NOTHING, **options)[1]["keep_networks"] == [used]
    options = {"bootflow_remove_unused_networks": "none", "bootflow_remove_unused_base_images": False}
    _result, asked, _ports = purge(world, NOTHING, **options, bootflow_remove_unused_original_minimum_age_seconds=7)
    assert (asked["images"], asked["networks"], asked["minimum_age"]) == (False, False, 7)


@pytest.mark.parametrize("check_mode", [False, True])
def test_it_says_what_it_did(world: World, check_mode: bool) -> None:
    result, _asked, ports = purge(world, FOUND, check_mode)
    assert result == {"answered": True, **FOUND}
    (shown,) = ports.shown
    assert shown.strip().splitlines() == [
        "h1: %s 2 base images, 1.5 GiB; 1 network" % ("would remove" if check_mode else "removed"),
        "  %sa-0123456789abcdef (1.5 GiB, unused for 2 d)" % BASE,
        "  %sb.part (512 bytes, unused for 27 h)" % BASE,
        "  network old",
    ]
    assert "h1: removed nothing" in purge(world, NOTHING)[2].shown[0]
    assert purge(world, FOUND, bootflow_print_table=False)[2].shown == []


def test_a_host_that_does_not_answer_is_named(world: World) -> None:
    result, _asked, ports = purge(world, errors.HostUnreachable(host="h1", reason="timed out"))
    assert (result["changed"], result["answered"], result["error"]["code"]) == (False, False, "HostUnreachable")
    (warning,) = ports.warnings
    assert warning.startswith("The purge of h1 did not end: ") and "timed out" in warning


def failing(**fields: t.Any) -> dict[str, t.Any]:
    error = errors.PurgeIncomplete([], 3).as_dict()
    code = error.pop("code")
    return {"failed": True, "msg": error.pop("message"), "error_code": code, **error, **fields}


def test_removals_that_failed_fail_the_task_and_the_others_are_reported(world: World) -> None:
    """A purge that failed halfway said that it had removed nothing, and the run ended with 0."""
    path = BASE + "b-0123456789abcdef"
    cause = {"code": "RemoteError", "status": 400, "message": "Operation not permitted \x1b[2J", "remedy": "lsattr"}
    busy = {"code": "LibvirtError", "message": "libvirt: busy"}
    items = [{"name": path, "error": cause}, {"name": "network wire", "error": busy}]
    result, _asked, ports = purge(world, failing(failed_items=items, **FOUND))
    assert (result["failed"], result["changed"], result["answered"]) == (True, True, True)
    assert (result["images"], result["networks"]) == (FOUND["images"], ["old"])
    assert ports.shown[0].strip().splitlines()[0] == "h1: removed 2 base images, 1.5 GiB; 1 network; 2 removals failed"
    assert result["msg"].splitlines() == [
        "PurgeIncomplete: 0 of 3 removals failed.",
        "  %s on h1: RemoteError: Operation not permitted \\x1b[2J" % path,
        "    Remedy: lsattr",
        "  network wire on h1: LibvirtError: libvirt: busy",
        "Remedy: Fix the cause and purge again. What was removed stays removed.",
    ]
    assert [(i["host"], i["error"]["code"]) for i in result["failed_items"]] == [
        ("h1", "RemoteError"),
        ("h1", "LibvirtError"),
    ]


@pytest.mark.parametrize(
    ("code", "done", "fails"),
    [
        ("HypervisorUnavailable", NOTHING, False),
        ("HostTimeout", NOTHING, False),
        ("HostTimeout", {**NOTHING, "changed": True, "networks": ["old"]}, True),
        ("MissingLibrary", NOTHING, True),
    ],
)
def test_a_purge_that_ended_before_its_end(world: World, code: str, done: dict[str, t.Any], fails: bool) -> None:
    result, _asked, ports = purge(world, {"failed": True, "error_code": code, "msg": "the cause", **done})
    assert (bool(result.get("failed")), len(ports.warnings)) == (fails, not fails)
    if fails:
        assert (result["changed"], result["networks"]) == (done["changed"], done["networks"])
        assert result["msg"].startswith(code + ": the cause")
    else:
        assert (result["answered"], result["error"]["code"]) == (False, code)


@pytest.mark.parametrize(
    "lie", [{"images": [7]}, {"failed_items": [7]}, {"failed_items": [{}]}, {"changed": "yes"}, {"errors": [1]}]
)
def test_what_a_failed_purge_says_is_checked(world: World, lie: dict[str, t.Any]) -> None:
    result, _asked, _ports = purge(world, failing(**lie))
    assert (result["answered"], result["error"]["code"]) == (False, "InvalidAnswer")
