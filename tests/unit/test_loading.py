# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-playbook loads for an action, and that it loads it compiled."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t

import pytest

ROOT = pathlib.Path(__file__).absolute().parents[2]
COLLECTION = "ansible_collections.bootflow.compute.plugins."
COMPILED = "__pycache__"

LOAD = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader(sys.argv[2:])
assert action_loader.get("bootflow.compute." + sys.argv[1], class_only=True)
json.dump({n: [getattr(m, "__file__", None), getattr(m, "__cached__", None)] for n, m in sys.modules.items()}, sys.stdout)
"""

Loaded = t.Dict[str, t.List[t.Optional[str]]]


def load(action: str, *paths: pathlib.Path, cache: pathlib.Path | None = None) -> Loaded:
    """The modules of a process that has loaded an action as ansible-playbook does: name -> its file and that of its byte code."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON"))}
    if cache is None:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    else:
        environment["PYTHONPYCACHEPREFIX"] = str(cache)
    argv = [sys.executable, "-c", LOAD, action, *map(str, paths or [tree()])]
    with tempfile.TemporaryDirectory() as home:  # the user's own says which database the last run had
        environment["ANSIBLE_HOME"] = home
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return t.cast(Loaded, json.loads(done.stdout))


def tree() -> pathlib.Path:
    """The folder whose ansible_collections has this collection."""
    return pathlib.Path(__import__(COLLECTION + "plugin_utils", fromlist=["x"]).__file__).absolute().parents[5]


def copy(where: pathlib.Path) -> pathlib.Path:
    target = where / "ansible_collections" / "bootflow" / "compute"
    for part in ("plugins", "meta"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns(COMPILED))
    return target


@pytest.mark.parametrize(
    "action, without",
    [
        ("instance_info", "core.scheduler.registry core.request.schema flows ledger.storage"),
        ("ledger", "core.scheduler.registry core.request.schema flows.boot"),
        ("instance_operation", "core.resources.numa core.scheduler.registry flows.boot flows.moves hosts lxml"),
        ("boot_accept", "hosts"),
        ("boot_schedule", "hosts"),
        (
            "instance_operation",
            "hosts flows.boot plugin_utils.builds plugin_utils.operations.hard_reboot plugin_utils.volumes.attached_volumes",
        ),
    ],
)
def test_an_action_loads_nothing_that_it_may_not_need(action: str, without: str) -> None:
    loaded = load(action)
    assert COLLECTION + "plugin_utils.run.ledger_action" in loaded
    for name in ("numpy", "jsonschema", "alembic", "psycopg", "sqlalchemy.dialects.postgresql", *without.split()):
        ours = COLLECTION + ("" if name.startswith("plugin_utils.") else "module_utils.") + name
        assert name not in loaded and not [m for m in loaded if m == ours or m.startswith(ours + ".")], name


def test_modules_are_compiled_once(tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    ours = {n: m for n, m in load("instance_info", cache=cache).items() if n.startswith(COLLECTION)}
    modules = {n: m for n, m in ours.items() if m[0] and m[0].endswith(".py") and not m[0].endswith("__init__.py")}
    assert len(modules) > 50
    for name, (_file, compiled) in modules.items():
        assert compiled and compiled.startswith(str(cache)) and os.path.exists(compiled), name


def test_a_changed_module_is_compiled_again(tmp_path: pathlib.Path) -> None:
    changed = copy(tmp_path) / "plugins" / "module_utils" / "core" / "times.py"
    load("instance_info", tmp_path, cache=tmp_path / "cache")
    changed.write_text(changed.read_text() + "\nimport colorsys\n")
    assert "colorsys" in load("instance_info", tmp_path, cache=tmp_path / "cache")


def test_a_folder_that_cannot_be_written_to_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    assert COLLECTION + "plugin_utils.run.tables" in load("instance_info", cache=tmp_path / "file" / "below")


def test_the_first_of_several_collections_paths_counts(tmp_path: pathlib.Path) -> None:
    """Also for what only a later one has: a module that the first lacks is missing."""
    first, second = (copy(tmp_path / name) for name in ("first", "second"))
    loaded = load("instance_info", tmp_path / "first", tmp_path / "second")
    files = [m[0] or "" for n, m in loaded.items() if n.startswith(COLLECTION)]
    assert files and all(file.startswith(str(first)) for file in files)
    (first / "plugins" / "module_utils" / "core" / "times.py").unlink()
    with pytest.raises(AssertionError, match="No module named.*core.times"):
        load("instance_info", tmp_path / "first", tmp_path / "second")
    assert second.exists()


def test_nothing_of_it_reaches_a_host() -> None:
    """An AnsiballZ makes up the packages above module_utils: empty files."""
    from ansible.executor.module_common import CollectionModuleUtilLocator

    assert (ROOT / "plugins" / "__init__.py").stat().st_size
    found = CollectionModuleUtilLocator(tuple(COLLECTION.rstrip(".").split(".")))
    assert found.found and found.is_package and not found.source_code  # "" or b"": releases differ


OLDER = """
import sys
import ansible.release
from ansible.errors import AnsibleError
from ansible.plugins.loader import action_loader, init_plugin_loader
ansible.release.__version__ = sys.argv[1]
init_plugin_loader(sys.argv[2:])
try:
    action_loader.get("bootflow.compute.ledger", class_only=True)
except AnsibleError as error:
    print(error.message)
"""


@pytest.mark.parametrize(
    "release, refused",
    [("2.16.19", True), ("2.19.3", True), ("2.19.4rc1", False), ("2.19.4", False), ("2.20.0.dev0", False)],
)
def test_an_older_ansible_core_is_refused_by_name(release: str, refused: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON"))}
    argv = [sys.executable, "-B", "-c", OLDER, release, str(tree())]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    needs = "bootflow.compute needs ansible-core 2.19.4 or newer, and this is %s." % release
    assert done.stdout.startswith(needs) if refused else done.stdout == "", done.stdout


def test_the_least_ansible_core_is_that_of_the_metadata() -> None:
    (least,) = re.findall(r'^LEAST_ANSIBLE_CORE = "(.*?)"', (ROOT / "plugins" / "__init__.py").read_text(), re.M)
    assert 'requires_ansible: ">=%s"' % least in (ROOT / "meta" / "runtime.yml").read_text()
    assert "version('%s', '<')" % least in (ROOT / "playbooks" / "prepare.yml").read_text(), (
        "roles begin without plugins"
    )
