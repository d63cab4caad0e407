# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's storage host as the tests use it: modules and playbooks on it, images for it, and looks at what is there.

Python is slow on an emulated CPU, and most of a task's time is the unpacking and compiling of its module. ``module()`` runs
modules, with their arguments and checks, in processes that a server on the host forks; ``play()`` and ``ansible()`` are Ansible itself.
"""

from __future__ import annotations

import compileall
import hashlib
import io
import json
import os
import py_compile
import queue
import random
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import uuid
from pathlib import Path

import ansible

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
GIB = 1024**3
MIB = 1024**2
TEMP = "/var/lib/bootflow/conversion"
#: On a file system of the host that a restart keeps.
MODULES = "/root/modules"

# Runs modules, each in a process of its own that has everything imported already, with arguments as Ansible's wrapper hands them.
# A line of JSON for each task comes in, and one for each that ended goes out.
SERVER = """
import importlib, json, os, select, signal, sys
sys.path.insert(0, %(modules)r)
from ansible.module_utils import basic
PACKAGE = "ansible_collections.bootflow.compute.plugins.modules."
for name in %(names)r:
    importlib.import_module(PACKAGE + name)

def child(task, path):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = json.dumps(task["args"]).encode(), "legacy"
    importlib.import_module(PACKAGE + task["name"]).main()

wake, woken = os.pipe()
os.set_blocking(woken, False)
signal.set_wakeup_fd(woken)
signal.signal(signal.SIGCHLD, lambda *_: None)
running, line = {}, b""
print(json.dumps({"ready": True}), flush=True)
while True:
    ready = select.select([0, wake], [], [])[0]
    if wake in ready:
        os.read(wake, 4096)
    if 0 in ready:
        got = os.read(0, 65536)
        if not got:
            break
        line += got
        while b"\\n" in line:
            task, line = line.split(b"\\n", 1)
            task = json.loads(task)
            path = "/run/lab-task-" + task["id"]
            pid = os.fork()
            if not pid:
                try:
                    child(task, path)
                finally:
                    sys.stdout.flush()
                    os._exit(1)
            running[pid] = (task["id"], path)
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            break
        item, path = running.pop(pid)
        with open(path) as file:
            print(json.dumps({"id": item, "rc": os.waitstatus_to_exitcode(status), "out": file.read()}), flush=True)
        os.unlink(path)
"""
# Programs, where the kernel is with what it holds (state D), the kernel's messages.
AT_WORK = """
ps -eo pid,ppid,stat,wchan:24,etime,args --sort=start_time | awk '$6 !~ /^\\[/' | cut -c1-150
ps -eo pid,stat | awk '$2 ~ /^D/ { print $1 }' | while read -r pid; do
    echo "$(cat /proc/$pid/comm) is held in:"; cat /proc/$pid/stack
done
dmesg | tail -n 25
"""
SERVED = (
    "guest_content",
    "iscsi_initiator",
    "iscsi_target",
    "storage_backend",
    "storage_backend_info",
    "volume_image_cache",
    "volume_lvm",
)


def new_id() -> str:
    return str(uuid.uuid4())


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class StorageHost:
    """The storage host ``vm`` (tests/lab/storage_vm.py) beside a lab; ``folder`` is for files of the tests."""

    def __init__(self, vm, folder: Path):
        self.vm = vm
        self.folder = folder
        self.inventory = vm.write_inventory(str(folder / "storage.json"))
        self.output = ""
        self.server: subprocess.Popen | None = None
        self.guard = threading.Lock()
        self._send_modules()

    def _send_modules(self) -> None:
        stage = self.folder / "stage"
        plugins = stage / "ansible_collections" / "bootflow" / "compute" / "plugins"
        source = ROOT / "plugins"
        for name in ("modules", "module_utils/core", "module_utils/hosts"):
            shutil.copytree(source / name, plugins / name, ignore=shutil.ignore_patterns("__pycache__"))
        basic = stage / "ansible"
        shutil.copytree(
            Path(ansible.__file__).parent / "module_utils",
            basic / "module_utils",
            ignore=shutil.ignore_patterns("__pycache__", "powershell", "csharp"),
        )
        (basic / "__init__.py").write_text("__version__ = %r\n" % ansible.__version__)
        (basic / "release.py").write_text("__version__ = %r\n" % ansible.__version__)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(str(stage), quiet=2, invalidation_mode=mode)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as tar:
            tar.add(stage, ".")
        archive = self.folder / "modules.tar.gz"
        archive.write_bytes(data.getvalue())
        self.vm.put(archive, "/root/modules.tar.gz")
        self.sh("rm -rf %s; mkdir %s && tar -xzf /root/modules.tar.gz -C %s" % (MODULES, MODULES, MODULES))

    # ---- work on it ------------------------------------------------------------------------------------------------------

    def sh(self, script: str, check: bool = True) -> str:
        """What a shell there prints, errors too."""
        return self.vm.run("sh", "-c", script, check=check, timeout=300).stdout

    def _serve(self) -> None:
        script = SERVER % {"modules": MODULES, "names": SERVED}
        argv = self.vm.ssh_argv() + [shlex.join(["python3", "-c", script])]
        self.server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.answers: dict[str, queue.Queue] = {}
        assert json.loads(self.server.stdout.readline())["ready"]
        threading.Thread(target=self._read, args=(self.server, self.answers), daemon=True).start()

    @staticmethod
    def _read(server, answers) -> None:
        for line in server.stdout:
            answer = json.loads(line)
            answers[answer["id"]].put(answer)

    def module(self, name: str, args: dict, check: bool = False, timeout: int = 300) -> dict:
        """The module's whole result, whatever became of it; {"rc": ...} when it was killed."""
        with self.guard:
            if self.server is None or self.server.poll() is not None:
                self._serve()
            item = new_id()
            answer = self.answers[item] = queue.Queue()
            told = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": "/tmp"}
            task = {"id": item, "name": name, "args": {"ANSIBLE_MODULE_ARGS": dict(args, **told)}}
            self.server.stdin.write(json.dumps(task) + "\n")
        try:
            done = answer.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError("%s is not done after %d s\n%s" % (name, timeout, self.at_work())) from None
        return json.loads(done["out"]) if done["out"].strip() else {"rc": done["rc"], "failed": True}

    def close(self) -> None:
        """Ends the server; the next call of module() starts another."""
        if self.server is not None:
            self.server.stdin.close()
            self.server.wait(timeout=30)
            self.server.stdout.close()
            self.server = None

    def volumes(self, backend: dict, volumes: list, check: bool = False, **options) -> dict:
        return self.module("volume_lvm", dict(backend, volumes=volumes, temp_dir=TEMP, **options), check)

    def ansible(self, playbook: str, *options: str, timeout: int = 600, **variables) -> subprocess.CompletedProcess:
        """ansible-playbook with the host's inventory, as a user would call it."""
        path = self.folder / ("variables-%s.json" % new_id())
        path.write_text(json.dumps(variables))
        environment = dict(os.environ, ANSIBLE_HOME=str(self.folder / "ansible"), ANSIBLE_NOCOLOR="1")
        environment["ANSIBLE_COLLECTIONS_PATH"] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
        environment["ANSIBLE_LOCALHOST_WARNING"] = "false"
        argv = [str(BIN / "ansible-playbook"), "-i", self.inventory, "-e", "@%s" % path, *options, playbook]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=timeout, check=False, env=environment, cwd=self.folder
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode("utf-8", "replace")[-1500:]
            text = "%s is not done after %d s:\n%s\n%s"
            raise AssertionError(text % (playbook, timeout, said, self.at_work())) from None
        self.output = done.stdout + done.stderr
        return done

    def play(self, *tasks: tuple) -> list[dict]:
        """The results of the tasks, each (module, arguments) or (module, arguments, "check"), whatever became of them."""
        play, names = [], []
        for number, (module, args, *check) in enumerate(tasks):
            names.append("r%d" % number)
            task = {"bootflow.compute." + module: args, "register": names[-1], "ignore_errors": True}
            play.append(dict(task, check_mode=True, diff=True) if check else task)
        result = self.folder / (new_id() + ".json")
        content = "{{ [%s] | to_json }}" % ", ".join(names)
        copy = {"content": content, "dest": str(result), "mode": "0600"}
        play.append({"ansible.builtin.copy": copy, "delegate_to": "localhost", "diff": False, "no_log": True})
        playbook = self.folder / (result.stem + ".yml")
        playbook.write_text(json.dumps([{"hosts": self.vm.name, "gather_facts": False, "tasks": play}]))
        self.ansible(str(playbook), "-vvv")
        assert result.exists(), self.output[-3000:]
        return json.loads(result.read_text())

    def at_work(self) -> str:
        """What the machine is at, for whoever reads that something there did not end."""
        try:
            return self.vm.run("sh", "-c", AT_WORK, check=False, timeout=60).stdout[-6000:]
        except subprocess.TimeoutExpired as problem:
            return "nor does it answer: %s" % problem

    # ---- what is there ---------------------------------------------------------------------------------------------------

    def lvs(self, group: str) -> dict[str, dict]:
        text = self.sh("lvs --reportformat json --units b --nosuffix -o +lv_tags,lv_when_full,zero %s" % group)
        return {row["lv_name"]: row for row in json.loads(text[text.index("{") :])["report"][0]["lv"]}

    def sha256(self, path: str, size: int) -> str:
        """Of what is on the device, past the page cache."""
        return self.sh("dd if=%s bs=1M iflag=direct status=none | head -c %d | sha256sum" % (path, size)).split()[0]

    def temporary_files(self) -> list[str]:
        return self.sh("find %s -mindepth 1 2>/dev/null || true" % TEMP).split()

    def put_image(self, name: str, data: bytes, image_format: str, size: int = 0) -> dict:
        """An image with the data at its beginning, on the host; as an element of the option images."""
        raw = self.folder / (name + ".raw")
        raw.write_bytes(data)
        path = raw
        if size:
            os.truncate(raw, size)
        if image_format != "raw":
            path = self.folder / (name + "." + image_format)
            argv = ["qemu-img", "convert", "-q", "-f", "raw", "-O", image_format, str(raw), str(path)]
            subprocess.run(argv, check=True)
        self.vm.put(path, "/root/" + path.name)
        return {
            "id": new_id(),
            "name": name,
            "path_on_host": "/root/" + path.name,
            "disk_format": image_format,
            "checksum": sha256(path.read_bytes()),
        }
