# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values whose aliases repeat each other end in words, not in a walk without an end."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.action import boot_accept, instance_apply, volume_accept, whatif
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import ENTRIES, REQUESTS, Setting
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.size import (
    check_size,
    check_variable,
    too_large,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import Catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


def aliases(form: str, levels: int = 12) -> t.Any:
    """Nine times nine times ... values, as YAML has them in a few hundred bytes."""
    first = (
        "a0: &a0 [%s]" % ",".join("x" * 9)
        if form == "list"
        else "a0: &a0 {%s}" % ",".join("k%d: x" % i for i in range(9))
    )
    lines = [first]
    for level in range(1, levels):
        items = ["%s*a%d" % ("" if form == "list" else "k%d: " % i, level - 1) for i in range(9)]
        lines.append("a%d: &a%d %s" % (level, level, ("[%s]" if form == "list" else "{%s}") % ", ".join(items)))
    text = "\n".join(lines)
    assert len(text) < 2000
    return yaml.safe_load(text)["a%d" % (levels - 1)]


class HostVars(t.Mapping[str, t.Any]):
    """Makes its values when they are read, as Ansible's does."""

    def __getitem__(self, key: str) -> t.Any:
        raise AssertionError("all variables of %s are templated" % key)

    def __iter__(self) -> t.Iterator[str]:
        return iter(["h1"])

    def __len__(self) -> int:
        return 1


def test_variables_of_other_hosts_are_not_read() -> None:
    for value in (HostVars(), {"a": [HostVars()]}):
        check_size(value, "hostvars")
    assert not too_large([HostVars()])
    assert too_large([HostVars(), aliases("list")]), "beside them"


@pytest.mark.parametrize("form", ["list", "mapping"])
@pytest.mark.parametrize("kind", [dict, list, str, int, ENTRIES, REQUESTS])
def test_no_setting_walks_over_aliases_of_aliases(kind: t.Any, form: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        Setting("wide", kind).read(aliases(form))
    assert caught.value.message.startswith("bootflow_wide has more than 100000 values")


@pytest.mark.parametrize(
    "field", ["scheduler_hints", "metadata", "networks", "tags", "block_device_mapping", "nothing"]
)
@pytest.mark.parametrize("form", ["list", "mapping"])
def test_no_entry_does(field: str, form: str) -> None:
    catalogue = Catalogue()
    entries = [{"name": "web", field: value} for value in (aliases(form), {"a": [aliases(form)]})]
    with pytest.raises(errors.InvalidRequest) as caught:
        parse_requests([*entries, aliases(form)], catalogue)
    wide = [e for e in caught.value.errors if "aliases in it repeat other aliases" in e["message"]]
    assert [e["path"] for e in wide] == ["instances[0]", "instances[1]", "instances[2]"]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    "written",
    [
        {},
        {"*": "{{ some }}", "some": "*"},
        {"*": "{{ some }}", "some": "{{ other }}", "other": "*"},
        {"*": [{"name": "web", "metadata": "{{ some }}"}], "some": "*"},
        {
            "*": {"web": {"networks": [["{{ some.a[0] | list }}"]]}},
            "some": {"a": ["{% if 1 %}{{ other }}{% endif %}"]},
            "other": "*",
        },
        {"*": "{{ lookup('vars', 'some') }}", "some": "{{ some }}{{ vars['other'] }}", "other": {"x": "*"}},
    ],
)
def test_no_action_does_before_ansible_evaluates_templates(world: World, written: dict[str, t.Any]) -> None:
    wide = [{"name": "web", "metadata": aliases("mapping")}]
    for action, name in (
        (boot_accept, "instances"),
        (instance_apply, "instances"),
        (whatif, "instances"),
        (volume_accept, "volumes"),
        (boot_accept, "keypairs"),
    ):
        variables = {
            "bootflow_" + name if key == "*" else key: _with(wide, value)
            for key, value in (written or {"*": "*"}).items()
        }
        with pytest.raises(errors.BootflowError, match="aliases in it repeat other aliases"):
            action_of(action, WorldPorts(world, "a"), variables).act()


def _with(wide: t.Any, value: t.Any) -> t.Any:
    """The value with ``wide`` where it says "*"."""
    if value == "*":
        return wide
    if isinstance(value, list):
        return [_with(wide, item) for item in value]
    return {key: _with(wide, item) for key, item in value.items()} if isinstance(value, dict) else value


def test_names_that_lead_to_all_variables_are_not_followed() -> None:
    named = {"x": "{{ hostvars['h1'].y }}{{ vars }}", "hostvars": HostVars(), "y": [HostVars(), "{{ x }}"]}
    check_variable("x", {**named, "vars": {"unrelated": aliases("list")}})


def test_the_many_names_of_a_large_request_are_looked_at_once() -> None:
    class Counted(t.Dict[str, t.Any]):
        asked = 0

        def get(self, key: str, default: t.Any = None) -> t.Any:
            self.asked += 1
            return super().get(key, default)

    requests = [
        {"name": "i%d" % i, "flavor": "{{ flavor }}", "metadata": {"n": "{{ a[%d] }}" % i}} for i in range(10_000)
    ]
    variables = Counted(bootflow_instances=requests, flavor="{{ a[0] }}{{ flavor }}", a=[str(i) for i in range(10_000)])
    check_variable("bootflow_instances", variables)
    assert variables.asked == 3


def test_what_people_write_is_not_too_large() -> None:
    nets = [{"network": "n%d" % i} for i in range(8)]
    entries = [{"name": "i%d" % i, "networks": nets, "metadata": {"a": "b"}} for i in range(30_000)]
    assert not too_large(entries)
    check_size({"instances": entries, "same": [entries, entries]}, "x")
    assert not too_large([list(range(1_000_000))])
