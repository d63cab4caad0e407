# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the collection's modules as Ansible would: with the system's Python, which has the distribution's libvirt and lxml."""

from __future__ import annotations

import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = "/usr/bin/python3"

_RUN = """
import json, runpy, sys
sys.path[:0] = [sys.argv[1]]
request = json.load(sys.stdin)
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": request["args"]}).encode()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_module("ansible_collections.bootflow.compute.plugins.modules." + request["module"], run_name="__main__", alter_sys=True)
"""


def library(folder):
    """A folder for sys.path with ansible-core's package and this collection, and nothing else of the test's environment."""
    import ansible

    os.makedirs(os.path.join(folder, "ansible_collections", "bootflow"))
    os.symlink(os.path.dirname(os.path.abspath(ansible.__file__)), os.path.join(folder, "ansible"))
    os.symlink(ROOT, os.path.join(folder, "ansible_collections", "bootflow", "compute"))
    return folder


class ModuleRunner:
    """Calls modules; ``prefix`` is what enters the namespaces of the host."""

    def __init__(self, folder, prefix=()):
        self.library = library(folder)
        self.prefix = list(prefix)

    def start(self, module, check=False, diff=False, **args):
        """The running process; wait for it with result()."""
        args = dict(args, _ansible_check_mode=check, _ansible_diff=diff, _ansible_no_log=False)
        process = subprocess.Popen(
            self.prefix + [PYTHON, "-W", "ignore", "-c", _RUN, self.library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdin.write(json.dumps({"module": module, "args": args}))
        process.stdin.close()
        process.stdin = None
        return process

    @staticmethod
    def result(process, timeout=120):
        """The module's JSON."""
        out, err = process.communicate(timeout=timeout)
        assert out.strip(), "no output of the module: %s" % err
        answer = json.loads(out.strip().splitlines()[-1])
        assert "exception" not in answer or answer.get("failed"), answer
        return answer

    def __call__(self, module, check=False, diff=False, **args):
        return self.result(self.start(module, check, diff, **args))
