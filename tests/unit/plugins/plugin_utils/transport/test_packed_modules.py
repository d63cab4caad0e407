# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packed modules are kept from run to run, and never used when they may be others."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.transport import packed_modules

NAME = "bootflow.compute.domain"
FILE = "ansible_collections.bootflow.compute.plugins.modules.domain-ZIP_DEFLATED-"


class Runs:
    """Runs of ansible-playbook, one after the other, with an ANSIBLE_HOME and a collection of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.module_utils: list[str] = []
        self.cache = packed_modules.CACHE_OF_RUN  # where Ansible puts what it packs
        self.number = 0
        self.monkeypatch = monkeypatch
        for name in packed_modules.PACKED:
            (folder / "plugins" / name).mkdir(parents=True)
        for name in packed_modules.PACKERS:
            (folder / "plugins" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "plugins" / name).touch()
        self.source = folder / "plugins" / "modules" / "domain.py"
        self.source.write_text("old")
        monkeypatch.setattr(packed_modules, "PLUGINS", folder / "plugins")

    def __call__(self) -> bool:
        """Run the module once in a new run. Returns whether it was packed for it."""
        self.number += 1
        of_run = self.folder / ("run%d" % self.number)
        of_run.mkdir()
        config = types.SimpleNamespace(get_config_value=lambda _name: str(self.home))
        constants = types.SimpleNamespace(
            DEFAULT_LOCAL_TMP=str(of_run), DEFAULT_MODULE_UTILS_PATH=self.module_utils, config=config
        )
        self.monkeypatch.setattr(packed_modules, "constants", constants)
        packed = []
        for _task in range(2):
            with packed_modules.reuse_packed_module(NAME):
                path = of_run / self.cache / FILE
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(self.source.read_text())
                    (path.parent / (FILE + ".lock")).touch()
                    packed.append(path)
                assert path.read_text() == self.source.read_text()
        assert len(packed) < 2
        return bool(packed)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_a_module_is_packed_in_the_first_run_only(runs: Runs) -> None:
    assert [runs() for _run in range(3)] == [True, False, False]
    (state,) = (runs.home / packed_modules.FOLDER).iterdir()
    assert [path.name for path in state.iterdir()] == [FILE]


def test_a_file_that_changed_is_packed_again_and_old_ones_go(runs: Runs) -> None:
    assert runs() and not runs()
    runs.source.write_text("another")
    assert [runs(), runs()] == [True, False]
    (runs.folder / "plugins" / "module_utils" / "new.py").touch()
    assert [runs(), runs()] == [True, False]
    (runs.folder / "plugins" / packed_modules.PACKERS[-1]).write_text("another form")
    assert [runs(), runs()] == [True, False]
    assert len(list((runs.home / packed_modules.FOLDER).iterdir())) == packed_modules.STATES


def test_a_file_of_the_same_size_and_time_is_another(runs: Runs) -> None:
    """As in images and packages whose files all have one time."""
    times = (1, 1)
    os.utime(runs.source, times)
    assert runs() and not runs()
    runs.source.write_text("new")
    os.utime(runs.source, times)
    assert [runs(), runs()] == [True, False]


def test_two_installations_with_one_home_do_not_pack_in_turn(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    other = Runs(tmp_path / "other", monkeypatch)
    other.home = runs.home
    packed = []
    for installation in (runs, other, runs, other):
        monkeypatch.setattr(packed_modules, "PLUGINS", installation.folder / "plugins")
        packed.append(installation())
    assert packed == [True, True, False, False]


@pytest.mark.parametrize("left", [0, 3, 6])
def test_a_file_that_was_not_written_whole_is_packed_again(runs: Runs, left: int) -> None:
    """The rest of a file after a power failure, or of two computers that wrote to one home."""
    assert runs() and not runs()
    (kept,) = (runs.home / packed_modules.FOLDER).glob("*/*")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert [runs(), runs()] == [True, False]
    assert kept.read_bytes() == whole


def test_a_full_disk_leaves_nothing_of_a_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        packed_modules.write(tmp_path / "module", bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())
    assert packed_modules.read(tmp_path / "module") is None


def test_what_others_may_write_is_not_used(runs: Runs) -> None:
    assert runs()
    (runs.home / packed_modules.FOLDER).chmod(0o770)
    assert runs(), "it would run on the hosts"
    (runs.home / packed_modules.FOLDER).chmod(0o700)
    (state,) = (runs.home / packed_modules.FOLDER).iterdir()
    state.chmod(0o777)
    assert runs()


def test_nothing_is_kept_where_the_user_adds_files_to_modules(runs: Runs) -> None:
    runs.module_utils = [str(runs.home)]
    assert [runs(), runs()] == [True, True]
    assert not (runs.home / packed_modules.FOLDER).exists()


def test_a_home_that_cannot_be_written_does_no_harm(runs: Runs) -> None:
    runs.home.rmdir()
    runs.home.touch()
    assert [runs(), runs()] == [True, True]


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What people are warned of. Ansible shows a text once in a run, however many workers warn of it."""
    said: list[str] = []
    monkeypatch.setattr(packed_modules.Display, "warning", lambda _self, text: said.append(text))
    return said


def test_an_ansible_that_packs_in_another_place_is_warned_of_once(runs: Runs, warnings: list[str]) -> None:
    """Nothing can be kept then: each run packs, which takes longer, and somebody has to know why."""
    runs.cache = "packed"
    assert [runs(), runs()] == [True, True]
    assert len(warnings) == 4, "for each task"
    (text,) = set(warnings)
    assert "packs modules in a form that bootflow.compute does not know" in text and "ansiballz_cache" in text
    assert NAME.rpartition(".")[2] not in text.split("(")[1], "else there are as many texts as modules"


def test_nothing_is_warned_of_where_modules_are_kept_or_cannot_be(runs: Runs, warnings: list[str]) -> None:
    assert [runs(), runs()] == [True, False]
    runs.cache = "packed"
    runs.module_utils = [str(runs.home)]
    assert runs()
    runs.module_utils = []
    with contextlib.suppress(ZeroDivisionError), packed_modules.reuse_packed_module("bootflow.compute.other"):
        1 / 0  # noqa: B018
    # The files of runs are not in Ansible's form, which is warned of, too.
    assert all("ansiballz_cache" not in text for text in warnings)


def test_ansible_uses_it(tmp_path: Path) -> None:
    """With the real ansible-playbook: Ansible's name of the file, and its form, are what is kept."""
    playbook = tmp_path / "report.yml"
    playbook.write_text("- hosts: compute1\n  gather_facts: false\n  tasks:\n    - bootflow.compute.compute_report:\n")
    environment = {
        **os.environ,
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_DEBUG": "1",
        "ANSIBLE_VERBOSITY": "3",
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
    }
    inventory = "compute1 ansible_connection=local ansible_python_interpreter=%s\n[bootflow_compute]\ncompute1\n"
    (tmp_path / "hosts").write_text(inventory % sys.executable)
    variables = [
        "-e",
        "bootflow_ledger_url=sqlite:///%s/ledger.db" % tmp_path,
        "-e",
        "bootflow_libvirt_uri=test:///none",
    ]
    program = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts"), str(playbook)]
    ledger = program[:-1] + ["bootflow.compute.ledger", *variables]
    subprocess.run(ledger, env=environment, check=True, capture_output=True)
    found = []
    for more in ([], [], ["-e", "ansible_python_interpreter=auto_silent"]):
        done = subprocess.run(
            [*program, *variables, *more], env=environment, capture_output=True, text=True, check=False
        )
        assert "compute1" in done.stdout
        found.append(
            [
                word
                for word in ("ANSIBALLZ: Creating module", "ANSIBALLZ: using cached module", "(without AnsiballZ)")
                if word in done.stdout
            ]
        )
    assert found == [["ANSIBALLZ: Creating module"], ["(without AnsiballZ)"], ["ANSIBALLZ: using cached module"]]
    (kept,) = (k for k in (tmp_path / "home" / packed_modules.FOLDER).glob("*/*") if k.suffix != ".program")
    _imports_from(kept, tmp_path)


def test_what_people_see_is_the_same(tmp_path: Path) -> None:
    """Errors, warnings and values that are not to be shown, of a module as a program and as Ansible packs it, by the real ansible-playbook."""
    playbook = tmp_path / "report.yml"
    playbook.write_text("- hosts: compute1\n  gather_facts: false\n  tasks:\n    - bootflow.compute.compute_report:\n")
    inventory = "compute1 ansible_connection=local ansible_python_interpreter=%s\n[bootflow_compute]\ncompute1\n"
    (tmp_path / "hosts").write_text(inventory % sys.executable)
    ansible = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(tmp_path / "hosts")]
    ledger = "bootflow_ledger_url=sqlite:///%s/ledger.db" % tmp_path
    variables = ["-e", ledger, "-e", "bootflow_libvirt_uri=test:///none", "-e", "bootflow_print_table=false"]
    environment = {
        **os.environ,
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_VERBOSITY": "0",
    }
    subprocess.run([*ansible, "bootflow.compute.ledger", *variables], env=environment, check=True, capture_output=True)
    said = []
    for keep, verbosity in (("0", "0"), ("0", "0"), ("1", "0"), ("0", "3"), ("1", "3")):
        more = {"ANSIBLE_KEEP_REMOTE_FILES": keep, "ANSIBLE_VERBOSITY": verbosity}
        done = subprocess.run(
            [*ansible, str(playbook), *variables],
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        said.append(done.stdout + done.stderr)
    assert "(without AnsiballZ)" in said[3] and "(without AnsiballZ)" not in said[4]
    first, program, ansiballz = (
        re.sub(r"[0-9]+(\.[0-9]+)? s\b|/[^ ]*ansible-tmp-[^ ]*", "", text) for text in said[:3]
    )
    assert program == ansiballz == first
    assert "does not know" not in "".join(said), "this release of ansible-core is known"
    assert "DEPRECATION" not in "".join(said), "this release of ansible-core keeps what is used of it"


SPEAKING = """
from ansible.module_utils.basic import AnsibleModule
SPEC = {
    "secret": {"type": "str", "required": True, "no_log": True},
    "count": {"type": "int"},
    "time_limit": {"type": "float"},
    %s
}
def main():
    module = AnsibleModule(SPEC, supports_check_mode=True)
    module.warn("be warned of %%s" %% module.params["count"])
    said = {"said": "it is %%s." %% module.params["secret"], "count": module.params["count"]}
    if module.params["count"] == 13:
        module.fail_json(msg="no luck with %%s" %% module.params["secret"], error_code="X", **said)
    module.exit_json(**said)
if __name__ == "__main__":
    main()
"""
DEPRECATED_OPTION = (
    '"old": {"type": "str", "removed_in_version": "9.0.0", "removed_from_collection": "bootflow.compute"},'
)
ACTION = """
from ..module_utils.core import errors
from ..plugin_utils.run.ledger_action import LedgerAction
class ActionModule(LedgerAction):
    ARGUMENTS = {"count": {"type": "int"}, "old": {"type": "str"}}
    def _refuse_unmeant_ledger(self):
        pass
    def act(self):
        given = {n: self._task.args[n] for n in ("count", "old") if n in self._task.args}
        try:
            answer = self.run_module("speaking", {"secret": "open-sesame", **given})
        except errors.BootflowError as e:
            answer = e.details["answer"]
        deprecations = [str(getattr(getattr(d, "event", None), "msg", d)) for d in answer.pop("deprecations", ())]
        answer = {n: answer.get(n) for n in ("said", "count", "msg", "error_code", "warnings")}
        return {"answer": answer, "deprecations_of_the_module": deprecations}
"""


@pytest.mark.parametrize("option", ["", DEPRECATED_OPTION], ids=["program", "left to Ansible"])
def test_secrets_warnings_and_deprecations_come_out_as_with_ansiballz(tmp_path: Path, option: str) -> None:
    """Of a module that has them all, in a copy of the collection, by the real ansible-playbook."""
    collection = tmp_path / "ansible_collections" / "bootflow" / "compute"
    source = Path(__file__).resolve().parents[5]
    shutil.copytree(source / "plugins", collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("galaxy.yml", "meta"):
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, collection / name)
    (collection / "plugins" / "modules" / "speaking.py").write_text(SPEAKING % option)
    (collection / "plugins" / "action" / "speaks.py").write_text(ACTION)
    (collection / "plugins" / "modules" / "speaks.py").write_text("")
    tasks = [
        {"bootflow.compute.speaks": arguments} for arguments in ({"count": 7}, {"count": 13}, {"count": 1, "old": "x"})
    ]
    play = [{"hosts": "compute1", "gather_facts": False, "tasks": tasks if option else tasks[:2]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    inventory = "compute1 ansible_connection=local ansible_python_interpreter=%s\n"
    (tmp_path / "hosts").write_text(inventory % sys.executable)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment.update(ANSIBLE_HOME=str(tmp_path / "home"), ANSIBLE_COLLECTIONS_PATH=str(tmp_path), ANSIBLE_NOCOLOR="1")
    said = []
    for keep, verbosity in (("0", "1"), ("0", "1"), ("1", "1"), ("0", "3")):
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible-playbook"),
                "-i",
                str(tmp_path / "hosts"),
                str(tmp_path / "play.yml"),
            ],
            env={**environment, "ANSIBLE_KEEP_REMOTE_FILES": keep, "ANSIBLE_VERBOSITY": verbosity},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout + done.stderr)
    first, program, ansiballz, loud = said
    assert program == ansiballz == first
    assert "be warned of 7" in program  # before ansible-core 2.21 with the name of the host
    assert "it is ********." in program and "no luck with ********" in program
    assert "open-sesame" not in "".join(said)
    assert "(without AnsiballZ)" in loud and ("speaking runs as Ansible runs modules" in loud) is bool(option)
    assert ("'old' is deprecated" in program) is bool(option)


def _imports_from(kept: Path, folder: Path) -> None:
    """What is kept has byte code, which this Python uses, and sources, for a Python that cannot read it."""
    archive = base64.b64decode(pickle.loads(packed_modules.read(kept) or b"").zip_data)
    (folder / "ours.zip").write_bytes(archive)
    with zipfile.ZipFile(io.BytesIO(archive)) as ours, zipfile.ZipFile(folder / "others.zip", "w") as others:
        sources = {n for n in ours.namelist() if n.endswith(".py")}
        assert {n for n in ours.namelist() if n.endswith(".pyc")} == {n + "c" for n in sources}
        for name in ours.namelist():
            content = ours.read(name)
            others.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    module = "ansible_collections.bootflow.compute.plugins.modules.compute_node_info"
    asked = "import sys; sys.path.insert(0, sys.argv[1]); import %s as found; print(found.__file__)" % module
    for name, suffix in (("ours.zip", ".pyc"), ("others.zip", ".py")):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        program = [sys.executable, "-c", asked, str(folder / name)]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(folder / name / (module.replace(".", "/") + suffix))


def test_the_file_of_another_ansible_is_kept_as_it_is() -> None:
    for other in (b"", b"zip", pickle.dumps({"zip_data": b""}), pickle.dumps(types.SimpleNamespace(zip_data=b"eA=="))):
        assert packed_modules._with_byte_code(other) == other
