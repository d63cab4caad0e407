# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports ask libvirt nothing that waits for a guest's disks: while a cluster of Ceph is away such a question never ends, and stops the guest's processors."""

from __future__ import annotations

import re
from pathlib import Path

HOSTS = Path(__file__).resolve().parents[6] / "plugins" / "module_utils" / "hosts"
#: Questions of libvirt that QEMU answers when its disks do -> the files that ask them, none of which reports: of files, and of disks that are worked on.
WAITING = {
    "blockInfo": {
        "adopt/foreign_domains.py",
        "backups/take.py",
        "facts/facts.py",
        "libvirt/domain_disks.py",
        "live/guests.py",
        "snapshots/disk_swaps.py",
        "snapshots/live_copy.py",
    },
    "domainListGetStats": set(),
    "blockStatsFlags": set(),
}


def test_questions_that_wait_for_disks_are_in_no_report() -> None:
    for question, expected in WAITING.items():
        asking = {str(p.relative_to(HOSTS)) for p in HOSTS.rglob("*.py") if ".%s(" % question in p.read_text()}
        assert asking == expected, question


def test_statistics_of_guests_are_their_states_only() -> None:
    calls = [
        call for path in HOSTS.rglob("*.py") for call in re.findall(r"getAllDomainStats\(([^)]*)\)", path.read_text())
    ]
    assert calls and set(calls) == {"libvirt.VIR_DOMAIN_STATS_STATE"}


def test_reports_ask_for_the_size_of_files_only() -> None:
    text = (HOSTS / "facts" / "facts.py").read_text()
    before = text[: text.index(".blockInfo(")]
    assert (
        before.rstrip().splitlines()[-4].strip().startswith("for source in xml.iterfind(\"devices/disk[@type='file']")
    )
