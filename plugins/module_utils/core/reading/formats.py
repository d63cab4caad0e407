# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The value formats for schema fragments, each a check that describes what is wrong.

Messages of this file never show the value: it may be a secret.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import typing as t
import unicodedata
import uuid

TRUE_WORDS = frozenset(("1", "true", "on", "yes", "y", "t"))
FALSE_WORDS = frozenset(("0", "false", "off", "no", "n", "f"))

MAX_INT = 2**31 - 1  # of an integer in the ledger, and of Nova's DB_MAX_INT
MAX_COUNT = 100_000  # instances of a request, under any settings

_INTEGER = re.compile(r"-?[0-9]+\Z")
_BLANK = re.compile(r"\s+")


def printable(char: str) -> bool:
    """Nova's rule for names: no control, format or unassigned characters, no separators of lines or paragraphs, BMP only."""
    category = unicodedata.category(char)
    return ord(char) < 0xFFFF and category[0] != "C" and (category[0] != "Z" or category == "Zs")


def check_name(value: t.Any) -> None:
    """A name as in Nova's parameter_types.name; minLength and maxLength check the length.

    Special characters of XML and paths (< > & /) are allowed: names are neither pasted into XML nor used as paths.

    :raises ValueError: with the reason.
    """
    for position, char in enumerate(value):
        if not printable(char):
            raise ValueError("character %d (U+%04X) is not printable" % (position + 1, ord(char)))
    if value and (unicodedata.category(value[0]) == "Zs" or unicodedata.category(value[-1]) == "Zs"):
        raise ValueError("must not begin or end with blanks")


def check_description(value: t.Any) -> None:
    """Free text: printable characters of any plane.

    :raises ValueError: with the reason.
    """
    for position, char in enumerate(value):
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
            raise ValueError("character %d (U+%04X) is not printable" % (position + 1, ord(char)))


def to_integer(value: t.Any) -> int:
    """An integer, or its text as from surveys and extra vars.

    :raises ValueError: anything else.
    """
    if isinstance(value, bool):
        raise ValueError("must be an integer, not a boolean")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.match(value):
        return int(value)
    raise ValueError("must be an integer")


def to_boolean(value: t.Any) -> bool:
    """A boolean, or one of Nova's words.

    :raises ValueError: anything else.
    """
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in TRUE_WORDS:
        return True
    if isinstance(value, str) and value.lower() in FALSE_WORDS:
        return False
    raise ValueError("must be true or false")


def decode_base64(value: str) -> bytes:
    """The bytes of strict base64; blanks and line ends in between are allowed, as in Nova.

    :raises ValueError: not base64.
    """
    try:
        return base64.b64decode(_BLANK.sub("", value).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("is not valid base64") from None


def check_file_path(value: str) -> None:
    """The path of an injected file: absolute, normalised, without control characters. source: CVE-2012-3360.

    :raises ValueError: with the reason.
    """
    if not value.startswith("/"):
        raise ValueError("must be an absolute path")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise ValueError("must not have control characters")
    parts = value.split("/")[1:]
    if any(part in (".", "..") for part in parts):
        raise ValueError("must not have . or .. in it")
    if parts[-1] == "":
        raise ValueError("must name a file, not a folder")


def _integer(value: t.Any) -> int:
    number = to_integer(value)
    if number > MAX_INT:
        raise ValueError("must be %d or less" % MAX_INT)
    if number < -MAX_INT:
        raise ValueError("must be %d or more" % -MAX_INT)
    return number


def _positive_integer(value: t.Any) -> None:
    if _integer(value) < 1:
        raise ValueError("must be 1 or more")


def _instance_count(value: t.Any) -> None:
    if to_integer(value) > MAX_COUNT:
        raise ValueError("must be %d or less" % MAX_COUNT)
    _positive_integer(value)


def _non_negative_integer(value: t.Any) -> None:
    if _integer(value) < 0:
        raise ValueError("must be 0 or more")


def _ip(value: str) -> None:
    # a zone (fe80::1%eth0) has a meaning only on one host
    try:
        if "%" in value:
            raise ValueError(value)
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("is not an IP address") from None


def _ipv4(value: str) -> None:
    try:
        ipaddress.IPv4Address(value)
    except ValueError:
        raise ValueError("is not an IPv4 address") from None


def _ipv6(value: str) -> None:
    try:
        if "%" in value:
            raise ValueError(value)
        ipaddress.IPv6Address(value)
    except ValueError:
        raise ValueError("is not an IPv6 address") from None


def _uuid(value: str) -> None:
    try:
        if str(uuid.UUID(value)).replace("-", "") != value.lower().replace("-", ""):
            raise ValueError(value)
    except ValueError:
        raise ValueError("is not a UUID") from None


FORMATS: dict[str, tuple[t.Callable[[t.Any], t.Any], tuple[type, ...]]] = {
    # name: (check, its types); the keyword "type" checks other types
    "name": (check_name, (str,)),
    "description": (check_description, (str,)),
    "integer": (_integer, (str, int, float)),
    "positive_integer": (_positive_integer, (str, int, float)),
    "instance_count": (_instance_count, (str, int, float)),
    "non_negative_integer": (_non_negative_integer, (str, int, float)),
    "boolean": (to_boolean, (str,)),
    "base64": (decode_base64, (str,)),
    "file_path": (check_file_path, (str,)),
    "ip": (_ip, (str,)),
    "ipv4": (_ipv4, (str,)),
    "ipv6": (_ipv6, (str,)),
    "uuid": (_uuid, (str,)),
}
