# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that waits for the end of this one, and then ends what a copy of a running guest's disk would leave: file systems that stand still,
QEMU's job, a half file. A process that is killed cannot do that itself.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import typing as t

from ..os import command

TRIES = 60  # a second after each other

#: Arguments: URI of libvirt, UUID of the domain, target of the disk, path of the file, how often file systems are thawed: an agent that is
#: about to stop them answers later.
PROGRAM = """
import os, sys, time
uri, uuid, disk, path, tries = sys.argv[1:6]
sys.stdin.buffer.read()
try:
    import libvirt
    libvirt.registerErrorHandler(lambda context, error: None, None)
    domain = libvirt.open(uri).lookupByUUIDString(uuid)
    try:
        domain.blockJobAbort(disk, 0)
    except libvirt.libvirtError:
        pass
    for number in range(int(tries)):
        try:
            domain.fsThaw()
            break
        except libvirt.libvirtError:
            time.sleep(1)
except Exception:
    pass
try:
    os.unlink(path)
except OSError:
    pass
"""


@contextlib.contextmanager
def guarded(uri: str, uuid: str, disk: str, path: str, thaws: bool) -> t.Iterator[None]:
    """Have the process during the block. It does nothing when the block ends, whether by an error or not.

    :arg thaws: whether file systems stand still in the block
    """
    argv = [sys.executable, "-I", "-c", PROGRAM, uri, uuid, disk, path, str(TRIES if thaws else 0)]
    process = command.start(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()  # before its input ends
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
