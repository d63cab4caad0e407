# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's part of volumes in Ceph: what it asks storage and compute hosts, and with whose key."""

from __future__ import annotations

import typing as t
import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.connectors.registry import CONNECTOR_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.rbd_names import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments.exports import Export
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import storage_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.storage_exports import end_exports, make_exports

FSID = "99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654"
KEY = "AQC+uwxrfXuXJxAAzXdVGMtCYdczKnlZyGYwdA=="
CEPH = {
    "name": "ceph",
    "driver": "rbd",
    "rbd_pool": "volumes",
    "rbd_user": "cinder",
    "rbd_monitors": ["192.0.2.21:6789"],
}
ONE, TWO = (str(uuid.UUID(int=n)) for n in (1, 2))


class Action:
    """Where a host would answer: each call is kept, ``fails`` says what to answer of a volume."""

    def __init__(self, keys: t.Any = None, fails: t.Any = None) -> None:
        variables = {"bootflow_storage_backends": [CEPH], "bootflow_rbd_keys": {"ceph": KEY} if keys is None else keys}
        self.task_vars = {"inventory_hostname": "s1", "hostvars": {"s1": variables}}
        self.calls: list[tuple[str, t.Any]] = []
        self.fails = fails or {}

    def run_module(self, name: str, arguments: t.Any) -> t.Any:
        self.calls.append((name, arguments))
        outcomes = {
            v["id"]: {"error": self.fails[v["id"]].as_dict()}
            if v["id"] in self.fails
            else {"error": None, "name": "volume-" + v["id"], "watchers": [], "fenced": []}
            for v in arguments["volumes"]
        }
        return {"outcomes": outcomes, "fsid": FSID}


def export(volume_id: str, attachment: str = "a1", **fields: t.Any) -> Export:
    (configuration,) = storage_settings.backends({"bootflow_storage_backends": [CEPH]}, "s1")
    return Export(attachment, volume_id, "ceph", configuration, "iqn.a", pool_host="s1@ceph#ceph", **fields)


def test_an_export_is_a_look_at_who_has_the_volume_open() -> None:
    action = Action()
    made = make_exports(action, [export(ONE), export(TWO, "a2", users=1)])
    assert made["a1"] == {
        "connection_info": {
            "connector": "rbd",
            "name": "volumes/volume-" + ONE,
            "monitors": ["192.0.2.21:6789"],
            "user": "cinder",
            "fsid": FSID,
        }
    }
    ((name, arguments),) = action.calls
    assert name == "rbd_access" and arguments["key"] == KEY
    assert arguments["volumes"] == [{"id": ONE, "users": 0}, {"id": TWO, "users": 1}]
    assert KEY not in str(made)


def test_a_volume_that_is_open_elsewhere_fails_alone() -> None:
    refused = errors.VolumeOpenElsewhere(volume_id=ONE, watchers="192.0.2.9:0/1")
    made = make_exports(Action(fails={ONE: refused}), [export(ONE), export(TWO, "a2")])
    assert isinstance(made["a1"], errors.BootflowError) and "192.0.2.9:0/1" in made["a1"].message
    assert not isinstance(made["a2"], errors.BootflowError)


def test_a_backend_without_a_key_is_refused() -> None:
    action = Action(keys={})
    made = make_exports(action, [export(ONE)])
    assert isinstance(made["a1"], errors.InvalidInput) and "bootflow_rbd_keys" in str(made["a1"].remedy)
    assert action.calls == []


def test_an_export_that_failed_ends_without_a_look() -> None:
    action = Action()
    assert end_exports(action, [export(ONE)]) == {"a1": None} and action.calls == []
    assert end_exports(action, [export(ONE, exported=True)]) == {"a1": None}
    assert action.calls[0][1]["volumes"] == [{"id": ONE, "state": "absent", "users": 0, "force": False}]


def test_a_lost_host_is_fenced() -> None:
    action = Action()
    end_exports(action, [export(ONE, force=True)])
    assert action.calls[0][1]["volumes"] == [{"id": ONE, "state": "absent", "users": 0, "force": True}]


class Row:
    volume_id, iqn, lun, portals, initiator, device_path = ONE, None, None, None, "iqn.a", None
    connection_info: t.Any = None


@pytest.mark.parametrize("exported", [False, True])
def test_the_disk_of_a_guest(exported: bool) -> None:
    row = Row()
    if exported:
        row.connection_info = {
            "connector": "rbd",
            "name": "volumes/volume-" + ONE,
            "monitors": ["192.0.2.21:6789", "[2001:db8::1]:3300"],
            "user": "cinder",
            "fsid": FSID,
        }
    connector = CONNECTOR_TYPES["rbd"]
    disk = connector.disk(t.cast(t.Any, row), lambda: "", "")
    if not exported:
        assert disk["source"] == "block" and connector.source_of(t.cast(t.Any, row)) == ""
        return
    assert connector.source_of(t.cast(t.Any, row)) == "volumes/volume-" + ONE
    assert disk["connection"]["hosts"] == [
        {"name": "192.0.2.21", "port": "6789"},
        {"name": "2001:db8::1", "port": "3300"},
    ]
    assert disk["connection"]["auth"] == {
        "username": "cinder",
        "secret_type": "ceph",
        "secret_uuid": secret_uuid(FSID, "cinder"),
    }
    assert disk["connection"]["discard"] is True


def test_a_host_without_qemus_driver_is_refused() -> None:
    with pytest.raises(errors.HostLacksHardware, match="RBD driver of QEMU"):
        CONNECTOR_TYPES["rbd"].check_host("c1", {"qemu_rbd": False})
    CONNECTOR_TYPES["rbd"].check_host("c1", {})  # of a report that does not say
