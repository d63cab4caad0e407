# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a config drive on their way to its host, which loads this alone and not what makes them."""

from __future__ import annotations

import base64
import re
import typing as t

from ..errors import InvalidInput


def pack_files(files: t.Mapping[str, bytes]) -> dict[str, str]:
    """The files as texts for a module's arguments: base64, or "@" and the path of an earlier file with the same content.

    Every version's folder has the same user data, which is thus transferred once.
    """
    seen: dict[bytes, str] = {}
    packed: dict[str, str] = {}
    for path, data in files.items():
        first = seen.setdefault(data, path)
        packed[path] = base64.b64encode(data).decode("ascii") if first == path else "@" + first
    return packed


def unpack_files(packed: t.Mapping[str, t.Any]) -> dict[str, bytes]:
    """The reverse of pack_files().

    :raises InvalidInput: a path out of the drive, a content that is not base64, or a reference to a missing file.
    """
    files: dict[str, bytes] = {}
    if not isinstance(packed, t.Mapping):
        raise InvalidInput(reason="the files of a config drive are a mapping of paths")
    for path, text in packed.items():
        check_path(path)
        if not isinstance(text, str):
            raise InvalidInput(reason="the content of %r is not a text" % path)
        if text.startswith("@"):
            continue
        try:
            files[path] = base64.b64decode(text, validate=True)
        except ValueError:
            raise InvalidInput(reason="the content of %r is not base64" % path) from None
    for path, text in packed.items():
        if text.startswith("@"):
            if text[1:] not in files:
                raise InvalidInput(reason="the content of %r refers to a missing file" % path)
            files[path] = files[text[1:]]
    return {path: files[path] for path in packed}


def check_path(path: str) -> None:
    """:raises InvalidInput: not a plain relative path of letters, digits and ``._-``, or longer than an ISO can hold."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if len(parts) > 7 or not all(re.match(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z", part) for part in parts):
        raise InvalidInput(reason="%r cannot be a path on a config drive" % (path,))
