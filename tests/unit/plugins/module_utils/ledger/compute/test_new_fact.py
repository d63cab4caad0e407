# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fact that the scheduler reads costs three files (docs/architecture.md): the field, its column and a revision, in a copy of the collection."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database

ROOT = Path(__file__).resolve().parents[6]

REVISION = '''"""Measured facts of compute nodes."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0998"


def upgrade(op: t.Any) -> None:
    op.add_column("compute_nodes", sa.Column("fans", sa.Integer, nullable=False, server_default="0"))
    op.add_column("compute_nodes", sa.Column("watts", sa.Float))
    op.add_column("compute_nodes", sa.Column("rack", sa.String(64), nullable=False, server_default=""))
    op.add_column("compute_nodes", sa.Column("has_battery", sa.Boolean, nullable=False, server_default=sa.false()))
'''
FIELDS = """    fans: int = stored(0, reported=True)
    watts: float | None = stored(None, reported=True)
    rack: str = stored("", reported=True)
    has_battery: bool = stored(False, reported=True)
"""
COLUMNS = """    sa.Column("fans", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("watts", sa.Float),
    sa.Column("rack", sa.String(64), nullable=False, default="", server_default=""),
    sa.Column("has_battery", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
"""
SCRIPT = """
import sys
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.tables import instances
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

url = sys.argv[1]
ledger = database.open_ledger(url, create=True, check_revision=False)
applied = ledger.migrate()
assert applied[0] == "0998" and applied[1].startswith("packed-"), applied
ledger.close()
world = World(url)
node(world, "h1", fans=2, watts=80.5, rack="r1", has_battery=True)
node(world, "h2", fans=8, watts=90.25, rack="r2", has_battery=True)
node(world, "h3")
with world.ledger.read() as tx:
    found = {h.host: (h.fans, h.watts, h.rack, h.has_battery) for h in world.hosts(tx)}
assert found == {"h1": (2, 80.5, "r1", True), "h2": (8, 90.25, "r2", True), "h3": (0, None, "", False)}, found
big = Flavor("big", vcpus=1, memory_mb=512, root_gb=1, extra_specs={"capabilities:fans": ">= 5"})
world.accept(request("web", flavor=big))
world.schedule(enabled_filters=("ComputeCapabilitiesFilter",))
assert [row.host for row in world.rows(instances)] == ["h2"]
world.close()
"""


def insert_before(path: Path, line: str, text: str) -> None:
    before = path.read_text()
    assert before.count(line) == 1
    path.write_text(before.replace(line, text + line))


def test_a_new_fact_of_hosts_is_scheduled_by(empty_url: str, tmp_path: Path) -> None:
    ledger = database.open_ledger(empty_url, create=True, check_revision=False)
    ledger.migrate()
    ledger.close()
    copy = tmp_path / "ansible_collections" / "bootflow" / "compute"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "plugins", copy / "plugins", ignore=ignore)
    shutil.copytree(ROOT / "tests" / "unit" / "worlds", copy / "tests" / "unit" / "worlds", ignore=ignore)
    utils = copy / "plugins" / "module_utils"
    insert_before(utils / "core" / "scheduler" / "host_state.py", "    cpu_info: t.Mapping", FIELDS)
    insert_before(utils / "ledger" / "schema" / "tables.py", '    sa.UniqueConstraint("host", "node"', COLUMNS)
    (utils / "ledger" / "migrations" / "revisions" / "r0998.py").write_text(REVISION)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, empty_url],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "%s:%s" % (tmp_path, ROOT / "tests" / "lab")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
