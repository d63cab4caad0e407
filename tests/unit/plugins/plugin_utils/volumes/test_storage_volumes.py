# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image, ImageAccess
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_images import image_data
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes.work import BackendWork
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import storage_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.storage_volumes import work_on

LEDGER = "1ed9e000-0000-4000-8000-000000000001"
VARIABLES = {
    "ansible_host": "192.0.2.1",
    "bootflow_storage_backends": [
        {"name": "thick", "volume_clear": "none"},
        {"name": "thin", "provisioning": "thin", "image_cache": True},
    ],
}
THICK, THIN = storage_settings.backends(VARIABLES, "s1")


class Shell:
    tmpdir = None

    def __init__(self):
        self.options = {"remote_tmp": "~/.ansible/tmp"}

    def get_option(self, name):
        return self.options[name]

    def set_option(self, name, value):
        self.options[name] = value


class Connection:
    def __init__(self, transport):
        self.transport = transport
        self._shell = Shell()


class Display:
    def display(self, *_args, **_kwargs):
        return None

    vvv = display


class Action:
    """Where a host would answer: it has no image but what was uploaded, and does whatever else it is asked."""

    def ledger_id(self):
        return LEDGER

    unexpected = LedgerAction.unexpected

    def __init__(self, transport="ssh", answers=(), images=()):
        self._connection = Connection(transport)
        self._display = Display()
        self.task_vars = {"inventory_hostname": "s1"}
        self.calls, self.transferred, self.removed = [], [], []
        self.answers = list(answers)
        self.options = {"images": images}

    def variable(self, name, default=None):
        return {"bootflow_conversion_dir": "/conv"}.get(name, default)

    def within(self, seconds, what):
        return contextlib.nullcontext()

    def _is_become_unprivileged(self):
        return True  # the other way is in test_image_upload.py

    def _low_level_execute_command(self, command, sudoable):
        assert command.startswith("find ") and not sudoable  # copies of killed runs, see there, too
        return {"stdout": ""}  # a host without df

    def _make_tmp_path(self):
        assert self._connection._shell.options == {"remote_tmp": "$HOME/.ansible/tmp"}
        return "/remote/tmp"

    def _transfer_file(self, source, target):
        self.transferred.append((source, target))

    def _remove_tmp_path(self, path, force=False):
        self.removed.append((path, force))
        self._connection._shell.tmpdir = None

    def run_module(self, name, arguments):
        assert name == "volume_lvm"
        self.calls.append(arguments)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        sources = {i["id"]: i["url"] or i["path_on_host"] for i in arguments["images"]}
        sources.update(arguments.get("uploads", {}))
        outcomes = {}
        for volume in arguments["volumes"]:
            image = volume.get("image_id")
            missing = errors.ImageNotFound(image_id=image).as_dict() if image and not sources[image] else None
            outcomes[volume["id"]] = {"changed": not missing, "error": missing}
        return {"outcomes": outcomes, "backend": {"free_capacity_gb": 10 - len(self.calls)}}


def image(tmp_path=None, name="i1", **fields):
    found = Image(name=name, id=name, disk_format="qcow2", checksum="0" * 64, url="https://x.example/i")
    if tmp_path is not None:
        (tmp_path / name).write_bytes(b"data")
        found = dataclasses.replace(found, url="", path=str(tmp_path / name))
    return image_data(dataclasses.replace(found, **fields))


def work(configuration, *volumes, images=()):
    return BackendWork(configuration["name"], configuration["pool_host"], configuration, list(volumes), list(images))


def test_all_of_a_backend_in_one_call_with_its_settings():
    action = Action()
    wanted = [{"id": "v1", "size_gb": 1}, {"id": "v2", "state": "absent"}, {"id": "v3", "image_id": "i1"}]
    result = work_on(action, [work(THICK, *wanted, images=[image()])])["thick"]
    (call,) = action.calls
    assert call["volumes"] == wanted and call["images"][0]["url"] == "https://x.example/i"
    settings = {k: v for k, v in call.items() if k not in ("volumes", "images")}
    assert settings == {
        "volume_group": "cinder-volumes",
        "ledger_id": LEDGER,
        "provisioning": "thick",
        "thin_pool": "",
        "allow_unverified": False,
        "temp_dir": "/conv",
        "image_max_gb": 1024,
        "image_fetch_timeout": 3600.0,
        "vmdk_allowed_types": ["streamOptimized", "monolithicSparse"],
        "verify": True,
        "image_cache": True,
        "image_cache_max_gb": 0,
        "image_cache_max_count": 0,
        "clear": "none",
        "clear_size_mb": 0,
        "workers": 3,
    }
    assert result.error is None and result.capacity == {"free_capacity_gb": 9}
    assert {i: o["error"] for i, o in result.outcomes.items()} == {"v1": None, "v2": None, "v3": None}


def test_the_login_of_an_image_is_the_catalogue_s():
    """The ledger does not store it."""
    stored = image(access=ImageAccess(url_username="me", url_password="image-secret"))
    assert "image-secret" not in str(stored)
    entry = {
        "name": "i1",
        "id": "i1",
        "disk_format": "qcow2",
        "checksum": "0" * 64,
        "url": "https://me:image-secret@x.example/i",
        "ca_path": "/etc/ca.pem",
    }
    for catalogue, login in (((), (None, None, "")), ((entry,), ("image-secret", "me", "/etc/ca.pem"))):
        action = Action(images=catalogue)
        work_on(action, [work(THICK, {"id": "v1", "image_id": "i1"}, images=[stored])])
        (given,) = action.calls[0]["images"]
        assert given["url"] == "https://x.example/i"
        assert (given["url_password"], given["url_username"] or None, given["ca_path"]) == login


def test_an_image_of_the_controller_is_uploaded_once_and_goes_again(tmp_path):
    action = Action()
    wanted = [{"id": n, "image_id": "i1"} for n in ("v1", "v2")] + [{"id": "v3"}]
    result = work_on(action, [work(THICK, *wanted, images=[image(tmp_path)])])["thick"]
    assert action.transferred == [(str(tmp_path / "i1"), "/remote/tmp/image-i1")]
    assert action.removed == [("/remote/tmp", True)]
    assert action._connection._shell.options == {"remote_tmp": "~/.ansible/tmp"}, "as the user has it"
    (call,) = action.calls  # thick: nobody asks whether the backend has it
    assert call["uploads"] == {"i1": "/remote/tmp/image-i1"} and {v["id"] for v in call["volumes"]} == {
        "v1",
        "v2",
        "v3",
    }
    assert not any(o["error"] for o in result.outcomes.values()) and len(result.outcomes) == 3


def test_a_thin_backend_is_asked_first_whether_it_has_the_image(tmp_path):
    action = Action()
    wanted = [{"id": "v1", "image_id": "i1"}, {"id": "v2"}]
    result = work_on(action, [work(THIN, *wanted, images=[image(tmp_path)])])["thin"]
    first, second = action.calls
    assert "uploads" not in first and second["uploads"] and [v["id"] for v in second["volumes"]] == ["v1"]
    assert not any(o["error"] for o in result.outcomes.values()) and result.capacity == {"free_capacity_gb": 8}
    has_it = Action(answers=[{"outcomes": {"v1": {"error": None}, "v2": {"error": None}}, "backend": {}}])
    work_on(has_it, [work(THIN, *wanted, images=[image(tmp_path)])])
    assert len(has_it.calls) == 1 and not has_it.transferred


def test_on_the_controller_itself_nothing_is_copied(tmp_path):
    action = Action(transport="local")
    work_on(action, [work(THICK, {"id": "v1", "image_id": "i1"}, images=[image(tmp_path)])])
    assert action.calls[0]["images"][0]["path_on_host"] == str(tmp_path / "i1") and not action.transferred


def test_an_image_that_is_not_on_the_controller_fails_only_what_needs_it(tmp_path):
    action = Action()
    gone = image(tmp_path, path=str(tmp_path / "none"))
    result = work_on(action, [work(THICK, {"id": "v1", "image_id": "i1"}, {"id": "v2"}, images=[gone])])["thick"]
    assert result.outcomes["v1"]["error"]["code"] == "ImageUnacceptable" and result.outcomes["v2"]["error"] is None
    alone = work_on(Action(), [work(THICK, {"id": "v1", "image_id": "i1"}, images=[gone])])["thick"]
    assert alone.outcomes["v1"]["error"]["code"] == "ImageUnacceptable" and alone.capacity is None


@pytest.mark.parametrize(
    "problem, code",
    [
        (errors.DriverNotInitialized(message="no group"), "DriverNotInitialized"),
        (RuntimeError("surprise"), "RemoteError"),
    ],
)
def test_a_backend_that_fails_does_not_stop_the_other(problem, code):
    action = Action(answers=[problem])
    results = work_on(action, [work(THICK, {"id": "v1"}), work(THIN, {"id": "v2"})])
    assert results["thick"].error.code == code and results["thin"].error is None


def test_a_host_that_is_away_is_asked_once():
    away = errors.HostUnreachable(host="s1", reason="gone")
    action = Action(answers=[away])
    results = work_on(action, [work(THICK, {"id": "v1"}), work(THIN, {"id": "v2"})])
    assert [r.error for r in results.values()] == [away, away] and len(action.calls) == 1


def test_a_volume_without_an_answer_is_an_error():
    action = Action(answers=[{"outcomes": {}, "backend": {}}])
    result = work_on(action, [work(THICK, {"id": "v1"})])["thick"]
    assert result.outcomes["v1"]["error"]["code"] == "RemoteError"
