# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image cache of a thin backend on a model of LVM: what is kept, what goes, and what volumes have of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import (
    backend_facts,
    image_cache,
    volume_batch,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.image_cache import Limits

from .test_volume_batch import GIB, MIB, backend, image_of, new_ids, world_of

POOL = "vg-pool"


class Cache:
    """A thin backend; ``at`` is the host's clock."""

    def __init__(self, make, tmp_path, monkeypatch):
        self.make, self.tmp_path = make, tmp_path
        self.model = make(thin=True)
        self.at = 1000
        monkeypatch.setattr(time, "time", lambda: self.at)

    def image(self, number, size=MIB, **changes):
        return image_of(self.tmp_path, bytes([number]) * 512 + bytes(size - 512), **changes)

    def create(self, *images, check_mode=False, **options):
        """A volume of each; their ids. Every image is another second's."""
        self.at += 1000
        wanted = [
            {"id": item_id, "size_gb": 1, "image_id": i["id"]} for item_id, i in zip(new_ids(len(images)), images)
        ]
        result = self.run(wanted, images, check_mode=check_mode, **options)
        assert [item["error"] for item in result["outcomes"].values()] == [None] * len(images)
        return result

    def run(self, wanted, images=(), **options):
        return volume_batch.make_volumes(backend(self.make, thin=True, **options), wanted, images)

    def delete(self, result):
        self.run([{"id": item_id, "state": "absent"} for item_id in result["outcomes"]])

    def names(self):
        return sorted(name for name in self.model.lvs if name.startswith("image-"))

    def fill(self, name, percent):
        self.model.lvs[name]["data_percent"] = percent

    def entry(self, image):
        return next(i for i in self.entries() if i.sha256 == image["checksum"])

    def entries(self):
        return image_cache.cached_images(lvm.read_group("vg"), POOL)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    return Cache(world_of(monkeypatch, tmp_path), tmp_path, monkeypatch)


def name_of(image):
    return "image-" + image["checksum"][:40]


def evicted(result):
    return [each["name"] for each in result["evicted"]]


def test_two_ledgers_in_one_group_leave_each_other_alone(cache):
    """Each has its own volumes and its own copy of the image, and neither reports nor removes the other's."""
    mine, other = "1ed9e000-0000-4000-8000-000000000001", "5ec0d000-0000-4000-8000-000000000002"
    image = cache.image(1)
    (first,) = cache.create(image, ledger_id=mine)["outcomes"]
    (second,) = cache.create(image, ledger_id=other)["outcomes"]
    images = ["image-%s-%s" % (who[:8], image["checksum"][:40]) for who in (mine, other)]
    assert cache.names() == images
    args = [{"name": "a", "volume_group": "vg", "provisioning": "thin"}]
    facts = backend_facts.backends_facts(args, [], mine)["a"]
    assert [v["id"] for v in facts["orphans"]] == [first] and facts["image_cache_count"] == 1
    assert facts["other_ledgers"] == {other: {"volumes": 2, "size_gb": 1.0}} and facts["allocated_capacity_gb"] == 1
    answer.check("storage_backend_info", "s1", {"backends": {"a": facts}})
    left = cache.run([{"id": second, "state": "absent"}], ledger_id=mine)["outcomes"][second]
    assert left["error"]["code"] == "Conflict" and "volume-" + second in cache.model.lvs
    assert image_cache.empty("vg", POOL, ledger_id=mine)["removed"] == images[:1]
    cache.run([{"id": first, "state": "absent"}], ledger_id=mine)
    assert sorted(cache.model.lvs) == sorted([POOL, "volume-" + second, images[1]])
    assert not backend_facts.backends_facts(args, [], mine)["a"]["orphans"]


# ---- limits -------------------------------------------------------------------------------------------------------------


def test_without_limits_all_stay(cache):
    images = [cache.image(number) for number in range(5)]
    for image in images:
        assert evicted(cache.create(image)) == []
    assert cache.names() == sorted(map(name_of, images))


def test_the_least_recently_used_goes_for_a_new_one(cache):
    one, two, three = (cache.image(number) for number in range(3))
    limits = {"cache_limits": Limits(max_count=2)}
    cache.create(one, **limits)
    cache.create(two, **limits)
    hit = cache.create(one, **limits)
    assert evicted(hit) == []
    result = cache.create(three, **limits)
    assert evicted(result) == [name_of(two)] and cache.names() == sorted([name_of(one), name_of(three)])
    volumes = [name for name in cache.model.lvs if name.startswith("volume-")]
    assert len(volumes) == 4, "what was made of an image that goes stays"


def test_a_use_is_noted_once_a_minute(cache):
    image = cache.image(1)
    cache.create(image)
    first = cache.entry(image).used_at
    cache.at += 30 - 1000
    cache.model.calls.clear()
    cache.create(image)
    assert cache.entry(image).used_at == first and cache.model.calls.count("lvchange") == 1  # whole, nothing else
    cache.create(image)
    assert cache.entry(image).used_at == cache.at
    tags = [tag for tag in cache.model.lvs[name_of(image)]["tags"] if tag.startswith("bootflow.used=")]
    assert tags == ["bootflow.used=%d" % cache.at]


@pytest.mark.parametrize(("size", "kept"), [(13 * MIB, True), (64 * MIB, True), (65 * MIB, False)])
def test_an_image_larger_than_the_cache_is_not_kept_and_evicts_nothing(cache, monkeypatch, size, kept):
    monkeypatch.setattr(image_cache, "GIB", 64 * MIB)  # the limit of the cache
    small, large = cache.image(1), cache.image(2, size)
    cache.create(small)
    wanted = [{"id": new_ids(1)[0], "size_gb": 2, "image_id": large["id"]}]
    result = cache.run(wanted, [large], cache_limits=Limits(max_gb=1))
    assert result["outcomes"][wanted[0]["id"]]["error"] is None
    # 64 MiB beside the 4 MiB of the first is more than 64 MiB.
    assert (name_of(large) in cache.names()) == kept and (name_of(small) in cache.names()) == (size != 64 * MIB)
    assert ("/dev/vg/volume-" + wanted[0]["id"] in cache.make.written) == (not kept), "copied where it is not kept"


def test_the_limit_is_in_gib():
    limits = Limits(max_gb=2)
    assert (
        image_cache.over_limits([], 2 * GIB, limits) == [] and image_cache.over_limits([], 2 * GIB + 1, limits) is None
    )


def test_one_batch_does_not_evict_what_it_makes_volumes_of(cache):
    one, two = cache.image(1), cache.image(2)
    result = cache.create(one, two, cache_limits=Limits(max_count=1))
    assert len(cache.names()) == 1 and evicted(result) == []
    assert len([path for path in cache.make.written if "/volume-" in path]) == 1


@pytest.mark.parametrize("limits", [Limits(max_gb=-1), Limits(max_count=-1)])
def test_less_than_nothing(cache, limits):
    with pytest.raises(InvalidInput):
        cache.run([], cache_limits=limits)


# ---- other content ---------------------------------------------------------------------------------------------------------


def test_an_image_with_new_content_drops_the_old(cache):
    old = cache.image(1)
    first = cache.create(old)
    new = dict(cache.image(2), id=old["id"])
    assert evicted(cache.create(new)) == [name_of(old)] and cache.names() == [name_of(new)]
    assert "volume-" + next(iter(first["outcomes"])) in cache.model.lvs


def test_what_two_images_are_stays_until_both_are_another(cache):
    one = cache.image(1)
    two = dict(one, id=new_ids(1)[0])
    cache.create(one)
    cache.create(two)
    assert cache.entry(one).image_ids == {one["id"], two["id"]} and len(cache.make.written) == 1
    cache.create(dict(cache.image(2), id=one["id"]))
    assert cache.entry(one).image_ids == {two["id"]}
    cache.create(dict(cache.image(3), id=two["id"]))
    assert name_of(one) not in cache.names()


# ---- room ------------------------------------------------------------------------------------------------------------------


def test_images_of_nobody_give_way_to_volumes_if_that_gets_the_room(cache):
    one, two, used = (cache.image(number) for number in range(3))
    for image in (one, two):
        cache.delete(cache.create(image))
    cache.create(used)
    pool = cache.model.lvs[POOL]
    for image in (one, two, used):
        cache.model.lvs[name_of(image)]["size"] = GIB
        cache.fill(name_of(image), "50.00")
    cache.fill(POOL, "90.00")  # of 2000 extents of 4 MiB: 800 MiB are left
    assert pool["size"] == 2000 * 4 * MIB
    assert evicted(cache.run([{"id": new_ids(1)[0], "size_gb": 5}])) == [], "it would not be enough"
    planned = cache.run([{"id": new_ids(1)[0], "size_gb": 1}], check_mode=True)
    assert planned["evicted"] == [] and len(cache.names()) == 3
    assert evicted(cache.run([{"id": new_ids(1)[0], "size_gb": 1}])) == [name_of(one)]
    assert cache.names() == sorted([name_of(two), name_of(used)])


def test_a_full_pool_gives_up_images_of_nobody_then_refuses_and_still_deletes(cache):
    image = cache.image(1)
    cache.delete(cache.create(image))
    here = new_ids(1)[0]
    cache.run([{"id": here, "size_gb": 1}])
    cache.fill(POOL, "100.00")
    new = {"id": new_ids(1)[0], "size_gb": 1}
    gone = {"id": here, "state": "absent"}
    result = cache.run([new, gone])
    assert evicted(result) == [name_of(image)]
    error = result["outcomes"][new["id"]]["error"]
    assert error["code"] == "VolumeBackendAPIException" and error["retryable"] and "data 100.0 %" in error["message"]
    assert result["outcomes"][here]["error"] is None and set(cache.model.lvs) == {POOL}


def test_a_full_pool_that_eviction_frees_takes_the_volume(cache, monkeypatch):
    image = cache.image(1)
    cache.delete(cache.create(image))
    cache.model.lvs[name_of(image)]["size"] = 4 * GIB
    cache.fill(name_of(image), "50.00")
    cache.fill(POOL, "100.00")
    wanted = [{"id": new_ids(1)[0], "size_gb": 1}]
    assert cache.run(wanted, check_mode=True)["outcomes"][wanted[0]["id"]]["error"] is None
    remove = lvm.remove

    def freeing(vg, names):
        remove(vg, names)
        cache.fill(POOL, "74.00")

    monkeypatch.setattr(lvm, "remove", freeing)
    assert cache.run(wanted)["outcomes"][wanted[0]["id"]]["error"] is None and cache.names() == []


def test_the_image_that_is_wanted_is_not_what_gives_way(cache):
    image = cache.image(1)
    cache.delete(cache.create(image))
    cache.model.lvs[name_of(image)]["size"] = GIB
    cache.fill(name_of(image), "50.00")
    cache.fill(POOL, "100.00")
    os.unlink(image["path_on_host"])
    wanted = [{"id": new_ids(1)[0], "size_gb": 1, "image_id": image["id"]}]
    result = cache.run(wanted, [image])
    assert evicted(result) == [] and result["outcomes"][wanted[0]["id"]]["error"]["code"] == "VolumeBackendAPIException"


def test_capacity_says_the_same_before_and_after(cache):
    one, two = cache.image(1), cache.image(2)
    cache.delete(cache.create(one))
    cache.create(two)
    cache.fill(name_of(one), "50.00")
    cache.model.lvs[name_of(one)]["size"] = GIB
    cache.fill(POOL, "25.00")
    before = backend_facts.capacity(lvm.read_group("vg"), POOL)
    assert (before["image_cache_count"], before["image_cache_gb"]) == (2, 1.0)
    assert image_cache.empty("vg", POOL, unused=True)["removed"] == [name_of(one)]
    cache.fill(POOL, "%.4f" % (25 - 100 * 512 / 8000))
    after = backend_facts.capacity(lvm.read_group("vg"), POOL)
    for name in ("total_capacity_gb", "free_capacity_gb", "provisioned_capacity_gb", "allocated_capacity_gb"):
        assert after[name] == before[name]
    assert after["image_cache_count"] == 1 and before["data_percent"] == 25.0


# ---- emptying --------------------------------------------------------------------------------------------------------------


def test_emptying_all_some_and_what_no_volume_is_left_of(cache):
    images = [cache.image(number) for number in range(4)]
    for image in images:
        result = cache.create(image)
    cache.delete(result)
    names = list(map(name_of, images))
    planned = image_cache.empty("vg", POOL, check_mode=True)
    assert planned["removed"] == sorted(names) == cache.names() and [i["name"] for i in planned["images"]] == names
    assert image_cache.empty("vg", POOL, unused=True)["removed"] == [names[3]]
    by = [images[0]["id"], "sha256:" + images[1]["checksum"], "nothing"]
    assert image_cache.empty("vg", POOL, by)["removed"] == sorted(names[:2])
    assert image_cache.empty("vg", POOL)["removed"] == [names[2]]
    assert image_cache.empty("vg", POOL) == {"images": [], "removed": [], "kept": {}}
    assert len([name for name in cache.model.lvs if name.startswith("volume-")]) == 3


HOLD = """
import sys, time
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import image_cache
lvm.LOCK_ROOT = sys.argv[1]
with image_cache.in_use(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_what_another_run_uses_or_has_open_stays(cache):
    used, opened, free = (cache.image(number) for number in range(3))
    for image in (used, opened, free):
        cache.create(image)
    cache.model.lvs[name_of(opened)]["attr"] = "Vri-aotz--"
    argv = [sys.executable, "-c", HOLD, lvm.LOCK_ROOT, used["checksum"]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)), **pipes) as other:
        assert other.stdout.readline() == "held\n"
        # As by another that makes volumes of it at the same time.
        with image_cache.in_use(used["checksum"]):
            pass
        found = image_cache.empty("vg", POOL)
        assert found["removed"] == [name_of(free)] and set(found["kept"]) == {name_of(used), name_of(opened)}
        new = cache.image(9)
        assert evicted(cache.create(new, cache_limits=Limits(max_count=1))) == [] and name_of(new) not in cache.names()
        other.stdin.close()
    assert image_cache.empty("vg", POOL)["removed"] == [name_of(used)]
    assert os.listdir(os.path.join(lvm.LOCK_ROOT, "image-locks")) == []


def test_what_a_killed_run_left_goes_first(cache):
    one, two = cache.image(1), cache.image(2)
    cache.create(one)
    left = "a" * 64
    tags = ["bootflow", "bootflow.image=" + left, "bootflow.size=1", "bootflow.incomplete"]
    cache.model.lvs["image-" + left[:40]] = {
        "size": MIB,
        "attr": "Vwi-a-tz--",
        "tags": tags,
        "pool": POOL,
        "origin": "",
    }
    assert evicted(cache.create(two, cache_limits=Limits(max_count=2))) == ["image-" + left[:40]]


def test_what_is_not_ours_is_not_in_the_cache(cache):
    lv = {"size": MIB, "attr": "Vwi-a-tz--", "pool": POOL, "origin": ""}
    sha256 = "b" * 64
    cache.model.lvs["image-" + sha256[:40]] = dict(lv, tags=["bootflow.image=" + sha256])
    cache.model.lvs["image-other"] = dict(lv, tags=["bootflow", "bootflow.image=" + sha256])
    cache.model.lvs["image-path"] = dict(lv, tags=["bootflow", "bootflow.image=../../x"])
    assert cache.entries() == [] and image_cache.empty("vg", POOL)["removed"] == []


def test_blocks_are_given_back_before_it_goes_and_it_is_not_taken_for_whole_meanwhile(cache, monkeypatch):
    image = cache.image(1)
    cache.create(image)
    seen = []

    def discard(path):
        seen.append(path)
        seen.append("bootflow.incomplete" in cache.model.lvs[name_of(image)]["tags"])
        raise OSError(5, "broken")

    monkeypatch.setattr(image_cache.copy, "discard", discard)
    found = image_cache.empty("vg", POOL, discard=True)
    assert seen == ["/dev/vg/" + name_of(image), True]
    assert found["removed"] == [] and "broken" in found["kept"][name_of(image)]
    cache.make.written.clear()
    cache.create(image)
    assert len(cache.make.written) == 1 and cache.entry(image).is_complete and cache.entry(image).users == 1


def test_after_it_went_an_image_is_copied_again(cache):
    image = cache.image(1)
    cache.create(image)
    image_cache.empty("vg", POOL)
    cache.make.written.clear()
    cache.create(image)
    assert cache.names() == [name_of(image)] and len(cache.make.written) == 1


@pytest.mark.parametrize("seed", range(8))
def test_any_history(cache, seed):
    """Whatever is asked in whatever order: limits hold, volumes stay, and every entry says once when it was used."""
    chance = random.Random(seed)
    pictures = [cache.image(number) for number in range(6)]
    ids = [image["id"] for image in pictures[:3]]
    limits = Limits(max_count=chance.choice([0, 1, 2, 3]))
    volumes = {}
    for _step in range(25):
        what = chance.choice(["create", "create", "create", "delete", "empty", "fill"])
        if what == "create":
            # The same id has another content now and then.
            chosen = {chance.choice(ids): chance.choice(pictures) for _image in range(chance.choice([1, 1, 2]))}
            result = cache.create(*(dict(p, id=i) for i, p in chosen.items()), cache_limits=limits)
            volumes.update((i, result) for i in result["outcomes"])
            if limits.max_count:
                assert len(cache.names()) <= max(limits.max_count, len(chosen))
            for image_id, picture in chosen.items():
                kept = [entry for entry in cache.entries() if image_id in entry.image_ids]
                assert {entry.sha256 for entry in kept} <= {picture["checksum"]}
        elif what == "delete" and volumes:
            gone = volumes.pop(chance.choice(sorted(volumes)))
            for item_id in gone["outcomes"]:
                volumes.pop(item_id, None)
            cache.delete(gone)
        elif what == "empty":
            before = {entry.lv.name for entry in cache.entries() if entry.users}
            image_cache.empty("vg", POOL, unused=True)
            assert set(cache.names()) == before
        elif what == "fill":
            cache.fill(POOL, chance.choice(["0.00", "99.00"]))
        assert {name[7:] for name in cache.model.lvs if name.startswith("volume-")} == set(volumes)
        for name in cache.names():
            tags = cache.model.lvs[name]["tags"]
            assert len([tag for tag in tags if tag.startswith("bootflow.used=")]) == 1
            assert "bootflow.incomplete" not in tags
        locks = os.path.join(lvm.LOCK_ROOT, "image-locks")
        assert not os.path.isdir(locks) or os.listdir(locks) == []
