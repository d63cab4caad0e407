# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics of a ledger, read back by Prometheus' own parser."""

from __future__ import annotations

import json
import math
import os
import re
import typing as t
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.bootflow.compute.plugins.action import metrics
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings import table
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.metrics import exposition
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_instance_delete import Play

INVENTORY = {"groups": {"bootflow_compute": ["h1", "h2", "never"]}}
ROOT = Path(__file__).resolve().parents[4]
GIB = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "collector").mkdir()
    return str(tmp_path / "collector" / "bootflow.prom")


def write(world: World, path: str, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
    variables = {**INVENTORY, "bootflow_metrics_file": path}
    result = action_of(metrics, WorldPorts(world, "m"), variables, check_mode, **options).act()
    return t.cast("dict[str, t.Any]", result)


def samples(path: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(Path(path).read_text()):
        assert family.type == "gauge" and family.documentation, family.name
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def value(path: str, name: str, **labels: str) -> float:
    """The value of the one sample that has these labels, and maybe others."""
    (found,) = [v for (n, have), v in samples(path).items() if n == "bootflow_" + name and labels.items() <= set(have)]
    return found


@pytest.fixture
def busy(world: World) -> World:
    """Two instances on h1, one of another project without a host, h2 disabled."""
    world.report("h1", memory=4, availability_zone="rack-a", ram_allocation_ratio=1.5)
    world.accept(request("web", 2))
    world.schedule()
    world.build("h1")
    world.report("h2", disabled=True)
    world.accept(request("db", project="red"))
    return world


def test_hosts(busy: World, path: str) -> None:
    assert write(busy, path)["changed"]
    assert value(path, "host_up", host="h1", zone="rack-a") == value(path, "host_up", host="h2") == 1
    assert value(path, "host_up", host="never") == 0 and value(path, "host_problems", host="never") == 1
    assert (value(path, "host_enabled", host="h1"), value(path, "host_enabled", host="h2")) == (1, 0)
    assert value(path, "host_instances", host="h1") == 2
    physical, used, free = (
        value(path, "host_%s_memory_bytes" % part, host="h1") for part in ("physical", "used", "free")
    )
    assert physical % GIB == 0 and used > 0 and math.isclose(free, physical * 1.5 - used, rel_tol=1e-3)
    assert value(path, "host_last_report_timestamp_seconds", host="h1") == pytest.approx(busy.time, abs=1)
    assert not [labels for (name, labels) in samples(path) if "timestamp" in name and ("host", "never") in labels]


def test_a_host_that_is_silent_is_down(busy: World, path: str) -> None:
    busy.time += 901
    write(busy, path)
    assert value(path, "host_up", host="h1") == 0
    assert value(path, "host_last_report_timestamp_seconds", host="h1") == pytest.approx(busy.time - 901, abs=1)
    write(busy, path, service_down_time=1000)
    assert value(path, "host_up", host="h1") == 1


def test_instances_actions_and_runs(busy: World, path: str) -> None:
    write(busy, path)
    rows = busy.rows(tables.instances)
    (state,) = {r.vm_state for r in rows if r.project == "default"}
    assert value(path, "instances", project="default", state=state) == 2
    assert value(path, "instances", project="red") == 1
    assert value(path, "instances_memory_bytes", project="default") == sum(r.memory_mb for r in rows[:2]) * (1 << 20)
    assert value(path, "instances_busy", task="scheduling") == 1
    assert value(path, "instance_actions_last_day", action="create", result="unfinished") == 1
    assert value(path, "instance_actions_last_day", action="create", result="success") == 2
    assert value(path, "runs_active") >= 1
    busy.time += 86401
    write(busy, path)
    assert not [name for name, _labels in samples(path) if name == "bootflow_instance_actions_last_day"]


def test_deleted_instances_are_not_counted(busy: World, path: str) -> None:
    Play(busy)(names=["web-1"])
    write(busy, path)
    assert value(path, "instances", project="default") == value(path, "host_instances", host="h1") == 1


def test_labels_may_have_any_character(world: World, path: str) -> None:
    odd = 'back\\slash "quoted"\nline \u00fc \\n'
    world.accept(request("web", project=odd))
    write(world, path)
    assert value(path, "instances", project=odd) == 1


def test_the_file_changes_with_the_ledger_only(busy: World, path: str) -> None:
    assert write(busy, path, check_mode=True)["changed"] and not os.path.exists(path)
    first = write(busy, path)
    assert first["changed"] and first["diff"]["before"] == "" and "bootflow_host_up" in first["diff"]["after"]
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert not write(busy, path)["changed"]
    busy.accept(request("more"))
    assert write(busy, path, check_mode=True)["changed"]
    assert write(busy, path)["changed"]
    assert os.listdir(os.path.dirname(path)) == ["bootflow.prom"]


@pytest.mark.parametrize("name", ["bootflow.txt", ".prom", "no-folder/bootflow.prom"])
def test_a_file_that_no_collector_would_read(world: World, path: str, name: str) -> None:
    folder = Path(path).parent
    with pytest.raises(errors.InvalidInput, match="bootflow_metrics_file") as caught:
        write(world, str(folder / name))
    assert caught.value.remedy and not list(folder.iterdir())


def test_a_file_that_cannot_be_written_leaves_no_part(world: World, path: str) -> None:
    Path(path).mkdir()
    with pytest.raises(errors.InvalidInput, match="cannot be written"):
        write(world, path)
    assert [p.name for p in Path(path).parent.iterdir()] == ["bootflow.prom"]


def test_numbers_are_as_prometheus_reads_them() -> None:
    gauge = exposition.Gauge("bootflow_test", "Test.")
    gauge.add(1764511200.25)
    gauge.add(None)
    assert exposition.exposition([gauge, exposition.Gauge("bootflow_none", "None.")]) == (
        "# HELP bootflow_test Test.\n# TYPE bootflow_test gauge\nbootflow_test 1764511200.25\n"
    )


def test_the_page_and_the_dashboard_name_metrics_that_exist(busy: World, path: str) -> None:
    with busy.ledger.write() as tx:
        tx.execute(tables.migrations.insert().values(**_move(busy)))
    everything = {
        gauge.name
        for gauge in busy.ledger.for_run(busy.context()).inspect(lambda tx: metrics.gauges.gauges_of(tx, ["h1"], 900))
    }
    page = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"\bbootflow_[a-z_]+", page))
    assert everything <= named and named - everything <= set(table.ALL)
    dashboard = json.loads((ROOT / "docs" / "examples" / "metrics" / "dashboard.json").read_text())
    named = set(re.findall(r"bootflow_[a-z_]+", json.dumps([p["targets"] for p in dashboard["panels"]])))
    assert named and named <= everything


def _move(world: World) -> dict[str, t.Any]:
    row = world.rows(tables.instances)[0]
    return {
        "instance_uuid": row.uuid,
        "migration_type": "live-migration",
        "status": "running",
        **dict.fromkeys(("source_compute", "source_node", "dest_compute", "dest_node"), "h1"),
        **dict.fromkeys(("old_request_spec_id", "new_request_spec_id"), row.request_spec_id),
        "old_vm_state": row.vm_state,
        "run_id": "r",
        "created_at": world.time,
        "updated_at": world.time,
    }


def test_volumes_and_moves(busy: World, path: str) -> None:
    with busy.ledger.write() as tx:
        tx.execute(tables.migrations.insert().values(**_move(busy)))
        for number, status in enumerate(("available", "available", "error")):
            volume = {"id": "v%d" % number, "project": "red", "size": 3, "status": status, "spec": {}, "meta": {}}
            more = {"image_metadata": {}, "created_at": busy.time, "updated_at": busy.time, "deleted": ""}
            tx.execute(volume_tables.volumes.insert().values(**volume, **more))
    write(busy, path)
    assert value(path, "volumes", project="red", status="available") == 2
    assert value(path, "volumes_size_bytes", project="red", status="error") == 3 * GIB
    assert value(path, "moves", type="live-migration", status="running") == 1
