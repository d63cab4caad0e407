# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of many hosts are those that Ansible's own hostvars give, whatever a host has them from."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible import constants
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import vars_loader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import host_settings, host_variables

INVENTORY = """
all:
  vars: {bootflow_ram_allocation_ratio: 1.1, bootflow_ledger_url: "sqlite:////{{ inventory_hostname }}"}
  children:
    bootflow_compute:
      hosts:
        kvm[01:20]:
        own: {bootflow_cpu_allocation_ratio: 2.0}
        other: {ansible_host: 192.0.2.1}
    racks:
      vars: {bootflow_reserved_memory_mb: 64}
      hosts: {"kvm[01:05]": }
    templated:
      vars: {bootflow_reserved_vcpus: "{{ inventory_hostname[3:] | int }}", bootflow_instances_path: /srv}
      hosts: {"kvm[06:08]": }
    first:
      vars: {bootflow_disk_medium: ssd, ansible_group_priority: 10}
      hosts: {"kvm[10:12]": }
    second:
      vars: {bootflow_disk_medium: hdd, bootflow_typo: 1}
      hosts: {"kvm[11:13]": }
"""


class Variables:
    """hostvars of an inventory with every source of variables, and how often they were asked for a host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        for name, text in {
            "hosts.yml": INVENTORY,
            "host_vars/kvm14.yml": "bootflow_disk_allocation_ratio: 0.5\n",
            "host_vars/kvm15/more.yml": "bootflow_disk_allocation_ratio: 0.6\n",
            "group_vars/racks.yml": "bootflow_virt_type: qemu\n",
            "play/host_vars/kvm16.json": '{"bootflow_disk_allocation_ratio": 0.7}',
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        loader = DataLoader()
        loader.set_basedir(str(folder / "play"))
        self.inventory = InventoryManager(loader, sources=[str(folder / "hosts.yml")])
        self.manager = VariableManager(loader, self.inventory)
        self.hostvars = HostVars(self.inventory, self.manager, loader)
        self.manager.set_nonpersistent_facts("kvm17", {"bootflow_disk_allocation_ratio": 0.8})
        self.manager.set_nonpersistent_facts("kvm18", {"bootflow_image_cache": {"changed": True}})
        self.manager.set_host_facts("kvm19", {"bootflow_disk_allocation_ratio": 0.9})
        self.manager.set_host_variable("kvm20", "bootflow_disk_allocation_ratio", 0.95)
        self.hosts = self.inventory.get_groups_dict()["bootflow_compute"]
        self.looks = 0
        raw_get = self.hostvars.raw_get

        def counted(name: str) -> t.Any:
            self.looks += 1
            return raw_get(name)

        monkeypatch.setattr(self.hostvars, "raw_get", counted)

    def same_as_ansible(self) -> None:
        found = host_variables.settings_of(self.hostvars, self.hosts)
        assert list(found) == self.hosts
        for host in self.hosts:
            its = self.hostvars[host]
            for setting in HOST:
                assert found[host].get(setting.variable) == its.get(setting.variable), (host, setting.name)
            for names in (found[host], its):
                assert "bootflow_ram_allocation_ratio" in names
            assert _ours(found[host]) == _ours(its)


def _ours(names: t.Iterable[str]) -> set[str]:
    return {n for n in names if n.startswith("bootflow_")} - {"bootflow_image_cache"}


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Variables:
    return Variables(tmp_path, monkeypatch)


def test_each_host_has_its_own_settings(variables: Variables) -> None:
    variables.same_as_ansible()


def test_facts_that_are_kept_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ansible-runner and AWX set it; such a cache does not list its hosts where it has no prefix."""
    monkeypatch.setattr(constants, "CACHE_PLUGIN", "jsonfile")
    monkeypatch.setenv("ANSIBLE_CACHE_PLUGIN_CONNECTION", str(tmp_path / "facts"))
    variables = Variables(tmp_path, monkeypatch)
    assert "kvm19" in str(list((tmp_path / "facts").iterdir()))
    variables.same_as_ansible()


def test_hosts_that_are_alike_are_looked_at_once(variables: Variables) -> None:
    """Two looks for each kind of host, one for each host with variables or templates of its own."""
    found = host_variables.settings_of(variables.hostvars, variables.hosts)
    assert found["kvm01"] is found["kvm05"] is not found["kvm09"]
    assert found["kvm09"] is found["other"] is found["kvm18"]
    assert found["kvm06"] is not found["kvm07"]
    kinds, own, templated = 6, 7, 3
    assert variables.looks == 2 * kinds - 1 + own + templated


def test_another_vars_plugin_is_asked_for_every_host(variables: Variables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars_loader._plugin_instance_cache, "community.sops.sops", None)
    found = host_variables.settings_of(variables.hostvars, variables.hosts)
    assert variables.looks == len(variables.hosts) == len({id(its) for its in found.values()})


@pytest.mark.parametrize("value", ["*a11", "'{{ other }}'", "[{a: '{{ other }}'}]"])
@pytest.mark.parametrize("where", ["group_vars/bootflow_compute.yml", "host_vars/kvm02.yml"])
def test_no_setting_of_a_host_walks_over_aliases_of_aliases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, where: str
) -> None:
    bombs = ["a0: &a0 [%s]" % ", ".join("x" * 9)]
    bombs += ["a%d: &a%d [%s]" % (n, n, ", ".join(["*a%d" % (n - 1)] * 9)) for n in range(1, 12)]
    (tmp_path / where).parent.mkdir()
    (tmp_path / where).write_text("\n".join([*bombs, "other: *a11", "bootflow_metrics: " + value]))
    variables = Variables(tmp_path, monkeypatch)
    problems = Problems()
    found = host_variables.settings_of(variables.hostvars, ["kvm02", "kvm03"])
    host_settings.check(found, ["kvm02", "kvm03"], problems)
    host_settings.check({"kvm02": host_variables.of_host(variables.hostvars, "kvm02")}, ["kvm02"], problems)
    hosts = "hosts kvm02, kvm03" if where.startswith("group") else "host kvm02"
    assert [e["path"] for e in problems.errors] == [hosts, "host kvm02"]
    assert all("aliases in it repeat other aliases" in e["message"] for e in problems.errors)


def test_hostvars_of_another_make() -> None:
    plain = {"a": {"bootflow_disabled": True}, "b": {}}
    assert host_variables.settings_of(plain, ["a", "b"]) == plain
