# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ephemeral disks and swap of instances that get another flavor, as their guests see them: grown, made, gone, and as before after a revert."""

from __future__ import annotations

import typing as t

import pytest
from flow import FLAVORS, Flow, entry
from test_moves import COUNTING, READY, wait_boots
from test_operations import guest, operate
from test_resize_here import alone, folders

GIB, MIB = 1024**3, 1024**2
WIDE = {"name": "wide", "vcpus": 1, "memory_mb": 192, "root_gb": 1, "ephemeral_gb": 1, "swap": 64}
WIDER = {**WIDE, "name": "wider", "ephemeral_gb": 2, "swap": 32}
BARE = {**WIDER, "name": "bare", "root_gb": 2, "swap": 0}
LESS = {**WIDE, "name": "less", "root_gb": 2, "ephemeral_gb": 0}
MORE = {"bootflow_flavors": [*FLAVORS, WIDE, WIDER, BARE, LESS]}
# The boots are counted on the ephemeral disk, beyond the metadata of its file system; a label shows what is in the third disk.
ON_EPHEMERAL = COUNTING.replace("/dev/vda", "/dev/vdb") + (
    """dd if=/dev/vdc bs=4096 count=1 2>/dev/null | tail -c 10 | tr -dc A-Z0-9 | sed 's/^/THIRD=/'; echo\n"""
)


def sees(said: str, **sizes: int) -> bool:
    """Whether the guest has exactly these disks since its last boot: their sizes in bytes, by their names."""
    said = said[said.rindex("name=vda ") :]
    found = {name for name in ("vda", "vdb", "vdc", "vdd") if "name=%s " % name in said}
    return found == set(sizes) and all("name=%s bytes=%d" % (n, s) in said for n, s in sizes.items())


@pytest.mark.long
@pytest.mark.parametrize("here", [False, True])
def test_ephemeral_disk_and_swap(flow: Flow, here: bool) -> None:
    flow.boot(entry("web", user_data=ON_EPHEMERAL, flavor="wide"), **READY, **MORE)
    source = alone(flow, "web") if here else str(flow.instances()["web"]["host"])
    how: dict[str, t.Any] = {**MORE, "bootflow_allow_resize_to_same_host": here}
    said = wait_boots(flow, "web", 1)
    assert sees(said, vda=GIB, vdb=GIB, vdc=64 * MIB) and "THIRD=SWAPSPACE2" in said, said

    refused = operate(flow, "resize", "web", expect=2, bootflow_resize_flavor="less", **how)
    assert "CannotResizeDisk" in refused and "0 GiB of ephemeral disk, the instance 1 GiB" in refused
    assert guest(flow, "web") == "running"
    planned = operate(flow, "resize", "web", options=("--check", "--diff"), bootflow_resize_flavor="wider", **how)
    assert "flavor wide -> wider; disk.eph0 1 GiB -> 2 GiB; disk.swap 64 MiB -> 32 MiB" in " ".join(planned.split()), (
        planned
    )

    operate(flow, "resize", "web", bootflow_resize_flavor="wider", **how)
    said = wait_boots(flow, "web", 2)
    assert sees(said, vda=GIB, vdb=2 * GIB, vdc=32 * MIB) and "THIRD=SWAPSPACE2" in said, said
    assert (flow.instances()["web"]["host"] == source) is here
    claimed = sorted(r["disk_gb"] for r in flow.query("SELECT disk_gb FROM claims"))
    assert claimed == [2, 3]
    flow.check_ledger()
    operate(flow, "revert_resize", "web")
    said = wait_boots(flow, "web", 2)  # as if it had not been
    assert sees(said, vda=GIB, vdb=GIB, vdc=64 * MIB) and "THIRD=SWAPSPACE2" in said, said
    assert flow.instances()["web"]["host"] == source and not folders(flow, "web")

    operate(flow, "resize", "web", bootflow_resize_flavor="bare", **how)
    assert sees(wait_boots(flow, "web", 3), vda=2 * GIB, vdb=2 * GIB)
    operate(flow, "confirm_resize", "web")
    assert guest(flow, "web") == "running" and not folders(flow, "web")
    row = flow.instances()["web"]
    files = flow.lab.host(row["host"]).run("ls", "/var/lib/bootflow/instances/%s" % row["uuid"]).stdout.split()
    assert "disk.eph0" in files and "disk.swap" not in files
    checked = flow.run("audit", "--check")
    assert "nothing to repair" in checked.output.lower() or "changed=0" in checked.output, checked.output
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_the_first_ones(flow: Flow) -> None:
    """A flavor without ephemeral disk and swap gives way to one that has both."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    operate(flow, "resize", "web", bootflow_resize_flavor="wider", **MORE)
    said = wait_boots(flow, "web", 2)
    assert sees(said, vda=GIB, vdb=2 * GIB, vdc=32 * MIB), said
    operate(flow, "revert_resize", "web")
    assert sees(wait_boots(flow, "web", 2), vda=GIB)
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}
