# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""S5: what callbacks are given and what is printed, at the highest verbosity and with the arguments of tasks, has no secret."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
from flow import FLAVORS, PLAYBOOK, PUBLIC_KEY
from postgres import PASSWORD, PostgresServer

SECRETS = {
    "the ledger's password": PASSWORD,
    "the password of a guest": "guest-hunter2",
    "user data": "user-data-swordfish",
    "an injected file": "injected-open-sesame",
    "the login of an image's URL": "image-url-s3same",
}
# Writes down each event with all that its objects hold, as deep as they go.
CALLBACK = """
from __future__ import annotations

import os

from ansible.plugins.callback import CallbackBase

PRIMITIVES = (str, bytes, int, float, bool, type(None))
# Ansible's own machinery, which has the variables of the run whatever a task does.
SKIPPED = ("_loader", "_variable_manager", "_parent", "_play", "_role", "_host", "host", "_attr_cache")


def everything(value, depth=0, seen=()):
    if isinstance(value, PRIMITIVES):
        return str(value)
    if depth > 12 or id(value) in seen:
        return ""
    seen = (*seen, id(value))
    if isinstance(value, dict):
        parts = [p for k, v in value.items() if k not in SKIPPED for p in (everything(k, depth + 1, seen), everything(v, depth + 1, seen))]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = [everything(v, depth + 1, seen) for v in value]
    else:
        parts = [repr(value), everything(dict(getattr(value, "__dict__", {})), depth + 1, seen)]
    return "\\n".join(parts)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "recorder"


def note(self, *args, **kwargs):
    with open(os.environ["RECORDED"], "a", encoding="utf-8") as f:
        f.write("EVENT %s\\n" % everything([args, kwargs]))


for name in dir(CallbackBase):
    if name.startswith("v2_") and name != "v2_on_any":
        setattr(CallbackModule, name, note)
"""
INVENTORY = """
all:
  children:
    bootflow_compute: {hosts: {h1: {ansible_host: 127.0.0.1, ansible_port: 1}}}
    bootflow_storage: {hosts: {s1: {ansible_host: 127.0.0.1, ansible_port: 1, bootflow_storage_backends: [{name: lvm}]}}}
"""


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def variables(url: str) -> dict[str, t.Any]:
    return {
        "bootflow_ledger_url": url,
        "bootflow_ledger_password": SECRETS["the ledger's password"],
        "bootflow_flavors": FLAVORS,
        "bootflow_keypairs": [{"name": "ops", "public_key": PUBLIC_KEY}],
        "bootflow_images": [
            {
                "name": "guest",
                "url": "https://someone:%s@127.0.0.1:1/guest.qcow2" % SECRETS["the login of an image's URL"],
                "checksum": "sha256:" + "0" * 64,
                "disk_format": "qcow2",
            }
        ],
        "bootflow_instances": [
            {
                "name": "web",
                "flavor": "tiny",
                "image": "guest",
                "key_name": "ops",
                "networks": "none",
                "admin_password": SECRETS["the password of a guest"],
                "user_data": "#cloud-config\npassword: %s\n" % SECRETS["user data"],
                "injected_files": [{"path": "/etc/secret", "contents": encoded(SECRETS["an injected file"])}],
            }
        ],
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("playbook", "options", "more", "words"),
    [
        ("ledger", (), {}, "ledger"),
        ("boot", ("--check", "--diff"), {}, "web"),
        ("boot", (), {}, "NoValidHost"),
        ("boot", (), {"bootflow_max_attempts": -1}, "bootflow_max_attempts"),
        ("list", (), {}, "web"),
        ("delete", (), {"bootflow_names": ["web"]}, "web"),
    ],
)
def test_callbacks_and_output_have_no_secret(
    server: PostgresServer, tmp_path: Path, playbook: str, options: tuple[str, ...], more: t.Any, words: str
) -> None:
    name = server.create()
    with server.connect() as conn:
        conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "callbacks").mkdir()
    (tmp_path / "callbacks" / "recorder.py").write_text(CALLBACK)
    given = tmp_path / "variables.json"
    given.write_text(json.dumps({**variables(server.url(name, "checked")), **more}))
    recorded = tmp_path / "recorded"
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
        "ANSIBLE_CALLBACK_PLUGINS": str(tmp_path / "callbacks"),
        "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "true",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "RECORDED": str(recorded),
    }
    try:
        output = ""
        for each in ("ledger" if playbook == "boot" else "boot", playbook):
            done = subprocess.run(
                [PLAYBOOK, "bootflow.compute." + each, "-i", str(tmp_path / "hosts.yml"), "-e", "@%s" % given, "-vvv",
                 *(options if each == playbook else ())],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False, env=environment,
                cwd=tmp_path,
            )  # fmt: skip
            output += done.stdout
    finally:
        server.drop(name)
    assert words in output, output
    told = recorded.read_text()
    assert told.count("EVENT") > 5 and words in told + output
    for what, secret in SECRETS.items():
        for form in (secret, encoded(secret)):
            for where, text in (("callback", told), ("output", output)):
                assert form not in text, "%s in the %s: %s" % (what, where, around(text, form))


def around(text: str, secret: str) -> str:
    place = text.index(secret)
    return text[max(0, place - 1500) : place + 200]
