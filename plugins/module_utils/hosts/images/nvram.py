# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVRAM of guests as files of this host, see core.guest.nvram: opened to be copied, and checked where it arrives."""

from __future__ import annotations

import glob
import os
import stat

from ...core.errors import HostLacksHardware, InvalidDiskInfo
from ...core.guest.nvram import HEAD, LARGEST_NVRAM, NVRAM, is_nvram, pack, unpack
from ..os.files import opened, read_json, write_file
from ..os.paths import make_dirs

#: Where QEMU's firmware is described, see QEMU's docs/interop/firmware.json.
DESCRIPTIONS = ("/usr/share/qemu/firmware", "/etc/qemu/firmware")


def open_nvram(folder: str) -> int | None:
    """Return a descriptor of the NVRAM of a guest that is off; None: it has none. :arg folder: of the instance

    :raises InvalidDiskInfo: something else has its name.
    """
    return _open(os.path.join(folder, NVRAM))


def _open(path: str) -> int | None:
    if not os.path.lexists(path):
        return None
    fd = -1 if os.path.islink(path) else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if fd < 0 or not stat.S_ISREG(os.fstat(fd).st_mode) or not 0 < os.fstat(fd).st_size <= LARGEST_NVRAM:
        if fd >= 0:
            os.close(fd)
        raise _other(path)
    return fd


def _other(path: str) -> InvalidDiskInfo:
    return InvalidDiskInfo(
        reason="%s is not the NVRAM of a guest" % path,
        remedy="See what it is, and move it away: the guest starts with new UEFI variables then.",
    )


def is_copyable(path: str) -> bool:
    """Return whether copy_nvram() can copy this file; False: there is none.

    :raises InvalidDiskInfo: it is not an NVRAM.
    """
    fd = _open(path)
    if fd is None:
        return False
    with os.fdopen(fd, "rb") as file:
        if not is_nvram(file.read(HEAD)):
            raise _other(path)
    return True


def copy_nvram(path: str, folder: str) -> None:
    """Copy the NVRAM of a guest that is off, with its owner. What the copy replaces stays until it is whole.

    :arg folder: of the instance, where the copy goes
    :raises InvalidDiskInfo: it is not an NVRAM, or gone.
    """
    fd = _open(path)
    if fd is None:
        raise _other(path)
    with os.fdopen(fd, "rb") as file:
        data, status = file.read(), os.fstat(fd)
    if len(data) != status.st_size or not is_nvram(data[:HEAD]):
        raise _other(path)
    make_dirs(folder)
    owner = (status.st_uid, status.st_gid)
    write_file(os.path.join(folder, NVRAM), data.rstrip(b"\0"), 0o600, size=len(data), owner=owner)


def packed_nvram(folder: str) -> str:
    """Return the NVRAM of an instance as core.guest.nvram.pack() writes it; "": it has none that can be kept.

    Firmware writes each variable so that half of it does not count: a file that is read while the guest runs is as after a power loss.

    :arg folder: of the instance
    """
    try:
        fd = open_nvram(folder)
    except InvalidDiskInfo:
        return ""
    if fd is None:
        return ""
    with os.fdopen(fd, "rb") as file:
        return pack(file.read())


def check_packed(packed: str, folder: str) -> bytes:
    """Return the bytes of packed variables that are to replace the NVRAM of an instance. :arg folder: of the instance

    :raises InvalidDiskInfo: they are damaged, or the firmware of the guest has variables of another length now.
    """
    data, path = unpack(packed), os.path.join(folder, NVRAM)
    fd = _open(path)
    if fd is not None:
        size = os.fstat(fd).st_size
        os.close(fd)
        if size != len(data):
            raise InvalidDiskInfo(
                reason="the image has %d bytes of UEFI variables, and the firmware of the guest %d" % (len(data), size),
                remedy="The guest has another firmware than when the image was made. Boot another instance from the image.",
            )
    return data


def put_nvram(packed: str, folder: str) -> None:
    """Replace the NVRAM of an instance whose guest is off. Its owner stays. :raises InvalidDiskInfo: see check_packed()"""
    data, path = check_packed(packed, folder), os.path.join(folder, NVRAM)
    write_file(path, data.rstrip(b"\0"), 0o600, size=len(data), keep_owner=True)


def check_nvram(path: str) -> None:
    """Check an NVRAM that another host sent.

    :raises InvalidDiskInfo: it is of another kind.
    :raises HostLacksHardware: no firmware of this host has variables of that length: the guest would not come up with them.
    """
    with opened(path, os.O_RDONLY) as fd:
        head, size = os.pread(fd, HEAD, 0), os.fstat(fd).st_size
    if not is_nvram(head):
        raise InvalidDiskInfo(
            reason="what arrived as the NVRAM of the guest has no UEFI variables",
            remedy="Look whether the host that sent it was taken over. Where the file there is damaged, move it away: the guest starts with new variables.",
        )
    lengths = template_lengths()
    if lengths and size not in lengths:
        raise HostLacksHardware(
            host=os.uname().nodename,
            model="UEFI firmware",
            reason="the guest has %d bytes of UEFI variables, and the firmware of the host %s"
            % (size, ", ".join(map(str, sorted(lengths)))),
            remedy="Install the firmware (ovmf; aarch64: qemu-efi-aarch64) that the other host has.",
        )


def template_lengths() -> set[int]:
    """Return the bytes of the variables of each firmware of this host; empty: it has none that is described."""
    lengths = set()
    for folder in DESCRIPTIONS:
        for description in glob.glob(os.path.join(folder, "*.json")):
            data = read_json(description)
            mapping = data.get("mapping") if isinstance(data, dict) else None
            template = mapping.get("nvram-template") if isinstance(mapping, dict) else None
            path = template.get("filename") if isinstance(template, dict) else None
            if isinstance(path, str) and os.path.isfile(path):
                lengths.add(os.path.getsize(path))
    return lengths
