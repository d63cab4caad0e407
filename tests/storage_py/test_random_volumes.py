# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random playbooks of instances and of volumes by two people at once, runs that are killed and hosts that fail; then everything is whole.

No guest ever runs twice, no host is let in to a volume that is not its guest's, and no volume is left where it is not known.
crowd.py says how another history is chosen.
"""

from __future__ import annotations

import random
import typing as t
from pathlib import Path

import copies
import pytest
import tiny_guest
from crowd import Crowd, break_a_guest, is_whole
from flow import FLAVORS, entry, image_file
from test_boot_from_volume import existing, on_volume, root
from test_moves_with_volumes import admitted
from volume_flow import GROUPS, VolumeFlow

pytestmark = pytest.mark.long

NAMES = ("a", "b", "c")
VOLUMES = ("one", "two", "three")
# Operations, and the vm_states in which they may begin
OPERATIONS = {
    "stop": ("active", "error"),
    "start": ("stopped",),
    "reboot": ("active", "stopped", "error"),
    "pause": ("active",),
    "unpause": ("paused",),
    "rescue": ("active", "stopped"),
    "unrescue": ("rescued",),
    "rebuild": ("active", "stopped", "error"),
    "resize": ("active", "stopped"),
    "migrate": ("active", "stopped"),
    "confirm_resize": ("resized",),
    "revert_resize": ("resized",),
    "live_migrate": ("active", "paused"),
    "restore": ("soft-delete",),
    "force_delete": ("soft-delete", "error", "resized"),
}
SETTLED = {"available", "in-use", "error", "error_extending", "error_deleting"}


class Owners(Crowd):
    """People with instances and volumes."""

    flow: VolumeFlow
    longest_kill = 15.0
    longest_run = 900.0

    def once(self, mine: random.Random) -> None:
        kind = mine.choices(("boot", "delete", "attach", "volumes", "others", "operation"), (20, 8, 22, 16, 6, 40))[0]
        some = mine.sample(NAMES, mine.choice((1, 1, 2)))
        if kind == "delete":
            interval = mine.choice((0, 0, 60))
            self.play(
                mine,
                "delete",
                bootflow_names=some,
                bootflow_missing_ok=True,
                bootflow_reclaim_instance_interval=interval,
            )
        elif kind == "attach":
            pairs = [{"instance": mine.choice(NAMES), "volume": v} for v in mine.sample(VOLUMES, mine.choice((1, 2)))]
            self.play(
                mine, mine.choice(("attach_volume", "attach_volume", "detach_volume")), bootflow_attachments=pairs
            )
        elif kind == "volumes":
            self.work_on_volumes(mine)
        elif kind == "others":
            playbook = mine.choice(("audit", "heartbeat", "power_sync", "reclaim", "drain", "host", "volume_refresh"))
            every = [h.name for h in self.flow.lab.hosts]
            of_hosts = {"bootflow_host": every, "bootflow_host_state": "enabled"} if playbook == "host" else {}
            self.play(mine, playbook, bootflow_drain_host=mine.choice(every), bootflow_shutdown_timeout=1, **of_hosts)
        elif kind == "boot" or not self.operate(mine):
            with self.building():
                self.play(mine, "boot", bootflow_instances=[an_instance(name) for name in some])

    def work_on_volumes(self, mine: random.Random) -> None:
        name = mine.choice(VOLUMES)
        kind = mine.choices(("create", "extend", "snapshot", "delete"), (6, 2, 2, 3))[0]
        if kind == "create":
            wanted = [a_volume(mine, each) for each in mine.sample(VOLUMES, mine.choice((1, 2, 3)))]
            self.play(mine, "volume_create", bootflow_volumes=wanted)
        elif kind == "extend":
            self.play(mine, "volume_extend", bootflow_volumes=[{"name": name, "size": 2}])
        elif kind == "snapshot":
            state = mine.choice(("present", "absent"))
            self.play(
                mine, "volume_snapshot", bootflow_snapshots=[{"name": "of-" + name, "volume": name, "state": state}]
            )
        else:
            self.play(
                mine,
                "volume_delete",
                bootflow_volume_names=[name],
                bootflow_volume_cascade=mine.random() < 0.7,
                bootflow_missing_ok=True,
            )

    def operate(self, mine: random.Random) -> bool:
        """Mostly on instances in a state that allows it. Whether there was one."""
        operation = mine.choice(sorted(OPERATIONS))
        able = self.able(mine, OPERATIONS[operation])
        if able:
            self.play(
                mine,
                operation,
                bootflow_names=able,
                bootflow_shutdown_timeout=mine.choice((0, 1)),
                bootflow_reboot_type=mine.choice(("SOFT", "HARD")),
                bootflow_wait_soft_reboot_seconds=1,
                bootflow_rescue_image_ref="guest",
                bootflow_rebuild_image="guest",
                bootflow_resize_flavor=mine.choice(("tiny", "more")),
                bootflow_allow_resize_to_same_host=mine.random() < 0.3,
            )
        return bool(able)

    def break_something(self, mine: random.Random) -> None:
        host = mine.choice(self.flow.lab.hosts)
        kind = mine.choice(("guest", "guest", "libvirtd", "spawn", "network", "portal", "restart", "dies"))
        self.say(host.name, kind)
        if kind == "guest":
            break_a_guest(mine, [host])
        elif kind == "restart":
            host.restart()
        elif kind == "portal":
            with self.flow.portal_unreachable():
                self.over.wait(mine.uniform(3.0, 20.0))
        elif kind == "dies":
            self.lose(mine, host)
        else:
            with self.nobody_builds():
                host.fail(kind)
            self.over.wait(mine.uniform(3.0, 20.0))
            host.restore()


def a_volume(mine: random.Random, name: str) -> dict[str, t.Any]:
    source = mine.choice(({}, {}, {"image": "guest"}))
    return {"name": name, "size": 1, "volume_type": mine.choice(sorted(GROUPS)), **source}


def an_instance(name: str) -> dict[str, t.Any]:
    """The same each time, so that a boot can go on: ``a`` on a volume that goes with it, ``b`` on one that stays, ``c`` on a local disk; the
    last two with one more that is there."""
    if name == "a":
        return on_volume(name, root(volume_type="thin"))
    data = {**existing("one" if name == "b" else "two"), "boot_index": None}
    if name == "b":
        return on_volume(name, root(volume_type="thick", delete_on_termination=False), data)
    local = {"source_type": "image", "uuid": "guest", "destination_type": "local", "boot_index": 0}
    return entry(name, block_device_mapping=[local, data])


def volumes_are_whole(flow: VolumeFlow) -> None:
    """Each volume is what its attachments say, exported to the hosts of its guests and to nobody else, and in libvirt's definition of these."""
    rows = flow.query("SELECT * FROM volume_attachments WHERE deleted = ''")
    instances = {row["uuid"]: row for row in flow.instances().values()}
    attached: dict[str, list[t.Any]] = {}
    for row in rows:
        said = dict(row)
        assert row["attach_status"] == "attached", said
        assert instances[row["instance_uuid"]]["host"] == row["attached_host"], said
        attached.setdefault(row["volume_id"], []).append(row)
    for volume in flow.volumes():
        mine = attached.get(volume["id"], [])
        assert volume["attach_status"] == ("attached" if mine else "detached"), dict(volume)
        assert (volume["status"] == "in-use") == bool(mine), dict(volume)
        exported = [row for row in mine if row["export"] == "done"]
        assert admitted(flow, volume["id"]) == sorted({row["initiator"] for row in exported}), dict(volume)
    known = {volume["id"] for volume in flow.volumes()}
    assert set(flow.exported()) <= known, "targets of nobody"
    for kind, group in GROUPS.items():
        there = {name.removeprefix("volume-") for name in flow.storage.lvs(group) if name.startswith("volume-")}
        assert there <= known, "logical volumes of nobody in %s" % kind
    for host in flow.lab.hosts:
        for uuid in host.run("virsh", "-q", "-c", "qemu:///system", "list", "--uuid").stdout.split():
            xml = host.run("virsh", "-q", "-c", "qemu:///system", "dumpxml", uuid).stdout
            wanted = {row["volume_id"] for row in rows if row["instance_uuid"] == uuid}
            assert {volume for volume in known if "volume-" + volume in xml} == wanted, (uuid, wanted, xml)


def test_after_any_history_volumes_are_whole(volumes: VolumeFlow, tmp_path: Path) -> None:
    (linux,) = volumes.variables["bootflow_images"]
    volumes.variables["bootflow_images"] = [{**linux, **image_file(tiny_guest.image(tmp_path))}]
    volumes.variables["bootflow_flavors"] = [*FLAVORS, {"name": "more", "vcpus": 1, "memory_mb": 224, "root_gb": 1}]
    volumes.create(*({"name": name, "size": 1, "volume_type": "thin"} for name in VOLUMES))
    crowd = Owners(volumes)
    with copies.Watch() as watch:
        crowd.live(2, (10.0, 40.0))
        crowd.settle()
    assert not watch.twice & {row["uuid"] for row in volumes.query("SELECT uuid FROM instances")}, (
        "guests that ran twice"
    )
    is_whole(volumes)
    left = {row["name"]: row["status"] for row in volumes.volumes() if row["status"] not in SETTLED}
    assert not left, left
    volumes_are_whole(volumes)
    assert not crowd.wrong, crowd.wrong
    volumes.delete(*volumes.instances(), bootflow_delete_force=True)
    done = volumes.run(
        "volume_delete", bootflow_volume_delete_all=True, bootflow_volume_cascade=True, bootflow_project="default"
    )
    assert done.returncode == 0, done.output
    assert volumes.residue() == {}
