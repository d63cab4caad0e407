# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What compute_unused reports when some of its removals fail: real files; the networks are objects that keep libvirt's rules."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import RemoteError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import unused_images
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, taps
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import network
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    NetworkSpec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import command, time_limit
from ansible_collections.bootflow.compute.plugins.modules import compute_unused

BASES = ["%s-0123456789abcdef" % name for name in "abc"]


class Refused(Exception):
    """As a libvirtError."""

    def get_error_message(self) -> str:
        return "device or resource busy"

    def get_error_code(self) -> int:
        return 38

    def get_error_domain(self) -> int:
        return 19


class Network:
    def __init__(self, name: str, refuses: str = ""):
        self._name = name
        self.refuses = refuses
        self.active = self.defined = True

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:
        return self._name

    def isPersistent(self) -> bool:
        return True

    def isActive(self) -> bool:
        return self.active

    def bridgeName(self) -> str:
        return "bf-missing"

    def XMLDesc(self, _flags: int) -> str:
        return str(network.network_xml(NetworkSpec(self._name, manage=True)))

    def destroy(self) -> None:
        if self.refuses == "destroy":
            raise Refused
        self.active = False

    def undefine(self) -> None:
        if self.refuses == "undefine":
            raise Refused
        self.defined = False


class Ended(Exception):
    def __init__(self, **result: t.Any):
        super().__init__(result)
        self.result = result


class Host:
    def __init__(self, tmp_path: pathlib.Path):
        self.path = tmp_path / "instances"
        (self.path / "_base").mkdir(parents=True)
        for base in BASES:
            (self.path / "_base" / base).write_bytes(b"x" * 4096)
        self.networks = [Network(name) for name in ("n1", "n2", "n3")]
        self.domains: list[t.Any] = []

    def unused(self, monkeypatch: pytest.MonkeyPatch, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        class Module:
            _name = "bootflow.compute.compute_unused"

            def __init__(self, argument_spec: dict[str, t.Any], supports_check_mode: bool):
                defaults = {name: argument.get("default") for name, argument in argument_spec.items()}
                self.params = {**defaults, "instances_path": str(host.path), "minimum_age": 0.0, **options}
                self.check_mode = check_mode

            def exit_json(self, **result: t.Any) -> None:
                raise Ended(**result)

            def fail_json(self, **result: t.Any) -> None:
                raise Ended(failed=True, **result)

        host = self
        there = types.SimpleNamespace(
            listAllDomains=lambda _flags: self.domains,
            listAllNetworks=lambda _flags: [n for n in self.networks if n.defined],
        )
        monkeypatch.setattr(compute_unused, "AnsibleModule", Module)
        monkeypatch.setattr(compute_unused, "connect", lambda *_address: contextlib.nullcontext(there))
        with pytest.raises(Ended) as ended:
            compute_unused.main()
        return t.cast("dict[str, t.Any]", json.loads(json.dumps(ended.value.result)))

    def bases(self) -> list[str]:
        return sorted(os.listdir(self.path / "_base"))


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    codes = dict.fromkeys(("VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC", "VIR_ERR_SYSTEM_ERROR"), -1)
    codes.update(dict.fromkeys(("VIR_ERR_INTERNAL_ERROR", "VIR_ERR_NO_DOMAIN", "VIR_ERR_NO_NETWORK"), -1))
    flags = {"VIR_NETWORK_XML_INACTIVE": 1, "VIR_DOMAIN_XML_INACTIVE": 2, "VIR_FROM_REMOTE": 13, "VIR_FROM_RPC": 7}
    for module in (libvirt_connection, domains, network, taps):
        monkeypatch.setattr(module, "libvirt", types.SimpleNamespace(libvirtError=Refused, **codes, **flags))
    monkeypatch.setattr(network, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(network, "_NEEDED", str(tmp_path / "run" / "networks"))
    return Host(tmp_path)


def test_a_removal_that_fails_keeps_neither_the_others_nor_the_report(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three images and of three networks cannot be removed."""
    remove = unused_images.remove_files

    def remove_files(*paths: str) -> None:
        if BASES[1] in paths[0]:
            raise PermissionError(1, "Operation not permitted", paths[0])
        remove(*paths)

    monkeypatch.setattr(unused_images, "remove_files", remove_files)
    host.networks[1].refuses = "undefine"
    planned = host.unused(monkeypatch, check_mode=True)
    assert (planned["changed"], len(planned["images"]), planned["networks"]) == (True, 3, ["n1", "n2", "n3"])
    assert host.bases() == BASES and all(n.active for n in host.networks)

    result = host.unused(monkeypatch)
    assert (result["failed"], result["changed"], result["error_code"]) == (True, True, "PurgeIncomplete")
    assert [os.path.basename(image["path"]) for image in result["images"]] == [BASES[0], BASES[2]]
    assert result["networks"] == ["n1", "n3"] and result["msg"] == "2 of 6 removals failed."
    assert [d["before_header"] for d in result["diff"]] == ["base images", "n1", "n3"]
    assert BASES[1] not in result["diff"][0]["before"]
    path = str(host.path / "_base" / BASES[1])
    assert [(i["name"], i["error"]["message"]) for i in result["failed_items"]] == [
        (path, "Operation not permitted (%s)" % path),
        ("network n2", "libvirt: device or resource busy"),
    ]
    assert host.bases() == [BASES[1]] and [n.defined for n in host.networks] == [False, True, False]

    # What is left: nothing is changed by the image; the network was stopped by the first run.
    again = host.unused(monkeypatch)
    assert (again["failed"], again["changed"], again["images"], again["networks"]) == (True, False, [], [])
    host.networks[1].refuses = ""
    monkeypatch.setattr(unused_images, "remove_files", remove)
    last = host.unused(monkeypatch)
    assert "failed" not in last and "failed_items" not in last and last["networks"] == ["n2"]


def test_a_protected_image_keeps_no_other(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of chattr +i: the file cannot even be locked."""
    real = os.open

    def open_file(path: t.Any, *how: t.Any, **where: t.Any) -> int:
        if path == BASES[1]:
            raise PermissionError(1, "Operation not permitted", path)
        return real(path, *how, **where)

    monkeypatch.setattr(unused_images.os, "open", open_file)
    result = host.unused(monkeypatch, networks=False)
    assert (result["failed"], result["changed"], len(result["images"])) == (True, True, 2)
    (item,) = result["failed_items"]
    assert item["error"]["message"] == "Operation not permitted (%s)" % (host.path / "_base" / BASES[1])
    assert "lsattr" in item["error"]["remedy"] and host.bases() == [BASES[1]]

    chain = types.SimpleNamespace(XMLDesc=lambda _flags: "<domain><a>%s</a></domain>" % BASES[1])
    host.domains.append(chain)
    assert "failed" not in host.unused(monkeypatch, networks=False), "it is used: nobody wants it removed"


def test_a_network_that_was_stopped_and_not_undefined_is_a_change(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.networks[0].refuses = "undefine"
    result = host.unused(monkeypatch, keep_networks=["n2", "n3"], images=False)
    assert (result["failed"], result["changed"], result["networks"]) == (True, True, [])


def test_images_whose_use_is_unknown_do_not_keep_the_networks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.path / "guest").mkdir()
    record = {"disk": {"kind": "disk", "format": "qcow2_on_lvm", "virtual_size": 1, "volume_group": "vg"}}
    (host.path / "guest" / "disk.info").write_text(json.dumps(record))
    result = host.unused(monkeypatch)
    assert (result["changed"], result["images"], result["networks"]) == (True, [], ["n1", "n2", "n3"])
    (item,) = result["failed_items"]
    assert item["name"] == "base images" and "instance guest are not mounted" in item["error"]["message"]
    assert host.bases() == BASES


def test_a_time_limit_leaves_what_was_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends in the middle of the second network; the controller hears of the images and of the first one."""
    stuck, over = threading.Event(), threading.Event()
    told: dict[str, t.Any] = {}

    def destroy() -> None:
        stuck.set()
        over.wait(10)
        raise RemoteError(reason="the process has ended")

    def end(_code: int) -> None:
        over.set()

    def fail(_module: t.Any, error: Exception, **fields: t.Any) -> None:
        if isinstance(error, time_limit.HostTimeout):
            assert stuck.wait(10)
            told.update(json.loads(json.dumps(fields)))

    monkeypatch.setattr(host.networks[1], "destroy", destroy)
    monkeypatch.setattr(time_limit, "fail", fail)
    monkeypatch.setattr(time_limit.os, "_exit", end)
    monkeypatch.setattr(command, "_starting", threading.Lock())  # it stays locked
    host.unused(monkeypatch, time_limit=0.3)
    assert (told["changed"], len(told["images"]), told["networks"]) == (True, 3, ["n1"])
