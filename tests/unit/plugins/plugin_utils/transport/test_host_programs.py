# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs for hosts: what a real Python makes of them, and when Ansible packs instead."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import io
import itertools
import json
import marshal
import os
import pickle
import subprocess
import sys
import tempfile
import types
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible.executor import module_common

from ansible_collections.bootflow.compute.plugins import modules
from ansible_collections.bootflow.compute.plugins.plugin_utils.transport import host_programs, packed_modules

MODULES = Path(modules.__path__[0])  # not resolved: Ansible takes the module's name from its path
OTHER_MAGIC = b"\\0\\0\\r\\n"


PACK = """
import sys
from ansible import constants
from ansible.executor import module_common
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
folder, name, path = sys.argv[1:]
constants.DEFAULT_LOCAL_TMP = folder
init_plugin_loader()
module_common.modify_module(
    module_name="bootflow.compute." + name, module_path=path, module_args={}, templar=Templar(),
    task_vars={"ansible_python_interpreter": sys.executable}, module_compression="ZIP_DEFLATED",
)
"""


@functools.cache
def packed(name: str) -> bytes:
    """As packed_modules keeps the module, with byte code. A process of its own has Ansible's loader of collections."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", PACK, folder, name, str(MODULES / (name + ".py"))]
        subprocess.run(program, check=True, capture_output=True, timeout=120)
        (path,) = (p for p in Path(folder, "ansiballz_cache").iterdir() if p.suffix != ".lock")
        return packed_modules._with_byte_code(path.read_bytes())


def run(
    name: str, arguments: dict[str, t.Any], change: t.Callable[[dict[str, t.Any]], None] | None = None
) -> dict[str, t.Any]:
    """The answer of the program. :arg change: of its parts"""
    program = host_programs.program_of("bootflow.compute." + name, packed(name))
    assert program is not None
    head, _line, line = program.partition(b"\n")
    if change is not None:
        space: dict[str, t.Any] = {}
        exec(line, space)
        parts = marshal.loads(base64.b64decode(space["PARTS"]))
        change(parts)
        line = b"PARTS = %r\n" % base64.b64encode(marshal.dumps(parts, 4))
    done = subprocess.run(
        [sys.executable, "-I"], input=sent(name, arguments, line), capture_output=True, check=False, timeout=60,
        cwd=tempfile.gettempdir(),
    )  # fmt: skip
    return t.cast("dict[str, t.Any]", json.loads(done.stdout.splitlines()[-1]))


def sent(name: str, arguments: dict[str, t.Any], line: bytes) -> bytes:
    """What goes to the host. :arg line: its parts"""
    given = json.dumps({"_ansible_no_log": True, "_ansible_module_name": name, **arguments}).encode()
    return line + b"ARGUMENTS = %r\n" % given + host_programs.START.encode()


def test_the_hosts_of_the_benchmark_know_programs() -> None:
    """benchmarks/controller.py, whose hosts are simulated, ended with the first program."""
    path = MODULES.resolve().parents[1] / "tests" / "simulated_py" / "connections" / "simulated.py"
    spec = importlib.util.spec_from_file_location("simulated", path)
    assert spec is not None and spec.loader is not None
    simulated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulated)
    program = host_programs.program_of("bootflow.compute.instance_build", packed("instance_build"))
    assert program is not None
    module, arguments = simulated.asked_for(sent("instance_build", {"networks": [1]}, program))
    assert (module, arguments["networks"]) == ("instance_build", [1])
    assert simulated.asked_for(b"whoami") == (None, {})


def test_a_python_that_is_too_old_leaves_the_module_to_ansible() -> None:
    """The check comes before anything that such a Python cannot read: nothing of the program is there yet."""
    start = host_programs.START.replace("(3, 9)", "(9, 9)")
    assert start != host_programs.START
    done = subprocess.run([sys.executable, "-I"], input=start, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {host_programs.NEEDS_ANSIBLE: "Python %s" % sys.version.split()[0]}


def test_a_current_folder_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    """As Ansible's modules the program goes to another one then: what it starts has to look at it."""
    program = host_programs.program_of("bootflow.compute.domain_info", packed("domain_info"))
    assert program is not None
    line = b"ARGUMENTS = %r\n" % json.dumps({"_ansible_no_log": True, "libvirt_uri": "test:///none"}).encode()
    where = b"import atexit, os\natexit.register(lambda: print(os.getcwd()))\n"
    for before, expected in (("true", tmp_path / "home"), ('rmdir "$PWD"', Path(os.environ["HOME"]))):
        (tmp_path / "home").mkdir(exist_ok=True)
        done = subprocess.run(
            ["sh", "-c", before + '; exec "$0" -I', sys.executable],
            input=where + program + line + host_programs.START.encode(),
            capture_output=True,
            cwd=tmp_path / "home",
            check=False,
        )
        answer, folder = done.stdout.decode().split("\n")[-3:-1]
        assert json.loads(answer)["error_code"] and Path(folder) == expected, done.stderr


def no_byte_code(parts: dict[str, t.Any]) -> None:
    parts["magic"] = OTHER_MAGIC


@pytest.mark.parametrize("change", [None, no_byte_code])
def test_a_module_works_as_a_program(change: t.Callable[[dict[str, t.Any]], None] | None, tmp_path: Path) -> None:
    """Where Python is the controller's, and where it is another that reads the sources."""
    answer = run("domain_info", {"libvirt_uri": "test:///%s" % (tmp_path / "none")}, change)
    assert answer["failed"] and answer["error_code"] in ("HypervisorUnavailable", "MissingLibrary"), answer
    drives = [{"uuid": "u", "path": str(tmp_path / "disk.config"), "files": []}]
    answer = run("config_drive", {"drives": drives}, change)
    assert host_programs.NEEDS_ANSIBLE in answer, "arguments that do not fit are Ansible's to refuse"


def test_an_exception_of_a_module_is_a_failure_with_its_lines() -> None:
    def broken(parts: dict[str, t.Any]) -> None:
        import zlib

        sources = marshal.loads(zlib.decompress(parts["sources"]))
        path = parts["module"].replace(".", "/") + ".py"
        sources[path] = b"from ansible.module_utils.basic import AnsibleModule\ndef main():\n    1 / 0\n"
        parts["sources"] = zlib.compress(marshal.dumps(sources, 4))
        parts["magic"] = OTHER_MAGIC

    answer = run("domain_info", {}, broken)
    assert answer["failed"] and answer["msg"] == "ZeroDivisionError: division by zero"
    assert "1 / 0" in answer["exception"], "with the source"


def test_what_reads_the_web_is_ansibles() -> None:
    program = host_programs.program_of("bootflow.compute.instance_build", packed("instance_build"))
    assert program is not None and program.startswith(b"#web\n")
    web = {"id": "1", "url": "https://here/it"}
    for arguments, may in (
        ({"images": [web]}, True),
        ({"images": [web], "fetch": True}, True),
        ({"images": [web], "fetch": False}, False),
        ({"images": [web], "uploads": {"1": "/tmp/it"}}, False),
        ({"images": [{"id": "1", "url": None}]}, False),
        ({"images": True}, False),  # of compute_unused
        ({}, False),
    ):
        assert host_programs.may_read_the_web(arguments) is may, arguments


class Action:
    """As much of an action as is asked."""

    def __init__(self, delegate_to: str | None = None):
        self._task = types.SimpleNamespace(delegate_to=delegate_to)
        self._templar = types.SimpleNamespace(template=lambda value: value)
        self._display = types.SimpleNamespace(vvv=lambda _text: None)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "domain_info-ZIP"
    packed_modules.write(path, packed("domain_info"))
    monkeypatch.setattr(packed_modules, "path_of", lambda module: path if module.endswith("domain_info") else None)
    return path


def built(action: t.Any = None, module: str = "domain_info", **variables: t.Any) -> t.Any:
    found = host_programs.built(action or Action(), "bootflow.compute." + module, {"a": 1}, variables)
    return found and found[0]


def test_a_program_is_made_once(kept: Path) -> None:
    first = built(ansible_python_interpreter="/usr/bin/python3")
    assert first.shebang == "#!/usr/bin/python3" and first.module_style == "new"
    program = kept.with_name(kept.name + host_programs.SUFFIX)
    for damaged in (b"", program.read_bytes()[:-1]):
        program.write_bytes(damaged)
        assert built(ansible_python_interpreter="/usr/bin/python3") == first
    kept.write_bytes(b"")
    assert built(ansible_python_interpreter="/usr/bin/python3") == first
    assert built(ansible_facts={"discovered_interpreter_python": "/usr/bin/python3"}) == first


def test_workers_find_in_memory_what_was_made_ready(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_programs, "_ready", {})
    here = {"ansible_python_interpreter": "/usr/bin/python3"}
    for module in ("domain_info", "domain"):
        host_programs.make_ready("bootflow.compute." + module)
    first = built(**here)
    monkeypatch.setattr(packed_modules, "path_of", lambda _module: pytest.fail("looked for"))
    assert first and built(**here) == first
    monkeypatch.setattr(packed_modules, "path_of", lambda _module: None)
    assert not built(module="domain", **here), "it is not packed yet"


def test_the_file_on_the_host_has_a_name_that_any_shell_takes(kept: Path) -> None:
    """Without pipelining Ansible calls it like the module's file, and not each way of copying quotes it."""
    here = {"ansible_python_interpreter": "/usr/bin/python3"}
    _program, path = host_programs.built(t.cast(t.Any, Action()), "bootflow.compute.domain_info", {}, here) or ("", "")
    assert Path(path).is_file() and Path(path).name == "domain_info.py"


def test_python_is_the_one_that_ansible_would_take(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inventory's, else that of Ansible's settings, else the one that it found: its own function is the judge."""
    templar = types.SimpleNamespace(_engine=types.SimpleNamespace(template=lambda value, options: value))

    def ansible_takes(variables: dict[str, t.Any]) -> str | None:
        with contextlib.suppress(module_common.InterpreterDiscoveryRequiredError):
            return str(module_common._get_shebang("/usr/bin/python", variables, templar)[0])
        return None

    paths = (None, "/usr/bin/python3.9", " /opt/python ", "auto", "auto_silent", "")
    for named, setting, discovered in itertools.product(paths, paths, (None, "/usr/bin/python3.13")):
        monkeypatch.delenv("ANSIBLE_PYTHON_INTERPRETER", raising=False)
        if setting is not None:
            monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", setting)
        facts = {} if discovered is None else {"discovered_interpreter_python": discovered}
        variables = {"ansible_facts": facts, **({} if named is None else {"ansible_python_interpreter": named})}
        ours = built(**variables)
        assert (ours and ours.shebang) == ansible_takes(variables), (named, setting, discovered)


def test_ansible_packs_where_it_has_to(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"ansible_python_interpreter": "/usr/bin/python3"}
    assert built(**here)
    assert not built(), "it looks for Python"
    assert not built(ansible_python_interpreter="auto")
    assert not built(Action(delegate_to="other"), **here)
    assert not built(module="domain", **here), "not packed yet"
    kept.with_name(kept.name + host_programs.SUFFIX).unlink()
    for other in (b"", pickle.dumps(types.SimpleNamespace(zip_data=b"eA=="))):
        packed_modules.write(kept, other)
        assert not built(**here), "of another Ansible"
    packed_modules.write(kept, packed("domain_info"))
    with monkeypatch.context() as other_ansible:
        other_ansible.setattr(host_programs.module_common, "_BuiltModule", lambda data: data)
        assert not built(**here), "of another form"
        other_ansible.delattr(host_programs.module_common, "_BuiltModule")
        assert not built(**here), "of another name"
    monkeypatch.setattr(host_programs.constants, "DEFAULT_KEEP_REMOTE_FILES", True)
    assert not built(**here), "somebody debugs a module"


def test_another_ansible_is_warned_of(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules work then, as Ansible packs them, and somebody has to know why tasks take longer."""
    said: list[str] = []
    monkeypatch.setattr(packed_modules.Display, "warning", lambda _self, text: said.append(text))
    here = {"ansible_python_interpreter": "/usr/bin/python3"}
    assert built(**here) and not said
    with monkeypatch.context() as other:
        other.setattr(
            module_common, "_BuiltModule", lambda **_fields: (each for each in ()).throw(TypeError("new field"))
        )
        assert not built(**here)
    with monkeypatch.context() as other:
        other.delattr(module_common, "_BuiltModule")
        assert not built(**here)
    assert host_programs.program_of("bootflow.compute.domain_info", b"another form") is None
    assert packed_modules._with_byte_code(b"another form") == b"another form"
    no_files = io.BytesIO()
    zipfile.ZipFile(no_files, "w").close()
    archive = base64.b64encode(no_files.getvalue())
    empty = pickle.dumps(types.SimpleNamespace(zip_data=archive))
    assert host_programs.program_of("bootflow.compute.domain_info", empty) is None
    assert len(said) == 5 and all(
        "packs modules in a form that bootflow.compute does not know" in text for text in said
    )
