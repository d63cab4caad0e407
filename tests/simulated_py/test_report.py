# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook report after whole boots and heartbeats: its page has what they left in the ledger."""

from __future__ import annotations

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
