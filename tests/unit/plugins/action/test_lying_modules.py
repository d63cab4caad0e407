# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that answer anything about the items they worked on, or about their own failure: an error of the family, or believed."""

from __future__ import annotations

import copy
import importlib
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import Ports
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.results import item_errors
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_lying_hosts import BACKEND, FAILED, IQN, UUID, lies, variables

pytestmark = pytest.mark.hypothesis

GOOD: dict[str, t.Any] = {"changed": True, "error": None}
BAD = {"changed": False, "error": FAILED}
TARGET = {
    "iqn": IQN,
    "lun": 1,
    "portals": ["192.0.2.1:3260"],
    "initiators": ["iqn.h"],
    "sessions": [],
    "path": "/dev/x",
}
PLACE = {"type": "disk", "name": "vda", "bus": "pci", "address": "0000:00:03.0"}
LEAVING = {
    "name": "web",
    "power_state": 1,
    "cpu": "<cpu/>",
    "cpu_of_host": False,
    "virt_type": "kvm",
    "arch": "x86_64",
    "machine": "q35",
    "hypervisor_version": 7002000,
    "libvirt_version": 9000000,
    "disks": [
        {
            "name": "disk",
            "target": "vda",
            "allocated": 2**33,
            "record": {"format": "qcow2", "virtual_size": 2**33, "kind": "image", "image_id": "i", "base": ""},
        }
    ],
    "drive": True,
}
ANSWERS: dict[str, dict[str, t.Any]] = {
    "domain": {"outcomes": {UUID: {**GOOD, "power_state": 1, "vifs_missing": [], "devices": [PLACE]}, "b": BAD}},
    "domain_power": {"outcomes": {UUID: {**GOOD, "power_state": 4, "forced": False, "restarted": True}, "b": BAD}},
    "domain_migration.describe": {"outcomes": {UUID: {**GOOD, "guest": LEAVING}, "b": BAD}},
    "domain_migration.prepare": {"outcomes": {UUID: GOOD, "b": BAD}, "port": 49216, "fingerprint": "f" * 64},
    "domain_migration.migrate": {
        "outcomes": {
            UUID: {
                **GOOD,
                "left": True,
                "power_state": 1,
                "seconds": 1.5,
                "downtime": 0.1,
                "transferred": 2**33,
                "forced": False,
            },
            "b": {**BAD, "stays": True},
        }
    },
    "domain_migration.intervene": {"outcomes": {UUID: {**GOOD, "total": 2**33, "remaining": 0}, "b": BAD}},
    "domain_password": {"outcomes": {UUID: {**GOOD, "power_state": 1}, "b": BAD}},
    "domain_quiesce": {"outcomes": {UUID: {**GOOD, "power_state": 1, "quiesced": True, "token": "x"}, "b": BAD}},
    "domain_interface": {"outcomes": {UUID: GOOD, "b": BAD}},  # as of any module without shapes of its own
    "domain_rescue": {
        "outcomes": {
            UUID: {**GOOD, "power_state": 1, "ran": True, "forced": False, "vifs_missing": []},
            "b": {**BAD, "power_state": 4},
        }
    },
    "domain_console": {
        "outcomes": {
            UUID: {**GOOD, "power_state": 1, "console": ["x"], "vnc": {"listen": "127.0.0.1", "port": 5900}},
            "b": BAD,
        }
    },
    "instance_disks": {"outcomes": {UUID: {**GOOD, "pending": ["i"]}, "b": BAD}, "missing_images": ["i"]},
    "instance_build": {
        "parts": {
            "networks": {"outcomes": {"net": {**GOOD, "defined": True}}, "reservations": {}, "seconds": 0.1},
            "disks": {"outcomes": {UUID: {**GOOD, "pending": []}, "b": BAD}, "missing_images": [], "seconds": 0.2},
            "drives": {"outcomes": {UUID: GOOD}, "seconds": 0.0},
            "domains": {"outcomes": {UUID: {**GOOD, "power_state": 1, "name": "d"}}, "seconds": 0.3},
        }
    },
    "instance_backup": {
        "outcomes": {
            UUID: {
                **GOOD,
                "power_state": 1,
                "kind": "incremental",
                "parent_id": UUID,
                "reason": "",
                "live": True,
                "quiesced": False,
                "folder": "/x",
                "file": "f",
                "size": 5,
                "virtual_size": 9,
                "checksum": "a" * 64,
                "checkpoint": "c",
                "checkpoint_xml": "<x/>",
                "removed": [UUID],
            },
            "b": BAD,
        }
    },
    "instance_backup_image": {
        "outcomes": {UUID: {**GOOD, "disk_format": "qcow2", "size": 5, "checksum": "a" * 64, "path": "/x"}, "b": BAD}
    },
    "instance_backup_check": {"outcomes": {UUID: {**GOOD, "damage": ""}, "b": BAD}},
    "instance_backup_removal": {"outcomes": {UUID: GOOD, "b": BAD}},
    "instance_cleanup": {"outcomes": {UUID: GOOD, "b": BAD}},
    "instance_snapshot": {
        "outcomes": {
            UUID: {**GOOD, "power_state": 1, "disk_format": "raw", "size": 5, "checksum": "a" * 64, "path": "/x"},
            "b": BAD,
        }
    },
    "volume_lvm_image": {
        "outcomes": {UUID: {**GOOD, "disk_format": "raw", "size": 5, "checksum": "a" * 64, "path": "/x"}, "b": BAD}
    },
    "volume_lvm": {
        "outcomes": {UUID: {**GOOD, "name": "v", "path": "/dev/x", "size": 5}, "b": BAD},
        "backend": BACKEND,
        "evicted": [{"name": "image-x"}],
    },
    "iscsi_target": {"outcomes": {UUID: {**GOOD, **TARGET}, "b": BAD}},
    "iscsi_initiator": {"outcomes": {UUID: {**GOOD, "path": "/dev/x", "size": 5, "warnings": ["slow"]}, "b": BAD}},
    "config_drive": {
        "failed": True,
        "error_code": "DiskFull",
        "msg": "full",
        "status": 503,
        "remedy": "",
        "retryable": True,
    },
}


@pytest.mark.parametrize("kind", ["sqlite"])  # nothing is read or written
@pytest.mark.parametrize("module", sorted(ANSWERS))
def test_whatever_a_module_answers_is_an_error_of_the_family_or_believed(world: World, module: str) -> None:
    """Of each module that works on many items."""
    ports = WorldPorts(world, "a")
    action = action_of(compute_report, ports, variables("h1"))
    name, _dot, step = module.partition(".")

    def run(answer: dict[str, t.Any]) -> dict[str, str]:
        ports.modules = lambda _name, _arguments: copy.deepcopy(answer)
        try:
            result = action.run_module(name, {"step": step} if step else {})
        except errors.BootflowError as error:
            assert error.as_dict()["status"] in range(100, 600)
            assert all(c.isprintable() or c == "\n" for c in error.message), ascii(error.message)
            return {"": error.code}
        result = (result.get("parts") or {}).get("disks", result)
        return {key: error.code for key, error in item_errors(result, [UUID, "b"]).items()}

    assert run(ANSWERS[module]) in ({"b": "DriverNotInitialized"}, {"": "DiskFull"}), "the truth is believed"
    invalid = 0
    for _lie, answer in lies(ANSWERS[module], examples(1000)):
        invalid += run(answer) == {"": "InvalidAnswer"}
    assert invalid > 10


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_module_that_warns_is_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ansible hands it to an action: with objects of a class of its own for the texts, since ansible-core 2.19."""
    text = "only portal 192.0.2.1:3260 of 2 is used"
    try:
        messages = importlib.import_module("ansible.module_utils._internal._messages")
        warning = messages.WarningSummary(event=messages.Event(msg=text))
    except ImportError:
        warning = text
    ports = WorldPorts(world, "a")
    action = action_of(compute_report, ports, variables("h1"))
    given = {**ANSWERS["iscsi_initiator"], "warnings": [warning]}
    sends = {"_low_level_execute_command": None, "_remove_tmp_path": None}
    ports._action = types.SimpleNamespace(_execute_module=lambda **_given: given, **sends)
    monkeypatch.setattr(WorldPorts, "run_module", Ports.run_module)
    assert action.run_module("iscsi_initiator", {})["outcomes"] == given["outcomes"]
    assert ports.warnings == ["h1: " + text]
