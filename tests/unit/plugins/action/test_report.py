# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a ledger, read back as XML: what it shows is what the ledger has."""

from __future__ import annotations

import html.parser
import os
import re
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible import constants

from ansible_collections.bootflow.compute.plugins.action import ledger as ledger_action
from ansible_collections.bootflow.compute.plugins.action import report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import capacity, purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

HUGE = Flavor(name="huge", memory_mb=999 * 1024, vcpus=1, root_gb=1)
FLAVORS = [
    {"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1},
    {"name": "huge", "memory_mb": 999 * 1024, "vcpus": 1, "root_gb": 1},
    {"name": "off", "memory_mb": 1024, "vcpus": 1, "root_gb": 1, "disabled": True},
]
HOSTS = ("h1", "h2", "never")
OF_A_HOST = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "reserved_memory_mb": 0}
DAY = 86400.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "pages").mkdir()
    return str(tmp_path / "pages" / "fleet.html")


def write(
    world: World, path: str, check_mode: bool = False, disabled: t.Collection[str] = ("h2",), **options: t.Any
) -> dict[str, t.Any]:
    """:arg disabled: hosts that the inventory disables."""
    settings = {"bootflow_" + name: value for name, value in OF_A_HOST.items()}
    variables = {
        "groups": {"bootflow_compute": list(HOSTS)},
        "hostvars": {host: {**settings, "bootflow_disabled": host in disabled} for host in HOSTS},
        "bootflow_flavors": FLAVORS,
        "bootflow_report_file": path,
    }
    result = action_of(report, WorldPorts(world, "m"), variables, check_mode, **options).act()
    return t.cast("dict[str, t.Any]", result)


def parsed(path: str) -> ElementTree.Element:
    text = Path(path).read_text()
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.partition("\n")[2])


def words(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def part(path: str, anchor: str) -> ElementTree.Element:
    (section,) = [s for s in parsed(path).iter("section") if s.get("id") == anchor]
    return section


def rows(element: ElementTree.Element, caption: str) -> list[list[str]]:
    (table,) = [table for table in element.iter("table") if words(table.find("caption")) == caption]  # type: ignore[arg-type]
    return [[words(cell) for cell in row] for row in table.find("tbody").iter("tr")]  # type: ignore[union-attr]


def article(path: str, host: str) -> ElementTree.Element:
    (found,) = [a for a in part(path, "fleet").iter("article") if words(a.find("h4")).split()[0] == host]  # type: ignore[arg-type]
    return found


@pytest.fixture
def busy(world: World) -> World:
    """Two instances on h1, one that fits nowhere, h2 disabled for repair, a third host that never reported."""
    world.report("h1", memory=4, availability_zone="rack-a")
    world.accept(request("web", 2))
    world.schedule()
    world.build("h1")
    world.report("h2", memory=1, disabled=True, disabled_reason="repair")
    world.time += 60
    world.accept(request("db", flavor=HUGE), run="b")
    world.schedule(run="b", explain_failures=True)
    return world


def test_the_fleet_is_as_the_ledger_has_it(busy: World, path: str) -> None:
    result = write(busy, path)
    assert result["changed"] and result["size"] == os.path.getsize(path) and result["n_plus_1"] is False
    first = article(path, "h1")
    assert "up" in words(first.find("h4")) and "zone rack-a; 2 instances" in words(first)  # type: ignore[arg-type]
    claims = rows(first, "Claims on h1")
    assert claims == [[name, "default", "active", "1024 MiB", "1", "1 GiB"] for name in ("web-1", "web-2")]
    memory, vcpus, disk = first.findall(".//svg")
    assert memory.get("aria-label") == "Memory of h1: 2048 MiB of 4096 MiB in use, 2048 MiB free"
    assert [r.get("width") for r in memory.iter("rect")] == ["1000", "250", "250"]
    assert [words(r) for r in vcpus.iter("rect")][1:] == ["web-1: 1", "web-2: 1"]
    assert "of 8000 in use (500 × 16)" in words(first) and disk.get("role") == "img"
    assert "disabled: repair" in words(article(path, "h2"))
    assert "not asked" in words(article(path, "never")) or "down" in words(article(path, "never"))
    zones = rows(part(path, "fleet"), "In use by availability zone, of the capacity with allocation ratios")
    assert [row[:3] for row in zones] == [["none", "1", "0"], ["nova", "1", "0"], ["rack-a", "1", "2"]]


def test_n_plus_1_names_the_instances_without_another_host(busy: World, path: str) -> None:
    write(busy, path)
    (row,) = rows(part(path, "fleet"), "Hosts that cannot be lost")
    assert row[:4] == ["h1", "2", "2", "web-1, web-2"] and "No valid host" in row[4]
    busy.report("h2", memory=4)
    assert write(busy, path, disabled=())["n_plus_1"] is True
    assert "N+1 holds." in words(part(path, "fleet"))
    assert write(busy, path, n_plus_1=False)["n_plus_1"] is None
    assert "N+1 was not checked" in words(part(path, "fleet"))
    assert write(busy, path, limit=2)["n_plus_1"] is None, "there are three hosts"
    assert write(busy, path, limit=2, n_plus_1=True)["n_plus_1"] is False


def test_why_has_the_filters_that_rejected_the_hosts(busy: World, path: str) -> None:
    write(busy, path)
    why = part(path, "why")
    assert "db" in words(why) and "NoValidHost 1 instance" in words(why)
    table = rows(why, "Hosts by the filter that rejected them first")
    assert {row[0]: row[1].split()[-1] for row in table} == {"ComputeFilter": "1", "RamFilter": "1"}
    (ram,) = [row for row in table if row[0] == "RamFilter"]
    assert ram[2] == "h1" and ram[4].endswith("of memory") and "GiB" in ram[4]
    assert "Nearest miss: h1 lacks" in words(why)


def test_a_fault_without_an_explanation_has_its_message_only(busy: World, path: str) -> None:
    with busy.ledger.write() as tx:
        tx.execute(tables.notifications.delete())
    write(busy, path)
    why = part(path, "why")
    assert "No valid host was found." in words(why) and not list(why.iter("table"))


def test_the_newest_boot_and_a_run_by_its_request_id(busy: World, path: str) -> None:
    assert write(busy, path)["request_id"] == "req-b"
    assert rows(part(path, "run"), "Instances of the run") == [["db", "default", "create", "–", "0", "failed", "0.0 s"]]
    assert write(busy, path, request_id="req-a")["request_id"] == "req-a"
    run = part(path, "run")
    assert [row[:6] for row in rows(run, "Instances of the run")] == [
        [name, "default", "create", "h1", "1", "done"] for name in ("web-1", "web-2")
    ]
    lines = rows(run, "Steps on h1")
    assert [line[0] for line in lines] == ["web-1", "web-2"]
    assert all("networking" in line[1] and "spawning" in line[1] and line[2] == "done" for line in lines)
    with pytest.raises(errors.InvalidInput, match="req-c") as caught:
        write(busy, path, request_id="req-c")
    assert "bootflow_report_run" in caught.value.remedy


def test_a_build_that_went_to_another_host_is_in_both_lanes(world: World, path: str) -> None:
    world.report("h1", memory=4)
    world.report("h2", memory=4)
    uuid = world.boot("web", "networking")
    first = world.row(uuid).host
    world.time += 5
    world.fail(first, uuid, errors.RemoteError(reason="no image"), event="networking")
    world.schedule()
    second = world.row(uuid).host
    world.build(second)
    write(world, path)
    run = part(path, "run")
    ((_name, steps, result, _time),) = rows(run, "Steps on %s" % first)
    assert result == "failed, went to %s" % second and "no image" in steps
    assert rows(run, "Steps on %s" % second)[0][2] == "done"
    assert rows(run, "Instances of the run")[0][3:5] == ["%s → %s" % (first, second), "2"]


def test_flavors_that_still_fit(busy: World, path: str) -> None:
    write(busy, path)
    table = rows(part(path, "capacity"), "Instances that still fit, by flavor")
    assert [(row[0], row[2].split()[-1], row[3]) for row in table] == [
        ("small", "2", "1"),
        ("huge", "0", "0"),
        ("off", "–", "0"),
    ]
    assert "RamFilter" in table[0][4] and table[2][4]
    write(busy, path, flavor_names=["huge"])
    assert [row[0] for row in rows(part(path, "capacity"), "Instances that still fit, by flavor")] == ["huge"]
    with pytest.raises(errors.FlavorNotFound, match="tiny"):
        write(busy, path, flavor_names=["tiny"])


def record(world: World, check_mode: bool = False) -> bool:
    result = action_of(ledger_action, WorldPorts(world, "m"), {}, check_mode, state="capacity_recorded").act()
    return bool(result["changed"])


def test_a_day_has_one_row(world: World, path: str) -> None:
    assert not record(world), "no host has reported"
    world.report("h1", memory=4, ram_allocation_ratio=1.5, reserved_memory_mb=512)
    world.report("h2", memory=2)
    world.boot("web")
    assert record(world, check_mode=True) and not world.rows(tables.capacity_days)
    assert record(world) and not record(world) and not record(world, check_mode=True)
    (day,) = world.ledger.inspect(capacity.latest_days, 10)
    assert (day.day, day.hosts, day.instances) == ("2023-11-14", 2, 1)
    assert (day.memory_mb, day.memory_mb_used) == (6144 + 2048, 512 + 1024)
    assert (day.vcpus, day.vcpus_used, day.local_gb, day.local_gb_used) == (16000, 1, 8000, 1)
    world.time += DAY
    world.boot("more")
    assert record(world)
    write(world, path)
    days = rows(part(path, "capacity"), "In use and capacity by day")
    assert [row[:4] for row in days] == [
        ["2023-11-15", "2", "2", "2560 MiB of 8192 MiB (31 %)"],
        ["2023-11-14", "2", "1", "1536 MiB of 8192 MiB (19 %)"],
    ]
    write(world, path, days=1)
    assert "one day so far" in words(part(path, "capacity"))


def test_a_machine_with_two_names_counts_once(world: World) -> None:
    facts = {"host_uuid": "4c4c4544-0000-4000-8000-000000000001", "boot_id": "one"}
    world.report("h1", memory=4, node="node", **facts)
    world.boot("web")
    world.report("renamed", memory=4, node="node", **facts)
    assert {row.machine_id for row in world.rows(tables.compute_nodes)} != {None}
    assert record(world)
    (day,) = world.rows(tables.capacity_days)
    assert (day.hosts, day.memory_mb, day.memory_mb_used) == (1, 4096, 1024)


def test_old_days_are_purged(world: World) -> None:
    world.report("h1")
    for _day in range(4):
        assert record(world)
        world.time += DAY
    limit = world.time - 2 * DAY
    assert world.ledger.inspect(purge.plan, limit)["capacity_days"] == 2
    assert purge.purge(world.ledger, limit)["capacity_days"] == 2
    assert [row.day for row in world.rows(tables.capacity_days)] == ["2023-11-16", "2023-11-17"]


def test_an_empty_ledger_has_a_page(world: World, path: str) -> None:
    write(world, path)
    text = words(parsed(path))
    assert "no run that built instances" in text and "No instance is in ERROR" in text and "has no day so far" in text


ODD = "<script>alert(1)</script>&\"'\u202e\u0007 ]]> é"


def test_names_may_have_any_character(world: World, path: str) -> None:
    host = "h1<img src=x onerror=y>"
    world.report(host, memory=4, availability_zone=ODD, disabled_reason=ODD, disabled=False)
    uuid = world.boot("web", "networking")
    world.fail(host, uuid, errors.RemoteError(reason=ODD), event="networking")
    world.accept(request("db", flavor=HUGE, project=ODD), run="b")
    world.schedule(run="b", explain_failures=True)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(display_name=ODD))
    world.report("h2", disabled=True, disabled_reason=ODD)
    for run in ("req-a", "req-b"):
        write(world, path, request_id=run)
        tree = parsed(path)
        safe(path, tree)
        assert ODD.replace("\u202e", "\\u202e").replace("\u0007", "\\x07") in words(tree)


class Reader(html.parser.HTMLParser):
    """The elements as HTML's own parser sees them, which is not XML's."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs

    handle_startendtag = handle_starttag


def safe(path: str, tree: ElementTree.Element) -> None:
    """The page loads nothing, runs nothing, and is as both parsers see it."""
    text = Path(path).read_text()
    reader = Reader(text)
    assert reader.names == {element.tag for element in tree.iter()}
    assert not reader.names & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "image",
        "use",
        "foreignobject",
    }
    for name, value in reader.attributes:
        assert not name.startswith("on") and name not in ("src", "srcset", "xlink:href", "action"), name
        assert name != "href" or str(value).startswith("#")
        assert name != "style" or re.fullmatch(r"left:[\d.]+%", str(value))
    (style,) = tree.iter("style")
    assert "url(" not in style.text and "@import" not in style.text  # type: ignore[operator]


def test_the_page_is_for_everybody(busy: World, path: str) -> None:
    """Headings in order, a title in each picture, captions and scopes in each table, anchors that exist, no id twice."""
    write(busy, path)
    tree = parsed(path)
    safe(path, tree)
    levels = [int(element.tag[1]) for element in tree.iter() if re.fullmatch("h[1-6]", element.tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:]))
    assert tree.get("lang") == "en" and words(tree.find("head/title")).startswith("Fleet report")  # type: ignore[arg-type]
    for picture in tree.iter("svg"):
        assert picture.get("role") == "img" and picture.get("aria-label")
        assert words(picture.find("title")) == " ".join(str(picture.get("aria-label")).split())  # type: ignore[arg-type]
    for table in tree.iter("table"):
        assert table.find("caption") is not None and all(cell.get("scope") for cell in table.iter("th"))
    for region in tree.iter("div"):
        assert region.get("class") != "scrolls" or (region.get("tabindex") == "0" and region.get("aria-label"))
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {link.get("href") for link in tree.iter("a")} <= {"#%s" % name for name in ids}
    assert all(section.get("aria-labelledby") in ids for section in tree.iter("section"))
    style = tree.find("head/style")
    assert style is not None and "prefers-color-scheme: dark" in str(style.text) and "@media print" in str(style.text)


def test_what_is_left_out_is_said(busy: World, path: str) -> None:
    write(busy, path, limit=1, request_id="req-a")
    fleet, run = part(path, "fleet"), part(path, "run")
    assert "2 hosts of 3 hosts are left out: bootflow_report_limit is 1." in words(fleet)
    assert len(list(fleet.iter("article"))) == 1
    assert "1 instance of 2 instances are left out" in words(run)
    assert len(rows(run, "Instances of the run")) == 1
    totals = [words(tile) for tile in fleet.iter("dl")]
    assert "Hosts 3" in totals[0] and "Instances 2" in totals[0]


def test_the_same_figures_give_the_same_page(busy: World, path: str) -> None:
    assert write(busy, path, check_mode=True)["changed"] and not os.path.exists(path)
    first = write(busy, path)
    assert first["changed"] and first["diff"]["before"] == "" and "web-1" in first["diff"]["after"]
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert not write(busy, path)["changed"]
    busy.time += 1
    assert write(busy, path, check_mode=True)["changed"] and write(busy, path)["changed"]
    assert os.listdir(os.path.dirname(path)) == ["fleet.html"]


def test_a_large_page_has_no_diff(busy: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MAX_FILE_SIZE_FOR_DIFF", 100)
    assert write(busy, path)["diff"] == {"src_larger": 100}


@pytest.mark.parametrize("name", ["fleet.txt", ".html", "no-folder/fleet.html"])
def test_a_wrong_file_is_refused_before_anything_is_read(world: World, path: str, name: str) -> None:
    with pytest.raises(errors.InvalidInput, match="bootflow_report_file") as caught:
        write(world, str(Path(path).parent / name))
    assert caught.value.remedy and not list(Path(path).parent.iterdir())


def test_nothing_is_written_to_the_ledger(busy: World, path: str) -> None:
    before = busy.everything()
    write(busy, path)
    assert busy.everything() == before
