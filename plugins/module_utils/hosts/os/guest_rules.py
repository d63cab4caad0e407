# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of udev and LVM that keep a host away from the content of guests' disks.

udev looks at each new disk, and starts what its content asks for: LVM, md, bcache. A rule hides the type of content of guests' disks from
the rules that follow, and removes the links by which fstab finds a file system: a guest may give its own any label or UUID. LVM also looks at
all disks by itself, at each command: its file of devices lists the disks of this host.

source: udev(7); lvmdevices(8); lvm.conf(5)
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import typing as t

from ...core.errors import InvalidInput
from .command import program, run
from .files import read_text, write_file
from .guest_content import Blocks
from .paths import make_dirs

#: After the rules that recognise content (60-persistent-storage), before the ones that act on it (64-md-raid-assembly, 69-lvm).
RULES = "/etc/udev/rules.d/61-bootflow-guests.rules"
#: The socket of the running udev.
UDEV = "/run/udev/control"
LVM_CONFIG = "/etc/lvm/lvm.conf"
LVM_LOCAL = "/etc/lvm/lvmlocal.conf"
LVM_DEVICES = "/etc/lvm/devices/system.devices"
#: What the type of content becomes in udev's database.
HIDDEN = "content_of_guest"

#: Folders of links below /dev/disk whose names are in the content.
BY_CONTENT = ("by-uuid", "by-label", "by-partuuid", "by-partlabel", "by-designator", "by-dname", "by-parttypeuuid")

_BEGIN, _END = "# begin bootflow.compute", "# end bootflow.compute"
_BLOCK = re.compile(r"^%s\n.*?^%s\n" % (_BEGIN, _END), re.MULTILINE | re.DOTALL)
_USES_FILE = re.compile(r"^[^#\n]*\buse_devicesfile\s*=\s*([01])", re.MULTILINE)
_SCANS_VOLUMES = re.compile(r"^[^#\n]*\bscan_lvs\s*=\s*([01])", re.MULTILINE)
_DISK = re.compile(r"/dev/[A-Za-z0-9_/:.@=+-]+\Z")

_UUID = "????????-????-????-????-????????????"
_ID = "[0-9a-f-]" * 40  # of an image in a cache, at least; see guest_content
#: The links that a disk keeps: all but these. udev of Debian 12 (252) has no SYMLINK-=, so the list of links is written again.
_LINKS = r"""PROGRAM=="/bin/sh -c 'set -f; for link in $$DEVLINKS; do case $$link in /dev/gpt-auto-*|%s) ;; *) echo $${link#/dev/};; esac; done'", \
    %s""" % (
    "|".join("*/%s/*" % folder for folder in BY_CONTENT),
    ", ".join('SYMLINK%s"%%c{%d}"' % ("+=" if number > 1 else "=", number) for number in range(1, 17)),
)
_TEXT = """\
# Made by bootflow.compute: changes are lost. Guests write the content of these disks, and nothing of it is for this host.
SUBSYSTEM!="block", GOTO="guests_end"
ACTION=="remove", GOTO="guests_end"
ENV{BOOTFLOW_GUEST}=""
# Disks of volumes, by iSCSI
ENV{ID_PATH}=="*-iscsi-*volume-%(uuid)s-lun-*", ENV{BOOTFLOW_GUEST}="1"
# Logical volumes: volumes, their snapshots and images, and local disks of instances
ENV{DM_LV_NAME}=="volume-%(uuid)s|_snapshot-%(uuid)s|clone-snap-%(uuid)s|image-%(id)s*", ENV{BOOTFLOW_GUEST}="1"
ENV{DM_LV_NAME}=="%(uuid)s_disk*", ENV{BOOTFLOW_GUEST}="1"
%(disks)s# Partitions, and maps over one of these disks
ENV{DEVTYPE}=="partition", IMPORT{parent}="BOOTFLOW_GUEST"
ENV{DM_UUID}=="mpath-*|part*", \\
    PROGRAM=="/bin/sh -c 'cat /sys%%p/slaves/*/dev | while read -r d; do grep -hs ^E:BOOTFLOW_GUEST=1 /run/udev/data/b$$d; done'", \\
    RESULT=="E:*", ENV{BOOTFLOW_GUEST}="1"
ENV{BOOTFLOW_GUEST}!="1", GOTO="guests_end"
ENV{UDISKS_IGNORE}="1"
# No links by names that a guest chose: fstab of this host has such names for its own file systems. A map goes before its paths.
ENV{DM_NAME}!="?*", OPTIONS+="link_priority=-100"
ENV{DM_NAME}=="?*", OPTIONS+="link_priority=-99"
ENV{ID_PART_GPT_AUTO_ROOT}=""
%(links)s
ENV{ID_FS_TYPE}=="LVM?_member|*_raid_member|*_member|bcache|btrfs|crypto_LUKS|DM_snapshot_cow|drbd", ENV{ID_FS_TYPE}="%(hidden)s"
LABEL="guests_end"
"""


def rules(disks: t.Sequence[str] = ()) -> str:
    """Return the text of the udev rules. :arg disks: further disks of guests, as paths below /dev."""
    lines = []
    for path in sorted(set(disks)):
        if not _DISK.match(path) or ".." in path.split("/"):
            raise InvalidInput(reason="disks must be paths such as /dev/disk/by-id/..., got %r" % (path,))
        name = path[len("/dev/") :]
        match = 'SYMLINK=="%s"' % name if "/" in name else 'KERNEL=="%s"' % name
        lines.append('%s, ENV{BOOTFLOW_GUEST}="1"\n' % match)
    return _TEXT % {"uuid": _UUID, "id": _ID, "disks": "".join(lines), "links": _LINKS, "hidden": HIDDEN}


def uses_devices_file() -> bool:
    """Return whether LVM sees the disks in its file of devices only."""
    return _is_set(_USES_FILE) and os.path.exists(LVM_DEVICES)


def _is_set(setting: re.Pattern[str]) -> bool:
    """Return whether it is on. :arg setting: of lvm.conf, with its value in a group; the last one counts. It is off by default."""
    values = [value for path in (LVM_CONFIG, LVM_LOCAL) for value in setting.findall(read_text(path))]
    return bool(values) and values[-1] == "1"


def has_lvm() -> bool:
    return shutil.which("lvm", path="/usr/sbin:/sbin:/usr/bin:/bin") is not None


def missing(connects: bool) -> list[str]:
    """Return the settings without which the content of guests' disks is activated on this host, one text each.

    :arg connects: whether this host has whole disks of guests: of volumes by its own initiator, or physical ones.
    """
    problems: list[str] = []
    if not os.path.exists(UDEV):
        return problems  # nothing looks at new disks, as in a container
    if _LINKS not in read_text(RULES):
        problems.append("udev has no rules for disks of guests, or older ones (%s)" % RULES)
    if has_lvm() and not uses_devices_file() and (connects or _is_set(_SCANS_VOLUMES)):
        problems.append("LVM looks at disks of guests (use_devicesfile is off, or %s is missing)" % LVM_DEVICES)
    return problems


def exposed(connects: bool, blocks: Blocks | None = None) -> list[str]:
    """Return why the content of guests' disks can do harm here, one text each: what this host has activated of it, and the missing settings."""
    return [*("%s is active" % text for text in (blocks or Blocks()).activated()), *missing(connects)]


# ---- write -------------------------------------------------------------------------------------------------------------


def ensure(disks: t.Sequence[str] = (), check_mode: bool = False) -> dict[str, t.Any]:
    """Write the settings. Returns changed, before and after: {path: text}.

    :arg disks: further disks of guests, as paths below /dev.
    :raises InvalidInput: such a path is not valid.
    :raises CommandFailed: LVM is too old for a file of devices (before 2.03.12), or failed.
    """
    before: dict[str, str] = {RULES: _text(RULES)}
    after: dict[str, str] = {RULES: rules(disks)}
    imported: list[str] = []
    if has_lvm():
        before[LVM_LOCAL] = _text(LVM_LOCAL)
        after[LVM_LOCAL] = before[LVM_LOCAL] if uses_devices_file() else _with_devices_file(before[LVM_LOCAL])
        before[LVM_DEVICES] = _listed(_text(LVM_DEVICES))
        if not uses_devices_file():
            imported = own_physical_volumes(disks)
        listed = set(before[LVM_DEVICES].splitlines())
        after[LVM_DEVICES] = "".join("%s\n" % device for device in sorted(listed | set(imported)))
    changed = before != after or (has_lvm() and not uses_devices_file())
    if changed and not check_mode:
        _write(before, after, imported, disks)
    return {"changed": changed, "before": before, "after": after}


def _write(
    before: t.Mapping[str, str], after: t.Mapping[str, str], imported: t.Sequence[str], disks: t.Sequence[str]
) -> None:
    if LVM_DEVICES in after and not uses_devices_file():
        make_dirs(os.path.dirname(LVM_DEVICES), 0o755)
        if not os.path.exists(LVM_DEVICES):
            # Without the file LVM would look at all disks in spite of the setting.
            write_file(LVM_DEVICES, b"# LVM uses devices listed in this file.\n", 0o600)
        for device in imported:
            add = ["lvmdevices", "--config", "devices/use_devicesfile=1", "--yes", "--adddev", device]
            run([program("lvm", "lvm2"), *add], timeout=300)
        write_file(LVM_LOCAL, after[LVM_LOCAL].encode(), 0o644)
    if before[RULES] != after[RULES]:
        make_dirs(os.path.dirname(RULES), 0o755)
        write_file(RULES, after[RULES].encode(), 0o644)
        udevadm = shutil.which("udevadm")
        if udevadm:
            run([udevadm, "control", "--reload"], timeout=60, check=False)
            _apply_rules(udevadm, disks)


def _of_guests(disks: t.Sequence[str]) -> set[str]:
    """Return the kernel names of the disks of guests, with their partitions. :arg disks: further ones."""
    blocks = Blocks()
    names = set(blocks.of_guests())
    for path in disks:
        name = os.path.basename(os.path.realpath(path))
        names |= {name, *blocks.partitions(name)}
    return names


def _apply_rules(udevadm: str, disks: t.Sequence[str]) -> None:
    """Have udev look again at the disks of guests that are there: at maps after the disks below them."""
    folder = os.path.join(Blocks().sys, "class/block")
    names = sorted(name for name in _of_guests(disks) if os.path.exists(os.path.join(folder, name)))
    for maps in (False, True):
        paths = [os.path.join(folder, name) for name in names if name.startswith("dm-") is maps]
        if paths and os.path.exists(UDEV):
            run([udevadm, "trigger", "--action=change", "--settle", *paths], timeout=120, check=False)


def restricted() -> list[str] | None:
    """Return the physical volumes to which commands of LVM have to be restricted (option --devices); None: to none in particular.

    A guest may give its volume group any name, also that of a group of this host.
    """
    if uses_devices_file() or not Blocks().of_guests(local=_is_set(_SCANS_VOLUMES)):
        return None
    return own_physical_volumes()


def own_physical_volumes(disks: t.Sequence[str] = ()) -> list[str]:
    """Return the physical volumes on disks of this host, without physical volumes that guests made on their disks.

    :arg disks: further disks of guests.
    """
    guests = _of_guests(disks)
    config = 'devices/use_devicesfile=0 log/command_names=0 log/prefix="" report/prefixes=0 report/quoted=1'
    words = ["pvs", "--config", config, "--noheadings", "--options", "pv_name"]
    done = run([program("lvm", "lvm2"), *words], timeout=300, report="LVM_REPORT_FD")
    names = [line.strip() for line in done.stdout.splitlines()]
    return sorted(n for n in names if n.startswith("/dev/") and os.path.basename(os.path.realpath(n)) not in guests)


def _with_devices_file(text: str) -> str:
    block = "%s\ndevices {\n    use_devicesfile = 1\n}\n%s\n" % (_BEGIN, _END)
    rest = _BLOCK.sub("", text)
    return rest + ("\n" if rest and not rest.endswith("\n") else "") + block


def _listed(text: str) -> str:
    """Return the devices in the file of devices, one a line."""
    return "".join("%s\n" % device for device in sorted(re.findall(r"\bDEVNAME=(\S+)", text)))


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""
