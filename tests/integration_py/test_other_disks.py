# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests with snapshots of other programs: what they wrote last goes with them, or they stay where it is."""

from __future__ import annotations

import pytest
from flow import Flow, entry
from test_moves import COUNTING, MORE, READY, running, wait_boots
from test_operations import operate


def virsh(flow: Flow, *arguments: str) -> str:
    row = flow.instances()["web"]
    command, *more = arguments
    argv = ("virsh", "-q", "-c", "qemu:///system", command, row["uuid"], *more)
    return flow.lab.host(row["host"]).run(*argv).stdout


@pytest.mark.long
def test_an_overlay_goes_on_and_is_not_left_behind(flow: Flow) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = flow.instances()["web"]["host"]
    virsh(flow, "snapshot-create-as", "backup", "--disk-only", "--atomic", "--no-metadata")
    assert "disk.backup" in virsh(flow, "domblklist")
    for count in (2, 3):  # each boot is counted on the overlay
        operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
        wait_boots(flow, "web", count)
    assert "disk.backup" in virsh(flow, "domblklist") and "disk.backup" in virsh(flow, "domblklist", "--inactive")
    said = flow.run("audit").output
    assert "other_disks" in said and "--active --shallow" in said, said
    for operation, variables in (
        ("migrate", {}),
        ("live_migrate", {}),
        ("resize", {"bootflow_resize_flavor": "grown", **MORE}),
        ("rescue", {}),
    ):
        said = operate(flow, operation, "web", expect=2, **variables)
        assert "disk.backup, which is not the instance's" in said and "--active --shallow" in said, said
        assert "bootflow.compute.migrate." not in said and running(flow, "web") == [source], said
    wait_boots(flow, "web", 3)

    virsh(flow, "blockcommit", "vda", "--active", "--shallow", "--pivot", "--wait")
    operate(flow, "stop", "web")
    virsh(flow, "snapshot-create-as", "internal")
    said = operate(flow, "migrate", "web", expect=2)
    assert "GuestHasSnapshots" in said, said
    virsh(flow, "snapshot-delete", "internal")
    operate(flow, "migrate", "web")
    operate(flow, "confirm_resize", "web")
    operate(flow, "start", "web")
    wait_boots(flow, "web", 4)
    assert flow.instances()["web"]["host"] != source
    flow.delete("web")
    assert flow.residue() == {}
