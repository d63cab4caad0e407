# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""KVM is tried out as the user that libvirt runs QEMU as."""

from __future__ import annotations

import contextlib
import grp
import os
import pathlib
import pwd
import tempfile
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HypervisorUnavailable
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse, to_text
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts, virt_probe
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import qemu_user
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import User

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root starts programs as another user")
NOBODY = pwd.getpwnam("nobody")
USER = User(NOBODY.pw_uid, NOBODY.pw_gid, (NOBODY.pw_gid,))
#: Of no user and no group of this machine.
STRANGER = User(64999, 64998, (64997, 64998))
GUEST = 's=; for a; do case "$a" in file:*) s=${a#file:};; esac; done; echo BOOTFLOW-LONG-MODE > $s; '


@pytest.fixture
def public() -> t.Iterator[pathlib.Path]:
    """A folder that all users can pass through, other than those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


@pytest.fixture
def device(public: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A file in place of the device, which its owner alone may open."""
    path = public / "kvm"
    path.write_text("")
    path.chmod(0o600)
    monkeypatch.setattr(virt_probe, "DEVICE", str(path))
    return path


def emulator(folder: pathlib.Path, script: str) -> str:
    path = folder / "qemu-system-x86_64"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def capabilities(label: str = "+64055:+107", model: str = "dac") -> t.Any:
    other = "<secmodel><model>apparmor</model><doi>0</doi></secmodel>"
    given = "<secmodel><model>%s</model><doi>0</doi>%s</secmodel>"
    labels = "<baselabel type='kvm'>%s</baselabel><baselabel type='qemu'>+1:+2</baselabel>" % label
    return parse("<capabilities><host>%s%s</host></capabilities>" % (other, given % (model, labels)))


def test_the_user_by_the_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    assert qemu_user.owner_of(capabilities(), "kvm") == (64055, 107)
    assert qemu_user.owner_of(capabilities(), "qemu") == (1, 2)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("a", "x", uid, 107, "", "/", "/bin/sh")))
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 20] if name == "a" else [])
    assert qemu_user.other_user(capabilities()) == User(64055, 107, (20, 107))
    # As on Debian: the group of the user's entry is kvm, and libvirt sets another one.
    assert qemu_user.other_user(capabilities("+64055:+64055")) == User(64055, 64055, (20, 107, 64055))


def test_a_user_without_an_entry_has_no_further_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert qemu_user.other_user(capabilities("+64999:+64998")) == User(64999, 64998, (64998,))


@pytest.mark.parametrize(
    ("label", "model", "me"), [("+0:+0", "dac", 0), ("+64055:+107", "selinux", 0), ("+64055:+107", "dac", 1000)]
)
def test_root_tries_it_as_ever(monkeypatch: pytest.MonkeyPatch, label: str, model: str, me: int) -> None:
    """Where QEMU is root too, where libvirt does not say who it is, and where this process cannot become another user."""
    monkeypatch.setattr(os, "geteuid", lambda: me)
    assert qemu_user.other_user(capabilities(label, model)) is None


@needs_root
@pytest.mark.parametrize("user", [None, USER, STRANGER])
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_probe_is_the_user(
    public: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, user: User | None, mask: int
) -> None:
    """With its groups, and with files that it can use, also where root has a private folder for temporary ones."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o700)
    told = public / "told"
    told.write_text("")
    told.chmod(0o666)
    script = GUEST + 'echo "$(id -u):$(id -g):$(id -G)" > %s; exit 85' % told
    before = os.umask(mask)
    try:
        verdict = virt_probe.probe(emulator(public, script), first=30, user=user)
    finally:
        os.umask(before)
    assert (verdict.virt_type, verdict.reason) == ("kvm", "a guest reached long mode")
    uid, gid, groups = told.read_text().strip().split(":")
    whole = user or User(0, os.getegid(), tuple(os.getgroups()))
    assert (int(uid), int(gid), {int(g) for g in groups.split()}) == (
        whole.uid,
        whole.gid,
        {whole.gid, *whole.groups},
    )


@needs_root
def test_the_user_cannot_put_a_file_in_the_place_of_one_that_root_reads(public: pathlib.Path) -> None:
    script = (
        GUEST
        + 'ln -sf /etc/shadow "${s%/*}/stderr" 2>/dev/null && exit 85; rm -f $s 2>/dev/null; echo kept >&2; exit 1'
    )
    assert virt_probe.probe(emulator(public, script), first=30, user=USER).reason.endswith(": kept")


@needs_root
def test_a_program_that_the_user_may_not_start(public: pathlib.Path) -> None:
    binary = emulator(public, "exit 85")
    os.chmod(binary, 0o700)
    verdict = virt_probe.probe(binary, user=USER)
    assert verdict.virt_type == "qemu" and "QEMU does not start as nobody" in verdict.reason


@needs_root
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_device_that_the_user_may_not_open(public: pathlib.Path, device: pathlib.Path, arch: str) -> None:
    """The reason has the cause and what to do, and ends when that is done."""
    binary = emulator(public, GUEST + "exit 85")

    def verdict() -> virt_probe.Verdict:
        return virt_probe.working_virt_type("auto", binary, arch, str(public / "i"), True, user=USER)

    os.chown(device, 0, 64997)
    device.chmod(0o660)
    refused = verdict()
    group = grp.getgrgid(USER.gid).gr_name
    assert refused.virt_type == "qemu" and refused.reason == (
        "QEMU runs as nobody, which may not open %s (group 64997, mode 0660). Give it to the group %s (chgrp %s %s; chmod 660 %s),"
        ' and add a udev rule: KERNEL=="kvm", GROUP="%s", MODE="0660"' % (device, group, group, device, device, group)
    )
    os.chown(device, 0, USER.gid)
    assert verdict().virt_type == "kvm"
    device.chmod(0o600)
    assert verdict().virt_type == "qemu", "whatever was found out before"
    device.chmod(0o666)
    assert verdict().virt_type == "kvm"


@needs_root
def test_a_further_group_opens_the_device(public: pathlib.Path, device: pathlib.Path) -> None:
    os.chown(device, 0, 64997)
    device.chmod(0o660)
    binary = emulator(public, GUEST + "exit 85")
    for user, virt_type in ((STRANGER, "kvm"), (User(64999, 64998, (64998,)), "qemu")):
        verdict = virt_probe.working_virt_type("auto", binary, "x86_64", str(public / "i"), True, user=user)
        assert verdict.virt_type == virt_type, verdict
    assert "QEMU runs as user 64999, which" in verdict.reason and "to the group 64998 (chgrp 64998" in verdict.reason


@needs_root
def test_the_group_kvm_is_named_where_the_user_is_a_member(
    device: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grp, "getgrnam", lambda name: grp.struct_group((name, "x", 64997, [])))
    reason = virt_probe.working_virt_type("auto", "/q", "x86_64", "/i", True, user=STRANGER).reason
    assert "Give it to the group kvm (chgrp kvm %s; " % device in reason


def test_the_reason_is_reported_whole() -> None:
    """As Debian names them. source: hosts.facts.facts, which reports 255 characters"""
    reason = virt_probe._Refusal.in_words("libvirt-qemu", "kvm", "systemd-journal-remote", 0o660)
    assert "/dev/kvm" in reason.reason and len("%s. %s" % reason) < 255


@needs_root
def test_kvm_that_is_set_is_refused_where_guests_would_fail(device: pathlib.Path) -> None:
    def verdict(user: User | None) -> virt_probe.Verdict:
        return virt_probe.working_virt_type("kvm", "/q", "x86_64", "/i", True, user=user)

    with pytest.raises(HypervisorUnavailable, match="QEMU runs as nobody, which may not open .*mode 0600") as caught:
        verdict(USER)
    assert "chgrp" in caught.value.remedy and "virt_type to qemu" in caught.value.remedy
    assert verdict(None).virt_type == "kvm", "root opens everything"
    os.chown(device, USER.uid, 0)
    assert verdict(USER).virt_type == "kvm"
    device.unlink()
    assert verdict(USER).virt_type == "kvm", "QEMU says what is wrong with a device that nobody can open"


@needs_root
def test_a_verdict_holds_for_the_user_and_the_device(public: pathlib.Path, device: pathlib.Path) -> None:
    binary = emulator(public, GUEST + "exit 85")
    device.chmod(0o666)

    def is_known(user: User | None) -> bool:
        return virt_probe.working_virt_type("auto", binary, "x86_64", str(public / "i"), True, user=user).cached

    assert [is_known(USER), is_known(USER)] == [False, True]
    assert [is_known(None), is_known(None)] == [False, True]
    assert [is_known(STRANGER), is_known(User(STRANGER.uid, STRANGER.gid, (STRANGER.gid,)))] == [False, False]
    for change in (
        lambda: device.chmod(0o667),
        lambda: os.chown(device, 1, 0),
        lambda: os.chown(device, 1, 1),
    ):
        is_known(USER)
        change()
        assert [is_known(USER), is_known(USER)] == [False, True]


@needs_root
def test_a_report_asks_libvirt_once_who_qemu_is(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Its capabilities are read in any case."""

    class Asked(Exception):
        """The report ends where it asks for the type of virtualization."""

    class Connection:
        calls: t.ClassVar[list[str]] = []

        def getCapabilities(self) -> str:
            self.calls.append("capabilities")
            host = to_text(capabilities("+%d:+%d" % (USER.uid, USER.gid)).find("host"))
            return "<capabilities>%s</capabilities>" % host

        def listAllDomains(self, flags: int) -> list[t.Any]:
            return []

    def answer(*arguments: t.Any) -> None:
        raise Asked(*arguments)

    monkeypatch.setattr(facts, "libvirt_errors", contextlib.nullcontext)
    monkeypatch.setattr(facts, "cpu_info", lambda connection, capabilities: {"arch": "x86_64"})
    monkeypatch.setattr(facts, "working_virt_type", answer)
    with pytest.raises(Asked) as asked:
        facts.compute_node(Connection(), str(tmp_path), "auto")
    groups = tuple(sorted(os.getgrouplist("nobody", USER.gid)))
    assert asked.value.args[-1] == User(USER.uid, USER.gid, groups) and Connection.calls == ["capabilities"]
