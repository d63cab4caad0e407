# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file whose instances have volumes is applied: booted with them, attached and detached while guests run, and gone on with after a SIGKILL."""

from __future__ import annotations

import time
import typing as t

import pytest
from flow import entry
from test_boot_from_volume import READY, WATCH
from volume_flow import VolumeFlow

pytestmark = pytest.mark.long


def data(*names: str) -> list[dict[str, t.Any]]:
    return [{"source_type": "volume", "uuid": name, "destination_type": "volume", "boot_index": -1} for name in names]


def guest(name: str, *names: str, **fields: t.Any) -> dict[str, t.Any]:
    """An instance with a local root disk and these volumes."""
    local = {"source_type": "image", "uuid": "guest", "destination_type": "local", "boot_index": 0}
    return entry(name, block_device_mapping=[local, *data(*names)], **fields)


def app(*names: str) -> dict[str, t.Any]:
    return guest("app", *names, user_data=WATCH)


def apply(volumes: VolumeFlow, *entries: dict[str, t.Any], options: tuple[str, ...] = (), expect: int = 0) -> str:
    done = volumes.run("apply", *options, bootflow_instances=list(entries), **READY)
    assert done.returncode == expect, done.output
    return done.output


def attached(volumes: VolumeFlow) -> set[str]:
    return {v["name"] for v in volumes.volumes() if v["attach_status"] == "attached"}


def test_volumes_of_a_file(volumes: VolumeFlow) -> None:
    for name in ("one", "two"):
        volumes.create({"name": name, "size": 1, "volume_type": "thin"})
    apply(volumes, app("one"))
    row = volumes.instances()["app"]
    serials = {v["name"]: v["id"][:20] for v in volumes.volumes()}
    volumes.until_console(row, serials["one"])
    assert attached(volumes) == {"one"}
    again = apply(volumes, app("one"))
    assert "nothing to do" in again and "changed=0" in again

    planned = apply(volumes, app("two"), options=("--check", "--diff"))
    assert "~ app attach volume two" in planned and "~ app detach volume one" in planned, planned
    assert attached(volumes) == {"one"}
    apply(volumes, app("two"))
    volumes.until_console(row, serials["two"])
    assert attached(volumes) == {"two"} and volumes.instances()["app"]["uuid"] == row["uuid"]

    process = volumes.start("apply", {"bootflow_instances": [app("one", "two"), guest("new")], **READY})
    volumes.wait_for(
        "SELECT 1 FROM volume_attachments WHERE deleted = '' AND attach_status != 'attached'", 120, process
    )
    volumes.kill(process)
    time.sleep(5)
    done = volumes.run("audit")
    assert done.returncode == 0, done.output
    apply(volumes, app("one", "two"), guest("new"))
    assert attached(volumes) == {"one", "two"} and set(volumes.instances()) == {"app", "new"}
    assert len(volumes.query("SELECT 1 FROM volume_attachments WHERE deleted = ''")) == 2
    assert "nothing to do" in apply(volumes, app("one", "two"), guest("new"))

    volumes.create({"name": "three", "size": 1, "volume_type": "thin"})
    both = app("one", "two"), guest("new", "two", "three")
    told = apply(volumes, *both, expect=2)
    assert "! new attach volume two: " in told and "ApplyIncomplete" in told, told
    assert attached(volumes) == {"one", "two", "three"}, "one that another instance has keeps no other from it"
    freed = apply(volumes, app("one"), guest("new", "two", "three"))
    assert "~ app detach volume two" in freed and "~ new attach volume two" in freed, freed
    having = {v["id"]: v["name"] for v in volumes.volumes()}
    rows = volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''")
    uuids = {r["uuid"]: n for n, r in volumes.instances().items()}
    assert {(uuids[r["instance_uuid"]], having[r["volume_id"]]) for r in rows} == {
        ("app", "one"),
        ("new", "two"),
        ("new", "three"),
    }
    volumes.check_ledger()
    volumes.delete("app", "new")
    volumes.remove("one", "two", "three")
    assert volumes.residue() == {}
