# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three made-up revisions after the newest one: a new column, a table that takes its values, and a table that sqlite makes anew."""

from __future__ import annotations

import sys
import types
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner


def _add_column(op: t.Any) -> None:
    op.add_column("compute_nodes", sa.Column("color", sa.String(64), nullable=False, server_default="grey"))
    op.create_index("ix_compute_nodes_color", "compute_nodes", ["color"])


def _move_to_table(op: t.Any) -> None:
    colors = op.create_table(
        "node_colors",
        sa.Column("compute_node_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("color", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_node_colors_compute_node_id"),
        sa.PrimaryKeyConstraint("compute_node_id", name="pk_node_colors"),
    )
    for number, color in op.get_bind().execute(sa.text("SELECT id, color FROM compute_nodes")).all():
        op.bulk_insert(colors, [{"compute_node_id": number, "color": {"name": color}}])
    op.drop_index("ix_compute_nodes_color", "compute_nodes")
    op.drop_column("compute_nodes", "color")


def _change_constraint(op: t.Any) -> None:
    unique = "uq_device_claims_node_device"
    with op.batch_alter_table("device_claims") as batch:
        batch.drop_constraint(unique, type_="unique")
        batch.add_column(sa.Column("part", sa.Integer(), nullable=False, server_default="0"))
        batch.create_unique_constraint(unique, ["compute_node_id", "kind", "device", "part"])


_REVISIONS = {
    "0991": ("The color of each compute node. Frozen.", _add_column),
    "0992": ("Colors of compute nodes in a table of their own. Frozen.", _move_to_table),
    "0993": ("Parts of claimed devices. Frozen.", _change_constraint),
}
NUMBERS = tuple(_REVISIONS)


def add(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add these revisions to those of the runner."""
    for revision, (description, upgrade) in _REVISIONS.items():
        module = types.ModuleType("%s.revisions.r%s" % (runner.__package__, revision), description)
        module.upgrade = upgrade  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(runner, "REVISIONS", (*runner.REVISIONS, *NUMBERS))
    monkeypatch.setattr(runner, "HEAD", NUMBERS[-1])
