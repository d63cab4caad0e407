# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results that the stages of an action leave for each other: files in the folder of this ansible-playbook process (mode 0700, gone with it).

Each stage and host has its own file, so tasks of many hosts write at the same time. A registered variable would be copied and walked through by
Ansible's main process, and a playbook would have to name it as the next stage reads it.
"""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path
from urllib.parse import quote, unquote

from ...module_utils.core import errors

CONTROLLER = "localhost"

#: Fields that a task returns to its playbook, which registers them as bootflow_next: they name the hosts of the next plays, and the
#: instances of a playbook that comes next.
NEXT = (
    "ask",
    "compute",
    "storage",
    "cleaning",
    "clearing",
    "freezing",
    "images",
    "lacking",
    "release",
    "stores",
    "sources",
    "destinations",
    "uuids",
    "volume_ids",
    "again",
    "attempt",
)
OF_TASK = ("diff", "ansible_stats")  # for Ansible, not for later stages
SHOWN = frozenset(("changed", "diff", "skipped", "failed", "msg", *NEXT))


class Ports(t.Protocol):
    """The part of an action's ports that knows the folder of the run."""

    def folder(self) -> Path: ...


class OfRun(t.Protocol):
    """An action, which is part of a run."""

    @property
    def ports(self) -> Ports: ...


def folder_of(action: OfRun) -> Path:
    """Return the folder of this run."""
    folder = action.ports.folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def path_of(folder: Path, host: str, kind: str) -> Path:
    """Return the path of a file of ``host``."""
    return folder / ("%s.%s" % (quote(host, safe=""), kind))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: another task may look for it."""
    new = path.with_suffix(".new-%d" % os.getpid())
    new.write_text(text)
    new.rename(path)


def shown(result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the part of a stage's result that its task returns."""
    return {name: value for name, value in result.items() if name in SHOWN}


class StageResults:
    """The results of the stages of one action in this run.

    :arg family: the name of the action
    """

    def __init__(self, action: OfRun, family: str):
        self._action = action
        self.family = family
        self._known: dict[tuple[str, str], t.Any] = {}

    def leave(self, stage: str, host: str, result: t.Mapping[str, t.Any]) -> None:
        """Leave the result of ``stage`` on ``host`` for later stages."""
        self._known.pop((stage, host), None)
        text = json.dumps({name: value for name, value in result.items() if name not in OF_TASK})
        write_whole(self._path(stage, host), text)

    def read(self, stage: str, host: str) -> t.Any:
        """Return the result of ``stage`` on ``host``; None if there is none in this run."""
        if (stage, host) not in self._known:
            try:
                text = self._path(stage, host).read_text()
            except FileNotFoundError:
                return None
            self._known[stage, host] = json.loads(text)
        return self._known[stage, host]

    def hosts(self, stage: str) -> list[str]:
        """Return the hosts that left a result of ``stage``."""
        paths = folder_of(self._action).glob("%s.%s.*.result" % (self.family, stage))
        return [unquote(path.name.removesuffix(".result").split(".", 2)[2]) for path in paths]

    def remove(self, stage: str, host: str) -> None:
        """Remove the result of ``stage`` on ``host``, if there is one."""
        self._known.pop((stage, host), None)
        self._path(stage, host).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the results of all stages."""
        self._known.clear()
        for path in folder_of(self._action).glob("%s.*.result" % self.family):
            path.unlink()

    def begin(self, stage: str, work: t.Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
        """Do the ``work`` of the first stage, and leave its result instead of all earlier ones. Returns it whole."""
        self.clear()
        try:
            result = work()
        except errors.BootflowError:
            self.leave(stage, CONTROLLER, {"failed": True})  # the playbook may continue
            raise
        self.leave(stage, CONTROLLER, result)
        return result

    def begun(self, stage: str = "begin") -> t.Mapping[str, t.Any]:
        """Return the result of the first stage. :raises InvalidInput: its task was left out"""
        result = self.read(stage, CONTROLLER)
        if result is None:
            raise self.missing(stage)
        return t.cast("t.Mapping[str, t.Any]", result)

    def missing(self, stage: str) -> errors.BootflowError:
        """Return the error of a stage that needs the result of ``stage``."""
        return errors.InvalidInput(
            message="The stage %s of %s has no result in this run" % (stage, self.family),
            remedy="Run the playbook from its beginning, without --start-at-task and without tags that leave out some of its tasks.",
        )

    def _path(self, stage: str, host: str) -> Path:
        return folder_of(self._action) / ("%s.%s.%s.result" % (self.family, stage, quote(host, safe="")))
