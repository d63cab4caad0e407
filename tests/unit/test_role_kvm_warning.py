# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role of compute hosts warns where KVM does not work: its task as Ansible evaluates it, over what the host's module answers."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import virt_probe

TASKS = pathlib.Path(__file__).resolve().parents[2] / "roles" / "compute_host" / "tasks" / "main.yml"


def warning_over(facts: t.Mapping[str, t.Any]) -> str:
    """What the task says; empty: it is skipped. :arg facts: as the task before it registers them"""
    loader = DataLoader()
    tasks = loader.load_from_file(str(TASKS), trusted_as_template=True)
    names = [task.get("name") for task in tasks]
    place = names.index("Warn of guests without KVM")
    asked = tasks[place - 1]
    assert "bootflow.compute.compute_node_info" in asked and asked["register"] == "compute_host_facts"
    assert asked["failed_when"] is False, "a host that cannot say it is prepared all the same"
    task = tasks[place]
    templar = Templar(loader, variables={"inventory_hostname": "kvm1", "compute_host_facts": facts})
    if not templar.evaluate_conditional(task["when"]):
        return ""
    return str(templar.template(task["ansible.builtin.debug"]["msg"]))


def facts(setting: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, device: bool) -> dict[str, t.Any]:
    """What the module answers on a host whose libvirt lists KVM. :arg device: whether it has /dev/kvm"""
    exists = os.path.exists
    monkeypatch.setattr(virt_probe.os.path, "exists", lambda path: device if path == "/dev/kvm" else exists(path))
    verdict = virt_probe.working_virt_type(setting, "/usr/bin/qemu-system-aarch64", "aarch64", str(tmp_path), True)
    assert verdict.virt_type == ("qemu" if setting == "qemu" or not device else "kvm")
    emulated = {"emulated": verdict.reason} if setting == "auto" and verdict.virt_type == "qemu" else {}
    return {"failed": False, "compute_node": {"stats": {"disk_backend": "qcow2", **emulated}}}


def test_a_host_without_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    assert " ".join(warning_over(facts("auto", monkeypatch, tmp_path, device=False)).split()) == (
        "Guests run emulated on kvm1, many times slower than with KVM: libvirt does not offer KVM here."
        " Enable virtualization in its firmware, or set bootflow_virt_type to qemu if that is meant."
    )


def test_a_device_that_qemu_may_not_open() -> None:
    """Its firmware is in order."""
    reason = "QEMU runs as libvirt-qemu, which may not open /dev/kvm (group 994, mode 0660). Give it to the group kvm"
    answer = {"failed": False, "compute_node": {"stats": {"emulated": reason}}}
    assert " ".join(warning_over(answer).split()) == (
        "Guests run emulated on kvm1, many times slower than with KVM: %s. Set bootflow_virt_type to qemu if that is meant."
        % reason
    )


@pytest.mark.parametrize(("setting", "device"), [("auto", True), ("qemu", False)])
def test_a_host_with_kvm_or_that_is_to_emulate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, setting: str, device: bool
) -> None:
    assert warning_over(facts(setting, monkeypatch, tmp_path, device)) == ""


@pytest.mark.parametrize("answer", [{"skipped": True}, {"failed": False, "msg": "libvirt does not answer"}])
def test_a_host_that_says_nothing_of_it(answer: dict[str, t.Any]) -> None:
    """As in check mode, where it is not asked."""
    assert warning_over(answer) == ""
