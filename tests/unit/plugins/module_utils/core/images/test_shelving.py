# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of shelving as tables."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import shelving
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.shelving import Destination, Wish
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import STORE_KINDS
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.store_kind import ImageStore
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states

ZONES = {"h1": "az1", "h2": "az2", "h12": "az1, az2"}

# Nova's table of microversion 2.91: the zone that binds, what is named, what follows.
WISHES = """
bound | zone | unpin | host | -> zone | host
-     | -    | no    | -    | -       | -
-     | -    | no    | h1   | -       | h1
-     | az1  | no    | -    | az1     | -
-     | az1  | no    | h1   | az1     | h1
-     | az1  | no    | h2   | refused | -
az1   | -    | no    | -    | az1     | -
az1   | -    | yes   | -    | -       | -
az1   | -    | no    | h1   | az1     | h1
az1   | -    | no    | h12  | az1     | h12
az1   | -    | no    | h2   | refused | -
az1   | -    | no    | h9   | refused | -
az1   | -    | yes   | h2   | -       | h2
az1   | az2  | no    | -    | az2     | -
az1   | az2  | no    | h2   | az2     | h2
az1   | az2  | no    | h1   | refused | -
az1   | az2  | yes   | h1   | refused | -
"""


def rows() -> list[list[str | None]]:
    lines = WISHES.strip().splitlines()[1:]
    return [[None if cell.strip() == "-" else cell.strip() for cell in line.split("|")] for line in lines]


@pytest.mark.parametrize(("bound", "zone", "unpin", "host", "to_zone", "to_host"), rows())
def test_a_destination(bound: str, zone: str, unpin: str, host: str, to_zone: str, to_host: str) -> None:
    wish = Wish(zone, unpin == "yes", host)
    if to_zone == "refused":
        with pytest.raises(errors.UnshelveHostNotInAZ) as refused:
            wish.of_instance("u1", states.SHELVED_OFFLOADED, bound, ZONES.get)
        assert refused.value.status == 409 and str(host) in refused.value.message
        return
    assert wish.of_instance("u1", states.SHELVED_OFFLOADED, bound, ZONES.get) == Destination(to_zone, to_host)


@pytest.mark.parametrize("wish", [Wish(zone="az1"), Wish(unpin=True), Wish(host="h1")])
def test_an_instance_on_its_host_comes_to_no_other(wish: Wish) -> None:
    with pytest.raises(errors.UnshelveInstanceInvalidState) as refused:
        wish.of_instance("u1", states.SHELVED, "az1", ZONES.get)
    assert refused.value.status == 409
    assert Wish().of_instance("u1", states.SHELVED, "az1", ZONES.get) == Destination("az1")


@pytest.mark.parametrize(
    ("is_volume_backed", "offload_time", "at_once"),
    [(False, 0, True), (False, -1, False), (False, 60, False), (True, 0, True), (True, -1, True), (True, 60, True)],
)
def test_leaves_at_once(is_volume_backed: bool, offload_time: int, at_once: bool) -> None:
    assert shelving.leaves_at_once(is_volume_backed, offload_time) is at_once


def test_names() -> None:
    request = shelving.request_in(ImageStore("s", STORE_KINDS["controller"], "/images"), ())
    assert request.name_of("web") == "web-shelved"
    long_name = request.name_of("w" * 255)
    assert len(long_name) == 255 and long_name.endswith("-shelved")


def test_whole_disks_stay() -> None:
    shelving.refuse_whole_disks("u1", {"whole_disks": []})
    with pytest.raises(errors.MoveNotSupported):
        shelving.refuse_whole_disks("u1", {"whole_disks": [{}]})


@pytest.mark.parametrize(
    ("vm_state", "power_state", "settled"),
    [
        (states.ACTIVE, states.RUNNING, states.ACTIVE),
        (states.ACTIVE, states.SHUTDOWN, states.STOPPED),
        (states.PAUSED, states.POWER_PAUSED, states.PAUSED),
        (states.PAUSED, states.SHUTDOWN, states.STOPPED),
        (states.SUSPENDED, states.SHUTDOWN, states.SUSPENDED),
        (states.STOPPED, states.SHUTDOWN, states.STOPPED),
        (states.ACTIVE, None, states.ACTIVE),
    ],
)
def test_a_shelve_of_a_dead_run(vm_state: str, power_state: int | None, settled: str) -> None:
    assert states.settled("shelve", vm_state, power_state) == settled


@pytest.mark.parametrize("vm_state", [states.SHELVED, states.SHELVED_OFFLOADED])
@pytest.mark.parametrize("power_state", [None, states.SHUTDOWN, states.POWER_PAUSED, states.RUNNING])
def test_an_unshelve_of_a_dead_run(vm_state: str, power_state: int | None) -> None:
    is_active = power_state == states.RUNNING
    assert states.settled("unshelve", vm_state, power_state) == (states.ACTIVE if is_active else vm_state)
    assert states.settled("shelve_offload", states.SHELVED, power_state) == states.SHELVED
