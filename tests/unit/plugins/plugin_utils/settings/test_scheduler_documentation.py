# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/scheduler.md names what there is, and what it and the sample inventories show can be used as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import registry
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import CATALOGUE
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import scheduler_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings.boot_request import BootRequest

ROOT = Path(__file__).resolve().parents[5]
TEXT = (ROOT / "docs" / "scheduler.md").read_text()


def blocks(language):
    return re.findall(r"```%s\n(.*?)```" % language, TEXT, re.DOTALL)


def test_every_filter_and_weigher_is_described():
    rows = "\n".join(line for line in TEXT.splitlines() if line.startswith("| `"))
    names = {c.name for c in (*registry.BUILTIN_FILTERS, *registry.BUILTIN_WEIGHERS)}
    assert names <= set(re.findall(r"`(\w+)`", rows))


def test_the_default_list_is_the_default():
    listed = re.search(r"The default:\n\n(.*?), and then", TEXT, re.DOTALL).group(1)
    assert tuple(re.findall(r"\b[A-Z]\w+Filter\b", listed)) == registry.DEFAULT_FILTERS


def test_every_setting_is_described():
    variables = (ROOT / "docs" / "variables.md").read_text()
    for argument in SCHEDULER:
        assert "`%s`" % argument.variable in variables


def test_multipliers_are_as_described():
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `")]
    told = {row[0].strip("`"): row[2:] for row in rows if row[0].endswith("Weigher`")}
    for cls in registry.BUILTIN_WEIGHERS:
        multiplier, key = told[cls.name]
        assert float(multiplier.partition(",")[0]) == cls.multiplier
        assert (", 0 or more" in multiplier) == (cls.least_multiplier == 0)
        assert key.strip("`") == cls.aggregate_key


def test_the_filters_of_the_documentation_load(tmp_path):
    (code,) = blocks("python")
    (tmp_path / "mine.py").write_text(code)
    options = SchedulerOptions(user_filter_dirs=[str(tmp_path)])
    found = scheduler_settings.reading(options)
    assert "QuietHostFilter" in found.filters and "NewestWeigher" in found.weighers


def test_the_aggregates_and_groups_of_the_documentation(make_action):
    aggregates, groups, _hints = (yaml.safe_load(text) for text in blocks("yaml"))
    hosts = {"kvm1.example.org": {}, "kvm2.example.org": {}, "kvm3.example.org": {}}
    action = make_action(
        hosts=hosts, groups={"rack_a": ["kvm2.example.org"]}, aggregates=aggregates["bootflow_aggregates"]
    )
    scheduler_settings.check(action)
    assert [a.name for a in scheduler_settings.aggregates_of(action)["kvm2.example.org"]] == ["rack-a"]
    assert len(parse_catalogue(None, None, None, None, groups["bootflow_server_groups"]).server_groups) == 2


def test_the_hints_of_the_documentation(make_action):
    hints = yaml.safe_load(blocks("yaml")[2])["scheduler_hints"]
    entry = {"name": "a", "flavor": "f", "image": "i", "networks": "none", "scheduler_hints": hints}
    options = make_action(
        instances=[entry],
        flavors=[{"name": "f", "memory_mb": 1, "vcpus": 1, "root_gb": 1}],
        images=[{"name": "i", "disk_format": "raw", "path": "/i", "allow_unverified": True}],
        enabled_filters=["DifferentHostFilter", "JsonFilter"],
    ).options
    assert BootRequest(options).requests[0].scheduler_hints["different_host"] == ["db-1", "db-2"]


@pytest.mark.parametrize("name", ["single", "fleet"])
def test_a_sample_inventory_can_be_used(make_action, name):
    folder = ROOT / "inventory" / name
    variables = {}
    for path in sorted((folder / "group_vars" / "all").glob("*.yml")):
        variables.update(yaml.safe_load(path.read_text()))
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["bootflow_compute"]["hosts"]
    given = {}
    for option, argument in {**CATALOGUE.options(), **SCHEDULER.options()}.items():
        if argument.variable in variables:
            given[option] = variables[argument.variable]
    entries = [
        {"name": "a%d" % i, "flavor": f["name"], "image": variables["bootflow_images"][0]["name"]}
        for i, f in enumerate(variables["bootflow_flavors"])
    ]
    action = make_action(
        hosts={h: v or {} for h, v in hosts.items()},
        instances=entries,
        server_groups=variables.get("bootflow_server_groups", []),
        **given,
    )
    scheduler_settings.check(action)
    BootRequest(action.options)
    enabled = given.get("enabled_filters", registry.DEFAULT_FILTERS)
    # AggregateRamFilter is RamFilter with the ratios of aggregates.
    assert set(registry.DEFAULT_FILTERS) <= {n.replace("AggregateRam", "Ram") for n in enabled}
    zones = {h: c["availability_zone"] for h, c in scheduler_settings.configurations(action).items()}
    assert zones[next(iter(zones))] == ("rack-a" if name == "fleet" else "nova")
