# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where guests go, with real guests on three hosts: groups, pinned CPUs, aggregates, hints, whole disks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter

import pytest
from flow import FLAVORS, Flow, entry, settings_of_host
from lxml import etree

pytestmark = pytest.mark.usefixtures("still_guests")
MIB = 1024**2
PLACED = re.compile(r"^  host: (\w+),", re.MULTILINE)


def flavor(name: str, vcpus: int = 1, **extra_specs: str) -> dict:
    specs = {k.replace("__", ":"): v for k, v in extra_specs.items()}
    return {"name": name, "vcpus": vcpus, "memory_mb": 192, "root_gb": 1, "extra_specs": specs}


def member(name: str, group: str, **fields) -> dict:
    return entry(name, scheduler_hints={"group": group}, **fields)


def hosts_of(flow: Flow, prefix: str) -> list[str]:
    return sorted(r["host"] for n, r in flow.instances().items() if n.startswith(prefix))


def refused(flow: Flow, *entries: dict, **variables) -> str:
    """The output of a boot that is turned down before anything is written."""
    before = sorted(flow.instances()) if flow.ledger_path.exists() else []
    output = flow.boot(*entries, expect=2, **variables).output
    assert sorted(flow.instances()) == before
    return output


def live_xml(flow: Flow, name: str) -> etree._Element:
    row = flow.instances()[name]
    return etree.fromstring(
        flow.lab.host(row["host"]).run("virsh", "-c", "qemu:///system", "dumpxml", row["uuid"]).stdout.encode()
    )


# --- server groups ------------------------------------------------------------------------------------------------------

GROUPS = [
    {"name": "apart", "policy": "anti-affinity"},
    {"name": "together", "policy": "affinity"},
    {"name": "pairs", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}},
    {"name": "spread", "policy": "soft-anti-affinity"},
]


def test_server_groups(flow: Flow) -> None:
    flow.variables["bootflow_server_groups"] = GROUPS
    flow.boot(
        member("apart", "apart", max_count=3),
        member("together", "together", max_count=2),
    )
    assert hosts_of(flow, "apart") == ["compute1", "compute2", "compute3"]
    assert len(set(hosts_of(flow, "together"))) == 1
    slots = flow.query("SELECT count(*) AS n FROM claims WHERE group_slot IS NOT NULL AND server_group_id IS NOT NULL")
    assert slots[0]["n"] == 3, "each claim under a hard anti-affinity has its place in the group"

    fourth = flow.boot(member("fourth", "apart"), expect=2)
    assert "NoValidHost" in fourth.output and "ServerGroupAntiAffinityFilter" in fourth.output
    assert flow.instances()["fourth"]["vm_state"] == "error" and flow.instances()["fourth"]["host"] is None

    # Two on each host, and no seventh.
    six = flow.boot(member("pairs", "pairs", min_count=6), options=("--check",))
    assert Counter(PLACED.findall(six.output)) == {"compute1": 2, "compute2": 2, "compute3": 2}
    seven = flow.run("boot", "--check", bootflow_instances=[member("pairs", "pairs", min_count=7)])
    assert seven.returncode == 2 and "NoValidHost" in seven.output
    told = [x for x in seven.output.splitlines() if "ServerGroupAntiAffinityFilter" in x and "compute2" in x]
    assert "nearest miss: " in seven.output and "smallest change: " in seven.output, seven.output
    assert [x for x in told if "pairs" in x], seven.output

    # Weighers that stack would put all onto one host; the soft policy wins.
    stacked = {"RAMWeigher": -0.1, "CPUWeigher": -0.1, "DiskWeigher": -0.1}
    soft = member("soft", "spread", min_count=3)
    plan = flow.boot(soft, options=("--check",), bootflow_weight_multipliers=stacked)
    assert Counter(PLACED.findall(plan.output)) == {"compute1": 1, "compute2": 1, "compute3": 1}, plan.output

    unknown = refused(flow, member("x", "no-such-group"))
    assert "InstanceGroupNotFound" in unknown or "no-such-group" in unknown
    quota = refused(flow, member("x", "together", min_count=3), bootflow_quotas={"server_group_members": 4})
    assert "OverQuota" in quota or "Quota exceeded" in quota
    changed = [{**g, "policy": "affinity"} if g["name"] == "apart" else g for g in GROUPS]
    assert "under the policy anti-affinity" in refused(flow, member("x", "apart"), bootflow_server_groups=changed)
    flow.check_ledger()
    flow.delete(*flow.instances())
    assert flow.residue() == {}


# --- pinned CPUs --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_pinned_cpus(flow: Flow) -> None:
    flow.variables["bootflow_flavors"] = [
        flavor("pinned", hw__cpu_policy="dedicated"),
        flavor("wide", 2, hw__cpu_policy="dedicated"),
        flavor("odd", 1, hw__numa_nodes="2"),
    ]
    flow.variables["bootflow_aggregates"] = [{"name": "one", "hosts": ["compute1"], "availability_zone": "one"}]
    text = flow.boot(entry("odd", flavor="odd"), expect=2).output
    assert "ImageNUMATopologyAsymmetric" in text and "1 vCPUs and 192 MiB do not divide by 2 nodes" in text
    assert not flow.instances()

    pin = entry("pin", flavor="pinned", availability_zone="one", min_count=2)
    flow.boot(pin, entry("wide", flavor="wide", availability_zone="nova", min_count=2))
    assert hosts_of(flow, "pin-") == ["compute1", "compute1"]
    assert hosts_of(flow, "wide-") == ["compute2", "compute3"]
    pinned = {name: _pinned(flow, name) for name in flow.instances()}
    assert all(len(cpus) == 1 for name, cpus in pinned.items() if name.startswith("pin-"))
    assert pinned["pin-1"].isdisjoint(pinned["pin-2"])
    assert all(len(cpus) == 2 for name, cpus in pinned.items() if name.startswith("wide-"))

    for name, zone in (("third", "one"), ("fourth", "nova")):
        done = flow.boot(entry(name, flavor="pinned", availability_zone=zone), expect=2)
        assert "NUMATopologyFilter" in done.output, done.output
        assert flow.instances()[name]["vm_state"] == "error"
    free = pinned["pin-1"]
    flow.delete("pin-1", "fourth")
    flow.boot(entry("third", flavor="pinned", availability_zone="one"))  # the same request again, now there is a CPU
    assert _pinned(flow, "third") == free
    flow.check_ledger()
    flow.delete(*flow.instances())
    assert flow.residue() == {}


def _pinned(flow: Flow, name: str) -> set[int]:
    """The host's CPUs that the guest has, by its live definition, which is what its claim says."""
    xml, uuid = live_xml(flow, name), flow.instances()[name]["uuid"]
    pins = {int(p.get("vcpu")): p.get("cpuset") for p in xml.iterfind("cputune/vcpupin")}
    (claim,) = flow.query("SELECT json_extract(numa, '$.cells') AS cells FROM claims WHERE instance_uuid = ?", uuid)
    claimed = {int(v): str(c) for cell in json.loads(claim["cells"]) for v, c in dict(cell["pinning"]).items()}
    assert pins == claimed
    assert xml.find("numatune/memory") is not None and xml.find("numatune/memory").get("nodeset") == "0"
    return {int(c) for c in pins.values()}


# --- aggregates, hints, forced and disabled hosts -----------------------------------------------------------------------


@pytest.mark.long
def test_aggregates_hints_and_forced_hosts(flow: Flow) -> None:
    default = (
        "RetryFilter AvailabilityZoneFilter ComputeFilter RamFilter DiskFilter CoreFilter ComputeCapabilitiesFilter"
        " ImagePropertiesFilter ServerGroupAntiAffinityFilter ServerGroupAffinityFilter NUMATopologyFilter"
        " PciPassthroughFilter WholeDiskFilter"
    ).split()
    more = ["AggregateInstanceExtraSpecsFilter", "SameHostFilter", "DifferentHostFilter", "JsonFilter"]
    flow.variables.update(
        bootflow_flavors=[
            *FLAVORS,
            flavor("fast", aggregate_instance_extra_specs__ssd="true"),
            flavor("gpu", pci_passthrough__alias="gpu:1"),
            flavor("fpga", pci_passthrough__alias="fpga:1"),
        ],
        bootflow_aggregates=[
            {"name": "fast", "hosts": ["compute2"], "metadata": {"ssd": "true"}},
            {"name": "rack-c", "hosts": ["compute3"], "availability_zone": "rack-c"},
        ],
        bootflow_pci_alias=[{"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}],
        bootflow_enabled_filters=default + more,
    )
    ssd = entry("ssd", flavor="fast")
    assert "ForcedHostForbidden" in refused(flow, entry("x", availability_zone="nova:compute1"))
    assert "fpga" in refused(flow, entry("x", flavor="fpga"))
    hint = refused(flow, entry("x", scheduler_hints={"same_host": "ssd"}), bootflow_enabled_filters=default)
    assert "SameHostFilter" in hint

    flow.boot(ssd, entry("racked", availability_zone="rack-c"))
    assert hosts_of(flow, "ssd") == ["compute2"] and hosts_of(flow, "racked") == ["compute3"]
    assert flow.instances()["racked"]["availability_zone"] == "rack-c"

    flow.boot(
        entry("same", scheduler_hints={"same_host": ["ssd"]}),
        entry("other", scheduler_hints={"different_host": ["ssd", "racked"]}),
        entry("asked", scheduler_hints={"query": ["=", "$host", "compute3"]}),
        entry("forced", availability_zone="nova:compute1"),
        entry("node", availability_zone="nova::compute2"),
        bootflow_allow_forced_host=True,
    )
    placed = {name: row["host"] for name, row in flow.instances().items()}
    assert placed == {
        "ssd": "compute2",
        "racked": "compute3",
        "same": "compute2",
        "other": "compute1",
        "asked": "compute3",
        "forced": "compute1",
        "node": "compute2",
    }

    # Nobody has the device: the plan says so for each host, and the failure names the filter with its counts.
    plan = flow.run("boot", "--check", bootflow_instances=[entry("gpu", flavor="gpu")])
    assert plan.returncode == 2 and "NoValidHost" in plan.output
    assert plan.output.count("PciPassthroughFilter") >= 3, plan.output

    # A ratio of an aggregate: compute2 takes no more, the reason tells the numbers.
    ratio = {"name": "full", "hosts": ["compute2"], "metadata": {"ram_allocation_ratio": "0.0001"}}
    plan = flow.boot(
        entry("ratio", min_count=1, availability_zone="nova"),
        options=("--check",),
        bootflow_aggregates=[*flow.variables["bootflow_aggregates"], ratio],
        bootflow_enabled_filters=[*[f for f in default if f != "RamFilter"], "AggregateRamFilter"],
    )
    told = plan.output.splitlines()
    assert [x for x in told if "compute2" in x and "AggregateRamFilter" in x and "0.0001" in x], plan.output
    assert [x for x in told if "compute3" in x and "AvailabilityZoneFilter" in x], plan.output
    assert PLACED.findall(plan.output) == ["compute1"], plan.output

    with settings_of_host(flow.lab, "compute1", bootflow_disabled=True, bootflow_disabled_reason="new fan"):
        plan = flow.run(
            "boot", "--check", bootflow_instances=[entry("away", scheduler_hints={"query": ["=", "$host", "compute1"]})]
        )
        assert plan.returncode == 2 and "ComputeFilter" in plan.output and "new fan" in plan.output, plan.output
    off = flow.run(
        "host", bootflow_host=["compute1", "compute3"], bootflow_host_state="disabled", bootflow_host_reason="dust"
    )
    assert off.returncode == 0, off.output
    last = flow.boot(entry("last", max_count=2), options=("--check",))
    assert PLACED.findall(last.output) == ["compute2", "compute2"]
    on = flow.run("host", bootflow_host=["compute1", "compute3"], bootflow_host_state="enabled")
    assert on.returncode == 0, on.output
    flow.check_ledger()
    flow.delete(*flow.instances())
    assert flow.residue() == {}


# --- whole disks --------------------------------------------------------------------------------------------------------

MARK = b"what the former guest wrote"
DISK_BYTES = 256 * MIB


@pytest.fixture
def disk(tmp_path):
    """A small disk: a loop device, which every host of the lab sees, as they share /dev."""
    path = tmp_path / "disk"
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    done = subprocess.run(["losetup", "--find", "--show", str(path)], check=True, capture_output=True, text=True)
    yield done.stdout.strip()
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=False)


@pytest.mark.long
def test_whole_disks(flow: Flow, disk: str) -> None:
    flow.variables["bootflow_flavors"] = [flavor("own-disk", bootflow__whole_disks="1")]
    flow.variables["bootflow_facts_max_age"] = 0  # each boot reports the disk as its guest has it
    with settings_of_host(flow.lab, "compute2", bootflow_isolated_disks=[disk]):
        flow.boot(entry("first", flavor="own-disk", image="linux"), bootflow_wait_console="BOOTFLOW-GUEST-READY")
        row = flow.instances()["first"]
        assert row["host"] == "compute2"
        (block,) = live_xml(flow, "first").xpath("devices/disk[@type='block']")
        assert block.find("source").get("dev") == disk and block.find("driver").get("type") == "raw"
        assert "BOOTFLOW-GUEST-DISK name=vdb bytes=%d " % DISK_BYTES in flow.console("compute2", row["uuid"])
        claimed = flow.query("SELECT device FROM device_claims WHERE instance_uuid = ? AND kind = 'disk'", row["uuid"])
        assert [c["device"] for c in claimed] == [disk]

        second = flow.boot(entry("second", flavor="own-disk"), expect=2)
        assert "WholeDiskFilter" in second.output
        places = (0, 100 * MIB, DISK_BYTES - 4096)
        _write(disk, places)
        flow.delete("first")
        assert _only_zeros(disk), "the next guest reads nothing of the former one"

        flow.variables["bootflow_facts_max_age"] = 300
        flow.boot(entry("second", flavor="own-disk"))  # at once, whatever the last report said of the disk
        assert flow.instances()["second"]["host"] == "compute2"
        _write(disk, places)
        # Somebody else uses it meanwhile: it is not cleared, and stays with its instance until it can be.
        flow.lab.host("compute2").run("virsh", "-c", "qemu:///system", "destroy", flow.instances()["second"]["uuid"])
        subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
        mount = flow.folder / "mnt"
        mount.mkdir()
        subprocess.run(["mount", disk, str(mount)], check=True)
        try:
            kept = flow.delete("second", expect=2)
        finally:
            subprocess.run(["umount", str(mount)], check=True)
        assert disk in kept.output and "in use" in kept.output
        assert flow.instances()["second"]["task_state"] == "deleting"
        assert flow.query("SELECT device FROM device_claims")[0]["device"] == disk
        flow.delete("second", bootflow_whole_disk_clear="none")
        assert not _only_zeros(disk)
    assert flow.query("SELECT * FROM device_claims") == []
    assert flow.residue() == {}


def _write(disk: str, places: tuple[int, ...]) -> None:
    with open(disk, "r+b") as file:
        for place in places:
            file.seek(place)
            file.write(MARK)
        file.flush()
        os.fsync(file.fileno())


def _only_zeros(disk: str) -> bool:
    return subprocess.run(["cmp", "-s", "-n", str(DISK_BYTES), disk, "/dev/zero"], check=False).returncode == 0
