# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of plans on the controller: mode 0600, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ...module_utils.core import errors
from ...module_utils.core.plans import plan_file
from ...module_utils.core.plans.plan_file import Plan

LARGEST = 256 * 1024**2  # bytes of a file that is read


def read(path: str) -> Plan:
    """Return the plan of a file. :raises PlanUnreadable, PlanAltered: there is none"""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as e:
        raise errors.PlanUnreadable(file=path, reason=e.strerror or str(e)) from None
    if len(data) > LARGEST:
        raise errors.PlanUnreadable(file=path, reason="it is larger than a plan can be")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise errors.PlanUnreadable(file=path, reason="it is not a text") from None
    return plan_file.parse(text, path)


def check_new(path: str) -> None:
    """Check that a file can be made. :raises PlanNotWritable: it exists, or its folder cannot be written"""
    target = Path(path)
    if os.path.lexists(target):
        raise errors.PlanNotWritable(file=path, reason="it exists, and no file is replaced")
    folder = target.parent
    if not folder.is_dir():
        raise errors.PlanNotWritable(file=path, reason="the folder %s does not exist" % folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.PlanNotWritable(file=path, reason="the folder %s cannot be written" % folder)


def write(path: str, plan: t.Mapping[str, t.Any]) -> None:
    """Make the file of a plan. :raises PlanNotWritable: it exists, or cannot be written"""
    new = Path("%s.new-%d" % (path, os.getpid()))
    try:
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(plan_file.text_of(plan))
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)  # which replaces no file, unlike a rename
        finally:
            with contextlib.suppress(OSError):
                new.unlink()
    except OSError as e:
        raise errors.PlanNotWritable(file=path, reason=e.strerror or str(e)) from e
