# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Forms of definitions that libvirt found valid by its schema: to read the schema takes it 10 ms, three times as long as all else of a definition.

A form is remembered until the host restarts, as long as the files of the schema are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

from ...core.errors import UnsafeFolder
from ..os.paths import own_folder

REMEMBERED = "/run/bootflow/valid-forms"
SCHEMA = "/usr/share/libvirt/schemas"  # of Debian's libvirt, and any other with this prefix
MOST = 1000  # forms that are remembered; then all are forgotten
_NUMBERS = re.compile(r"[0-9a-f:-]*[0-9][0-9a-f:-]*")
_known: set[str] = set()


def form_of(xml: str, name: str, uuid: str) -> str:
    """The definition without what differs between guests that are alike: name, UUID and numbers, which libvirt reads in any case."""
    return _NUMBERS.sub("0", xml.replace(name, "").replace(uuid, ""))


def is_valid(form: str) -> bool:
    """Whether libvirt found a definition of this form valid."""
    if form not in _known:
        with contextlib.suppress(OSError, UnsafeFolder), own_folder(REMEMBERED, 0o700) as folder:
            os.stat(_mark(form), dir_fd=folder)
            _known.add(form)
    return form in _known


def remember(form: str) -> None:
    """A definition of this form is valid."""
    _known.add(form)
    with contextlib.suppress(OSError, UnsafeFolder), own_folder(REMEMBERED, 0o700) as folder:
        marks = os.listdir("/proc/self/fd/%d" % folder)
        for mark in marks if len(marks) >= MOST else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(mark, dir_fd=folder)
        os.close(os.open(_mark(form), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))


def _mark(form: str) -> str:
    """The name of a file that stands for the form and the schema. :raises OSError: there is no schema"""
    names = sorted(os.listdir(SCHEMA))
    if not names:
        raise FileNotFoundError(SCHEMA)
    digest = hashlib.sha256(form.encode(errors="surrogateescape"))
    for name in names:
        found = os.stat(os.path.join(SCHEMA, name))
        digest.update(("%s %d %d %d\n" % (name, found.st_mtime_ns, found.st_ctime_ns, found.st_size)).encode())
    return digest.hexdigest()
