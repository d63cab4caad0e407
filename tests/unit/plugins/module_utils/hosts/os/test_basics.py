# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import errno
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances, local_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.files import default_label
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import virt_probe
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import fetch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domain_waits
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import (
    batch,
    command,
    files,
    locks,
    module_errors,
    paths,
    sysfs,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import process_started

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"


def test_batch_isolates_items_and_says_what_was_changed():
    def work(n):
        if n == 1:
            raise errors.ImageUnacceptable(image_id="x", reason="y")
        if n == 2:
            batch.progress.mark_changed()
            raise ValueError("unforeseen")
        return {"n": n}

    results = batch.run_batch([(str(n), n) for n in range(6)], work, workers=3)
    assert list(results) == [str(n) for n in range(6)]
    assert results["0"] == {"n": 0, "changed": False, "error": None}
    assert (results["1"]["error"]["code"], results["1"]["changed"]) == ("ImageUnacceptable", False)
    assert (results["2"]["error"]["code"], results["2"]["changed"]) == ("RemoteError", True)
    assert "unforeseen" in results["2"]["error"]["message"]
    assert batch.any_changed(results) and not batch.any_changed({"0": results["0"]})


def test_batch_refuses_a_key_twice():
    with pytest.raises(errors.InvalidInput, match="more than once: a"):
        batch.run_batch([("a", 1), ("b", 1), ("a", 2)], dict)
    assert batch.run_batch({}, dict) == {}


def test_batch_runs_items_side_by_side():
    gate = threading.Barrier(3, timeout=10)
    assert len(batch.run_batch({n: n for n in "abc"}, lambda n: {"at": gate.wait()}, workers=3)) == 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_recognised(number):
    error = module_errors.as_bootflow_error(OSError(number, "full", "/x/y"))
    assert isinstance(error, errors.DiskFull) and "/x/y" in error.message and error.retryable


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EACCES, "denied", "/x"), errors.HypervisorUnavailable(host="h", reason="denied")]
)
def test_a_user_who_may_not_is_told_to_become_root(error, monkeypatch):
    before = module_errors.as_bootflow_error(copy.copy(error)).remedy
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert module_errors.as_bootflow_error(error).remedy == module_errors.NOT_ROOT != before


def test_fail_gives_the_family_s_fields():
    class Module:
        def fail_json(self, **fields):
            self.fields = fields
            raise SystemExit(1)

    module = Module()
    with pytest.raises(SystemExit):
        module_errors.fail(module, errors.HypervisorUnavailable(host="h", reason="r"))
    assert module.fields["error_code"] == "HypervisorUnavailable" and module.fields["status"] == 503
    assert "h" in module.fields["msg"] and module.fields["retryable"] and "message" not in module.fields


def test_command_ends_in_time_and_takes_its_children_along(tmp_path):
    done = command.run(["sh", "-c", "sleep 600 & echo $! > %s/pid; wait" % tmp_path], timeout=2, check=False)
    assert done.rc == command.TIMED_OUT
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 30
    while process_started(pid) is not None:
        assert time.monotonic() < end, "its child lives on"
        time.sleep(0.05)


HOSTS = "ansible_collections.bootflow.compute.plugins.module_utils.hosts"


@pytest.mark.parametrize(
    ("program", "work"),
    [
        ("qemu-img", "from %s.images.images import convert; convert('a', 'qcow2', 'b')"),
        ("cp", "from %s.disks.resizes.files import copy_file; copy_file('a', 'b')"),
        ("mkfs.ext4", "from %s.disks.stores.files import *; format_disk(DiskSpec('disk.eph0', 'ephemeral', 1), 'b')"),
        ("mkswap", "from %s.disks.stores.files import *; format_disk(DiskSpec('disk.swap', 'swap', 1), 'b')"),
    ],
)
def test_what_writes_disks_ends_with_a_module_that_is_killed(program, work, tmp_path):
    """As by the kernel when memory is short: the next module starts a guest with the disk, or removes it."""
    tool = tmp_path / program
    tool.write_text("#!/bin/sh\necho $$ > %s/pid.part; mv %s/pid.part %s/pid\nexec sleep 600\n" % ((tmp_path,) * 3))
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": "%s:%s" % (tmp_path, os.environ["PATH"])}
    module = subprocess.Popen([sys.executable, "-c", work % HOSTS], env=environment)
    end = time.monotonic() + 30
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < end and module.poll() is None, "it does not work"
        time.sleep(0.02)
    module.kill()
    module.wait()
    pid = int((tmp_path / "pid").read_text())
    while process_started(pid) is not None:
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.05)


def test_command_is_not_waited_for_when_it_does_not_end(monkeypatch):
    """As with a program that the kernel holds (state D), and with one whose child has left its session."""
    monkeypatch.setattr(command, "GRACE", 0.3)
    left = command.run(["sh", "-c", "echo words; setsid sleep 30 & wait"], timeout=1, check=False)
    assert left.rc == command.TIMED_OUT and left.stdout == "words\n"
    assert left.stderr == "killed: not finished after 1 s; what it started has its output open"
    held = []
    with monkeypatch.context() as patch:
        patch.setattr(command, "kill_group", held.append)
        done = command.run(["sh", "-c", "echo words; exec sleep 30"], timeout=1, check=False)
    assert done.stdout == "words\n"
    assert done.stderr == "killed: not finished after 1 s; the kernel holds process %d" % held[0].pid
    held[0].kill()
    held[0].wait()


def test_the_kernel_is_told_by_another_process(tmp_path):
    order = tmp_path / "scan"
    with pytest.raises(FileNotFoundError):
        sysfs.write_sysfs(str(order), "- - 1")
    order.write_text("")
    sysfs.write_sysfs(str(order), "- - 1")
    assert order.read_text() == "- - 1"
    with pytest.raises(errors.CommandFailed, match="Is a directory"):
        sysfs.write_sysfs(str(tmp_path), "1")
    # Nobody reads: the writer waits in the kernel.
    os.mkfifo(tmp_path / "held")
    with pytest.raises(errors.WaitTimeout, match="writing '1' to .*/held did not happen within 1 s") as caught:
        sysfs.write_sysfs(str(tmp_path / "held"), "1", timeout=1)
    assert caught.value.retryable and "dmesg" in caught.value.remedy


@pytest.mark.parametrize("prlimit", [True, False])
def test_command_limits(prlimit, monkeypatch):
    if not prlimit:
        monkeypatch.setattr(command.shutil, "which", lambda *args, **kwargs: None)
    limits = command.Limits(cpu_seconds=7, address_space=512 * 1024**2)
    assert command.run(["sh", "-c", "ulimit -t; ulimit -v"], limits).stdout.split() == ["7", str(512 * 1024)]


def test_command_failures():
    with pytest.raises(errors.CommandFailed, match="exit code 3: words"):
        command.run(["sh", "-c", "echo words >&2; exit 3"])
    with pytest.raises(errors.CommandFailed, match=r"exit code -9: killed \(SIGKILL\)") as caught:
        command.run(["sh", "-c", "kill -9 $$"])
    assert "dmesg" in caught.value.remedy
    with pytest.raises(errors.DiskFull, match="/the/file"):
        command.run(["sh", "-c", "echo 'write: No space left on device' >&2; exit 1"], path="/the/file")
    with pytest.raises(errors.CommandFailed, match="127"):
        command.run(["no-such-program-at-all"])
    with pytest.raises(errors.MissingLibrary, match="no-such-program"):
        command.program("no-such-program", "some-package")


@pytest.mark.parametrize(
    "value", ["", "x", "..", UUID + "/", UUID + "\n", UUID.replace("-", ""), "{%s}" % UUID, "urn:uuid:" + UUID, None, 5]
)
def test_no_uuid(value):
    with pytest.raises(errors.InvalidInput):
        paths.instance_dir("/i", value)


def test_paths():
    assert paths.instance_dir("/i//", UUID.upper()) == "/i/" + UUID
    for bad in ("", "x", "/", "//", "/a/../b", "/a\0"):
        with pytest.raises(errors.InvalidInput):
            paths.checked_instances_path(bad)
    for good in ("disk", "disk.eph0", "disk.swap", "disk.config.rescue"):
        assert paths.checked_disk_name(good) == good
    for bad in ("", "Disk", "disk.", "disk/x", "../disk", "disk.info", "disk\n", "disk.part/"):
        with pytest.raises(errors.InvalidInput):
            paths.checked_disk_name(bad)
    for bad in ("", "..", ".x", "a/b", "a b", "a\n", "x" * 129):
        with pytest.raises(errors.InvalidInput):
            paths.checked_id(bad)


def test_lock_is_exclusive_and_leaves_no_file(tmp_path):
    count, worst, guard = [0], [0], threading.Lock()

    def work(n):
        with locks.host_lock(str(tmp_path), "one", timeout=30):
            with guard:
                count[0] += 1
                worst[0] = max(worst[0], count[0])
            time.sleep(0.002)
            with guard:
                count[0] -= 1
        return {}

    results = batch.run_batch({str(n): n for n in range(24)}, work, workers=8)
    assert all(r["error"] is None for r in results.values()) and worst[0] == 1
    assert os.listdir(str(tmp_path / "locks")) == []


HOLD = """
import sys, time
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
with locks.host_place(sys.argv[1], "build", 2):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_places_are_shared_by_all_processes(tmp_path):
    """The limit of builds is the host's, not a run's: with one of two places held by another process, one is left."""
    most, now, guard = [0], [0], threading.Lock()

    def work(n):
        with locks.host_place(str(tmp_path), "build", 2):
            with guard:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.01)
            with guard:
                now[0] -= 1
        return {}

    def worst():
        most[0] = 0
        results = batch.run_batch({str(n): n for n in range(8)}, work, workers=8)
        assert all(r["error"] is None for r in results.values())
        return most[0]

    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    assert worst() == 1
    other.kill()
    other.communicate()
    assert worst() == 2


def test_an_instances_disks_wait_for_a_place(tmp_path):
    """A build of another run has the only place until its process or it ends."""
    done = threading.Event()

    def build():
        found = make_disks(str(tmp_path), [], [{"uuid": UUID, "disks": []}], {}, max_builds=1)
        assert found["outcomes"][UUID]["error"] is None
        done.set()

    builder = threading.Thread(target=build)
    with locks.host_place(str(tmp_path), locks.BUILDS, 1):
        builder.start()
        assert not done.wait(0.2)
    builder.join()
    assert done.is_set()


def test_places_without_a_limit_and_errors_of_their_holders(tmp_path):
    with locks.host_place(str(tmp_path), "build", 0), locks.host_place(str(tmp_path), "build", 0):
        assert not (tmp_path / "locks").exists()
    with pytest.raises(errors.WaitTimeout), locks.host_place(str(tmp_path), "build", 1):
        raise errors.WaitTimeout(what="a guest", seconds=1, host="h")
    with locks.host_place(str(tmp_path), "build", 1):
        pass


def test_lock_times_out(tmp_path):
    with (
        locks.host_lock(str(tmp_path), "one"),
        pytest.raises(errors.WaitTimeout),
        locks.host_lock(str(tmp_path), "one", timeout=0.1),
    ):
        pass
    with locks.host_lock(str(tmp_path), "one", timeout=0.1):
        pass


def test_write_json_is_whole_or_not_there(tmp_path):
    path = str(tmp_path / "x.json")
    files.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
    assert files.read_json(path) == {"a": 1} and os.listdir(str(tmp_path)) == ["x.json"]
    assert files.read_json(str(tmp_path / "none")) is None


def test_remove_tree(tmp_path):
    folder = tmp_path / UUID
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("x")
    names = {str(folder), str(folder / "sub" / "file")}
    assert set(instances.remove_tree(str(folder), check_mode=True)) == names and folder.exists()
    assert set(instances.remove_tree(str(folder))) == names and not folder.exists()
    assert instances.remove_tree(str(folder)) == []


@pytest.mark.parametrize(
    ("name", "label"), [("disk.eph0", "ephemeral0"), ("disk.eph11", "ephemeral11"), ("disk.data", "data")]
)
def test_labels(name, label):
    assert default_label(name) == label


@pytest.mark.parametrize(
    "spec",
    [
        DiskSpec("disk", "image", 1),
        DiskSpec("disk.swap", "swap", 0),
        DiskSpec("disk.eph0", "ephemeral", -1),
        DiskSpec("disk.eph0", "ephemeral", 1, fs="ntfs"),
        DiskSpec("disk.eph0", "ephemeral", 1, label="-n x"),
        DiskSpec("disk.eph0", "ephemeral", 1, backend="zfs"),
        DiskSpec("disk.eph0", "blank", 1),
    ],
)
def test_bad_disk_specs(spec):
    with pytest.raises(errors.InvalidInput):
        spec.checked()


def test_shown_url_has_no_secret():
    assert fetch.shown_url("https://u:p@h:8/a/b?sig=x#f") == "https://h:8/a/b"


def test_fetch_is_sparse_and_reports_progress(tmp_path):
    source, target = tmp_path / "a b%", tmp_path / "target"
    data = b"x" * 5 + bytes(4 * fetch.CHUNK) + b"y"
    source.write_bytes(data)
    seen, got = [], []
    assert fetch.fetch(
        fetch.local_source(str(source)), str(target), "img", got.append, lambda *a: seen.append(a)
    ) == len(data)
    assert target.read_bytes() == data == b"".join(got) and target.stat().st_blocks * 512 < 3 * fetch.CHUNK
    assert seen[-1] == (len(data), len(data)) and target.stat().st_mode & 0o777 == 0o600


def test_console_wait_reads_on_and_sees_truncation(tmp_path):
    log = tmp_path / "log"
    log.write_text("old words\nold\n")
    wait = domain_waits.ConsoleWait(re.compile("wor(ds|ld)"), str(log), timeout=5)
    assert domain_waits.wait_for_console(wait, None, lambda: None) == "old words"

    def write():
        time.sleep(0.3)
        log.write_text("new\r\n")
        time.sleep(0.3)
        with log.open("a") as file:
            file.write("hello wor")
            file.flush()
            time.sleep(0.4)
            file.write("ld, I am\r\n")

    thread = threading.Thread(target=write)
    thread.start()
    assert domain_waits.wait_for_console(wait, wait.mark(), lambda: None).startswith("hello world")
    thread.join()


def test_console_wait_stops_when_the_guest_ends(tmp_path):
    def dead():
        raise errors.LibvirtError(reason="ended")

    wait = domain_waits.ConsoleWait(re.compile("x"), str(tmp_path / "none"), timeout=30)
    with pytest.raises(errors.LibvirtError):
        domain_waits.wait_for_console(wait, None, dead)


def test_boot_sector():
    sector = virt_probe.boot_sector()
    assert len(sector) == 512 and sector[510:] == b"\x55\xaa" and virt_probe.MARKER in sector
    # the addresses in the code: marker, descriptor table, gate's handler
    assert 0x7C00 + sector.index(virt_probe.MARKER) == int.from_bytes(
        sector[sector.index(b"\xbe\xd4") + 1 :][:4], "little"
    )
    assert sector[0xE8 + 24 : 0xE8 + 30] == bytes.fromhex("1700e87c0000")


def emulator(tmp_path, script):
    path = tmp_path / "qemu-system-x86_64"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


SERIAL = 'for a; do case "$a" in file:*) s=${a#file:};; esac; done; '


@pytest.mark.parametrize(
    ("script", "virt_type", "words"),
    [
        (SERIAL + "echo BOOTFLOW-LONG-MODE > $s; exit 85", "kvm", "long mode"),
        ("exit 85", "qemu", "exit code 85"),
        (SERIAL + "echo BOOTFLOW-LONG-MODE > $s; exit 0", "qemu", "exit code 0"),
        ("echo 'KVM internal error. Suberror: 1' >&2; sleep 30", "qemu", "KVM internal error"),
        ("echo 'failed to initialize kvm: Permission denied' >&2; exit 1", "qemu", "Permission denied"),
        ("sleep 30", "qemu", "hangs"),
    ],
)
def test_probe(tmp_path, script, virt_type, words):
    seconds = 0.4 if script == "sleep 30" else 30  # what neither hangs nor ends early needs them only on a busy machine
    verdict = virt_probe.probe(emulator(tmp_path, script), first=seconds, second=seconds)
    assert verdict.virt_type == virt_type and words in verdict.reason


def test_probe_is_kept(tmp_path, monkeypatch):
    binary = emulator(tmp_path, "exit 1")
    monkeypatch.setattr(virt_probe, "_key", lambda emulator, user: "key")
    monkeypatch.setattr(virt_probe.os.path, "exists", lambda path: True)
    first = virt_probe.working_virt_type("auto", binary, "x86_64", str(tmp_path / "i"), True)
    second = virt_probe.working_virt_type("auto", binary, "x86_64", str(tmp_path / "i"), True)
    assert (first.virt_type, first.cached, second.virt_type, second.cached) == ("qemu", False, "qemu", True)
    monkeypatch.setattr(virt_probe, "_key", lambda emulator, user: "another kernel")
    assert not virt_probe.working_virt_type("auto", binary, "x86_64", str(tmp_path / "i"), True).cached


@pytest.mark.parametrize(
    ("setting", "listed", "virt_type"),
    [("qemu", True, "qemu"), ("kvm", True, "kvm"), ("auto", False, "qemu"), ("kvm", False, None), ("x", True, None)],
)
def test_virt_type_settings(tmp_path, setting, listed, virt_type):
    if virt_type is None:
        with pytest.raises((errors.HypervisorUnavailable, errors.InvalidInput)):
            virt_probe.working_virt_type(setting, "/q", "x86_64", str(tmp_path), listed)
    else:
        assert virt_probe.working_virt_type(setting, "/q", "x86_64", str(tmp_path), listed).virt_type == virt_type


def test_an_instance_without_disks_of_its_own_has_a_folder(tmp_path):
    folder = tmp_path / UUID
    for check_mode in (True, True, False):
        assert local_disks.ensure_disks(str(tmp_path), UUID, [], {}, check_mode) == {"changed": True, "disks": []}
        assert folder.is_dir() != check_mode
    assert local_disks.ensure_disks(str(tmp_path), UUID, [], {}) == {"changed": False, "disks": []}


@pytest.mark.parametrize("mask", [0o000, 0o077])
@pytest.mark.parametrize("mode", [0o711, 0o700])
def test_folders_have_their_mode_under_every_umask(tmp_path, mask, mode):
    """Parents that are missing, too; folders that exist are left alone."""
    os.chmod(tmp_path, 0o750)
    old = os.umask(mask)
    try:
        paths.make_dirs(str(tmp_path / "a" / "b" / "c"), mode)
        paths.make_dirs(str(tmp_path / "a" / "b") + "/", mode)
    finally:
        os.umask(old)
    found = [stat.S_IMODE((tmp_path / p).stat().st_mode) for p in ("", "a", "a/b", "a/b/c")]
    assert found == [0o750, mode, mode, mode]
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        paths.make_dirs(str(tmp_path / "file"))


def test_a_build_waits_for_a_place_so_long_and_no_longer(tmp_path):
    """A run that holds the places for ever holds no other run's builds."""
    with locks.host_place(str(tmp_path), locks.BUILDS, 1):
        found = make_disks(str(tmp_path), [], [{"uuid": UUID, "disks": []}], {}, max_builds=1, place_timeout=0.1)
    error = found["outcomes"][UUID]["error"]
    assert (error["code"], error["retryable"]) == ("WaitTimeout", True)
    assert "one of the 1 places build" in error["message"] and "bootflow_build_place_timeout" in error["remedy"]


def test_what_a_module_has_loaded_is_not_looked_through_for_garbage_when_it_ends():
    lines = (
        "import gc, types",
        "from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import time_limit",
        "time_limit.keep_time_limit(types.SimpleNamespace(params={'time_limit': None}))",
        "print(gc.get_freeze_count() > 1000)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


LATE = """
import json, sys, threading
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import command, time_limit

class Module:
    _name = "bootflow.compute.domain"
    params = {"time_limit": 1.0}

    def fail_json(self, **fields):
        print(json.dumps(fields))
        sys.exit(1)

time_limit.keep_time_limit(Module())
threading.Thread(target=command.run, args=(["sleep", sys.argv[1]],)).start()
threading.Event().wait()
"""


def test_a_module_ends_with_its_programs_when_its_time_is_up():
    """The controller gives the host up, so nothing of the module may work on."""
    seconds = "61.%d" % os.getpid()
    done = subprocess.run(
        [sys.executable, "-c", LATE, seconds], capture_output=True, text=True, timeout=60, check=False
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["error_code"] == "HostTimeout"
    assert answer["msg"].endswith("did not end domain within 1 s")
    assert subprocess.run(["pgrep", "-f", "sleep " + seconds], capture_output=True, check=False).returncode == 1
