# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook report after whole boots and heartbeats: its page has what they left in the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from printed import changed
from simulated_site import HOSTS, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


def test_a_page_after_a_boot_that_was_tried_again_and_one_that_fits_nowhere(site: Site) -> None:
    first, others = HOSTS[0], HOSTS[1:]
    site.hosts[first].items_fail("domain", errors.RemoteError(reason="the disk broke"), times=1)
    for host in others:
        site.hosts[host].has_facts(memory_mb=16384)
    site.hosts[first].has_facts(memory_mb=65536)
    site.boots(entry("web"))
    site.boot(entry("big", flavor="huge"), expect=2)
    assert site.query("SELECT * FROM capacity_days") == []
    site.play("heartbeat")
    site.play("heartbeat")
    (day,) = site.query("SELECT * FROM capacity_days")
    assert (day["hosts"], day["instances"], day["vcpus_used"]) == (len(HOSTS), 1, 1)
    page = site.folder / "fleet.html"
    variables = {"report_file": str(page), "report_flavors": ["small"]}
    output = site.play("report", "--check", "--diff", **variables)
    assert changed(output) == 1 and not page.exists() and "Fleet report" in output
    assert changed(site.play("report", **variables)) == 1
    tree = ElementTree.fromstring(page.read_text().partition("\n")[2])
    text = " ".join(" ".join(tree.itertext()).split())
    assert "NoValidHost" in text and "RamFilter" in text and "big" in text and "How many more fit" in text
    assert {" ".join(h.itertext()).split()[0] for h in tree.iter("h4")} == set(HOSTS)
    (place,) = (host for _state, host in site.places().values() if host is not None)
    claims = [table for table in tree.iter("table") if "Claims on %s" % place in "".join(table.itertext())]
    assert len(claims) == 1 and "web" in "".join(claims[0].itertext())
    (run,) = site.query("SELECT DISTINCT request_id FROM instance_actions ORDER BY id LIMIT 1")
    site.play("report", **variables, report_run=run["request_id"])
    text = page.read_text()
    assert "went to %s" % place in text and "the disk broke" in text
    output = site.play("report", **variables, report_run="req-none", expect=2)
    assert "no action in the ledger has the request id req-none" in " ".join(output.split())


def shown(page: Path) -> tuple[str, list[str]]:
    """The part of a page on a plan: its text, and the labels of its bars."""
    tree = ElementTree.fromstring(page.read_text().partition("\n")[2])
    (part,) = [section for section in tree.iter("section") if section.get("id") == "plan"]
    return " ".join(" ".join(part.itertext()).split()), [str(svg.get("aria-label")) for svg in part.iter("svg")]


def test_the_hosts_of_a_plan_are_shown_before_and_after(site: Site) -> None:
    site.play("heartbeat")
    file, page = site.folder / "plan.json", site.folder / "plan.html"
    variables = {"report_file": str(page), "report_plan": str(file)}
    site.boots(entry("web", count=2), options=("--check",), plan_out=str(file))
    plan = json.loads(file.read_text())
    used = {host: sum(i["claims"]["vcpus"] for i in plan["instances"] if i["host"] == host) for host in HOSTS}

    def check_bars(labels: list[str]) -> None:
        for host in {i["host"] for i in plan["instances"]}:
            before, after = [
                label.split(": ")[1].split()[0] for label in labels if label.startswith("vCPUs of %s " % host)
            ]
            assert (int(before), int(after)) == (0, used[host])

    site.play("report", **variables)
    text, labels = shown(page)
    assert "It holds these places until" in text and plan["id"] in text and "2 instances on" in text
    assert all(i["ports"][0]["addresses"][0] in text for i in plan["instances"])
    check_bars(labels)
    site.boots(entry("web", count=2), plan=str(file))
    site.play("report", **variables)
    text, labels = shown(page)
    assert "It was used at" in text
    check_bars(labels)
    before = page.read_text()
    file.write_text(file.read_text().replace("web-1", "web-9"))
    assert "PlanAltered" in site.play("report", **variables, expect=2)
    assert page.read_text() == before


def test_a_plan_that_was_discarded_is_shown_as_it_would_have_been(site: Site) -> None:
    site.play("heartbeat")
    file, page = site.folder / "plan.json", site.folder / "plan.html"
    site.boots(entry("web"), options=("--check",), plan_out=str(file))
    (planned,) = json.loads(file.read_text())["instances"]
    site.play("plans", plan_discard=[json.loads(file.read_text())["id"]])
    site.play("report", report_file=str(page), report_plan=str(file))
    text, labels = shown(page)
    assert "It was discarded at" in text
    assert [
        label.split(": ")[1].split()[0] for label in labels if label.startswith("vCPUs of %s " % planned["host"])
    ] == ["0", "1"]
    site.play("report", report_file=str(page))
    assert 'id="plan"' not in page.read_text()
