# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest of 512 bytes that says on its serial port how large its boot disk is, and then waits for ever."""

from __future__ import annotations

import struct

# Where the BIOS writes the drive's parameters (int 13h, function 48h): the number of sectors is at 16, 8 bytes.
PARAMETERS = 0x7E00
TEXT = 0x7C80


def boot_sector(words: str) -> bytes:
    """The sector: the guest says ``words`` and 16 hexadecimal digits, the number of its disk's sectors."""
    digit = bytes.fromhex("0430 3c3a 7202 0427")  # al: 0 to 15 becomes its character, and falls into putc
    putc = bytes.fromhex("baf803 ee c3")  # mov dx, 0x3f8; out dx, al; ret
    code = b"\xeb" + bytes([len(digit + putc)]) + digit + putc  # jmp over both
    at = {"digit": 2, "putc": 2 + len(digit)}

    def call(name: str) -> bytes:
        return b"\xe8" + struct.pack("<h", at[name] - len(code) - 3)

    code += bytes.fromhex("31c0 8ed8 8ed0 bc007c")  # ds = ss = 0; sp = 0x7c00
    # The BIOS left the drive's number in dl. si = the buffer, its first word the size of it.
    code += b"\xbe" + struct.pack("<H", PARAMETERS) + bytes.fromhex("c7041e00 b448 cd13")
    code += b"\xbe" + struct.pack("<H", TEXT)
    text = len(code)
    code += bytes.fromhex("ac 84c0 7405")  # lodsb; test al, al; jz behind the jmp
    code += call("putc")
    code += b"\xeb" + struct.pack("b", text - len(code) - 2)
    code += b"\xbe" + struct.pack("<H", PARAMETERS + 16 + 7) + bytes.fromhex("b90800 fd")  # cx = 8; downwards
    number = len(code)
    code += bytes.fromhex("ac 50 c0e804")  # lodsb; push ax; shr al, 4
    code += call("digit")
    code += bytes.fromhex("58 240f")  # pop ax; and al, 15
    code += call("digit")
    code += b"\xe2" + struct.pack("b", number - len(code) - 2)  # loop
    code += b"\xb0\x0a"
    code += call("putc")
    code += bytes.fromhex("fa f4 ebfd")  # cli; hlt, for ever
    sector = code.ljust(TEXT - 0x7C00, b"\0") + words.encode() + b" \0"
    if len(code) > TEXT - 0x7C00 or len(sector) > 510:
        raise ValueError("%r is too long for a sector" % (words,))
    return sector.ljust(510, b"\0") + b"\x55\xaa"


def said(words: str, size: int) -> str:
    """What a guest with a disk of ``size`` bytes says."""
    return "%s %016x" % (words, size // 512)
