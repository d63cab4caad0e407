# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every file can be imported where no library is installed: ansible-doc does so, and hosts have other libraries than the controller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
CODE = """
import importlib, sys
for library in ("sqlalchemy", "alembic", "psycopg", "numpy", "jsonschema", "lxml", "libvirt"):
    sys.modules[library] = None
for name in sys.stdin.read().split():
    try:
        importlib.import_module("ansible_collections.bootflow.compute.plugins." + name)
    except Exception as error:
        print(name, type(error).__name__, error)
"""


def test_every_file_is_imported_without_libraries() -> None:
    paths = [p.relative_to(PLUGINS).with_suffix("") for p in sorted(PLUGINS.rglob("*.py")) if p.stem != "__init__"]
    names = "\n".join(".".join(path.parts) for path in paths)
    done = subprocess.run([sys.executable, "-c", CODE], input=names, capture_output=True, text=True, check=True)
    assert done.stdout == "" and len(paths) > 300
