# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the files below plugins/ whose functions a boot of one guest executes on the controller, one a line.

The boot is the real playbook on a simulated host, with a new ledger. What the model of the host reads of modules is left out. For scripts/counts.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("simulated_py", "integration_py", "lab")]
sys.path.insert(0, os.environ["PYTHONPATH"].split(os.pathsep)[0])

from simulated_site import Site  # noqa: E402

# Loaded by each Python of the run. Ansible's workers end without the functions of atexit: a file is written down when it is first seen.
TRACER = """
import os, sys, threading

seen, plugins = set(), %r
written = os.open(%r, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def is_loading(frame):
    # Whether the call is made while a module is loaded: it declares something.
    while frame is not None:
        if frame.f_code.co_name == "<module>" and plugins in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def note(frame, event, _argument):
    code = frame.f_code
    # Bodies of modules and of classes are not optimized code.
    if event == "call" and code.co_flags & 1 and plugins in code.co_filename and code.co_filename not in seen and not is_loading(frame):
        seen.add(code.co_filename)
        os.write(written, (code.co_filename + chr(10)).encode())


sys.setprofile(note)
threading.setprofile(note)
"""
OF_HOSTS = ("modules/", "module_utils/hosts/")
PLUGINS = "/ansible_collections/bootflow/compute/plugins/"


def executed() -> set[str]:
    """The files, relative to plugins/."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "sitecustomize.py").write_text(TRACER % (PLUGINS, str(path / "files")))
        site = Site(path, path / "home", names=["kvm1"])
        usual = site.environment

        def environment(**more: str) -> dict[str, str]:
            values = usual(**more)
            return {**values, "PYTHONPATH": ":".join(filter(None, [str(path), values.get("PYTHONPATH")]))}

        site.environment = environment
        site.boots({"name": "web", "flavor": "small", "image": "debian", "networks": [{"network": "lan"}]})
        assert site.places() == {"web": ("active", "kvm1")}, site.places()
        files = (path / "files").read_text().splitlines()
    names = {name.partition(PLUGINS)[2] for name in files}
    return {name for name in names if not name.startswith(OF_HOSTS)}


if __name__ == "__main__":
    print("\n".join(sorted(executed())))
