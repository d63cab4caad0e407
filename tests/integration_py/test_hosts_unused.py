# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""compute_unused against a real libvirtd: networks and guests of ours and of others, real qcow2 files."""

from __future__ import annotations

import os
import shutil

import private_libvirt
import pytest
from test_hosts_domains import Host, guest

FOREIGN = "<network><name>%s</name><bridge name='%s'/></network>"
NIC = "<interface type='%s'><source %s='%s'/></interface>"


@pytest.fixture(scope="module")
def libvirt(tmp_path_factory):
    with private_libvirt.PrivateLibvirt(tmp_path_factory.mktemp("libvirt")) as host:
        yield host


@pytest.fixture
def host(libvirt, tmp_path):
    host = Purged(libvirt, libvirt.make_folder(tmp_path.name))
    yield host
    for uuid in host.virsh("list", "--all", "--uuid").split():
        libvirt.run("virsh", "destroy", uuid, check=False)
        libvirt.run("virsh", "undefine", uuid, check=False)
    for name in host.networks():
        libvirt.run("virsh", "net-destroy", name, check=False)
        libvirt.run("virsh", "net-undefine", name, check=False)


class Purged(Host):
    def purge(self, check=False, minimum_age=0, **options):
        answer = self.modules(
            "compute_unused", check=check, diff=True, instances_path=self.path, minimum_age=minimum_age, **options
        )
        assert "error_code" not in answer, answer
        return answer

    def networks(self):
        return sorted(self.virsh("net-list", "--all", "--name").split())

    def manage(self, *names):
        wanted = [{"name": name, "manage": True} for name in names]
        outcomes = self.modules("virtual_network", networks=wanted)["outcomes"]
        assert not any(outcome["error"] for outcome in outcomes.values()), outcomes
        return outcomes

    def foreign(self, kind, xml):
        path = self.tmp / "foreign.xml"
        path.write_text(xml)
        self.virsh(kind, str(path))

    def domain_with(self, name, *interfaces):
        self.foreign(
            "define",
            "<domain type='qemu'><name>%s</name><memory>1024</memory><os><type>hvm</type></os><devices>%s</devices></domain>"
            % (name, "".join(interfaces)),
        )


def test_networks_that_nothing_uses(host):
    """Networks that the collection defined were never removed; those of others never are."""
    bridges = {name: outcome["bridge"] for name, outcome in host.manage("used", "bridged", "kept", "old").items()}
    host.foreign("net-define", FOREIGN % ("foreign", "virbr77"))
    host.domain_with("by-name", NIC % ("network", "network", "used"))
    host.domain_with("by-bridge", NIC % ("bridge", "bridge", bridges["bridged"]))
    everything = host.networks()
    assert host.purge(minimum_age=3600)["networks"] == []

    planned = host.purge(check=True, keep_networks=["kept"])
    assert planned["networks"] == ["old"] and planned["changed"] and host.networks() == everything
    (diff,) = planned["diff"]
    assert diff["before_header"] == "old" and "<name>old</name>" in diff["before"] and diff["after"] == ""

    done = host.purge(keep_networks=["kept"])
    assert done["networks"] == ["old"] and done["diff"] == planned["diff"]
    assert host.networks() == [name for name in everything if name != "old"]
    assert bridges["old"] not in host.libvirt.run("ip", "link")
    again = host.purge(keep_networks=["kept"])
    assert (again["changed"], again["networks"], again["diff"]) == (False, [], [])

    for name in ("by-name", "by-bridge"):
        host.virsh("undefine", name)
    host.virsh("net-destroy", "used")  # defined, and not active
    assert host.purge()["networks"] == ["bridged", "kept", "used"]
    assert host.networks() == ["foreign"]


def test_a_network_that_a_running_guest_uses(host):
    host.manage("wire")
    host.make_disk(1)
    wanted = host.wanted(1)
    wanted["xml"] = wanted["xml"].replace("</devices>", NIC % ("network", "network", "wire") + "</devices>")
    assert host.domains(wanted)["outcomes"][guest(1)]["error"] is None
    without = wanted["xml"].replace(NIC % ("network", "network", "wire"), "")
    host.foreign("define", without)  # not in the definition any more, but it still runs with it
    assert host.purge()["networks"] == [] and host.purge()["images"] == []
    host.cleanup(guest(1))
    done = host.purge()
    assert done["networks"] == ["wire"] and len(done["images"]) == 1


def test_a_network_was_needed_a_moment_ago_however_old_it_is(host):
    host.manage("wire")
    host.libvirt.run("sh", "-c", "touch -d '2 days ago' /run/bootflow/networks/*")
    assert host.purge(check=True, minimum_age=86400)["networks"] == ["wire"]
    assert not host.manage("wire")["wire"]["changed"]
    assert host.purge(minimum_age=3600)["networks"] == []


def test_base_images(host):
    """Of guests of ours, and of what others made from the cache."""
    paths = {n: host.make_disk(n) for n in (1, 2, 3, 4)}
    base = os.path.join(host.path, "_base")
    files = {n: next(f for f in os.listdir(base) if f.startswith("image-%d-" % n)) for n in paths}
    assert host.domains(host.wanted(1))["outcomes"][guest(1)]["error"] is None
    moved = str(host.tmp / "moved.qcow2")  # of somebody's own guest, which is off
    shutil.move(paths[2], moved)
    host.foreign("define", host.wanted(2, disk=moved)["xml"])
    for n in (2, 3, 4):
        shutil.rmtree(os.path.dirname(paths[n]))
    assert host.purge(minimum_age=3600)["images"] == []

    planned = host.purge(check=True, keep_images=["image-4"])
    assert [os.path.basename(i["path"]) for i in planned["images"]] == [files[3]]
    (image,) = planned["images"]
    assert image["size"] == os.stat(image["path"]).st_blocks * 512 and 0 <= image["age"] < 600
    assert image["path"] in planned["diff"][0]["before"] and planned["diff"][0]["after"] == ""
    done = host.purge(keep_images=["image-4"])
    assert done["changed"] and [i["path"] for i in done["images"]] == [image["path"]]
    assert sorted(os.listdir(base)) == sorted(name for n in (1, 2, 4) for name in (files[n], "image-%d.json" % n))
    assert not host.purge(keep_images=["image-4"])["changed"]
    host.cleanup(guest(1))
    host.virsh("undefine", guest(2))
    assert {os.path.basename(i["path"]) for i in host.purge()["images"]} == {files[n] for n in (1, 2, 4)}
    assert host.make_disk(3) == paths[3]
