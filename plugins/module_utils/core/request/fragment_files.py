# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Schema fragments: JSON files, one subject each, that together make the schema of a create request.

A fragment is an object {name, description, override?, required?, server_create}. Its ``server_create`` maps
properties of an instance to their JSON schemas. Files without it are skipped, as Nova skips
an extension that has no server_create.
"""

from __future__ import annotations

import json
import os
import typing as t

from ..errors import InvalidInput

#: the folder of the fragments that come with the collection
BUILTIN_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fragments")


def load_fragments(dirs: t.Iterable[str] = ()) -> list[dict[str, t.Any]]:
    """Load the fragments of the collection, then the fragments of ``dirs`` in order, the files of a folder by name.

    Each has an additional key ``file``.

    :raises InvalidInput: a folder or file that cannot be read, is not a JSON object, or has parts of the wrong type.
    """
    fragments = [_read(path) for path in _paths(dirs)]
    return [fragment for fragment in fragments if "server_create" in fragment]


def state_of_files(dirs: t.Iterable[str] = ()) -> tuple[tuple[str, int, int], ...]:
    """Path, time of change and size of every file that load_fragments() reads.

    :raises InvalidInput: a folder or file that cannot be read.
    """
    states = []
    for path in _paths(dirs):
        try:
            status = os.stat(path)
        except OSError as error:
            raise _unreadable(path, error) from None
        states.append((path, status.st_mtime_ns, status.st_size))
    return tuple(states)


def _paths(dirs: t.Iterable[str]) -> t.Iterator[str]:
    for folder in [BUILTIN_DIR, *dirs]:
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        except OSError as error:
            raise InvalidInput(reason="schema folder %s cannot be read: %s" % (folder, error.strerror)) from None
        for name in names:
            yield os.path.join(folder, name)


def _read(path: str) -> dict[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            fragment = json.load(stream)
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError as error:
        raise InvalidInput(reason="schema fragment %s is not JSON: %s" % (path, error)) from None
    if not isinstance(fragment, dict):
        raise InvalidInput(reason="schema fragment %s is not a JSON object" % path)
    if "server_create" not in fragment:
        return fragment
    properties = fragment["server_create"]
    if not isinstance(properties, dict) or not all(isinstance(value, dict) for value in properties.values()):
        raise InvalidInput(reason="server_create of schema fragment %s must map properties to schemas" % path)
    required = fragment.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise InvalidInput(reason="required of schema fragment %s must be a list of property names" % path)
    fragment.setdefault("name", os.path.splitext(os.path.basename(path))[0])
    fragment["file"] = path
    return fragment


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(reason="schema fragment %s cannot be read: %s" % (path, error.strerror))
