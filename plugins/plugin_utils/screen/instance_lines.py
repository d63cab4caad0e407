# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A line for each instance of a boot, which grows with its stages, by the results of the tasks that the controller sees anyway."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...module_utils.core.instances import states
from ...module_utils.core.legible import legible
from ...module_utils.core.times import duration

DONE, FAILED, PROBLEM = "done", "failed", "problem"  # kinds of lines
STAGES = {"block_device_mapping": "disks"}  # names of stages for people; the others have their own
GONE = "gone"  # the outcome of a build that a delete or another run took over
RESCHEDULED = "rescheduled"


@dataclass(frozen=True)
class Line:
    """A line that is over. :arg kind: DONE, FAILED or PROBLEM"""

    text: str
    kind: str


@dataclass
class _Followed:
    """An instance that is being built."""

    name: str
    parts: list[str] = field(default_factory=list)


class InstanceLines:
    """The instances of a boot and their stages."""

    def __init__(self) -> None:
        self._begun = 0.0
        self._followed: dict[str, _Followed] = {}  # by UUID; instances that are being built
        self._ended: set[str] = set()
        self._problems: set[tuple[str, str, str]] = set()  # host, code and message that were printed

    def accept(self, now: float) -> None:
        """Begin with a request. :arg now: seconds, from which each instance counts"""
        self._begun = now
        self._ended.clear()

    def schedule(self, placed: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        """Note hosts of instances. :arg placed: of the result of boot_schedule"""
        for place in placed:
            self._followed_instance(place).parts.append("scheduled on %s" % place["host"])

    def build(
        self,
        host: str,
        builds: t.Iterable[t.Mapping[str, t.Any]],
        failed_builds: t.Iterable[t.Mapping[str, t.Any]],
        now: float,
    ) -> list[Line]:
        """Note what became of the builds of a host. Returns the lines that are over, and problems of the host that were not printed yet.

        :arg builds: of the result of boot_build. :arg failed_builds: likewise. :arg now: in seconds
        """
        lines = []
        for build in builds:
            seconds = build.get("stages") or {}
            self._on_host(build, host).parts += [
                "%s %.1f s" % (STAGES.get(name, name), seconds[name]) for name in seconds
            ]
            lines.append(self._end(build, "ACTIVE", DONE, now))
        for build in failed_builds:
            error, outcome = build["error"], build["outcome"]
            stage = STAGES.get(build["stage"], build["stage"])
            self._on_host(build, host).parts.append("%s failed (%s)" % (stage, error["code"]))
            problem = (host, str(error["code"]), str(error["message"]))
            if outcome == RESCHEDULED and problem not in self._problems:
                self._problems.add(problem)
                lines.append(Line(legible("%s: %s: %s" % problem), PROBLEM))
            if outcome == GONE:
                lines.append(self._end(build, "deleted, or of another run,", FAILED, now))
            elif outcome != RESCHEDULED:
                lines.append(self._end(build, "ERROR", FAILED, now))
        return lines

    def report(self, instances: t.Iterable[t.Mapping[str, t.Any]], now: float) -> list[Line]:
        """Return the lines of instances that no host built or failed. :arg instances: of the result of boot_report. :arg now: in seconds"""
        lines = []
        for view in instances:
            state = view["vm_state"]
            if view["uuid"] in self._ended or (view["uuid"] not in self._followed and state != states.ERROR):
                continue
            if not view["host"]:
                self._followed_instance(view).parts.append("no host")
            lines.append(self._end(view, str(state).upper(), DONE if state == states.ACTIVE else FAILED, now))
        return lines

    def unfinished(self) -> list[Line]:
        """Return the lines of instances whose fate is not known, and forget them: nothing follows."""
        lines = [Line(text, FAILED) for text in self.growing().values()]
        self._followed.clear()
        return lines

    def growing(self) -> dict[str, str]:
        """Return the lines that are not over, by UUID."""
        return {uuid: _text(followed) for uuid, followed in self._followed.items()}

    def _followed_instance(self, item: t.Mapping[str, t.Any]) -> _Followed:
        self._ended.discard(item["uuid"])
        return self._followed.setdefault(item["uuid"], _Followed(str(item["name"])))

    def _on_host(self, build: t.Mapping[str, t.Any], host: str) -> _Followed:
        """Return the instance of a build; one that another run scheduled is first seen on its host."""
        followed = self._followed_instance(build)
        if not followed.parts:
            followed.parts.append("on %s" % host)
        return followed

    def _end(self, item: t.Mapping[str, t.Any], state: str, kind: str, now: float) -> Line:
        followed = self._followed_instance(item)
        followed.parts.append("%s after %s" % (state, duration(now - self._begun)))
        del self._followed[item["uuid"]]
        self._ended.add(item["uuid"])
        return Line(_text(followed), kind)


def _text(followed: _Followed) -> str:
    return legible("%s: %s" % (followed.name, ", ".join(followed.parts)))
