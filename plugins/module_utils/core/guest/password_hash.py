# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hash of a guest's password as /etc/shadow has it: SHA-512 in the form of crypt(5). Python 3.13 has no module for it any more.

source: "Unix crypt using SHA-256 and SHA-512", version 0.6
"""

from __future__ import annotations

from hashlib import sha512

_DIGITS = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROUNDS = 5000  # the default of crypt(5)


def sha512_crypt(password: str, salt: str) -> str:
    """:arg salt: at most 16 letters and digits"""
    key, grain = password.encode("utf-8"), salt.encode("ascii")
    mixed = sha512(key + grain + key).digest()
    data = key + grain + _repeated(mixed, len(key))
    length = len(key)
    while length:
        data += mixed if length & 1 else key
        length >>= 1
    digest = sha512(data).digest()
    keys = _repeated(sha512(key * len(key)).digest(), len(key))
    grains = _repeated(sha512(grain * (16 + digest[0])).digest(), len(grain))
    for number in range(_ROUNDS):
        odd = number & 1
        data = keys if odd else digest
        data += grains if number % 3 else b""
        data += keys if number % 7 else b""
        digest = sha512(data + (digest if odd else keys)).digest()
    return "$6$%s$%s" % (salt, _encoded(digest))


def _repeated(data: bytes, length: int) -> bytes:
    return (data * (length // len(data) + 1))[:length]


def _encoded(digest: bytes) -> str:
    """Three bytes are four digits, the lowest first; the three stand 21 apart and change places. The last byte is alone."""
    text, places = "", (0, 21, 42)
    for _group in range(21):
        first, second, third = (digest[place] for place in places)
        text += _digits(first << 16 | second << 8 | third, 4)
        places = (places[1] + 1, places[2] + 1, places[0] + 1)
    return text + _digits(digest[63], 2)


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 6 * place & 63] for place in range(count))
