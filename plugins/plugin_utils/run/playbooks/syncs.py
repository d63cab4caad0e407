# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook power_sync, run by a playbook that continues meanwhile: with the same inventory, variables, users and keys."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import typing as t
from dataclasses import dataclass

from . import child_playbook

PLAYBOOK = "bootflow.compute.power_sync"


def command(argv: t.Sequence[str], options: t.Mapping[str, t.Any]) -> list[str]:
    """The command line ``argv`` of this ansible-playbook, with power_sync in the place of its playbook. See child_playbook.command()."""
    caller, otherwise = "bootflow_watch_sync runs power_sync", ", or leave bootflow_watch_sync out"
    return child_playbook.command(argv, options, PLAYBOOK, caller, otherwise)


@dataclass(frozen=True)
class Done:
    """A power_sync that ended."""

    hosts: t.Sequence[str]
    well: bool
    output: str


class Syncs:
    """One after the other, each for all hosts that wait for one.

    :arg argv: its program and arguments, without hosts.
    """

    def __init__(self, argv: t.Sequence[str]):
        self._argv = argv
        self._waiting: set[str] = set()
        self._hosts: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._output: t.IO[bytes] | None = None

    def want(self, hosts: t.Iterable[str]) -> None:
        """Have one that looks at these hosts from now on."""
        self._waiting.update(hosts)

    def look(self, wait: bool = False) -> Done | None:
        """The one that has ended. Begins the next. :arg wait: for the end of the one that runs; no other is begun."""
        if self._process is not None and not wait and self._process.poll() is None:
            return None
        done = self._end()
        if self._waiting and not wait:
            self._begin()
        return done

    def _begin(self) -> None:
        self._hosts, self._waiting = sorted(self._waiting), set()
        argv = [*self._argv, "-e", json.dumps({"bootflow_hosts": self._hosts})]
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=child_playbook.environment(os.environ),
        )

    def _end(self) -> Done | None:
        process, output, self._process, self._output = self._process, self._output, None, None
        if process is None or output is None:
            return None
        with output:
            well = process.wait() == 0
            output.seek(0)
            return Done(self._hosts, well, output.read().decode(errors="replace"))
