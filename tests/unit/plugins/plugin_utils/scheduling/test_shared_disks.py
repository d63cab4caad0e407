# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NotSupportedYet
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.evacuate import _without_its_disks
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.works import WORKS, work_of
from ansible_collections.bootflow.compute.plugins.plugin_utils.scheduling import shared_disks

VARIABLES = {"a": {"bootflow_disk_backend": "rbd"}, "b": {}}


@pytest.fixture
def action(monkeypatch: pytest.MonkeyPatch) -> t.Any:
    monkeypatch.setattr(shared_disks.host_variables, "of_host", lambda hostvars, host: hostvars[host])
    return types.SimpleNamespace(task_vars={"hostvars": VARIABLES})


def row(host: str | None) -> t.Any:
    return types.SimpleNamespace(host=host, display_name="web")


def test_work_with_disks_in_a_pool_is_refused_by_name(action: t.Any) -> None:
    assert shared_disks.hosts_with(action, ["a", "b", "unknown"]) == {"a"}
    shared_disks.refuse(action, [row("b"), row(None)], "snapshot")
    with pytest.raises(NotSupportedYet, match="snapshot of instance web, whose disks are in Ceph"):
        shared_disks.refuse(action, [row("b"), row("a")], "snapshot")


def test_the_works_that_read_disks() -> None:
    found = {name for name in WORKS if work_of(t.cast("t.Any", None), name).reads_disks}
    assert found == {"snapshot", "create_backup", "incremental_backup", "revert", "shelve", "shelve_offload"}


def test_an_evacuation_goes_where_the_disks_are() -> None:
    places = {"a": "rbd:F/vms", "b": "rbd:F/vms", "c": "rbd:F/others", "d": "qcow2"}
    assert _without_its_disks("a", places) == {"c", "d"}
    assert _without_its_disks("d", places) == set() == _without_its_disks("gone", places)
