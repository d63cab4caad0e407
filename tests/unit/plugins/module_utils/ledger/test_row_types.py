# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of rows, which mypy reads, name the columns that the tables have."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import capacity, report
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.backups import backups
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    claims,
    cleanups,
    groups,
    history,
    instances,
    nodes,
    ports,
    requests,
    runs,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.sqlalchemy_import import sa
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import (
    backup_tables,
    image_tables,
    tables,
    volume_tables,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import (
    attachments,
    backends,
    pending_cleanups,
    snapshots,
    volume_history,
    volumes,
)

WHOLE = [
    (runs.RunRow, tables.runs),
    (instances.InstanceRow, tables.instances),
    (claims.ClaimRow, tables.claims),
    (groups.GroupRow, tables.server_groups),
    (ports.PortRow, tables.ports),
    (history.InstanceFault, tables.instance_faults),
    (history.InstanceEvent, tables.instance_action_events),
    (volume_history.VolumeFaultRow, volume_tables.volume_faults),
    (cleanups.CleanupRow, tables.cleanups),
    (volumes.VolumeRow, volume_tables.volumes),
    (snapshots.SnapshotRow, volume_tables.volume_snapshots),
    (attachments.Attachment, volume_tables.volume_attachments),
    (backends.BackendRow, volume_tables.storage_backends),
    (pending_cleanups.PendingCleanupRow, volume_tables.volume_cleanups),
    (volume_history.VolumeEvent, volume_tables.volume_events),
    (backups.BackupRow, backup_tables.instance_backups),
    (images.ImageRow, image_tables.images),
    (images.PlaceRow, image_tables.image_places),
    (capacity.CapacityDay, tables.capacity_days),
]

PARTS = [
    (nodes.NodeRow, tables.compute_nodes),
    (instances.InstanceOnHost, tables.instances),
    (instances.InstancePower, tables.instances),
    (requests.SpecRow, tables.request_specs),
    (claims.ClaimedDevice, tables.device_claims),
    (ports.SuspiciousPort, tables.ports),
    (report.Step, tables.instance_action_events),
    (report.FailedInstance, tables.instances),
]


def _declared(kind: type) -> dict[str, str]:
    own = (vars(cls).get("__annotations__", {}) for cls in reversed(kind.__mro__))
    return {n: getattr(a, "__forward_arg__", a) for each in own for n, a in each.items()}  # a NamedTuple wraps them


def _as_python(column: sa.Column[t.Any], declared: str) -> str:
    """The type that a row's value has. JSON is what was written: only whether it may be missing is compared."""
    if isinstance(column.type, sa.JSON):
        name = declared.removesuffix(" | None")
    else:
        name = column.type.python_type.__name__
    return name + (" | None" if column.nullable else "")


@pytest.mark.parametrize(("kind", "table"), WHOLE, ids=lambda each: getattr(each, "name", ""))
def test_a_type_has_all_columns_of_its_table(kind: type, table: sa.Table) -> None:
    declared = _declared(kind)
    assert declared == {c.key: _as_python(c, declared.get(c.key, "")) for c in table.c}


@pytest.mark.parametrize(("kind", "table"), PARTS, ids=lambda each: getattr(each, "name", ""))
def test_a_type_of_some_columns_has_none_that_the_table_lacks(kind: type, table: sa.Table) -> None:
    """It may know more than the table: that a column is not empty in the rows that are read."""
    for name, declared in _declared(kind).items():
        column = table.c[name]
        assert _as_python(column, declared) in (declared, declared + " | None"), name
