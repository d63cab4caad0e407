# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook whatif with a ledger and hosts that only reported: no libvirt, no connection, and nothing is ever written."""

from __future__ import annotations

import json
import sqlite3
import time
import typing as t
from pathlib import Path

import pytest
from flow import run_plainly
from postgres import PASSWORD, PostgresServer

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context

HOSTS = ("kvm1", "kvm2", "kvm3")
SETTINGS = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}
SMALL = {"name": "m1.small", "vcpus": 1, "memory_mb": 2048, "root_gb": 20}
LARGE = {"name": "m1.large", "vcpus": 4, "memory_mb": 8192, "root_gb": 40}
IMAGE = {"name": "debian", "url": "file:///none", "disk_format": "qcow2", "allow_unverified": True, "min_disk": 10}
IMAGE_ID = "0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b11"
INVENTORY = """
all:
  children:
    bootflow_compute:
      hosts:
        kvm1: {ansible_host: 192.0.2.1}
        kvm2: {ansible_host: 192.0.2.2, bootflow_availability_zone: rack-b}
        kvm3: {ansible_host: 192.0.2.3}
      vars: {bootflow_reserved_memory_mb: 0, bootflow_ram_allocation_ratio: 1.0}
"""


def _context(**settings: t.Any) -> Context:
    run = this_run.RunIdentity("run-1", "c", "b", "", 1, 1, "ann")
    return Context(run=run, request_id="req-1", **settings)


class Site:
    """An inventory whose hosts nobody can reach, and a ledger to which the test reports for them."""

    def __init__(self, folder: Path, ledger: dict[str, t.Any]):
        self.folder = folder
        self.variables: dict[str, t.Any] = {
            "flavors": [SMALL, LARGE],
            "images": [IMAGE],
            "server_groups": [{"name": "apart", "policy": "anti-affinity"}],
            **ledger,
        }
        (folder / "hosts.yml").write_text(INVENTORY)

    def ledger(self, **how: t.Any) -> database.Ledger:
        url = self.variables["ledger_url"]
        password = self.variables.get("ledger_password")
        return database.open_ledger(LedgerAddress(url=url, password=password), **how)

    def make_ledger(self) -> None:
        ledger = self.ledger(create=True, check_revision=False)
        ledger.migrate()
        ledger.close()

    def report(self, host: str, memory_mb: int, age: float = 10.0) -> None:
        facts = {"hypervisor_hostname": host, "memory_mb": memory_mb, "local_gb": 400, "vcpus": 8}
        ledger = self.ledger()
        ledger.for_run(_context(clock=lambda: time.time() - age)).transact(nodes.record_report, host, facts, SETTINGS)
        ledger.close()

    def place(self, name: str, count: int = 1, flavor: dict[str, t.Any] | None = None) -> None:
        """Instances of a boot that has got as far as their claims."""
        context = _context()
        image = Image(name="debian", id=IMAGE_ID, disk_format="qcow2", url="file:///none")
        asked = ServerRequest(
            name=name, flavor=Flavor(**(flavor or SMALL)), image=image, min_count=count, max_count=count
        )
        ledger = self.ledger()
        ledger.for_run(context).transact(accept.accept, [asked], accept.AcceptOptions())
        options = SchedulerOptions(now=time.time())
        ledger.for_run(context).transact(
            schedule.schedule, lambda tx, needs: fleet.read(tx, HOSTS, needs=needs), options
        )
        ledger.close()

    def run(self, *options: str, **variables: t.Any) -> tuple[int, str]:
        path = self.folder / "variables.json"
        path.write_text(json.dumps({"bootflow_" + k: v for k, v in {**self.variables, **variables}.items()}))
        arguments = ["bootflow.compute.whatif", "-i", "hosts.yml", "-e", "@%s" % path, *options]
        return run_plainly(self.folder, *arguments, timeout=300)

    def ask(self, *options: str, **variables: t.Any) -> tuple[str, dict[str, t.Any]]:
        """What is printed, and what is returned."""
        code, output = self.run("-v", *options, **variables)
        assert code == 0, output
        assert "changed=0" in output
        text, _arrow, data = output.partition("ok: [localhost] => ")
        return text, json.loads(data[: data.index("\n\nPLAY RECAP")])

    def refused(self, *words: str, **variables: t.Any) -> str:
        code, output = self.run(**variables)
        assert code == 2, output
        flat = " ".join(output.split())
        for word in words:
            assert word in flat, "%r is not in:\n%s" % (word, output)
        assert "Traceback" not in output
        return output


@pytest.fixture(params=["sqlite"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> t.Iterator[Site]:
    """kvm1 and kvm2 are up, kvm3 is silent for an hour; one m1.small is on kvm1."""
    server = None
    try:
        ledger: dict[str, t.Any] = {"ledger_url": "sqlite:///%s/ledger.db" % tmp_path}
        if request.param == "postgresql":
            server = PostgresServer()
            server.start()
            name = server.create()
            with server.connect() as conn:
                conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
            ledger = {"ledger_url": server.url(name, "checked"), "ledger_password": PASSWORD}
        site = Site(tmp_path, ledger)
        site.make_ledger()
        site.report("kvm1", 12288)
        site.report("kvm2", 5120)
        site.report("kvm3", 65536, age=3600)
        site.place("web")
        yield site
    finally:
        if server is not None:
            server.stop()


def counts(places: list[dict[str, t.Any]]) -> dict[str, int]:
    return {p["host"]: p["count"] for p in places}


@pytest.mark.parametrize("site", ["sqlite", "postgresql"], indirect=True)
def test_a_flavor_in_the_table_and_as_data(site: Site) -> None:
    text, data = site.ask(whatif_flavor="m1.small")
    (answer,) = data["answers"]
    assert (answer["total"], counts(answer["by_host"])) == (7, {"kvm1": 5, "kvm2": 2})
    assert (answer["count"], answer["fits"], answer["left"], counts(answer["placed"])) == (1, True, 6, {"kvm2": 1})
    filters = {f["name"]: f["start"] - f["end"] for f in answer["stopped_by"]["filters"]}
    assert filters["ComputeFilter"] == 1 and filters["RamFilter"] == 2
    turned_down = {h["host"]: h["filter"] for h in answer["stopped_by"]["turned_down"]}
    assert turned_down == {"kvm1": "RamFilter", "kvm2": "RamFilter", "kvm3": "ComputeFilter"}
    miss = answer["stopped_by"]["nearest_miss"]
    assert miss["host"] == "kvm2" and miss["smallest_change"]["changes"][0]["fits_at"] == 1024
    assert [d["host"] for d in data["hosts_down"]] == ["kvm3"] and data["oldest_facts"] >= 3600
    for words in (
        "whatif (m1.small): 7 more fit",
        "kvm2  2    1",
        "0 of 3 hosts passed; rejected by ComputeFilter 1, RamFilter 2",
        "nearest miss: kvm2 lacks 1024 MiB",
        "smallest change: 1024 MiB of memory instead of 2048",
        "kvm3 counts as down: last report 36",
        "bootflow.compute.heartbeat",
    ):
        assert words in text
    quiet, again = site.ask("--check", whatif_flavor="m1.small", print_table=False)
    assert "more fit" not in quiet
    for name in ("total", "left", "by_host", "placed"):
        assert again["answers"][0][name] == answer[name]


def test_as_in_an_entry(site: Site) -> None:
    def total(**variables: t.Any) -> int:
        return int(site.ask(whatif_flavor="m1.small", **variables)[1]["answers"][0]["total"])

    assert total(whatif_image="debian") == 7
    assert total(whatif_availability_zone="rack-b") == 2
    assert total(whatif_availability_zone="nova:kvm2", allow_forced_host=True) == 2
    assert total(whatif_server_group="apart") == 2
    assert total(whatif_scheduler_hints={"group": "apart"}) == 2
    assert total(whatif_limit=3) == 3
    assert total(service_down_time=7200) == 7 + 20  # its disk ends it
    filters = ["ComputeFilter", "RamFilter", "DifferentHostFilter"]
    assert total(whatif_scheduler_hints={"different_host": ["web"]}, enabled_filters=filters) == 2
    one = {"whatif_server_group": "apart", "whatif_count": 3}
    assert site.ask(whatif_flavor="m1.small", **one)[1]["fits"] is False


def test_entries_of_a_boot(site: Site) -> None:
    def entry(name: str, flavor: str = "m1.small", **fields: t.Any) -> dict[str, t.Any]:
        return {"name": name, "flavor": flavor, "image": "debian", "networks": "none", **fields}

    text, data = site.ask(instances=[entry("a", count=3), entry("big", "m1.large"), entry("web")])
    assert [(a["name"], a["count"], a["there"], a["fits"]) for a in data["answers"]] == [
        ("a", 3, 0, True),
        ("big", 1, 0, False),
        ("web", 0, 1, True),
    ]
    assert data["fits"] is False and "big (m1.large): 0 more fit" in text


def test_what_could_be_lost(site: Site) -> None:
    text, data = site.ask(whatif_n_plus_1=True)
    assert [(h["host"], h["fits"]) for h in data["lost"]] == [("kvm1", True), ("kvm2", True), ("kvm3", True)]
    assert [(m["name"], m["host"]) for m in data["lost"][0]["moved"]] == [("web", "kvm2")]
    assert data["answers"] == [] and "ROOM ELSEWHERE" in text
    site.place("big", flavor=LARGE)
    text, data = site.ask(whatif_lose="kvm1")
    (host,) = data["lost"]
    assert [s["name"] for s in host["stuck"]] == ["big"] and [m["name"] for m in host["moved"]] == ["web"]
    assert "no, 1 stuck" in text and "rejected by ComputeFilter 1, RamFilter 1" in text and not data["fits"]
    assert {h["host"] for h in site.ask(whatif_lose=["kvm2", "kvm3"])[1]["lost"]} == {"kvm2", "kvm3"}
    assert len(site.ask(whatif_lose="all")[1]["lost"]) == 3
    both = site.ask(whatif_flavor="m1.small", whatif_n_plus_1=True)[1]
    assert both["answers"] and both["lost"]


def test_it_fails_where_it_is_asked_to(site: Site) -> None:
    assert site.ask(whatif_flavor="m1.small", whatif_count=7, whatif_fail=True)[1]["fits"]
    output = site.refused(
        "NoValidHost", "8 of flavor m1.small", whatif_flavor="m1.small", whatif_count=8, whatif_fail=True
    )
    assert "7 more fit" in output
    site.place("big", flavor=LARGE)
    site.refused("kvm1: 1 of its 2 instances would find no host", whatif_n_plus_1=True, whatif_fail=True)


def test_wrong_questions(site: Site) -> None:
    site.refused("no question is asked", "Remedy: Set bootflow_whatif_flavor")
    site.refused(
        "The request has 2 errors",
        "bootflow_whatif_flavor: FlavorNotFound: Flavor nix",
        "bootflow_whatif_image: ImageNotFound: Image none",
        whatif_flavor="nix",
        whatif_image="none",
    )
    site.refused("bootflow_whatif_count", whatif_flavor="m1.small", whatif_count=0)
    site.refused("bootflow_whatif_count", whatif_flavor="m1.small", whatif_count="many")
    site.refused("bootflow_whatif_availability_zone: ", whatif_flavor="m1.small", whatif_availability_zone="z:kvm1")
    site.refused("bootflow_whatif_server_group: ", whatif_flavor="m1.small", whatif_server_group="nix")
    site.refused("bootflow_whatif_scheduler_hints", whatif_flavor="m1.small", whatif_scheduler_hints={"nix": 1})
    site.refused(
        "bootflow_whatif_scheduler_hints: InstanceNotFound",
        whatif_flavor="m1.small",
        whatif_scheduler_hints={"same_host": "nobody"},
        enabled_filters=["SameHostFilter"],
    )
    site.refused("bootflow_whatif_limit must be at least", whatif_flavor="m1.small", whatif_limit=2, whatif_count=3)
    site.refused("bootflow_whatif_limit", whatif_flavor="m1.small", whatif_limit=-1)
    site.refused("without bootflow_whatif_flavor", whatif_image="debian")
    site.refused("ComputeHostNotFound", "kvm9", whatif_lose=["kvm1", "kvm9"])
    site.refused("instances[0].flavor: FlavorNotFound", instances=[{"name": "a", "flavor": "x", "image": "debian"}])
    site.refused("InvalidInput", "NoFilter", whatif_flavor="m1.small", enabled_filters=["NoFilter"])
    site.refused("InvalidInput", "NoFilter", whatif_n_plus_1=True, enabled_filters=["NoFilter"])
    site.refused("no enabled filter ends", whatif_flavor="m1.small", enabled_filters=["ComputeFilter"])
    site.refused("bootflow_flavors must be a list", whatif_flavor="m1.small", flavors="m1.small")
    site.refused("bootflow_ram_allocation_ratio", whatif_flavor="m1.small", ram_allocation_ratio=-1)


def test_without_a_ledger(tmp_path: Path) -> None:
    site = Site(tmp_path, {"ledger_url": str(tmp_path / "none" / "ledger.db")})
    site.refused("LedgerMissing: There is no ledger yet", "Remedy: ", whatif_flavor="m1.small")
    assert not (tmp_path / "none").exists()


def test_not_a_byte_is_written(tmp_path: Path) -> None:
    site = Site(tmp_path, {"ledger_url": str(tmp_path / "ledger.db")})
    site.make_ledger()
    site.report("kvm1", 8192)
    site.place("web")

    def dump() -> list[str]:
        connection = sqlite3.connect(tmp_path / "ledger.db")
        lines = list(connection.iterdump())
        connection.close()
        return lines

    before = dump()
    site.ask(whatif_flavor="m1.small", whatif_count=2, whatif_n_plus_1=True)
    site.ask("--check", whatif_flavor="m1.small")
    assert dump() == before
