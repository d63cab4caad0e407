# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of LVM 2.03.16 as they were recorded, the facts made of them, and what is planned on them."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import logical_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    CommandFailed,
    Conflict,
    DriverNotInitialized,
    InvalidInput,
    VolumeBackendAPIException,
    VolumeIsBusy,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm, lvm_tags
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import backend_facts, plan

GIB = 1024**3
ONE, TWO, SNAP, THICK = (
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
    "44444444-4444-4444-8444-444444444444",
)
HEAD = {
    "vg_name": "cinder-volumes",
    "vg_uuid": "WisrOX-dZkt-RzKg-5Btn-17cq-1gP3-bgjtgp",
    "vg_size": "4290772992",
    "vg_free": "2013265920",
    "vg_extent_size": "4194304",
    "vg_attr": "wz--n-",
    "lv_count": "5",
    "vg_missing_pv_count": "0",
}
POOL = "cinder-volumes-pool"


def row(name, size, attr, tags="", pool="", origin="", data="", metadata=""):
    return {
        "lv_name": name,
        "lv_uuid": "uuid-" + name,
        "lv_size": str(size),
        "lv_attr": attr,
        "lv_tags": tags,
        "pool_lv": pool,
        "origin": origin,
        "data_percent": data,
        "metadata_percent": metadata,
    }


def owned(kind, item_id, *more):
    return ",".join(["bootflow", "bootflow.%s=%s" % (kind, item_id)] + list(more))


ROWS = [
    row("_snapshot-" + SNAP, 104857600, "Vwi---tz-k", owned("snapshot", SNAP), POOL, "volume-" + ONE),
    row("_snapshot-" + TWO, 20971520, "swi-a-s---", owned("snapshot", TWO), "", "volume-" + THICK, "0.00"),
    row(POOL, 2143289344, "twi-aotz--", data="12.50", metadata="11.13"),
    row("volume-" + ONE, 104857600, "Vwi-a-tz--", owned("volume", ONE, "bootflow.project=red"), POOL, data="0.00"),
    row("volume-" + THICK, 104857600, "owi-a-s---", owned("volume", THICK)),
    row("swap", 104857600, "-wi-ao----"),
]
SEG = [
    {"lv_name": "volume-" + ONE, "segtype": "thin", "zero": "zero", "discards": "passdown"},
    {"lv_name": POOL, "segtype": "thin-pool", "zero": "zero", "discards": "passdown"},
    {"lv_name": "swap", "segtype": "linear", "zero": "unknown", "discards": ""},
]


def disk(free, allocatable=True, missing=False):
    return {
        "pv_name": "/dev/vdc",
        "pv_free": str(free),
        "pv_allocatable": "allocatable" if allocatable else "",
        "pv_missing": "missing" if missing else "",
    }


def report(rows=None, seg=None, disks=None, **head):
    part = {
        "vg": [dict(HEAD, **head)],
        "pv": [disk(HEAD["vg_free"])] if disks is None else disks,
        "lv": ROWS if rows is None else rows,
        "pvseg": [],
        "seg": SEG if seg is None else seg,
    }
    return json.dumps({"report": [part]})


def group(rows=None, seg=None, **head):
    return lvm.parse_report(report(rows, seg, **head))


def test_the_report_of_a_group_is_read_with_exact_sizes():
    found = group()
    assert (found.size, found.free, found.extent_size) == (4290772992, 2013265920, 4194304)
    assert found.zeroing == {POOL: True}
    one, thick, pool = found.lvs["volume-" + ONE], found.lvs["volume-" + THICK], found.lvs[POOL]
    assert one.is_thin and one.is_active and not one.is_open and one.pool == POOL
    assert one.tags == {"bootflow", "bootflow.volume=" + ONE, "bootflow.project=red"}
    assert not thick.is_thin and found.snapshots_of(thick.name)[0].is_thick_snapshot
    assert pool.is_pool and (pool.data_percent, pool.metadata_percent) == (12.5, 11.13)
    assert found.lvs["swap"].is_open and not found.lvs["_snapshot-" + SNAP].is_active


@pytest.mark.parametrize(
    ("disks", "free"),
    [
        ([disk(4 * GIB), disk(8 * GIB)], 12 * GIB),
        ([disk(4 * GIB), disk(8 * GIB, allocatable=False)], 4 * GIB),
        ([disk(12 * GIB, allocatable=False)], 0),
        ([disk(4 * GIB), disk(8 * GIB, missing=True)], 4 * GIB),
    ],
)
def test_room_is_where_lvm_allocates(disks, free):
    """``vg_free`` counts physical volumes on which nothing is allocated (pvchange -x n): neither free nor total has them."""
    found = lvm.parse_report(report(disks=disks, vg_size=str(20 * GIB), vg_free=str(12 * GIB)))
    assert found.free == free and found.size == 8 * GIB + free


def test_an_empty_group_is_read():
    found = group([], [], lv_count="0")
    assert found.lvs == {} and found.path("volume-x") == "/dev/cinder-volumes/volume-x"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"report": [{"vg": []}]}', '{"report": [{"vg": [{"vg_name": "x"}]}]}', "x"]
)
def test_what_is_no_report_of_one_group_is_refused(text):
    with pytest.raises(VolumeBackendAPIException):
        lvm.parse_report(text)


@given(st.integers(1, 2**44), st.sampled_from([2**20, 4 * 2**20, 2**30]))
def test_rounding_gives_the_least_number_of_whole_extents(size, extent):
    found = group([], [], vg_extent_size=str(extent)).rounded(size)
    assert found % extent == 0 and size <= found < size + extent


SAID = [
    (5, '  Volume group "nosuch" not found\n  Cannot process volume group nosuch', DriverNotInitialized, 503),
    (
        5,
        '  Volume group "v" has insufficient free space (460 extents): 25600 required.',
        VolumeBackendAPIException,
        500,
    ),
    (
        5,
        "  Cannot create new thin volume, free space in thin pool v/p reached threshold.",
        VolumeBackendAPIException,
        500,
    ),
    (5, '  Logical Volume "volume-thick" already exists in volume group "v"', Conflict, 409),
    (5, "  Logical volume v/volume-a in use.", VolumeIsBusy, 409),
    (5, "  Logical volume v/a contains a filesystem in use.", VolumeIsBusy, 409),
    (5, "  Pool nopool not found in Volume group v.", VolumeBackendAPIException, 500),
    (3, "", CommandFailed, 500),
]


@pytest.mark.parametrize(("rc", "stderr", "error", "status"), SAID)
def test_what_lvm_refuses_is_an_error_that_says_why(monkeypatch, rc, stderr, error, status):
    monkeypatch.setattr(lvm, "program", lambda name, package: "/sbin/lvm")
    monkeypatch.setattr(lvm, "run", lambda argv, **_options: Completed(rc, "", stderr))
    with pytest.raises(error) as caught:
        lvm.lvm("v", "lvcreate")
    assert caught.value.code == error.__name__ and caught.value.status == status
    assert " ".join(stderr.split()[:2]) in caught.value.message or error is DriverNotInitialized


def test_a_crash_of_lvm_is_tried_once_more(monkeypatch):
    answers = [Completed(-11, "", ""), Completed(0, "fine", "")]
    monkeypatch.setattr(lvm, "program", lambda name, package: "/sbin/lvm")
    monkeypatch.setattr(lvm, "run", lambda argv, **_options: answers.pop(0))
    assert lvm.lvm("v", "lvs") == "fine" and answers == []


COMMANDS = [
    (
        lambda: lvm.create_thick("v", "n", 5, ["t"]),
        "lvcreate --yes --wipesignatures y --zero y --name n --size 5b --addtag t v",
    ),
    (lambda: lvm.create_thin("v", "p", "n", 5, []), "lvcreate --yes --virtualsize 5b --thinpool p --name n v"),
    (
        lambda: lvm.create_thin_snapshot("v", "o", "n", [], True),
        "lvcreate --yes --snapshot --permission rw --name n --setactivationskip n --activate y v/o",
    ),
    (
        lambda: lvm.create_thick_snapshot("v", "o", "n", 8, ["a", "b"]),
        "lvcreate --yes --snapshot --name n --size 8b --addtag a --addtag b v/o",
    ),
    (lambda: lvm.extend("v", "n", 9), "lvextend --yes --size 9b v/n"),
    (lambda: lvm.change_tags("v", ["a", "b"], remove=["t"]), "lvchange --yes --deltag t v/a v/b"),
    (lambda: lvm.set_active("v", ["a"], True), "lvchange --yes --activate y --ignoreactivationskip v/a"),
    (lambda: lvm.set_active("v", ["a"], False), "lvchange --yes --activate n v/a"),
    (lambda: lvm.remove("v", ["a", "b"]), "lvremove --yes v/a v/b"),
]


@pytest.mark.parametrize(("call", "words"), COMMANDS)
def test_each_change_is_one_command_without_a_shell(monkeypatch, call, words):
    seen = []
    monkeypatch.setattr(lvm, "program", lambda name, package: "/sbin/lvm")
    monkeypatch.setattr(lvm, "run", lambda argv, **_options: seen.append(argv) or Completed(0, "", ""))
    call()
    assert [argv[1:2] + argv[4:] for argv in seen] == [words.split()]
    assert all(argv[2] == "--config" and "log/command_names=0" in argv[3] for argv in seen)


def test_a_thick_snapshot_has_room_for_every_block_of_its_origin():
    found = group()
    for size in (4194304, GIB, 100 * GIB):
        room = lvm.snapshot_room(found, size)
        assert room % found.extent_size == 0 and room >= size + 16 * (size // 4096)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"vg_missing_pv_count": "1"}, "missing"),
        ({"vg_attr": "wzxxn-"}, "exported"),
        ({"vg_attr": "rz--n-"}, "read-only"),
    ],
)
def test_a_group_that_takes_no_volumes_is_not_ready(head, words):
    with pytest.raises(DriverNotInitialized, match=words):
        lvm.check_group(group(**head))


@pytest.mark.parametrize(
    ("pool", "error"),
    [
        (None, DriverNotInitialized),
        (row(POOL, GIB, "-wi-a-----"), DriverNotInitialized),
        (row(POOL, GIB, "twi---tz--"), DriverNotInitialized),
        (row(POOL, GIB, "twi-aotzF-", data="3.00", metadata="1.00"), DriverNotInitialized),
    ],
)
def test_a_pool_that_takes_no_volumes_is_not_ready(pool, error):
    with pytest.raises(error):
        lvm.check_group(group([pool] if pool else []), POOL)
    lvm.check_group(group(), POOL)


def test_capacity_of_a_thick_backend_is_the_groups():
    facts = backend_facts.capacity(group())
    assert (facts["total_capacity_gb"], facts["free_capacity_gb"]) == (3.99, 1.87)
    assert facts["provisioned_capacity_gb"] == 2.13 and facts["thick_provisioning_support"]
    assert facts["data_percent"] is None


def test_capacity_of_a_thin_backend_is_the_pools_and_counts_what_was_promised():
    facts = backend_facts.capacity(group(), POOL)
    assert facts["total_capacity_gb"] == 1.99 and facts["free_capacity_gb"] == 1.74
    assert facts["provisioned_capacity_gb"] == 0.42 > (4 * 104857600 + 20971520) / GIB
    assert facts["allocated_capacity_gb"] == round(2 * 104857600 / GIB, 2)
    assert (facts["data_percent"], facts["metadata_percent"]) == (12.5, 11.13)


@pytest.mark.parametrize(("free", "told"), [(GIB, 1.0), (GIB - 1, 0.99), (GIB - 4 * 1024**2, 0.99), (0, 0.0)])
def test_nothing_is_told_to_be_free_that_is_not(free, told):
    """A group of 3 GiB has 4 MiB of metadata: the third volume of 1 GB is no backend's, and no try on it."""
    there = dataclasses.replace(group(), size=free, free=free)
    facts = backend_facts.capacity(there)
    assert (facts["free_capacity_gb"], facts["total_capacity_gb"], facts["vg_free_gb"]) == (told, told, told)


def test_a_report_tells_the_moment_before_it_was_read():
    first = backend_facts.moment()
    facts = backend_facts.capacity(group(), POOL, first)
    assert (facts["boot_id"], facts["read_at"]) == first
    later = backend_facts.capacity(group())
    assert later["boot_id"] == first.boot_id and later["read_at"] > first.read_at > 0


def test_orphans_are_ours_and_nobodys():
    image = row("image-x", 4194304, "Vri-a-tz--", owned("image", "a" * 64), POOL)
    found = group(ROWS + [image])
    assert [item["id"] for item in backend_facts.orphans(found, [ONE, SNAP])] == [TWO, THICK]
    assert backend_facts.orphans(found, [ONE, TWO, SNAP, THICK]) == []
    assert backend_facts.described(found)[0]["kind"] == "snapshot"


@pytest.mark.parametrize("text", ["", "-a", "a b", "a,b", "a@b", "é", "x" * 1025, "a\n", 7])
def test_a_tag_outside_of_lvms_alphabet_is_refused(text):
    with pytest.raises(InvalidInput):
        lvm_tags.checked_tag(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80))
@example("Team A")
@example("M\u00fcller & S\u00f6hne #20, (2)")
@example("team-1.example.org")
def test_a_projects_name_comes_back_from_the_tags(project):
    tags = lvm_tags.owner_tags("volume", ONE, project, "image/x")
    assert lvm_tags.project_of(tags) == project and lvm_tags.identity(tags) == ("volume", ONE)
    assert lvm_tags.tag_value(tags, "source") == "image/x"


def test_a_plain_project_is_in_its_tag_as_it_is_and_a_long_one_is_cut():
    assert "bootflow.project=team-1/dev" in lvm_tags.owner_tags("volume", ONE, "team-1/dev")
    assert lvm_tags.project_of(lvm_tags.owner_tags("volume", ONE, "\u96ea" * 255)).startswith("\u96ea" * 110)


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_project_may_have_any_name(state):
    project = "M\u00fcller & S\u00f6hne"
    there = thin_row(ONE, tags=["bootflow.project=" + lvm_tags.project_text(project)])
    desired = plan.desired_volume({"id": ONE, "state": state, "size_gb": 1, "project": project})
    made = plan.plan(desired, group([there]), thin=True)
    assert made.action == {"present": "nothing", "absent": "remove"}[state]
    assert backend_facts.described(group([there]))[0]["project"] == project


@pytest.mark.parametrize("name", ["", "-a", ".", "..", "a/b", "a b", "x" * 128, None])
def test_a_group_name_that_lvm_does_not_take_is_refused(name):
    with pytest.raises(InvalidInput):
        logical_volumes.checked_lvm_name(name, "volume group")


# ---- plans ------------------------------------------------------------------------------------------------------------


INVALID = [
    {"id": "x", "size_gb": 1},
    {"id": ONE},
    {"id": ONE, "size_gb": 0},
    {"id": ONE, "size_gb": -1},
    {"id": ONE, "size_gb": True},
    {"id": ONE, "image_id": "a"},
    {"id": ONE, "size_gb": 1, "image_id": "a", "source_volume": TWO},
    {"id": ONE, "size_gb": 1, "image_id": "../a"},
    {"id": ONE, "kind": "snapshot"},
    {"id": ONE, "kind": "snapshot", "state": "extended", "source_volume": TWO, "size_gb": 2},
    {"id": ONE, "state": "extended"},
    {"id": ONE, "source_snapshot": "nothing"},
]


@pytest.mark.parametrize("args", INVALID)
def test_invalid_volumes_are_refused(args):
    with pytest.raises(InvalidInput):
        plan.desired_volume(args)


def thin_row(item_id, size=GIB, attr="Vwi-a-tz--", tags=(), origin=""):
    return row("volume-" + item_id, size, attr, owned("volume", item_id, *tags), POOL, origin)


PLANS = [
    ({"size_gb": 1}, [], "create"),
    ({"size_gb": 1}, [thin_row(ONE)], "nothing"),
    ({"size_gb": 1}, [thin_row(ONE, attr="Vwi---tz--")], "activate"),
    ({"size_gb": 1}, [thin_row(ONE, tags=["bootflow.incomplete"])], "redo"),
    ({"size_gb": 2}, [thin_row(ONE)], Conflict),
    ({"size_gb": 1}, [row("volume-" + ONE, GIB, "Vwi-a-tz--", "", POOL)], Conflict),
    ({"size_gb": 1}, [row("volume-" + ONE, GIB, "-wi-a-----", owned("volume", ONE))], Conflict),
    ({"size_gb": 1, "project": "red"}, [thin_row(ONE, tags=["bootflow.project=blue"])], Conflict),
    ({"size_gb": 1, "image_id": "a"}, [thin_row(ONE, tags=["bootflow.source=image/b"])], Conflict),
    ({"size_gb": 1, "image_id": "a"}, [thin_row(ONE, tags=["bootflow.source=image/a"])], "nothing"),
    ({"size_gb": 1}, [thin_row(ONE, tags=["bootflow.deleting"])], VolumeIsBusy),
    ({"source_volume": TWO}, [thin_row(TWO, 2 * GIB)], "create"),
    ({"source_volume": TWO, "size_gb": 1}, [thin_row(TWO, 2 * GIB)], InvalidInput),
    ({"source_volume": TWO}, [thin_row(ONE, tags=["bootflow.source=volume/" + TWO])], "nothing"),
    ({"state": "extended", "size_gb": 2}, [thin_row(ONE, attr="Vwi-aotz--")], "extend"),
    ({"state": "extended", "size_gb": 1}, [thin_row(ONE)], "nothing"),
    ({"state": "extended", "size_gb": 1}, [thin_row(ONE, 2 * GIB)], InvalidInput),
    ({"state": "absent"}, [], "nothing"),
    ({"state": "absent"}, [thin_row(ONE)], "remove"),
    ({"state": "absent"}, [thin_row(ONE, attr="Vwi-aotz--")], VolumeIsBusy),
    ({"state": "absent"}, [thin_row(ONE), thin_row(TWO, origin="volume-" + ONE)], "remove"),
    (
        {"state": "absent"},
        [thin_row(ONE), row("_snapshot-" + SNAP, GIB, "Vwi---tz-k", owned("snapshot", SNAP), POOL, "volume-" + ONE)],
        VolumeIsBusy,
    ),
]


@pytest.mark.parametrize(("args", "rows", "expected"), PLANS)
def test_what_is_planned_for_a_wish(args, rows, expected):
    found = group(rows + [row(POOL, 2 * GIB, "twi-aotz--", data="0.00", metadata="1.00")])
    desired = plan.desired_volume(dict(args, id=ONE))
    if isinstance(expected, str):
        assert plan.plan(desired, found, True).action == expected
    else:
        with pytest.raises(expected) as caught:
            plan.plan(desired, found, True)
        assert isinstance(caught.value, BootflowError) and 400 <= caught.value.status < 500


@pytest.mark.parametrize(
    "args", [{"source_volume": TWO}, {"source_snapshot": TWO}, {"state": "extended", "size_gb": 2}]
)
def test_what_is_not_there_is_a_404(args):
    with pytest.raises(BootflowError) as caught:
        plan.plan(plan.desired_volume(dict(args, id=ONE)), group([]), True)
    assert caught.value.status == 404


def test_a_thick_origin_in_use_with_snapshots_is_not_extended():
    rows = [
        row("volume-" + ONE, GIB, "owi-aos---", owned("volume", ONE)),
        row("_snapshot-" + SNAP, GIB, "swi-a-s---", owned("snapshot", SNAP), "", "volume-" + ONE),
    ]
    desired = plan.desired_volume({"id": ONE, "state": "extended", "size_gb": 2})
    with pytest.raises(InvalidInput, match="snapshots"):
        plan.plan(desired, group(rows), False)


def test_a_volume_goes_together_with_its_snapshots():
    rows = [
        row("volume-" + ONE, GIB, "owi-a-s---", owned("volume", ONE)),
        row("_snapshot-" + SNAP, GIB, "swi-a-s---", owned("snapshot", SNAP), "", "volume-" + ONE),
    ]
    desired = plan.desired_volume({"id": ONE, "state": "absent"})
    assert plan.plan(desired, group(rows), False, {"_snapshot-" + SNAP}).action == "remove"
