# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""UEFI variables of a guest whose root disk is no file: they are one, in the instance's folder, from its boot to its deletion."""

from __future__ import annotations

import typing as t

import apparmor
from flow import Flow
from test_nvram import FOLDER, OFF, files, nvram, wait_up
from test_operations import operate

UEFI = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}
FLAVOR = {"name": "firmware", "vcpus": 1, "memory_mb": 256, "root_gb": 1}
UP = 400  # seconds, on emulated CPUs of emulated CPUs


def live_and_die(flow: Flow, name: str, host: t.Any) -> None:
    """A guest that was just booted keeps its variables when it is off and when it is defined anew; with it they go."""
    wait_up(flow, name, UP)
    row = flow.instances()[name]
    own = FOLDER % row["uuid"] + "/disk.nvram"
    assert files(flow, row["uuid"]) == {row["host"]: [own]}
    assert host.sh("stat -c '%%U %%a' %s" % own).split() == ["libvirt-qemu", "600"]
    operate(flow, "stop", name, **OFF)
    assert nvram(flow, name, "kept")[1] > 3, "its firmware has written some"
    operate(flow, "start", name)
    wait_up(flow, name, UP)
    assert nvram(flow, name)[0] == "kept"
    operate(flow, "reboot", name, bootflow_reboot_type="HARD")
    wait_up(flow, name, UP)
    assert nvram(flow, name)[0] == "kept" and files(flow, row["uuid"]) == {row["host"]: [own]}
    flow.delete(name)
    assert files(flow, row["uuid"]) == {}
    assert not apparmor.denied(host)
