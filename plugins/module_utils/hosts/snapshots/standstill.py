# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File systems of guests that stand still while other hosts make snapshots of their volumes: from one module to the next one.

A process that outlives the module thaws them after some time, whatever becomes of the run. A file says whose turn it is: the one of the two that
removes it, the process or the next module, lets the file systems continue.
source: Nova's quiesce_instance and unquiesce_instance
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import typing as t
import uuid as uuid_module

from ...core.errors import InstanceNotFound, InstanceQuiesceNotSupported
from ...core.images.quiesce import REQUIRE
from ...core.instances.power_states import RUNNING
from ..libvirt.password import limited
from ..libvirt.running import find_domain, power_state, refuse_gone
from ..os import command, locks
from ..os.batch import progress
from ..os.files import remove_files
from ..os.paths import checked_id, checked_uuid, make_dirs
from .guard import TRIES
from .live_copy import freeze, thaw

#: Arguments: URI of libvirt, UUID of the domain, path of the file, seconds, how often file systems are thawed.
PROGRAM = """
import os, sys, time
uri, uuid, path, seconds, tries = sys.argv[1:6]
until = time.monotonic() + float(seconds)
while time.monotonic() < until:
    if not os.path.exists(path):
        sys.exit()
    time.sleep(min(0.5, float(seconds)))
try:
    os.unlink(path)
except OSError:
    sys.exit()
try:
    import libvirt
    libvirt.registerErrorHandler(lambda context, error: None, None)
    domain = libvirt.open(uri).lookupByUUIDString(uuid)
    for number in range(int(tries)):
        try:
            domain.fsThaw()
            break
        except libvirt.libvirtError:
            time.sleep(1)
except Exception:
    pass
"""


def hold(
    connection: t.Any, uri: str, uuid: str, quiesce: str, seconds: float, check_mode: bool = False
) -> dict[str, t.Any]:
    """Have the file systems of a guest stand still until release(), at most for ``seconds``. Returns {changed, quiesced, token, power_state}.

    :arg quiesce: of core.images.quiesce, but for NO
    :raises InstanceNotFound: the host has no such domain. :raises InstanceQuiesceNotSupported: they were to stand still, and do not.
    :raises LibvirtError: they may still stand still. :raises HypervisorUnavailable: libvirt is gone.
    """
    domain = _domain(connection, uuid)
    state = power_state(domain)
    result: dict[str, t.Any] = {"changed": False, "quiesced": False, "token": "", "power_state": state}
    if state != RUNNING and quiesce == REQUIRE:
        raise InstanceQuiesceNotSupported(instance_id=uuid, reason="the guest does not run")
    if state != RUNNING or check_mode:
        return {**result, "changed": state == RUNNING}
    refuse_gone(uuid)
    progress.mark_changed()
    make_dirs(folder(), 0o700)
    remove_files(*_files_of(uuid))  # of a run that died: its process ends without a word
    token = "%s-%s" % (uuid, uuid_module.uuid4().hex)
    path = os.path.join(folder(), token)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _start(uri, uuid, path, seconds)
        with limited(domain):
            frozen = freeze(domain, uuid, quiesce)
    except (InstanceQuiesceNotSupported, OSError):
        remove_files(path)
        raise
    # Any other error may have left them still: the process thaws them.
    if not frozen:
        remove_files(path)
    return {**result, "changed": frozen, "quiesced": frozen, "token": token if frozen else ""}


def release(connection: t.Any, uuid: str, token: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Let the file systems of a guest go on. Returns {changed, quiesced, power_state}; ``quiesced``: they stood still until now.

    :arg token: of hold()
    :raises InstanceNotFound: the host has no such domain. :raises LibvirtError: they still stand still.
    """
    path = os.path.join(folder(), checked_id(token, "token"))
    if check_mode:
        domain = _domain(connection, uuid)
        return {"changed": True, "quiesced": os.path.exists(path), "power_state": power_state(domain)}
    held = False
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        held = True
    domain = _domain(connection, uuid)
    progress.mark_changed()
    with limited(domain):
        thaw(domain)  # in any case: the process may have failed
    return {"changed": True, "quiesced": held, "power_state": power_state(domain)}


def folder() -> str:
    """Return the folder of the files, which a restart of the host empties."""
    return os.path.join(locks.LOCK_ROOT, "frozen")


def _files_of(uuid: str) -> list[str]:
    return [entry.path for entry in os.scandir(folder()) if entry.name.startswith(uuid + "-")]


def _domain(connection: t.Any, uuid: str) -> t.Any:
    domain = find_domain(connection, checked_uuid(uuid))
    if domain is None:
        raise InstanceNotFound(
            instance_id=uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again.",
        )
    return domain


def _start(uri: str, uuid: str, path: str, seconds: float) -> None:
    argv = [sys.executable, "-I", "-c", PROGRAM, uri, uuid, path, str(seconds), str(TRIES)]
    command.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
