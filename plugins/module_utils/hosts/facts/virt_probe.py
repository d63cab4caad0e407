# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether KVM really works, because every guest may hang although the capabilities of libvirt list KVM.

A boot sector runs through the stages of a kernel - firmware, protected mode, page tables, long mode, an interrupt through its own
descriptor table, CPUID - and writes a marker to its serial port. A /dev/kvm without hardware support fails on the way (its
instruction emulator gives up, or nothing happens); guests then run under TCG. The probe takes 0.1 s if KVM works. It runs as the user that
libvirt runs QEMU as: in a container or a small VM the device may have the group of another system, and root can open it all the same.
"""

from __future__ import annotations

import grp
import json
import os
import platform
import pwd
import stat
import subprocess
import tempfile
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import HypervisorUnavailable, InvalidInput
from ..os import command
from ..os.command import User
from ..os.files import read_json, write_json
from ..os.paths import PROBE, checked_instances_path, make_dirs
from .metrics import boot_id

DEVICE = "/dev/kvm"
#: The group that udev gives the device to.
KVM_GROUP = "kvm"
#: Seconds to wait for the marker; without a visible failure a second attempt gets more, for a host under load.
FIRST_TRY, SECOND_TRY = 3.0, 10.0
MARKER = b"BOOTFLOW-LONG-MODE"
#: The exit code that isa-debug-exit derives from the last write of the stub: (0x2a << 1) | 1.
EXIT_CODE = 85

# The stub, at 0x7c00. Page tables at 0x1000 (PML4), 0x2000, 0x3000 (one 2 MiB page, identity), IDT at 0x4000.
_STUB = bytes.fromhex(
    "fa31c08ed88ec08ed0bc007c"  # cli; ds = es = ss = 0; sp = 0x7c00
    "bf0010b90018f3ab"  # 0x1000-0x3fff = 0
    "c70600100320c70600200330c70600308300"  # PML4[0], PDPT[0], PD[0]
    "660f0116007d"  # lgdt
    "66b8200000000f22e0"  # cr4 = PAE
    "66b8001000000f22d8"  # cr3 = PML4
    "66b9800000c00f32660d000100000f30"  # EFER |= LME
    "0f20c0660d010000800f22c0"  # cr0 |= PG | PE
    "66ea627c00000800"  # jmp 8:long
    "b8100000008ed0bc007c0000"  # long: ss = 0x10; esp = 0x7c00
    "bf0040000031c0b940000000f3ab"  # IDT = 0
    "c7042530400000d07c0800c7042534400000008e0000"  # IDT[3] = interrupt gate to handler
    "0f011c25067d0000"  # lidt
    "31dbcc83fb01752b"  # ebx = 0; int3; ebx == 1, or hlt
    "0f20d80f22d80fa2"  # cr3 = cr3; cpuid
    "bed47c0000b913000000baf8030000"  # esi = marker; ecx = 19; edx = serial port
    "8a06ffc6eeffc975f7"  # out each byte
    "b82a000000baf4000000ef"  # out 0x2a to isa-debug-exit
    "f4ebfd"  # hlt for ever
    "ffc348cf"  # handler: ebx += 1; iretq
) + MARKER + b"\n"  # fmt: skip
_GDT_AT = 0xE8
_GDT = bytes.fromhex("000000000000000000000000009a20000000000000920000") + bytes.fromhex(
    "1700e87c00003f000040000000000000"
)


def boot_sector() -> bytes:
    """Return the stub as 512 bytes that a BIOS boots."""
    return (_STUB.ljust(_GDT_AT, b"\x90") + _GDT).ljust(510, b"\0") + b"\x55\xaa"


@dataclass(frozen=True)
class Verdict:
    """The virtualization type of guests, and the reason."""

    virt_type: str  # kvm, qemu
    reason: str
    cached: bool = False


def working_virt_type(
    setting: str,
    emulator: str,
    arch: str,
    instances_path: str,
    kvm_listed: bool,
    write_cache: bool = True,
    user: User | None = None,
) -> Verdict:
    """Return ``kvm`` or ``qemu``, by the setting (auto, kvm, qemu) and, for auto, by a probe.

    The result is stored in <instances_path>/_probe/kvm.json and is valid for this boot, kernel, QEMU and its user, and /dev/kvm with its
    owner and mode.

    :arg emulator: path of the QEMU binary.
    :arg kvm_listed: libvirt's capabilities list KVM for this architecture.
    :arg user: whom libvirt runs QEMU as; None: the user of this process.
    :raises InvalidInput: an unknown setting.
    :raises HypervisorUnavailable: kvm is set but not listed, or ``user`` may not open the device.
    """
    if setting == "qemu":
        return Verdict("qemu", "virt_type is set to qemu")
    if setting == "kvm":
        if not kvm_listed:
            raise HypervisorUnavailable(
                host=platform.node(),
                reason="virt_type is set to kvm, but libvirt does not offer KVM",
                remedy="Set virt_type to auto or qemu.",
            )
        refusal = _refusal(user)
        if refusal:
            raise HypervisorUnavailable(
                host=platform.node(),
                reason="virt_type is set to kvm, but %s" % refusal.reason,
                remedy="%s. Or set virt_type to qemu." % refusal.remedy,
            )
        return Verdict("kvm", "virt_type is set to kvm")
    if setting != "auto":
        raise InvalidInput(reason="virt_type must be auto, kvm or qemu, got %r" % setting)
    if not kvm_listed or not os.path.exists(DEVICE):
        return Verdict("qemu", "libvirt does not offer KVM here")
    refusal = _refusal(user)
    if refusal:  # not kept: a repair may change what the key does not have, as an ACL
        return Verdict("qemu", "%s. %s" % refusal)
    if arch != "x86_64" or not _x86_emulator(emulator):
        return Verdict("kvm", "libvirt offers KVM (it is only tried out on x86_64)")
    key = _key(emulator, user)
    cache = os.path.join(checked_instances_path(instances_path), PROBE, "kvm.json")
    known = read_json(cache)
    if isinstance(known, dict) and known.get("key") == key and known.get("virt_type") in ("kvm", "qemu"):
        return Verdict(known["virt_type"], str(known.get("reason", "")), cached=True)
    verdict = probe(emulator, user=user)
    if write_cache:
        make_dirs(os.path.dirname(cache))
        write_json(cache, {"key": key, "virt_type": verdict.virt_type, "reason": verdict.reason})
    return verdict


def _x86_emulator(emulator: str) -> bool:
    return (
        bool(emulator)
        and (os.path.basename(emulator) in ("qemu-system-x86_64", "qemu-kvm", "kvm"))
        and os.access(emulator, os.X_OK)
    )


def _key(emulator: str, user: User | None) -> str:
    binary = os.stat(emulator)
    device = os.stat(DEVICE)
    software = [2, platform.release(), platform.version(), boot_id(), os.path.realpath(emulator)]
    access = [device.st_ino, device.st_mode, device.st_uid, device.st_gid]
    identity = [user.uid, user.gid, *user.groups] if user else []
    return json.dumps([*software, binary.st_size, int(binary.st_mtime), *access, identity])


class _Refusal(t.NamedTuple):
    """Why QEMU's user cannot use KVM, and what to do."""

    reason: str
    remedy: str

    @classmethod
    def in_words(cls, user: str, group: str, device_group: str, mode: int) -> _Refusal:
        """Write it for these names. :arg group: of the user. :arg mode: of the device."""
        return cls(
            "QEMU runs as %s, which may not open %s (group %s, mode %04o)" % (user, DEVICE, device_group, mode),
            "Give it to the group %s (chgrp %s %s; chmod 660 %s), and add a udev rule: "
            % (group, group, DEVICE, DEVICE)
            + 'KERNEL=="kvm", GROUP="%s", MODE="0660"' % group,
        )


def _refusal(user: User | None) -> _Refusal | None:
    """Open the device as ``user``. None: it may, or root may not either, of which the probe tells more."""
    if user is None or not _is_denied(user):
        return None
    device = os.stat(DEVICE)
    group = KVM_GROUP if _group_id(KVM_GROUP) in user.groups else _group_name(user.gid)
    return _Refusal.in_words(_user_name(user.uid), group, _group_name(device.st_gid), stat.S_IMODE(device.st_mode))


def _is_denied(user: User) -> bool:
    """Whether the kernel, which knows ACLs as well, refuses the device to ``user`` and not to this process."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
        opening = command.start(
            ["/bin/sh", "-c", 'exec 3<>"$0"', DEVICE], stdout=subprocess.DEVNULL, cwd="/", user=user
        )
    except OSError:
        return False
    with opening:
        try:
            return b"Permission denied" in opening.communicate(timeout=command.GRACE)[1]
        except subprocess.TimeoutExpired:
            command.kill_group(opening)
            return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user %d" % uid


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def probe(
    emulator: str,
    accelerator: str = "kvm",
    first: float = FIRST_TRY,
    second: float = SECOND_TRY,
    user: User | None = None,
) -> Verdict:
    """Run the stub under ``accelerator`` as ``user`` once, and again with more time if it neither ended nor failed."""
    reason = _try(emulator, accelerator, first, user)
    if reason == "":
        reason = _try(emulator, accelerator, second, user)
    if reason is None:
        return Verdict("kvm", "a guest reached long mode")
    return Verdict("qemu", "KVM is listed but does not work: %s" % (reason or "a guest hangs before long mode"))


def _try(emulator: str, accelerator: str, seconds: float, user: User | None) -> str | None:
    """Boot a probe. None: KVM works. "": no marker in time. Otherwise the error of QEMU."""
    with tempfile.TemporaryDirectory(prefix="bootflow-probe-", dir=_place_for(user)) as folder:
        sector = os.path.join(folder, "sector")
        serial = os.path.join(folder, "serial")
        # The user gets the files and not the folder: root reads them, and no other user can exchange them.
        for path, content in ((sector, boot_sector()), (serial, b"")):
            with open(path, "wb") as file:
                file.write(content)
                if user is not None:
                    os.fchown(file.fileno(), user.uid, user.gid)
        if user is not None:
            os.chmod(folder, 0o711)
        argv = _argv(emulator, accelerator, sector, serial)
        return _run_stub(argv, os.path.join(folder, "stderr"), serial, seconds, user)


def _place_for(user: User | None) -> str | None:
    """Return a folder for temporary files that ``user`` can pass through: root may have one that is private. None: the usual one."""
    folders = (tempfile.gettempdir(), "/tmp", "/var/tmp") if user is not None else ()
    return next(filter(_lets_pass, folders), None)


def _lets_pass(folder: str) -> bool:
    """Whether all users can pass through the folder and those above it."""
    path = os.path.realpath(folder)
    try:
        while os.stat(path).st_mode & stat.S_IXOTH and path != "/":
            path = os.path.dirname(path)
    except OSError:
        return False
    return path == "/"


def _argv(emulator: str, accelerator: str, sector: str, serial: str) -> list[str]:
    options = "-m 16 -smp 1 -nodefaults -no-user-config -display none -monitor none -no-reboot".split()
    drive = "file=%s,format=raw,if=ide" % sector.replace(",", ",,")
    options += ["-serial", "file:" + serial, "-drive", drive, "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
    return [emulator, "-accel", accelerator, *options]


def _run_stub(argv: t.Sequence[str], errors: str, serial: str, seconds: float, user: User | None) -> str | None:
    with open(errors, "wb") as stderr:
        try:
            process = command.start(argv, stdout=subprocess.DEVNULL, stderr=stderr, cwd="/", user=user)
        except OSError as error:
            return "QEMU does not start%s: %s" % (" as %s" % _user_name(user.uid) if user else "", error)
    deadline = time.monotonic() + seconds
    try:
        while process.poll() is None and time.monotonic() < deadline:
            # QEMU keeps running with a stopped guest when KVM gives up.
            if b"KVM internal error" in _read(errors) or b"KVM: entry failed" in _read(errors):
                return "KVM internal error"
            time.sleep(0.02)
        if process.returncode is None:
            return ""
        if process.returncode == EXIT_CODE and MARKER in _read(serial):
            return None
        words = _read(errors).decode("utf-8", "replace").strip().splitlines()
        return words[-1][:300] if words else "QEMU ended with exit code %s" % process.returncode
    finally:
        if process.poll() is None:
            command.kill_group(process)
            process.wait()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
