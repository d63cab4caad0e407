# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says the events of a host's guests, line by line, and answers what state they are in now.

The controller sends this text to the host's Python over SSH (plugin_utils/watch/listening.py), so it imports nothing of ours. It ends
with its standard input: nothing stays on the host. It only reads: libvirt lets any local user do that.

Lines out: "bootflow " and JSON: {"listening": true, "boot_id": text}; {"event": [type, detail, job], "uuid"}; {"answer": number, "states": {uuid: state}};
{"alive": true} every ten seconds; {"error": text}, the last. Lines in, JSON: {"ask": number, "uuids": [...], or null for all domains}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import typing as t

try:
    import libvirt
except ImportError:
    libvirt = None

ALIVE = 10000  # milliseconds
_printing = threading.Lock()


def say(**words: t.Any) -> None:
    """Print one line."""
    with _printing:
        try:
            sys.stdout.write("bootflow " + json.dumps(words) + "\n")
            sys.stdout.flush()
        except OSError:  # the reader is gone
            os._exit(0)


def boot_id() -> str:
    """Return the kernel's name for this start of the host."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def fail(text: t.Any) -> t.NoReturn:
    """Print the last line, and end."""
    say(error=str(text))
    os._exit(1)


def is_ending() -> bool:
    """Return whether systemd shuts this host down: its guests end then, and not by their own will."""
    if not os.path.isdir("/run/systemd/system"):
        return False
    try:
        # There is no module here, so no run_command either.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["systemctl", "is-system-running"], stdout=subprocess.PIPE, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == b"stopping"


def on_event(connection: t.Any, domain: t.Any, event: int, detail: int, dummy: t.Any) -> None:
    """Print an event. Called by libvirt."""
    job = -1
    if (event, detail) == (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED):
        try:
            job = domain.jobInfo()[0]
        except libvirt.libvirtError:
            pass
    say(event=[event, detail, job], uuid=domain.UUIDString())


def states(connection: t.Any, uuids: t.Iterable[str] | None) -> dict[str, int]:
    """Return uuid -> virDomainState, of the domains that exist."""
    if uuids is None:
        state_of_uuid = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE)
        return {domain.UUIDString(): stats["state.state"] for domain, stats in state_of_uuid}
    state_of_uuid = {}
    for uuid in uuids:
        try:
            state_of_uuid[uuid] = connection.lookupByUUIDString(uuid).state()[0]
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
    return state_of_uuid


def answer(connection: t.Any) -> t.NoReturn:
    """Answer questions, in a separate thread, until their input ends."""
    try:
        for line in sys.stdin:
            question = json.loads(line)
            state_of_uuid = states(connection, question["uuids"])
            # Asked after the states, which change first; nothing follows from an event that was not asked about.
            if is_ending():
                fail("the host is shutting down")
            say(answer=question["ask"], states=state_of_uuid)
    except BaseException as error:
        fail(error)
    os._exit(0)


def main(uri: str) -> t.NoReturn:
    """Listen to events. :arg uri: of libvirt."""
    if libvirt is None:
        fail("%s has no libvirt (package python3-libvirt)" % sys.executable)
    libvirt.registerErrorHandler(lambda context, error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    try:
        connection = libvirt.openReadOnly(uri)
        connection.registerCloseCallback(lambda *dummy: fail("the connection to libvirt broke"), None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_event, None)
    except libvirt.libvirtError as error:
        fail(error)
    try:
        connection.setKeepAlive(5, 3)
    except libvirt.libvirtError:  # drivers within this process have none
        pass
    libvirt.virEventAddTimeout(ALIVE, lambda *dummy: say(alive=True), None)
    threading.Thread(target=answer, args=(connection,), daemon=True).start()
    say(listening=True, boot_id=boot_id())
    while True:
        libvirt.virEventRunDefaultImpl()


if __name__ == "__main__":
    main(sys.argv[1])
