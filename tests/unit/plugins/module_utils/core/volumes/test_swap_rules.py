# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of an exchange of volumes, as a table."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import swap_rules

WEB, DB = "web", "db"


def had(uuid: str = WEB, mode: str = "rw", status: str = "attached", connector: str = "kernel") -> t.Any:
    return types.SimpleNamespace(instance_uuid=uuid, attach_mode=mode, attach_status=status, connector=connector)


ANY = {"multiattach": False, "migration_status": None}
OLD = {**ANY, "id": "old", "size": 2, "status": "in-use", "attach_status": "attached", "availability_zone": "a"}
NEW = {**ANY, "id": "new", "size": 2, "status": "available", "attach_status": "detached", "availability_zone": "a"}
ALSO = {"multiattach": True}

RULES: list[tuple[str, dict[str, t.Any], dict[str, t.Any], list[t.Any], dict[str, t.Any], str]] = [
    ("of the same size", {}, {}, [had()], {}, ""),
    ("a larger one", {}, {"size": 3}, [had()], {}, ""),
    ("attached to another instance", {}, {}, [had(DB)], {}, "Invalid volume: Old volume is attached to a different instance."),
    ("not attached", {"status": "available"}, {}, [], {}, "Invalid volume: Old volume is attached to a different instance."),
    ("being detached", {}, {}, [had(status="detached")], {}, "Invalid volume: Old volume is attached to a different instance."),
    ("the new one is attached", {}, {"attach_status": "attached"}, [had()], {}, "Invalid volume: New volume must be detached in order to swap."),
    ("smaller", {}, {"size": 1}, [had()], {}, "Invalid volume: New volume must be the same size or larger."),
    ("smaller and attached", {}, {"size": 1, "attach_status": "attached"}, [had()], {}, "Invalid volume: New volume must be detached in order to swap."),
    ("another zone", {}, {"availability_zone": "b"}, [had()], {"instance_zone": "a", "cross_az_attach": False},
     "Invalid volume: Instance web and volume new are not in the same availability_zone. Instance is in a. Volume is in b"),
    ("another zone, which is allowed", {}, {"availability_zone": "b"}, [had()], {"instance_zone": "a"}, ""),
    ("the new one is being created", {}, {"status": "creating"}, [had()], {},
     "Invalid volume: Volume status must be available to reserve, but the status is creating."),
    ("the old one is extended", {"status": "extending"}, {}, [had()], {},
     "Invalid volume: Unable to detach volume. Volume status must be 'in-use' and attach_status must be 'attached' to detach."),
    ("another instance writes, too", ALSO, {}, [had(), had(DB)], {},
     "Swapping multi-attach volume old with multiple read/write attachments is not supported."),
    ("another instance reads only", ALSO, {}, [had(), had(DB, "ro")], {}, ""),
    ("another instance wrote", ALSO, {}, [had(), had(DB, status="detached")], {}, ""),
    ("it reads only itself", ALSO, {}, [had(mode="ro"), had(DB)], {}, ""),
    ("QEMU logs in", {}, {}, [had(connector="qemu")], {},
     "swapping a volume that QEMU logs in to (bootflow_volume_attach: qemu) is not supported by this version of bootflow.compute"),
]  # fmt: skip


@pytest.mark.parametrize("old,new,of_old,options,message", [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_the_rules(
    old: dict[str, t.Any], new: dict[str, t.Any], of_old: list[t.Any], options: dict[str, t.Any], message: str
) -> None:
    volumes: list[t.Any] = [types.SimpleNamespace(**{**OLD, **old}), types.SimpleNamespace(**{**NEW, **new})]
    try:
        row, detaching, attaching = swap_rules.check_swap(*volumes, WEB, of_old, **options)
    except errors.BootflowError as e:
        assert (e.message, e.status) == (message, 400) and e.remedy
        return
    assert message == "" and row is of_old[0]
    assert (detaching.values, attaching.values) == ({"status": "detaching"}, {"status": "attaching"})
