# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVRAM of a guest with UEFI: the file, next to its disks, in which its firmware keeps its variables (boot entries, keys of secure boot).

libvirt makes it from the firmware's template when a guest starts without one, and says nothing. By default it names the file after the domain, so that
a later guest of that name gets it.
"""

from __future__ import annotations

import base64
import binascii
import re
import typing as t
import zlib

from ..errors import InvalidDiskInfo

#: In the folder of the instance; with a rescue's own, so that the variables of the guest's system stay as they are.
NVRAM, RESCUE_NVRAM = "disk.nvram", "disk.nvram.rescue"
#: Where libvirt has that of a domain whose definition names none.
OF_LIBVIRT = "/var/lib/libvirt/qemu/nvram/%s_VARS.fd"
#: Bytes: the firmware of aarch64 has 64 MiB, that of x86 132 or 528 KiB.
LARGEST_NVRAM = 64 * 1024**2
#: Characters of a packed NVRAM: firmware writes some kilobytes, and fills the rest of the file with one byte.
LARGEST_PACKED = 1024**2
PACKED = re.compile("[A-Za-z0-9+/]*={0,2}")
#: Bytes from the beginning of a file by which is_nvram() knows it.
HEAD = 64
# A firmware volume of the UEFI Platform Initialization specification: sixteen bytes of zeros, a GUID, eight bytes of length, a signature.
_SIGNATURE, _AT, _ZEROS = b"_FVH", 40, 16


def is_nvram(head: bytes) -> bool:
    """Whether a file that begins with ``head`` (HEAD bytes) has variables, or is a new one of aarch64, which has zeros only.

    Another format, such as qcow2, could name files of the host.
    """
    is_volume = head[_AT : _AT + len(_SIGNATURE)] == _SIGNATURE
    return len(head) == HEAD and not any(head[:_ZEROS]) and (is_volume or not any(head))


def pack(data: bytes) -> str:
    """Return an NVRAM as text, compressed and in base64; "": a ledger does not keep so much, or it is not an NVRAM."""
    packed = base64.b64encode(zlib.compress(data, 9)).decode() if is_nvram(data[:HEAD]) else ""
    return packed if len(packed) <= LARGEST_PACKED else ""


def unpack(packed: str) -> bytes:
    """Return the bytes of pack()'s text. :raises InvalidDiskInfo: it is another text"""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(packed, validate=True), LARGEST_NVRAM + 1)
    except (binascii.Error, zlib.error):
        data = b""
    if not unpacker.eof or len(data) > LARGEST_NVRAM or not is_nvram(data[:HEAD]):
        raise InvalidDiskInfo(
            reason="what the ledger has as UEFI variables of the image is damaged",
            remedy="Restore the ledger from a backup, or boot another instance from the image.",
        )
    return data


def nvram_path(domain: t.Any) -> str:
    """Return the path of a domain's NVRAM; "" where it boots by BIOS. libvirt 9.0 names a path that it has chosen in the XML of a running guest only.

    :arg domain: its XML, parsed
    """
    nvram, firmware = domain.find("os/nvram"), domain.find("os[@firmware='efi']")
    source = domain.find("os/nvram/source")
    named = "" if source is None else source.get("file") or source.get("dev") or ""
    if nvram is not None and (nvram.text or "").strip():
        named = nvram.text.strip()
    if not named and source is None and firmware is not None and domain.find("os/loader[@stateless='yes']") is None:
        named = OF_LIBVIRT % domain.findtext("name")
    return str(named)
