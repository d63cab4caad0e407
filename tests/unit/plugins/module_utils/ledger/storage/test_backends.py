# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import backends, volume_views
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import GIB, VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import at

PLACE = "s1@lvm#lvm"


def capacity(vworld: VolumeWorld, free: float = 40, **fields: t.Any) -> bool:
    numbers = {"total_capacity_gb": 100, "free_capacity_gb": free, "provisioned_capacity_gb": 100 - free, **fields}
    with vworld.ledger.write() as tx:
        return backends.record_capacity(tx.for_run(vworld.context()), PLACE, numbers)


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        (("b1", 50.0), ("b1", 60.0), True),
        (("b1", 50.0), ("b1", 50.0), True),
        (("b1", 50.0), ("b1", 49.9), False),
        (("b1", 50.0), ("b2", 1.0), True),  # the host was started anew
        (("b1", 50.0), ("", 0.0), True),  # one that tells no time is believed
    ],
)
def test_a_report_never_overwrites_a_later_one(vworld: VolumeWorld, first: t.Any, second: t.Any, written: bool) -> None:
    vworld.store("s1", lvm=100)
    assert capacity(vworld, 40, boot_id=first[0], read_at=first[1])
    assert capacity(vworld, 70, boot_id=second[0], read_at=second[1]) is written
    assert vworld.pools()[PLACE].free_capacity_gb == (70 if written else 40)


def test_a_place_that_nobody_knows_has_no_capacity(vworld: VolumeWorld) -> None:
    assert not capacity(vworld)
    assert vworld.pools() == {}


def test_what_is_configured_before_anybody_reported(vworld: VolumeWorld) -> None:
    entries = [
        {"name": "lvm", "volume_backend_name": "fast", "availability_zone": "az1", "frozen": True, "medium": "ssd"},
        {"name": "thin", "provisioning": "thin", "capabilities": {"dedup": True}, "reserved_percentage": 5},
    ]
    with vworld.ledger.write() as tx:
        changed = backends.configure(tx.for_run(vworld.context()), {"s1": entries})
        assert changed == ["s1@lvm#fast", "s1@thin#thin"]
        assert backends.configure(tx.for_run(vworld.context()), {"s1": entries}) == []
        assert backends.zones(tx) == {"az1", "nova"}
        assert backends.stale_hosts(tx.for_run(vworld.context()), ["s2", "s1"], 1e9) == ["s2", "s1"]
    pools = vworld.pools()
    assert pools["s1@lvm#fast"].frozen and pools["s1@lvm#fast"].medium == "ssd"
    assert pools["s1@lvm#fast"].free_capacity_gb is None and pools["s1@lvm#fast"].updated_at is None
    assert pools["s1@thin#thin"].thin_provisioning_support and not pools["s1@thin#thin"].thick_provisioning_support
    assert pools["s1@thin#thin"].capabilities == {"dedup": True}
    with vworld.ledger.write() as tx:
        entries[0]["frozen"] = False
        assert backends.configure(tx.for_run(vworld.context()), {"s1": entries[:1]}) == ["s1@lvm#fast", "s1@thin#thin"]
        assert backends.configure(tx.for_run(vworld.context()), {"s2": []}) == []
    assert [(p.host, p.disabled, p.frozen) for p in vworld.pools().values()] == [
        ("s1@lvm#fast", False, False),
        ("s1@thin#thin", True, False),
    ]


def test_backends_that_are_not_named_any_more_are_disabled_and_come_back(vworld: VolumeWorld) -> None:
    host = vworld.store("s1", one=10, two=20)
    del host.totals["two"]
    vworld.reported("s1")
    assert {p.host: p.disabled for p in vworld.pools().values()} == {"s1@one#one": False, "s1@two#two": True}
    host.totals["two"] = 20
    vworld.reported("s1")
    assert not any(p.disabled for p in vworld.pools().values())


def test_a_host_that_is_silent_gets_nothing_until_it_reports(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    with vworld.ledger.write() as tx:
        assert backends.stale_hosts(at(tx, vworld.time + 10), ["s1"], 10) == []
        assert backends.stale_hosts(at(tx, vworld.time + 11), ["s1"], 10) == ["s1"]
        backends.record_unreachable(tx.for_run(vworld.context()), "s1", "no route")
        assert backends.stale_hosts(tx.for_run(vworld.context()), ["s1"], 10) == ["s1"]
    accepted = vworld.request({"name": "v", "size": 1})
    (error,) = vworld.choose().failed.values()
    assert isinstance(error, errors.NoValidBackend) and "s1@lvm#lvm (not ready: " in error.message
    assert vworld.shown("v")["fault"]["code"] == "NoValidBackend"
    vworld.reported("s1")
    assert vworld.request({"name": "v", "size": 1}).resumed == accepted.created
    assert list(vworld.choose().placed) == accepted.created


def test_an_error_of_a_backend_is_kept_beside_its_last_numbers(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.reported("s1", error=errors.DriverNotInitialized(remedy="make it"))
    pool = vworld.pools()[PLACE]
    assert pool.not_ready == "Volume driver not ready." and pool.free_capacity_gb == 100
    with vworld.ledger.read() as tx:
        (shown,) = volume_views.backends(tx)
    assert shown["error"]["code"] == "DriverNotInitialized" and shown["error"]["remedy"] == "make it"


def test_what_is_made_but_in_no_report_is_settled_by_the_report_that_has_it(vworld: VolumeWorld) -> None:
    """finish() without a capacity leaves pending what it made; the report that lists its logical volume settles it."""
    host = vworld.store("s1", lvm=100)
    (volume_id,) = vworld.request({"name": "v", "size": 10}).created
    vworld.choose()
    (work,) = vworld.work_of()
    result = host.do(work)
    vworld.worked("s1", {"lvm": type(result)(result.outcomes, None)})
    assert vworld.volume("v").made and vworld.volume("v").pending_gb == 10
    assert vworld.pools()[PLACE].free_capacity_gb == 90
    lvs = host.there["lvm"]
    host.there["lvm"] = {}  # read before it was made
    vworld.reported("s1")
    assert vworld.volume("v").pending_gb == 10
    host.there["lvm"] = lvs
    vworld.reported("s1")
    assert vworld.volume("v").pending_gb == 0
    assert vworld.pools()[PLACE].free_capacity_gb == 90
    assert lvs == {volume_id: 10}


def test_the_report_that_is_kept_has_no_list_of_volumes(vworld: VolumeWorld) -> None:
    assert GIB == 1024**3
    vworld.store("s1", lvm=100)
    vworld.make("v", 10)
    vworld.reported("s1")
    (row,) = vworld.rows(volume_tables.storage_backends)
    assert "volumes" not in row.report and row.report["free_capacity_gb"] == 90
