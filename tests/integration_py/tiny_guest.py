# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest of 512 bytes: a boot sector that says a line on its serial port and then waits for ever (or ends)."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from xml.sax.saxutils import quoteattr

MIB = 1024**2


WAIT = "f4ebfd"  # hlt; jmp back
DEBUG_EXIT = "b000baf400ee"  # al = 0; out 0xf4
# sti; ah = 0; int 0x16 (wait for a key); dx = the PM1a control register of SeaBIOS; ax = SLP_EN; out dx, ax
ACPI_OFF_BY_KEY = "fb30e4cd16ba0406b80020ef"


def boot_sector(words, power_off=False, key=False):
    """The sector.

    :arg power_off: it ends the machine by a write to isa-debug-exit instead of waiting.
    :arg key: it powers the machine off by ACPI when a key is pressed.
    """
    code = bytes.fromhex("fa31c08ed8be")  # cli; ds = 0; mov si, text
    rest = bytes.fromhex("baf803")  # mov dx, 0x3f8
    rest += bytes.fromhex("ac84c07403eeebf8")  # lodsb; test al, al; jz done; out dx, al; jmp back
    rest += bytes.fromhex((DEBUG_EXIT if power_off else ACPI_OFF_BY_KEY if key else "") + WAIT)
    start = 0x7C00 + len(code) + 2 + len(rest)
    sector = code + start.to_bytes(2, "little") + rest + words.encode() + b"\r\n\0"
    assert len(sector) <= 510
    return sector.ljust(510, b"\0") + b"\x55\xaa"


def raw_image(path, words, size=MIB, key=False):
    """A raw image file of ``size`` bytes that begins with the boot sector."""
    with open(path, "wb") as file:
        file.write(boot_sector(words, key=key))
        file.truncate(size)
    return str(path)


def image(folder, **options):
    """The qcow2 of such a guest, with its sha256 in a file beside it, as scripts/build-guest-image makes its own."""
    raw, made = raw_image(folder / "still.raw", "still", **options), folder / "still.qcow2"
    subprocess.run(["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, str(made)], check=True)
    Path(str(made) + ".sha256").write_text(hashlib.sha256(made.read_bytes()).hexdigest())
    return made


def domain_xml(uuid, name, disk, disk_format="qcow2", log=None, description=""):
    """The guest's definition; its serial port is logged to ``log``."""
    serial = "<serial type='pty'><log file=%s append='off'/></serial>" % quoteattr(log) if log else ""
    disk = (
        "<disk type='file' device='disk'><driver name='qemu' type=%s/><source file=%s/><target dev='vda' bus='virtio'/></disk>"
        % (
            quoteattr(disk_format),
            quoteattr(disk),
        )
    )
    text = "<description>%s</description>" % description if description else ""
    return (
        "<domain type='qemu'><name>%s</name><uuid>%s</uuid>%s<memory unit='MiB'>32</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>"
        "<devices>%s%s<memballoon model='none'/></devices></domain>" % (name, uuid, text, disk, serial)
    )
