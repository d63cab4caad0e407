# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HostUnreachable, VolumeFailed
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.results import error_result
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import storage_reports, volume_texts

VOLUME = {
    "id": "v1",
    "name": None,
    "size": 3,
    "status": "in-use",
    "volume_type": None,
    "bootable": True,
    "pool_host": "s1@a#a",
    "attached_to": [{"instance": None, "instance_uuid": "u1", "device": "/dev/vdb"}],
}
BACKEND = {
    "pool_host": "s1@a#a",
    "availability_zone": "nova",
    "disabled": False,
    "frozen": False,
    "error": None,
    "reported_at": 1.0,
    "total_gb": 10.0,
    "free_gb": 4.0,
    "provisioned_gb": 6.0,
    "pending_gb": 0,
    "data_percent": 41.6,
    "volume_count": 2,
    "orphans": ["volume-x"],
}


def test_tables():
    lines = volume_texts.volume_table([VOLUME])
    assert lines[0].split() == ["VOLUME", "ID", "SIZE_GB", "STATUS", "TYPE", "BOOTABLE", "BACKEND", "ATTACHED_TO"]
    assert lines[2].split() == ["-", "v1", "3", "in-use", "-", "yes", "s1@a#a", "u1", "on", "/dev/vdb"]
    changes = [{}, {"disabled": True}, {"frozen": True}, {"error": {"code": "X"}}, {"reported_at": None}]
    states = [volume_texts.backend_table([{**BACKEND, **c}])[2].split()[2] for c in changes]
    assert volume_texts.backend_table([BACKEND])[2].split()[-4:] == ["42", "%", "2", "1"]
    assert volume_texts.backend_table([{**BACKEND, "data_percent": None}])[2].split()[-3:] == ["-", "2", "1"]
    assert states == ["up", "disabled", "frozen", "X", "not"]


def test_a_failed_volume_is_shown_with_what_each_backend_said():
    fault = {"code": "NoValidBackend", "message": "none", "remedy": "Make room."}
    tried = [{"host": "s1@a#a", "code": "VolumeBackendAPIException", "message": "full"}] * 2
    volumes = [{**VOLUME, "fault": fault, "tried": tried}, {"id": "v2", "name": "n", "status": "creating"}]
    error = VolumeFailed([volume_texts.failed_item(v) for v in volumes], 3)
    assert error_result(error)["msg"].splitlines()[1:-1] == [
        "  v1: NoValidBackend: none",
        "    on s1@a#a: VolumeBackendAPIException: full",
        "    Remedy: Make room.",
        "  n: status is creating",
    ]


def test_a_report_keeps_the_facts_and_leaves_the_volumes_out():
    configuration = {"name": "a", "pool_host": "s1@a#p", "pool": "p"}
    facts = {"free_capacity_gb": 1.0, "boot_id": "b", "read_at": 2.0, "volumes": [1], "error": None}
    facts["orphans"] = [{"name": "volume-x", "id": "x", "size": 5}]
    told = storage_reports.backend_data(configuration, facts)
    orphans = [{"name": "volume-x", "id": "x"}]
    assert told["capacity"] == {"free_capacity_gb": 1.0, "boot_id": "b", "read_at": 2.0, "orphans": orphans}
    assert told["error"] is None
    report = storage_reports.report_of(told)
    assert (report.backend, report.pool, report.capacity, report.error) == ("a", "p", told["capacity"], None)
    error = {"code": "DriverNotInitialized", "message": "no", "status": 503, "remedy": "r", "retryable": True}
    broken = storage_reports.report_of(storage_reports.backend_data(configuration, {"error": error}))
    assert broken.capacity is None and broken.error.code == "DriverNotInitialized" and broken.error.message == "no"
    assert storage_reports.backend_data(configuration, None)["error"]["code"] == "RemoteError"


def test_why_a_host_is_silent_is_said_once():
    error = HostUnreachable(host="s1", reason="refused")
    assert storage_reports.why_silent("s1", error.message).strip() == "refused"
    assert storage_reports.why_silent("s1", "the module failed") == "the module failed"
