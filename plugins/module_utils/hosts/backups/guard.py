# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that waits for the end of this one, and then ends what a backup of a running guest would leave: QEMU's job, file systems that stand still,
the checkpoint, a half file. A process that is killed cannot do that itself.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import typing as t

from ..os import command
from ..snapshots.guard import TRIES

#: Arguments: URI of libvirt, UUID of the domain, name of the checkpoint or "", path of the file, how often file systems are thawed.
PROGRAM = """
import os, sys, time
uri, uuid, name, path, tries = sys.argv[1:6]
sys.stdin.buffer.read()
try:
    import libvirt
    libvirt.registerErrorHandler(lambda context, error: None, None)
    domain = libvirt.open(uri).lookupByUUIDString(uuid)
    try:
        if path in domain.backupGetXMLDesc():
            domain.abortJob()
    except libvirt.libvirtError:
        pass
    for number in range(int(tries)):
        try:
            domain.fsThaw()
            break
        except libvirt.libvirtError:
            time.sleep(1)
    for number in range(60):
        try:
            if path not in domain.backupGetXMLDesc():
                break
        except libvirt.libvirtError:
            break
        time.sleep(1)
    for flags in (0, libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY) if name else ():
        try:
            domain.checkpointLookupByName(name).delete(flags)
            break
        except libvirt.libvirtError:
            pass
except Exception:
    pass
try:
    os.unlink(path)
except OSError:
    pass
"""


@contextlib.contextmanager
def guarded(uri: str, uuid: str, checkpoint: str, path: str, thaws: bool) -> t.Iterator[None]:
    """Have the process during the block. It does nothing when the block ends, whether by an error or not.

    :arg thaws: whether file systems stand still in the block
    """
    argv = [sys.executable, "-I", "-c", PROGRAM, uri, uuid, checkpoint, path, str(TRIES if thaws else 0)]
    process = command.start(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()  # before its input ends
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
