# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances by whole playbooks: the store of the controller is a real folder, hosts and their stores are models."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from simulated_site import Host, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import RUNNING, SHUTDOWN


class Shelf:
    """A site with the instances ``web`` and ``db``. The store ``here`` is a folder of the controller."""

    def __init__(self, site: Site, folder: Path):
        self.site = site
        self.store = folder / "store"
        self.store.mkdir()
        site.variables["bootflow_image_stores"] = [
            {"name": "here", "path": str(self.store)},
            {"name": "nfs", "path": "/net/images", "kind": "shared"},
            {"name": "of-kvm1", "path": "/srv/images", "kind": "host", "host": "kvm1"},
        ]
        site.boots(entry("web"), entry("db"))

    def play(self, playbook: str, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        return self.site.play(playbook, *options, expect=expect, names=list(names or ["web"]), **more)

    def uuid(self, name: str = "web") -> str:
        return str(self.site.query("SELECT uuid FROM instances WHERE display_name = ? AND deleted = ''", name)[0][0])

    def host_of(self, name: str = "web") -> Host:
        return self.site.hosts[str(self.site.places()[name][1])]

    def state(self, name: str = "web") -> tuple[t.Any, ...]:
        """vm_state, task_state, power_state and host."""
        columns = "vm_state, task_state, power_state, host"
        return tuple(
            self.site.query("SELECT %s FROM instances WHERE display_name = ? AND deleted = ''" % columns, name)[0]
        )

    def images(self) -> dict[str, str]:
        """name -> status of the images that are not deleted."""
        return {r[0]: r[1] for r in self.site.query("SELECT name, status FROM images WHERE deleted = ''")}

    def kept(self) -> int:
        return len(self.site.query("SELECT instance_uuid FROM shelved_instances"))

    def claims(self, name: str = "web") -> list[str]:
        """The hosts that are claimed for the instance."""
        found = self.site.query(
            "SELECT n.host FROM claims c JOIN compute_nodes n ON n.id = c.compute_node_id WHERE c.instance_uuid = ?"
            " ORDER BY n.host",
            self.uuid(name),
        )
        return [row[0] for row in found]

    def addresses(self, name: str = "web") -> list[tuple[str, str | None]]:
        """The addresses of the instance, and the hosts that they are bound to."""
        found = self.site.query(
            "SELECT a.ip_address, p.host FROM ip_allocations a JOIN ports p ON p.id = a.port_id WHERE p.instance_uuid = ?",
            self.uuid(name),
        )
        return [tuple(row) for row in found]


@pytest.fixture
def shelf(site: Site, tmp_path: Path) -> Shelf:
    return Shelf(site, tmp_path)


def test_an_instance_is_shelved_and_comes_back(shelf: Shelf) -> None:
    site, uuid, host = shelf.site, shelf.uuid(), shelf.host_of()
    site.spoil("UPDATE instances SET machine_type = 'pc-q35-9.0'")
    before = site.dump()
    output = shelf.play("shelve", options=("--check", "--diff"))
    assert "Would shelve" in output and "active -> shelved_offloaded" in output and "image web-shelved" in output
    assert site.dump() == before and shelf.images() == {} and shelf.state() == ("active", None, RUNNING, host.name)
    ((address, _bound),) = shelf.addresses()
    output = shelf.play("shelve")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None), output
    assert shelf.images() == {"web-shelved": "active"} and len(list(shelf.store.iterdir())) == 1
    assert uuid not in host.domains and uuid not in host.folders
    assert shelf.claims() == [] and shelf.addresses() == [(address, None)] and shelf.kept() == 1
    output = shelf.play("shelve")
    assert "nothing to do" in output and "changed=0" in output
    before = site.dump()
    output = shelf.play("unshelve", options=("--check", "--diff"))
    assert "Would unshelve" in output and "shelved_offloaded -> active" in output
    assert site.dump() == before
    output = shelf.play("unshelve")
    vm_state, task_state, power_state, new_host = shelf.state()
    assert (vm_state, task_state, power_state) == ("active", None, RUNNING)
    assert site.hosts[new_host].domains[uuid]["power_state"] == RUNNING
    assert shelf.claims() == [new_host] and shelf.addresses() == [(address, new_host)]
    assert shelf.images() == {} and shelf.kept() == 0
    (kept,) = site.query("SELECT DISTINCT machine_type FROM instances")
    assert kept["machine_type"] == "pc-q35-9.0", "it is the machine that its system knows"
    assert "nothing to do" in shelf.play("unshelve")
    site.play("audit")
    site.boots(entry("web"), entry("db"))
    assert {state for state, _host in site.places().values()} == {"active"}


def test_an_instance_that_stays_on_its_host_starts_there(shelf: Shelf) -> None:
    uuid, host = shelf.uuid(), shelf.host_of()
    shelf.play("shelve", shelved_offload_time=-1)
    assert shelf.state() == ("shelved", None, SHUTDOWN, host.name)
    assert host.domains[uuid]["power_state"] == SHUTDOWN and shelf.claims() == [host.name]
    assert "bootflow.compute.unshelve" in shelf.play("start", expect=2)
    assert "is not supported" in shelf.play("unshelve", expect=2, unshelve_host=host.name)
    shelf.site.play("power_sync")
    shelf.site.play("audit")
    assert shelf.state() == ("shelved", None, SHUTDOWN, host.name)
    shelf.play("unshelve")
    assert shelf.state() == ("active", None, RUNNING, host.name)
    assert shelf.images() == {} and shelf.kept() == 0


def test_an_offload_after_a_while(shelf: Shelf) -> None:
    site, host = shelf.site, shelf.host_of()
    shelf.play("shelve", shelved_offload_time=3600)
    assert "no instance is selected" in site.play("shelve_offload", shelved_offload_time=3600)
    assert shelf.state()[0] == "shelved"
    site.spoil("UPDATE shelved_instances SET shelved_at = shelved_at - 3601")
    site.play("shelve_offload", shelved_offload_time=-1)
    assert shelf.state()[0] == "shelved"
    output = site.play("shelve_offload", options=(), shelved_offload_time=3600)
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None), output
    assert shelf.claims() == [] and host.domains.get(shelf.uuid("web")) is None
    assert "nothing to do" in shelf.play("shelve_offload")


def test_a_store_of_a_host(shelf: Shelf) -> None:
    """Other hosts give the image to the host of the store, and get it from there. Where that host fails, the instance is stopped on its own."""
    store_host = shelf.site.hosts["kvm1"]
    store_host.items_fail("image_file", errors.DiskFull(host="kvm1", path="/srv/images", reason="full"), times=1)
    name = next(name for name in ("web", "db") if shelf.host_of(name).name != "kvm1")
    host = shelf.host_of(name)
    assert "full" in shelf.play("shelve", name, expect=2, snapshot_store="of-kvm1")
    assert shelf.state(name) == ("stopped", None, SHUTDOWN, host.name) and shelf.images() == {} and shelf.kept() == 0
    shelf.play("shelve", name, snapshot_store="of-kvm1")
    assert shelf.state(name) == ("shelved_offloaded", None, SHUTDOWN, None)
    assert shelf.images() == {"%s-shelved" % name: "active"}
    store_host.is_silent()
    assert "ImageNotReadable" in shelf.play("unshelve", name, expect=2, unshelve_host="kvm3")
    assert shelf.state(name) == ("shelved_offloaded", None, SHUTDOWN, None) and shelf.claims(name) == []
    store_host.heal()
    shelf.play("unshelve", name, unshelve_host="kvm3")
    assert shelf.state(name) == ("active", None, RUNNING, "kvm3") and shelf.images() == {}


# --- hosts that fail ----------------------------------------------------------------------------------------------------


def test_an_image_that_is_not_made(shelf: Shelf) -> None:
    """The guest is off by then. Nothing else is lost, and the same command, run again, ends it."""
    host = shelf.host_of()
    host.items_fail("domain_power", errors.LibvirtError(reason="broken"), times=1)
    assert "broken" in shelf.play("shelve", expect=2)
    assert shelf.state() == ("active", None, RUNNING, host.name) and shelf.images() == {}
    host.items_fail("instance_snapshot", errors.DiskFull(host=host.name, path="/x", reason="full"), times=1)
    output = shelf.play("shelve", "web", "db", expect=2)
    assert "full" in output
    assert shelf.state() == ("stopped", None, SHUTDOWN, host.name) and shelf.claims() == [host.name]
    assert shelf.state("db")[0] == "shelved_offloaded" and shelf.images() == {"db-shelved": "active"}
    assert shelf.kept() == 1
    shelf.play("shelve")
    assert shelf.state()[0] == "shelved_offloaded" and shelf.kept() == 2


def test_a_host_that_is_not_cleaned_keeps_the_instance(shelf: Shelf) -> None:
    uuid, host = shelf.uuid(), shelf.host_of()
    host.items_fail("instance_cleanup", errors.LibvirtError(reason="broken"), times=1)
    assert "broken" in shelf.play("shelve", expect=2)
    assert shelf.state() == ("shelved", None, SHUTDOWN, host.name) and shelf.claims() == [host.name]
    assert shelf.images() == {"web-shelved": "active"}
    host.is_silent("instance_cleanup", times=1)
    shelf.play("shelve", expect=2)
    assert shelf.state() == ("shelved", None, SHUTDOWN, host.name)
    shelf.play("shelve")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None) and uuid not in host.domains
    assert shelf.claims() == []


def test_a_guest_that_was_started_by_hand_stays(shelf: Shelf) -> None:
    """Its image is older. It may be brought back, with what it has written since."""
    uuid, host = shelf.uuid(), shelf.host_of()
    shelf.play("shelve", shelved_offload_time=-1)
    host.powers(uuid, RUNNING)
    assert "has power" in shelf.play("shelve_offload", expect=2)
    assert shelf.state()[0] == "shelved" and uuid in host.domains and shelf.claims() == [host.name]
    shelf.play("unshelve")
    assert shelf.state() == ("active", None, RUNNING, host.name) and shelf.kept() == 0


def test_a_host_that_is_lost(shelf: Shelf) -> None:
    """It stays claimed until it is back and has been cleaned."""
    site, uuid, host = shelf.site, shelf.uuid(), shelf.host_of()
    shelf.play("shelve", shelved_offload_time=-1)
    host.is_silent()
    shelf.play("shelve_offload", expect=2)
    assert shelf.state() == ("shelved", None, SHUTDOWN, host.name)
    site.play("host", host=host.name, host_state="forced_down")
    shelf.play("shelve_offload")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None)
    assert uuid in host.domains and shelf.claims() == [host.name]
    shelf.play("unshelve")
    new_host = shelf.host_of()
    assert new_host.name != host.name and shelf.state()[0] == "active"
    assert shelf.claims() == sorted([host.name, new_host.name])
    host.heal()
    site.play("host", host=host.name, host_state="up")
    site.play("heartbeat")
    assert uuid not in host.domains and uuid in new_host.domains and shelf.claims() == [new_host.name]
    assert [bound for _address, bound in shelf.addresses()] == [new_host.name]


def test_a_build_that_fails_leaves_nothing(shelf: Shelf) -> None:
    site, uuid = shelf.site, shelf.uuid()
    shelf.play("shelve")
    for host in site.hosts.values():
        host.items_fail("instance_build", errors.LibvirtError(reason="broken"), times=1)
        host.items_fail("domain", errors.LibvirtError(reason="broken"), times=1)
    assert "broken" in shelf.play("unshelve", expect=2)
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None)
    assert shelf.claims() == [] and not [h for h in site.hosts.values() if uuid in h.domains or uuid in h.folders]
    assert [bound for _address, bound in shelf.addresses()] == [None]
    assert shelf.images() == {"web-shelved": "active"} and shelf.kept() == 1
    for host in site.hosts.values():
        host.heal()
    shelf.play("unshelve")
    assert shelf.state()[0] == "active" and shelf.images() == {}


def test_a_host_that_does_not_say_what_it_built(shelf: Shelf) -> None:
    """The instance is shelved again, and the host is cleaned before it gets the instance."""
    site, uuid = shelf.site, shelf.uuid()
    shelf.play("shelve")
    host = site.hosts["kvm2"]
    host.is_silent("instance_build", times=1)
    host.is_silent("instance_cleanup", times=1)
    shelf.play("unshelve", expect=2, unshelve_host="kvm2")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None)
    assert shelf.claims() == ["kvm2"] and shelf.images() == {"web-shelved": "active"}
    shelf.play("unshelve", unshelve_host="kvm2")
    assert shelf.state() == ("active", None, RUNNING, "kvm2") and shelf.claims() == ["kvm2"] and uuid in host.domains


# --- destinations -------------------------------------------------------------------------------------------------------


def test_destinations(shelf: Shelf) -> None:
    site = shelf.site
    site.of_hosts["kvm1"]["bootflow_availability_zone"] = "east"
    site.play("heartbeat")
    shelf.play("shelve")
    before = site.dump()
    assert "UnshelveHostNotInAZ" in shelf.play(
        "unshelve", expect=2, unshelve_host="kvm2", unshelve_availability_zone="east"
    )
    assert "ComputeHostNotFound" in shelf.play("unshelve", expect=2, unshelve_host="kvm9")
    assert "NoValidHost" in shelf.play("unshelve", expect=2, unshelve_availability_zone="west")
    assert site.dump()[-3:] == before[-3:] and shelf.state()[0] == "shelved_offloaded" and shelf.claims() == []
    shelf.play("unshelve", unshelve_availability_zone="east")
    assert shelf.state()[-1] == "kvm1"
    shelf.play("shelve")
    assert "UnshelveHostNotInAZ" in shelf.play("unshelve", expect=2, unshelve_host="kvm3")
    shelf.play("unshelve", unshelve_host="kvm3", unshelve_unpin=True)
    assert shelf.state() == ("active", None, RUNNING, "kvm3")


# --- the end of an instance ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offload_time", [0, -1])
def test_a_deletion_deletes_the_image(shelf: Shelf, offload_time: int) -> None:
    site = shelf.site
    shelf.play("shelve", shelved_offload_time=offload_time)
    assert "is shelved in it" in site.play("image_delete", expect=2, image_names=["web-shelved"])
    assert shelf.images() == {"web-shelved": "active"}
    shelf.play("delete")
    assert list(site.places()) == ["db"] and shelf.images() == {} and shelf.kept() == 0
    site.play("image_delete", image_names=["web-shelved"])
    assert list(shelf.store.iterdir()) == []


def test_a_soft_deleted_instance_that_is_restored_is_not_shelved(shelf: Shelf) -> None:
    shelf.play("shelve", shelved_offload_time=-1)
    shelf.play("delete", reclaim_instance_interval=600)
    assert shelf.state()[0] == "soft-delete" and shelf.images() == {"web-shelved": "active"}
    shelf.play("restore")
    assert shelf.state()[:3] == ("active", None, RUNNING) and shelf.images() == {} and shelf.kept() == 0


def test_an_image_that_is_gone(shelf: Shelf) -> None:
    shelf.play("shelve", shelved_offload_time=-1)
    shelf.site.spoil("UPDATE images SET status = 'deleted', deleted = id")
    assert "InstanceNotReady" in shelf.play("shelve_offload", expect=2)
    assert shelf.state()[0] == "shelved"
    shelf.site.spoil("UPDATE instances SET vm_state = 'shelved_offloaded', host = NULL, node = NULL")
    shelf.site.spoil("DELETE FROM claims")
    shelf.site.spoil(
        "UPDATE compute_nodes SET memory_mb_used = reserved_memory_mb, local_gb_used = reserved_disk_gb, vcpus_used = reserved_vcpus"
    )
    assert "UnshelveException" in shelf.play("unshelve", expect=2)


# --- others that read instances -----------------------------------------------------------------------------------------


def test_who_reads_instances_without_a_host(shelf: Shelf) -> None:
    site = shelf.site
    shelf.play("shelve")
    assert "shelved_offloaded" in site.play("list") and "shelved_offloaded" in shelf.play("show")
    for playbook in ("power_sync", "heartbeat", "hosts"):
        site.play(playbook)
    output = site.play("audit")
    assert "changed=0" in output and "stale_claim" not in output
    output = site.boots(entry("web"), entry("db"))
    assert "already booted, and shelved_offloaded now" in output and "bootflow.compute.unshelve" in output
    site.play("apply", instances=[entry("web"), entry("db")])
    assert shelf.state()[0] == "shelved_offloaded"
    output = site.boots(entry("web"), entry("db"), entry("third"), expect=2, quotas={"cores": 2})
    assert "OverQuota" in output, output


# --- killed runs --------------------------------------------------------------------------------------------------------

#: playbook, the module in which its run is killed, whether the host has done the work by then, vm_state when the host has reported
KILLS = [
    ("shelve", "domain_power", False, "active"),
    ("shelve", "domain_power", True, "stopped"),
    ("shelve", "instance_snapshot", True, "stopped"),
    ("shelve", "instance_cleanup", False, "shelved"),
    ("shelve", "instance_cleanup", True, "shelved"),
    ("unshelve", "instance_build", False, "shelved_offloaded"),
    ("unshelve", "instance_build", True, "active"),
]


@pytest.mark.parametrize(("playbook", "module", "is_done", "vm_state"), KILLS)
def test_a_killed_run(shelf: Shelf, playbook: str, module: str, is_done: bool, vm_state: str) -> None:
    site = shelf.site
    if playbook == "unshelve":
        shelf.play("shelve")
        host = site.hosts["kvm2"]
    else:
        host = shelf.host_of()
    asked = host.asked().count(module)
    uuid = shelf.uuid()
    done = {
        "domain_power": lambda: host.domains[uuid]["power_state"] == SHUTDOWN,
        "instance_snapshot": lambda: any(host.files.values()),
        "instance_cleanup": lambda: uuid not in host.domains,
        "instance_build": lambda: uuid in host.domains,
    }[module]
    host.is_slow(module, 60.0, after=is_done)
    more = {"unshelve_host": "kvm2"} if playbook == "unshelve" else {}
    process = site.begin(playbook, names=["web"], **more)
    try:
        site.wait_until(lambda: host.asked().count(module) > asked or process.poll() is not None)
        assert process.poll() is None, (site.folder / "killed.log").read_text()
        site.wait_until(lambda: not is_done or done())
    finally:
        site.kill(process)
    assert shelf.state()[1] is not None
    host.heal()
    site.play("audit")
    site.play("audit")
    state = shelf.state()
    assert (state[0], state[1]) == (vm_state, None)
    assert shelf.claims() == ([] if state[3] is None else [state[3]])
    whole = vm_state in ("shelved", "shelved_offloaded")
    assert shelf.images() == ({"web-shelved": "active"} if whole else {}) and shelf.kept() == whole
    assert vm_state != "shelved_offloaded" or uuid not in host.domains
    shelf.play(playbook)
    assert shelf.state()[:2] == ("active" if playbook == "unshelve" else "shelved_offloaded", None)
    assert shelf.kept() == (playbook == "shelve")


# --- volumes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_data(site: Site, tmp_path: Path) -> Shelf:
    """The instance ``web`` has a volume."""
    site.storage = ["kvm3"]
    for host in site.hosts.values():
        host.has_facts(initiator="iqn.test:" + host.name)
    shelf = Shelf(site, tmp_path)
    site.play("volume_create", volumes=[{"name": "data", "size": 2}])
    site.play("attach_volume", attachments=[{"instance": "web", "volume": "data"}])
    return shelf


def attachments(site: Site) -> set[tuple[str, str, str]]:
    return {tuple(r) for r in site.query("SELECT attach_status, export, connection FROM volume_attachments")}


def test_volumes_stay_attached(with_data: Shelf) -> None:
    """Their exports to the host end, and begin again with the next one. One whose root is a volume has no image, and leaves at once."""
    shelf, site = with_data, with_data.site
    root = {"source_type": "image", "uuid": "debian", "destination_type": "volume", "volume_size": 2, "boot_index": 0}
    site.boots(entry("root", image=None, block_device_mapping=[root]))

    assert attachments(site) == {("attached", "done", "done")}
    output = shelf.play("shelve", "web", "root", shelved_offload_time=-1)
    assert shelf.state()[0] == "shelved" and shelf.state("root")[0] == "shelved_offloaded", output
    assert shelf.images() == {"web-shelved": "active"} and shelf.claims("root") == []
    assert attachments(site) == {("attached", "done", "done"), ("attached", "none", "none")}
    shelf.play("shelve_offload")
    assert attachments(site) == {("attached", "none", "none")}
    assert {row["status"] for row in site.query("SELECT status FROM volumes")} == {"in-use"}
    assert site.hosts["kvm3"].read()["model"]["targets"] == []
    shelf.play("unshelve", "web", "root")
    assert {shelf.state(name)[:3] for name in ("web", "root")} == {("active", None, RUNNING)}
    assert attachments(site) == {("attached", "done", "done")} and shelf.images() == {} and shelf.kept() == 0
    assert not site.query("SELECT 1 FROM volume_attachments WHERE run_id IS NOT NULL")


def test_volumes_of_a_host_that_is_lost(with_data: Shelf) -> None:
    """The storage host cuts it off before another host gets the volume."""
    shelf, site = with_data, with_data.site
    shelf.play("shelve", shelved_offload_time=-1)
    host = shelf.host_of()
    host.is_silent()
    site.play("host", host=host.name, host_state="forced_down")
    shelf.play("shelve_offload")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None)
    assert attachments(site) == {("attached", "none", "none")}
    shelf.play("unshelve")
    assert shelf.state()[0] == "active" and shelf.host_of().name != host.name
    assert attachments(site) == {("attached", "done", "done")}
    (bound,) = site.query("SELECT attached_host FROM volume_attachments")
    assert bound["attached_host"] == shelf.host_of().name


def test_volumes_of_a_build_that_fails(with_data: Shelf) -> None:
    shelf, site = with_data, with_data.site
    shelf.play("shelve")
    host = site.hosts["kvm2"]
    host.items_fail("domain", errors.LibvirtError(reason="broken"))
    host.items_fail("instance_build", errors.LibvirtError(reason="broken"))
    assert "broken" in shelf.play("unshelve", expect=2, unshelve_host="kvm2")
    assert shelf.state() == ("shelved_offloaded", None, SHUTDOWN, None) and shelf.claims() == []
    assert {connection for _status, _export, connection in attachments(site)} == {"none"}
    host.heal()
    shelf.play("unshelve", unshelve_host="kvm1")
    assert shelf.state()[-1] == "kvm1" and attachments(site) == {("attached", "done", "done")}
