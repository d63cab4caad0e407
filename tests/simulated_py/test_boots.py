# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boots: spread over hosts, rescheduled, refused, repeated and planned."""

from __future__ import annotations

import json
import typing as t

import pytest
from printed import changed
from simulated_site import HOSTS, IMAGE, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


def rescheduled_from(site: Site, name: str) -> list[str]:
    """The hosts that a build was rescheduled from, in order."""
    query = (
        "SELECT f.host FROM instance_faults f JOIN instances i ON i.uuid = f.instance_uuid"
        " WHERE display_name = ? AND f.details = 'rescheduled' ORDER BY f.id"
    )
    return [row["host"] for row in site.query(query, name)]


@pytest.mark.always
def test_a_boot_spreads_over_the_hosts_and_is_deleted_without_a_trace(site: Site) -> None:
    site.boots(entry("web", count=3))
    places = site.places()
    assert sorted(host for _state, host in places.values()) == list(HOSTS)
    assert {state for state, _host in places.values()} == {"active"}
    for row in site.instances().values():
        host = site.hosts[row["host"]]
        assert list(host.domains) == list(host.folders) == [row["uuid"]]
        (address,) = host.reservations.values()
        assert site.query("SELECT 1 FROM ip_allocations WHERE ip_address = ?", address)
    site.play("delete", names=["web-1", "web-2", "web-3"])
    assert site.residue() == {}


def test_a_boot_again_asks_no_host_and_changes_nothing(site: Site) -> None:
    site.boots(entry("web", count=2))
    asked, rows = site.asked(), site.instances()
    assert changed(site.boots(entry("web", count=2))) == 0
    assert site.asked() == asked and site.instances() == rows


def test_a_plan_explains_and_touches_nothing(site: Site) -> None:
    site.hosts["kvm1"].has_facts(memory_mb=1024)
    output = site.boots(entry("web", count=2), options=("--check", "--diff"))
    assert "web-1" in output and "RamFilter" in output and "kvm1" in output
    assert not site.ledger_path.exists() and site.left_on_hosts() == {}
    assert {module for asked in site.asked().values() for module in asked} == {"compute_node_info"}
    site.boots(entry("web", count=2))
    before, asked = site.dump(), site.asked()
    site.boots(entry("web", count=2), entry("db"), options=("--check",))
    assert site.dump() == before
    assert {m for h, those in site.asked().items() for m in those[len(asked[h]) :]} <= {"compute_node_info"}


@pytest.mark.always
def test_a_build_that_fails_goes_to_the_next_host(site: Site) -> None:
    site.hosts["kvm1"].has_facts(memory_mb=65536)  # the one with the most memory is the first
    site.hosts["kvm1"].items_fail("domain", errors.LibvirtError(reason="no KVM today"))
    site.boots(entry("web"))
    state, host = site.places()["web"]
    assert state == "active" and host in ("kvm2", "kvm3")
    shown = " ".join(site.play("show", names=["web"]).split())
    assert "event: spawning host: kvm1" in shown and "result: Error details: 'libvirt: no KVM today'" in shown
    assert rescheduled_from(site, "web") == ["kvm1"]
    assert site.hosts["kvm1"].asked().count("instance_build") == 1 and "instance_cleanup" in site.hosts["kvm1"].asked()
    assert {host} == {name for name, each in site.hosts.items() if each.domains or each.folders}


def test_an_error_that_another_host_would_have_too_ends_a_build_at_once(site: Site) -> None:
    for host in site.hosts.values():
        host.items_fail("instance_disks", errors.ImageUnacceptable(image_id="debian", reason="it has a backing file"))
    output = site.boots(entry("web"), expect=2)
    assert "ImageUnacceptable" in output and "it has a backing file" in output
    assert [asked.count("instance_build") for asked in site.asked().values() if "instance_build" in asked] == [1]
    assert site.places() == {"web": ("error", None)}
    site.play("delete", names=["web"])
    assert site.residue() == {}


def test_after_three_hosts_an_instance_has_had_its_attempts(site: Site) -> None:
    for name, host in site.hosts.items():
        host.items_fail("domain", errors.LibvirtError(reason="%s is tired" % name))
    output = site.boots(entry("web"), expect=2)
    assert "MaxRetriesExceeded: Exceeded maximum number of retries. Exceeded max scheduling attempts 3" in output
    for name in HOSTS:
        assert "on %s: LibvirtError: libvirt: %s is tired" % (name, name) in output, output
    assert sorted(rescheduled_from(site, "web")) == list(HOSTS)
    assert [asked.count("instance_build") for asked in site.asked().values()] == [1, 1, 1]
    assert site.left_on_hosts() == {} and site.places()["web"] == ("error", None)
    for host in site.hosts.values():
        host.heal()
    site.boots(entry("web"))
    assert site.places()["web"][0] == "active"


def test_a_host_that_is_silent_from_the_start_gets_nothing(site: Site) -> None:
    site.hosts["kvm2"].is_silent()
    output = site.boots(entry("web", count=2))
    assert "kvm2 did not report and is left out" in output
    assert {host for _state, host in site.places().values()} == {"kvm1", "kvm3"}


def test_a_host_that_falls_silent_while_it_builds_is_cleaned_when_it_is_back(site: Site) -> None:
    site.hosts["kvm1"].has_facts(memory_mb=65536)
    site.hosts["kvm1"].is_silent("instance_build")
    site.hosts["kvm1"].is_silent("instance_cleanup")
    site.boots(entry("web"))
    assert rescheduled_from(site, "web") == ["kvm1"] and site.places()["web"][0] == "active"
    assert [row["host"] for row in site.query("SELECT host FROM cleanups")] == ["kvm1"]
    site.play("heartbeat")
    assert site.query("SELECT 1 FROM cleanups"), "it still does not answer"
    site.hosts["kvm1"].heal()
    site.play("heartbeat")
    assert site.query("SELECT 1 FROM cleanups") == []
    site.play("delete", names=["web"])
    assert site.residue() == {}


def test_a_host_that_answers_nonsense_did_not_answer(site: Site) -> None:
    site.hosts["kvm1"].has_facts(memory_mb=65536)
    site.hosts["kvm1"].says("instance_build", '{"changed": true, "parts": {"networks": 7}}')
    site.hosts["kvm2"].says("compute_node_info", '{"changed": false, "compute_node": {"memory_mb": "much"}}')
    output = site.boots(entry("web"))
    assert "kvm2 did not report and is left out: " in output and site.places()["web"] == ("active", "kvm3")
    (fault,) = site.query("SELECT host, error_code FROM instance_faults")
    assert tuple(fault) == ("kvm1", "InvalidAnswer")


def test_no_host_is_left(site: Site) -> None:
    entries = (entry("huge", flavor="huge"), entry("small"))
    output = " ".join(site.boots(*entries, expect=2).split())
    for words in (
        "BootFailed: 1 of 2 instances are not ACTIVE.",
        "NoValidHost: No valid host was found. ",
        "Of 3 hosts: RamFilter rejected 3 hosts, the nearest is kvm",
        "(memory: needs 8789.1 GiB, ",
        "Nearest miss: kvm",
        " MiB of memory instead of 9000000 would have fitted on ",
    ):
        assert words in output, output
    found = site.instances()
    assert (found["huge"]["vm_state"], found["huge"]["task_state"], found["huge"]["host"]) == ("error", None, None)
    assert found["small"]["vm_state"] == "active"
    assert site.query("SELECT count(*) AS n FROM claims")[0]["n"] == 1
    plan = site.boots(*entries, options=("--check",), expect=2)
    assert "RamFilter" in plan and "9000000" in plan
    site.play("delete", names=["huge", "small"])
    assert site.residue() == {}


@pytest.mark.parametrize("after", [False, True], ids=["before its host did it", "after its host did it"])
def test_a_killed_run_is_continued_by_the_next(site: Site, after: bool) -> None:
    site.hosts["kvm1"].is_slow("instance_build", 60.0, times=1, after=after)
    only = {"hosts": ["kvm1"]}
    process = site.begin("boot", instances=[entry("web")], **only)
    try:
        site.wait_for_module("kvm1", "instance_build", process)
        site.wait_until(lambda: not after or bool(site.hosts["kvm1"].domains))
    finally:
        site.kill(process)
    (row,) = site.instances().values()
    assert row["vm_state"] == "building" and row["host"] == "kvm1"
    site.boots(entry("web"), **only)
    (again,) = site.instances().values()
    assert (again["uuid"], again["vm_state"], again["host"]) == (row["uuid"], "active", "kvm1")
    assert list(site.hosts["kvm1"].domains) == [row["uuid"]]
    assert site.query("SELECT count(*) AS n FROM claims")[0]["n"] == 1
    site.play("delete", names=["web"])
    assert site.residue() == {}


LARGE = {**IMAGE, "checksum": "sha256:" + "0" * 64}


def test_a_large_image_comes_to_the_hosts_of_a_boot_from_host_to_host(site: Site) -> None:
    site.boots(entry("web", count=3), images=[LARGE])
    assert {state for state, _host in site.places().values()} == {"active"}
    asked = {
        name: [m for m in modules if m in ("image_relay", "instance_build")] for name, modules in site.asked().items()
    }
    assert asked == dict.fromkeys(HOSTS, ["image_relay"] * 3 + ["instance_build"])
    tasks = [next(iter(host.images.values()))["tasks"] for host in site.hosts.values()]
    assert sorted(len(t["before"]) for t in tasks) == [0, 1, 2] and all(t["may_fetch"] and not t["root"] for t in tasks)
    # The hosts have it now: they are asked once more, and nothing else.
    output = site.boots(entry("db", count=3), images=[LARGE])
    assert "from other hosts" not in output
    again = [[m for m in modules if m == "image_relay"] for modules in site.asked().values()]
    assert again == [["image_relay"] * 4] * 3


def test_hosts_that_refuse_a_large_image_from_others_get_it_by_themselves(site: Site) -> None:
    for host in site.hosts.values():
        host.items_fail("image_relay", errors.DiskFull(host="h", path="/", reason="image debian needs 1 MiB"))
    output = site.boots(entry("web", count=3), images=[LARGE])
    assert "needs 1 MiB" in output and {state for state, _host in site.places().values()} == {"active"}
    site.boots(entry("db", count=3), images=[LARGE], image_relay=False)
    assert {modules.count("image_relay") for modules in site.asked().values()} == {1}


def test_a_host_that_is_silent_takes_no_part_in_giving_a_large_image(site: Site) -> None:
    site.hosts["kvm2"].is_silent("image_relay", times=1)
    output = site.boots(entry("web", count=3), images=[LARGE])
    assert "kvm2: images do not come from other hosts" in output
    assert {state for state, _host in site.places().values()} == {"active"}
    names = [next(iter(site.hosts[name].images.values()))["tasks"]["before"] for name in ("kvm1", "kvm3")]
    assert "kvm2" not in str(names)


@pytest.mark.parametrize(
    "offer",
    [{}, {"state": "lacks", "bytes": 0, "port": 49216}, {"state": "lacks", "bytes": 0, "port": 0, "fingerprint": ""}],
)
def test_a_host_whose_offer_of_a_large_image_cannot_be_read_takes_no_part(site: Site, offer: dict[str, t.Any]) -> None:
    site.boots(entry("db", count=3), images=[LARGE])
    (image_id,) = site.hosts["kvm2"].images
    for host in site.hosts.values():
        with host.state() as state:
            state["model"]["images"].clear()
    outcomes = {image_id: offer, "another": {"state": "lacks"}}
    site.hosts["kvm2"].says("image_relay", json.dumps({"changed": True, "outcomes": outcomes}), times=1)
    output = site.boots(entry("web", count=3), images=[LARGE])
    assert "kvm2: images do not come from other hosts: The answer of host kvm2 to image_relay is invalid" in output
    assert {state for state, _host in site.places().values()} == {"active"}
    names = [site.hosts[name].images[image_id]["tasks"]["before"] for name in ("kvm1", "kvm3")]
    assert "kvm2" not in str(names) and sorted(map(len, names)) == [0, 1]


def test_a_host_that_tells_nothing_of_a_large_image_builds_nevertheless(site: Site) -> None:
    site.hosts["kvm2"].says("image_relay", json.dumps({"changed": False, "outcomes": {}}))
    output = site.boots(entry("web", count=3), images=[LARGE])
    assert "kvm2: image debian: the module gave no answer for" in output
    assert {state for state, _host in site.places().values()} == {"active"}
