# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Event source of Event-Driven Ansible: the lifecycle events of the guests of all compute hosts.

It runs the playbook bootflow.compute.watch, which listens to the hosts, and hands on what that writes into a pipe.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
from typing import Any

DOCUMENTATION = r"""
---
short_description: Lifecycle events of the guests of compute hosts
description:
  - Listens to libvirt on each compute host of an inventory, over SSH as Ansible does, and passes on what happens to guests.
  - >-
    An event has C(host), C(uuid), C(event), C(at), C(power_state) and C(late). C(event) is Started, Stopped, Paused, Resumed, Suspended, Crashed,
    Postcopy started or Migration completed. C(at) is the time at which the host was asked for the state of the guest, in seconds since the epoch,
    and C(power_state) that state in Nova's numbers. C(late) tells that it is not the event's any more.
  - >-
    Two events are about a host and have a null C(uuid). Listening - from now on no event is missed, what happened before is not told. Lost - the host
    is not listened to now, because of C(reason), and is tried again.
options:
  inventory:
    description: The inventory, a path, or a list of them. Also what C(ansible-playbook -i) takes otherwise.
    type: raw
    required: true
  hosts:
    description: Compute hosts, or groups of them. By default all.
    type: list
    elements: str
  write:
    description: Whether the ledger is written as well, by the rules of bootflow.compute.watch. Otherwise the ledger is not opened.
    type: bool
    default: false
  extra_vars:
    description: More variables for the playbook, which may be secret. They are in a file for this user alone, as long as the playbook runs.
    type: dict
    default: {}
  ansible_playbook:
    description: The program. By default the one beside the Python that runs this, else that of the search path.
    type: path
"""

EXAMPLES = r"""
- bootflow.compute.lifecycle:
    inventory: /etc/bootflow/inventory.yml
"""

LAST_LINES = 20
GRACE = 5.0  # seconds to end
logger = logging.getLogger(__name__)


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Put events into ``queue`` until this is cancelled."""
    reading, writing = os.pipe()
    # Everybody on this machine can read command lines, and this one stays as long as the playbook. Ansible reads no file without a name.
    descriptor, file = tempfile.mkstemp(prefix="bootflow-", suffix=".json")  # 0600
    try:
        program = command(args, writing, descriptor, file)
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(writing,),
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        )
    except BaseException:
        os.close(reading)
        os.unlink(file)
        raise
    finally:
        os.close(writing)
        os.close(descriptor)
    said: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    log = asyncio.create_task(keep(process.stdout, said))
    stream = asyncio.StreamReader(limit=1024**2)
    pipe, _protocol = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb")
    )
    try:
        while line := await stream.readline():
            await queue.put(json.loads(line))
        await asyncio.wait([log], timeout=GRACE)
        raise RuntimeError("bootflow.compute.watch ended:\n%s" % "".join(said))
    finally:
        pipe.close()
        await end(process)
        log.cancel()
        os.unlink(file)


def command(args: dict[str, Any], writing: int, descriptor: int, file: str) -> list[str]:
    """The program with its arguments, which writes events into the descriptor ``writing``.

    :arg file: gets its variables, which may be secret, by ``descriptor``.
    """
    if not args.get("inventory"):
        raise ValueError("bootflow.compute.lifecycle needs an inventory")
    beside = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    program = args.get("ansible_playbook") or (beside if os.path.exists(beside) else shutil.which("ansible-playbook"))
    if not program:
        raise ValueError("ansible-playbook was not found; name it in ansible_playbook")
    inventories = args["inventory"] if isinstance(args["inventory"], list) else [args["inventory"]]
    variables = {
        **(args.get("extra_vars") or {}),
        "bootflow_watch_events_file": "/dev/fd/%d" % writing,
        "bootflow_watch_write": args.get("write", False),
    }
    if args.get("hosts") is not None:
        variables["bootflow_hosts"] = args["hosts"]
    with open(descriptor, "w", encoding="utf-8", closefd=False) as stream:
        json.dump(variables, stream)
    options = [word for inventory in inventories for word in ("-i", str(inventory))]
    return [str(program), "bootflow.compute.watch", *options, "-e", "@%s" % file]


async def keep(output: asyncio.StreamReader | None, said: collections.deque[str]) -> None:
    """Log what the playbook says, and keep the last of it."""
    assert output is not None
    while line := await output.readline():
        text = line.decode(errors="replace")
        said.append(text)
        if text.strip():
            logger.info("%s", text.rstrip())


async def end(process: asyncio.subprocess.Process) -> None:
    """End the playbook, and with it the connections to hosts."""
    for signal in (process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            signal()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)
            return


if __name__ == "__main__":
    # Without a rulebook: lifecycle.py INVENTORY prints the events.
    class Printer:
        """In place of a queue."""

        async def put(self, event: dict[str, Any]) -> None:
            print(json.dumps(event), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(Printer(), {"inventory": sys.argv[1:]}))  # type: ignore[arg-type]
