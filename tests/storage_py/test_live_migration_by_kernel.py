# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest goes while it runs from a host where QEMU logs in to its volumes to one whose kernel does, and back.

The second is an emulated machine: there the guest is emulated twice, and slow.
"""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path
from types import SimpleNamespace

import kernel_way
import pytest
import storage_vm
from flow import CACHE
from lxml import etree
from storage_host import AT_WORK
from test_boot_from_volume import READY, existing, on_volume, root
from test_live_migration import ticks
from test_live_migration_with_volumes import WRITING, admitted, on_storage, operate
from volume_flow import VolumeFlow

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def compute(lab, storage) -> t.Iterator[kernel_way.ComputeHost]:
    vm = storage_vm.StorageVM(
        str(CACHE / "storage-compute-live"), storage.vm.image, lab=lab, disks={}, number=8, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        yield host


class TwoConnectors(VolumeFlow):
    """A host of the lab, and the emulated one."""

    def __init__(self, lab, folder: Path, image: Path, storage, compute: kernel_way.ComputeHost):
        home = lab.hosts[0]
        hosts = {home.name: home, compute.name: compute}
        named = SimpleNamespace(inventory=lab.inventory, hosts=list(hosts.values()), host=hosts.__getitem__)
        super().__init__(named, folder, image, storage)
        del self.variables["bootflow_volume_attach"]
        self.home, self.compute = home.name, compute
        connectors = {h.name: {"bootflow_volume_attach": "qemu"} for h in lab.hosts}
        (folder / "connectors.json").write_text(json.dumps({"all": {"hosts": connectors}}))
        kernel = compute.vm.write_inventory(str(folder / "compute.json"), {"bootflow_volume_attach": "kernel"})
        self.more = [str(folder / "connectors.json"), kernel]

    def arguments(self, playbook: str, variables: dict, *options: str) -> list[str]:
        argv = super().arguments(playbook, variables, *options)
        return [*argv, *(word for path in self.more for word in ("-i", path))]

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"ANSIBLE_TIMEOUT": "30", **more})


@pytest.fixture
def volumes(lab, backends, guest_image, tmp_path, compute) -> TwoConnectors:
    return TwoConnectors(lab, tmp_path, guest_image, backends, compute)


def at_work(volumes: TwoConnectors, host: t.Any, domain: str) -> str:
    """Where a write stands still: in the guest's QEMU, on its host, or on the storage host."""
    looks = [
        "virsh -q -c qemu:///system domstats --state --block --vcpu %s" % domain,
        "virsh -q -c qemu:///system qemu-monitor-command --hmp %s 'info status'" % domain,
    ]
    if host is volumes.compute:
        looks += ["iscsiadm -m session -P 3", "cat /sys/block/*/inflight", AT_WORK]
    found = ["$ %s\n%s" % (look, host.run("sh", "-c", look, check=False).stdout) for look in looks]
    return "\n".join([*found, "the storage host:", volumes.storage.at_work()])


def counts_on(volumes: TwoConnectors, host: str, kinds: set[str]) -> int:
    """The guest runs there alone, writes what it counts to its volumes, and has them as that host's connector has. Returns the last number."""
    row = volumes.instances()["db"]
    assert (row["host"], row["vm_state"], row["task_state"]) == (host, "active", None)
    there = volumes.lab.host(host)
    assert there.run("virsh", "-q", "-c", "qemu:///system", "domstate", row["uuid"]).stdout.strip() == "running"
    end = time.monotonic() + 300
    while len(ticks(found := volumes.console(host, row["uuid"]))) < 4:
        assert time.monotonic() < end, "%s\n%s" % (found[-2000:], at_work(volumes, there, row["uuid"]))
        time.sleep(2)
    counted = ticks(found)
    assert "FAILED to write" not in found and counted == list(range(counted[0], counted[0] + len(counted)))
    rows = volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''")
    assert {(r["attached_host"], r["attach_status"], r["export"], r["connection"], r["run_id"]) for r in rows} == {
        (host, "attached", "done", "done", None)
    }
    for each in rows:
        assert admitted(volumes, each["volume_id"]) == [each["initiator"]]
    xml = etree.fromstring(there.run("virsh", "-q", "-c", "qemu:///system", "dumpxml", row["uuid"]).stdout.encode())
    disks = [d for d in xml.iterfind("devices/disk") if d.findtext("serial") in {r["volume_id"] for r in rows}]
    assert len(disks) == len(rows) == 2 and {d.get("type") for d in disks} == kinds
    for volume in volumes.volumes():
        written = on_storage(volumes, volume)
        assert not [n for n in counted if "second %d " % n not in written], volume["name"]
    assert not volumes.query("SELECT 1 FROM cleanups") and len(volumes.query("SELECT 1 FROM claims")) == 1
    return counted[-1]


def test_from_one_connector_to_another_and_back(volumes: TwoConnectors) -> None:
    volumes.create({"name": "data", "size": 1, "volume_type": "thick"})
    data = {**existing("data"), "boot_index": None}
    wanted = on_volume("db", root(volume_type="thin"), data, networks="none", user_data=WRITING)
    volumes.boot(wanted, **READY, bootflow_hosts=[volumes.home])
    before = counts_on(volumes, volumes.home, {"network"})
    host = volumes.compute

    told = operate(volumes, "live_migrate", "-vvv", bootflow_live_migrate_host=host.name)
    assert volumes.secrets_in(told) == [] and "still has to be cleaned up" not in told, told
    between = counts_on(volumes, host.name, {"block"})
    ids = sorted(v["id"] for v in volumes.volumes())
    assert between > before and host.sessions() == ids
    secrets = volumes.lab.host(volumes.home).run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout
    assert not secrets.strip(), "the former host needs none any more"

    told = operate(volumes, "live_migrate", bootflow_live_migrate_host=volumes.home)
    assert "still has to be cleaned up" not in told, told
    assert counts_on(volumes, volumes.home, {"network"}) > between
    assert host.left_of_iscsi() == []
    volumes.delete("db")
    volumes.remove("data")
    assert volumes.residue() == {}
