# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest of 512 bytes that counts seconds: it says each on its serial port, and writes it to a sector of its own of its boot disk."""

from __future__ import annotations

import re
import struct

FIRST = 40960  # the sector before that of the first second
WORDS = b"tick "
# In the sector: what it says, and where the BIOS reads what to write.
_TEXT, _PACKET = 0xD0, 0xE0
_CODE = """
31c0 8ed8 8ec0 8ed0     # ds = es = ss = 0
bc007c a3007e fc fb     # sp = 0x7c00; the number at 0x7e00 is 0; upwards; interrupts
ff06007e                # the next number
bf0080 bed07c b90500 f3a4               # its text is at 0x8000: the words,
8b1e007e b90400                         # and four hexadecimal digits
c1c304 88d8 240f 3c0a 7202 0427 0430 aa e2ee
b00a aa                                 # and a new line
be0080 b90a00 baf803 ac ee e2fc         # to the serial port
a1007e 05%(first)s a3e87c               # the sector is that of the number
b280 bee07c b80043 cd13                 # the BIOS writes 512 bytes from 0x8000
7306 baf803 b046 ee                     # says F where it could not
8b1e6c04                                # the BIOS's clock: 18 ticks
f4 a16c04 29d8 83f812 72f5
eb9c
"""


def boot_sector() -> bytes:
    lines = _CODE % {"first": struct.pack("<H", FIRST).hex()}
    code = bytes.fromhex("".join(line.partition("#")[0] for line in lines.splitlines()))
    packet = struct.pack("<BBHHHQ", 16, 0, 1, 0x8000, 0, 0)
    sector = code.ljust(_TEXT, b"\0") + WORDS.ljust(_PACKET - _TEXT, b"\0") + packet
    return sector.ljust(510, b"\0") + b"\x55\xaa"


def ticks(text: str) -> list[int]:
    """The numbers in what it said, or wrote."""
    return [int(n, 16) for n in re.findall(r"tick ([0-9a-f]{4})(?=[\r\n])", text)]
