# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to a host that is not there: a model of the host (host_model.py) answers for its modules, so that only the controller works."""

from __future__ import annotations

import ast
import base64
import json
import marshal
import re
import sys
import time
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

HERE = str(Path(__file__).resolve().parents[1])
if HERE not in sys.path:
    sys.path.append(HERE)

import simulated_host  # noqa: E402
from host_model import disk_content  # noqa: E402

DOCUMENTATION = """
name: simulated
short_description: Answers as a compute host that boots every guest
description: For tests/simulated_py and benchmarks.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: connection_pipelining
options:
  host:
    description: Name of the host.
    type: str
    vars: [{name: inventory_hostname}]
  folder:
    description: Where the hosts keep their states and faults. Without it every module finds an empty host that does what it is asked for.
    type: str
    default: ""
    vars: [{name: simulated_folder}]
  checked:
    description: Whether arguments and answers are compared with what the modules declare. Only with O(folder).
    type: bool
    default: true
    vars: [{name: simulated_checked}]
  seconds:
    description: What a module takes on the host.
    type: float
    default: 0
    vars: [{name: simulated_seconds}]
"""

# As Ansible packs a module.
MODULE = re.compile(rb"^ansible_module='(?:\w+\.)*(\w+)',$", re.MULTILINE)
PARAMETERS = re.compile(rb"^params=(.+),$", re.MULTILINE)
# As a program without Ansible's library (plugin_utils/transport/host_programs.py).
PARTS = re.compile(rb"^PARTS = (b.+)$", re.MULTILINE)
ARGUMENTS = re.compile(rb"^ARGUMENTS = (b.+)$", re.MULTILINE)


class Connection(ConnectionBase):  # type: ignore[misc]
    transport = "simulated"
    has_pipelining = True

    def set_options(self, *arguments: t.Any, **named: t.Any) -> None:
        super().set_options(*arguments, **named)
        if self.get_option("folder"):
            import opened_ledgers

            opened_ledgers.note(self.get_option("host"), self.get_option("folder"))

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        options = [self.get_option(name) for name in ("host", "folder", "checked")]
        host = simulated_host.SimulatedHost(*options)
        try:
            if in_data is None:  # Python is there, and so is every file that is looked for
                host.ask(simulated_host.PROBE)
                # Ansible quotes the whole command, and a core from 2.21 on has nothing behind the last file.
                return 0, "\n".join(word.strip("'") for word in cmd.split()).encode(), b""
            module, arguments = asked_for(in_data)
            time.sleep(self.get_option("seconds"))
            return 0, host.answer(module, arguments), b""
        except simulated_host.Unreachable as e:
            raise AnsibleConnectionFailure(str(e)) from e

    def put_file(self, in_path: str, out_path: str) -> None:
        raise SystemExit("the simulated host takes no files")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """The files of hosts are those of stores of images. The bytes follow from the name."""
        host = simulated_host.SimulatedHost(self.get_option("host"), self.get_option("folder"))
        folder, _slash, name = in_path.rpartition("/")
        with host.state() as state:
            if name not in state["model"]["files"].get(folder, {}):
                raise AnsibleError("the simulated host has no file %s" % in_path)
        Path(out_path).write_bytes(disk_content(name))

    def close(self) -> None:
        self._connected = False


def asked_for(sent: bytes) -> tuple[str | None, dict[str, t.Any]]:
    """The module that ``sent`` runs on a host, and its arguments; (None, {}): nothing that is known here."""
    parts, arguments = PARTS.search(sent), ARGUMENTS.search(sent)
    if parts is not None and arguments is not None:
        name = marshal.loads(base64.b64decode(_literal(parts)))["module"].rpartition(".")[2]
        return name, json.loads(_literal(arguments))
    module, parameters = MODULE.search(sent), PARAMETERS.search(sent)
    if module is None or parameters is None:
        return None, {}
    return module[1].decode(), json.loads(_literal(parameters))["ANSIBLE_MODULE_ARGS"]


def _literal(found: re.Match[bytes]) -> t.Any:
    return ast.literal_eval(found[1].decode())
