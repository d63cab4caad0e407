# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""UEFI variables of real guests with edk2's firmware: they go where their instance goes, are made anew with it, and are gone with it."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest
from flow import Flow, entry
from test_operations import guest, operate, states_of
from test_resize_here import MORE, alone
from test_snapshots import Stores

# Nothing on the disk of this guest boots by UEFI: its firmware says so, and goes on. It does not listen to its power button.
UP = "BdsDxe"
OFF = {"bootflow_shutdown_timeout": 1}
FOLDER = "/var/lib/bootflow/instances/%s"
OF_LIBVIRT = "/var/lib/libvirt/qemu/nvram"
# A variable as edk2 writes it, at the end of its store. source: MdeModulePkg/Include/Guid/VariableFormat.h
VARIABLES = """
import struct, sys
path, name, value = sys.argv[1:]
with open(path, "r+b") as file:
    data = file.read()
    (begin,) = struct.unpack_from("<H", data, 48)
    (size,) = struct.unpack_from("<I", data, begin + 16)
    at, found = begin + 28, {}
    while at + 60 < begin + size and data[at : at + 2] == b"\\xaa\\x55":
        state, of_name, of_data = data[at + 2], *struct.unpack_from("<II", data, at + 36)
        end = at + 60 + of_name
        if state == 0x3F:
            found[data[at + 60 : end - 2].decode("utf-16-le")] = data[end : end + of_data]
        at = (end + of_data + 3) & ~3
    if value:
        text = name.encode("utf-16-le") + bytes(2)
        head = struct.pack("<HBxIQ16xIII", 0x55AA, 0x3F, 7, 0, 0, len(text), len(value))
        file.seek(at)
        file.write(head + bytes(range(16)) + text + value.encode())
print(found.get(name, b"").decode(), len(found))
"""


def nvram(flow: Flow, name: str, value: str = "") -> tuple[str, int]:
    """The value of a variable of a guest, and how many variables it has. :arg value: what is written into the file of a guest that is off"""
    row = flow.instances()[name]
    path = FOLDER % row["uuid"] + "/disk.nvram"
    said = flow.lab.host(row["host"]).run("python3", "-c", VARIABLES, path, "Marker", value).stdout
    found, _blank, count = said.strip("\n").rpartition(" ")
    return found, int(count)


def files(flow: Flow, uuid: str) -> dict[str, list[str]]:
    """host -> the NVRAM files that it has of an instance, and those of which libvirt chose the place."""
    said = "ls -d %s/*nvram* %s/* 2>/dev/null || true" % (FOLDER % uuid, OF_LIBVIRT)
    listed = {h.name: h.run("sh", "-c", said).stdout.split() for h in flow.lab.hosts}
    return {host: names for host, names in listed.items() if names}


def wait_up(flow: Flow, name: str, seconds: float = 120) -> None:
    """Its firmware has read and written its variables."""
    row = flow.instances()[name]
    end = time.monotonic() + seconds
    while UP not in flow.console(row["host"], row["uuid"]):
        assert time.monotonic() < end, flow.console(row["host"], row["uuid"])
        time.sleep(0.5)


def uefi(flow: Flow) -> None:
    image = flow.variables["bootflow_images"][0]
    image["properties"] = {**image.get("properties", {}), "hw_firmware_type": "uefi", "hw_machine_type": "q35"}
    flow.variables.update(OFF)


def test_variables_go_back_with_the_disk(flow: Flow) -> None:
    """Of snapshots of a guest that is off, and of one that runs."""
    stores = Stores(flow)
    uefi(flow)
    flow.boot(entry("web"))
    wait_up(flow, "web")
    stores.take("web", "running", store="shared")
    operate(flow, "stop", "web")
    own = FOLDER % flow.instances()["web"]["uuid"] + "/disk.nvram"
    assert nvram(flow, "web", "then")[0] == "" and nvram(flow, "web")[0] == "then"
    stores.take("web", "off", store="shared")
    host = flow.lab.host(flow.instances()["web"]["host"])
    host.run("sed", "-i", "s/then/now!/", own)
    assert nvram(flow, "web")[0] == "now!"

    operate(flow, "revert", "web", bootflow_revert_image="off")
    assert nvram(flow, "web")[0] == "then"
    assert host.run("stat", "-c", "%U %a", own).stdout.split() == ["libvirt-qemu", "600"]
    operate(flow, "start", "web")
    wait_up(flow, "web")
    assert nvram(flow, "web")[0] == "then", "its firmware keeps what came"
    operate(flow, "revert", "web", bootflow_revert_image="running")
    wait_up(flow, "web")
    found, count = nvram(flow, "web")
    assert found == "" and count > 3, "its firmware had written some when the snapshot was made"
    with contextlib.closing(sqlite3.connect(flow.ledger_path, timeout=30, isolation_level=None)) as ledger:
        ledger.execute("DELETE FROM image_nvrams")  # as of an image that an earlier version made
    refused = operate(flow, "revert", "web", expect=2, bootflow_revert_image="off")
    assert "UEFI variables, which the image lacks" in " ".join(refused.split()) and guest(flow, "web") == "running"
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_variables_go_with_the_guest(flow: Flow) -> None:
    uefi(flow)
    flow.boot(entry("web"))
    wait_up(flow, "web")
    row = flow.instances()["web"]
    uuid, own = row["uuid"], FOLDER % row["uuid"] + "/disk.nvram"
    assert files(flow, uuid) == {row["host"]: [own]}
    assert flow.lab.host(row["host"]).run("stat", "-c", "%U", own).stdout.strip() == "libvirt-qemu"
    operate(flow, "stop", "web")
    assert nvram(flow, "web", "of the first host")[1] > 3, "its firmware has written some"

    operate(flow, "migrate", "web")
    there = flow.instances()["web"]["host"]
    assert there != row["host"] and nvram(flow, "web")[0] == "of the first host"
    operate(flow, "confirm_resize", "web")
    assert files(flow, uuid) == {there: [own]}
    operate(flow, "start", "web")
    wait_up(flow, "web")
    assert nvram(flow, "web")[0] == "of the first host", "its firmware keeps what came"

    operate(flow, "live_migrate", "web")
    alive = flow.instances()["web"]["host"]
    assert alive != there and guest(flow, "web") == "running" and files(flow, uuid) == {alive: [own]}
    operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
    wait_up(flow, "web")
    assert nvram(flow, "web")[0] == "of the first host" and files(flow, uuid) == {alive: [own]}

    alone(flow, "web")
    here = {"bootflow_allow_resize_to_same_host": True, "bootflow_resize_flavor": "grown", **MORE}
    operate(flow, "resize", "web", **here)
    assert nvram(flow, "web")[0] == "of the first host"
    operate(flow, "revert_resize", "web")
    assert nvram(flow, "web")[0] == "of the first host" and files(flow, uuid) == {alive: [own]}

    operate(flow, "rescue", "web")
    assert files(flow, uuid) == {alive: [own, own + ".rescue"]}
    operate(flow, "unrescue", "web")
    assert nvram(flow, "web")[0] == "of the first host" and files(flow, uuid) == {alive: [own]}

    operate(flow, "rebuild", "web")
    wait_up(flow, "web")
    assert states_of(flow) == {("active", None)} and nvram(flow, "web")[0] == ""
    flow.delete("web")
    assert flow.residue() == {} and files(flow, uuid) == {}
