# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes to files of sysfs from a separate process.

The kernel blocks the writer of such a file until the action is done. If a target accepts commands but does not respond, that
is never, and no signal ends the writer: a module that wrote directly would block its run.
"""

from __future__ import annotations

import errno
import os

from ...core.errors import CommandFailed, WaitTimeout
from .command import TIMED_OUT, program, run


def write_sysfs(path: str, text: str, timeout: float = 60.0) -> None:
    """Write ``text`` to ``path``, and wait at most ``timeout`` seconds for the kernel to complete the action.

    :raises FileNotFoundError: the file does not exist; the device is gone.
    :raises WaitTimeout: the kernel is not done. The action and the writing process continue.
    :raises CommandFailed: the kernel rejected the action.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    done = run([program("tee", "coreutils"), path], stdin=text, timeout=timeout, check=False)
    if done.rc == TIMED_OUT:
        raise WaitTimeout(
            what="completion of writing %r to %s" % (text, path),
            seconds=int(timeout),
            host=os.uname().nodename,
            remedy="The target does not respond to this host: check the target's service, and dmesg on both hosts.",
        )
    if done.rc != 0:
        raise CommandFailed(cmd="tee", rc=done.rc, stderr=done.stderr.strip()[-2000:])
