# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What callbacks are given and what is printed, at the highest verbosity and with the arguments of tasks, has no secret."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
import recorder
from ansible.module_utils.common.parameters import PASS_VARS
from flow import FLAVORS, PLAYBOOK, PUBLIC_KEY
from host_python import ModuleRunner
from postgres import PASSWORD, PostgresServer

SECRETS = {
    "the ledger's password": PASSWORD,
    "the password of a guest": "guest-hunter2",
    "user data": "user-data-swordfish",
    "an injected file": "injected-open-sesame",
    "the login of an image's URL": "image-url-s3same",
}
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
    given = tmp_path / "variables.json"
    given.write_text(
        json.dumps(
            {**variables(server.url(name, "checked")), "bootflow_user_data_dir": str(tmp_path / "user-data"), **more}
        )
    )
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
        **recorder.environment(tmp_path),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
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
    told = recorder.told(tmp_path)
    assert told.count("EVENT") > 5 and words in told + output
    for what, secret in SECRETS.items():
        for form in (secret, encoded(secret)):
            for where, text in (("callback", told), ("output", output)):
                assert form not in text, "%s in the %s: %s" % (what, where, around(text, form))


def around(text: str, secret: str) -> str:
    place = text.index(secret)
    return text[max(0, place - 1500) : place + 200]


LOGIN = "<auth username='%s'><secret type='iscsi' usage='iqn.x'/></auth>"
DISK = "<disk type='network'><source protocol='iscsi' name='iqn.x/1'>%s</source></disk>"
GUEST = {"uuid": "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11", "name": "web"}
USER, SECRET = "chap-user-0123456789", "chap-secret-0123456789"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("domain", {"domains": [{**GUEST, "xml": "<domain>%s</domain>" % (DISK % LOGIN % USER)}]}),
        ("domain_disk", {"disks": [{"id": "a", "uuid": GUEST["uuid"], "serial": "s", "xml": DISK % LOGIN % USER}]}),
        (
            "iscsi_initiator",
            {"connections": [{"volume_id": GUEST["uuid"], "iqn": "x", "chap_user": USER, "chap_secret": SECRET}]},
        ),
        (
            "iscsi_target",
            {
                "exports": [
                    {
                        "volume_id": GUEST["uuid"],
                        "path": "/dev/null",
                        "logins": [{"initiator": "iqn.y", "chap_user": USER, "chap_secret": SECRET}],
                    }
                ]
            },
        ),
    ],
)
def test_what_a_module_prints_has_no_login(tmp_path: Path, module: str, arguments: dict[str, t.Any]) -> None:
    """With -vvv Ansible prints all that a module does, and that begins with its arguments."""
    # From ansible-core 2.21 on a module says what it was called with only when it is asked to.
    asked = {"_ansible_inject_invocation": True} if "inject_invocation" in PASS_VARS else {}
    process = ModuleRunner(str(tmp_path / "library")).start(module, check=True, diff=True, **arguments, **asked)
    printed = "".join(process.communicate(timeout=60))
    assert '"invocation"' in printed and GUEST["uuid"] in printed, printed
    assert USER not in printed and SECRET not in printed
