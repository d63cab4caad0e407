# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of a listener on a host about its guests: lines of text in, Nova's lifecycle events out.

The listener (hosts/libvirt/listener.py) knows libvirt's numbers only, and its output is input: it is checked and named here.
source: Nova's virt.event and LibvirtDriver's Host._event_lifecycle_callback
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..errors import InvalidAnswer
from ..instances.power_states import power_state_of
from ..legible import legible
from .shapes import Misshapen, Shape, flag, items, mapping, message, record, text, uuid, whole

MARK = "bootflow "  # before each line of the listener: a login shell may print others
LONGEST_LINE = 8 * 1024**2  # bytes: the states of 100,000 domains

# virDomainEventType, and of SUSPENDED its details, and virDomainJobType
_SUSPENDED = 3
_MIGRATED, _POSTCOPY = 1, 7
_JOB_COMPLETED = 3

#: virDomainEventType -> Nova's name. Of others (defined, undefined, the request to shut down) nothing follows.
NAMES: dict[int, str] = {
    2: "Started",
    _SUSPENDED: "Paused",  # libvirt's word for stopped CPUs
    4: "Resumed",
    5: "Stopped",
    7: "Suspended",  # by the guest itself
    8: "Crashed",  # Nova ignores it: libvirt did not always have it
}


@dataclass(frozen=True)
class Event:
    uuid: str
    name: str  # Nova's


@dataclass(frozen=True)
class Said:
    """One line of a listener: one of these."""

    listening: bool = False  # from now on no event is missed
    event: Event | None = None
    answer: int | None = None  # the number of the question
    power_states: t.Mapping[str, int] | None = None  # with an answer: uuid -> Nova's number
    boot_id: str = ""  # with listening: of the host
    error: str = ""  # it ends, because of this


_SAYS: dict[str, Shape] = {
    "listening": flag,
    "boot_id": text(64),
    "alive": flag,
    "event": items(whole(-1), most=3, exactly=3),  # type, detail, type of the last job where the guest was migrated
    "uuid": uuid,
    "answer": whole(),
    "states": mapping(uuid, whole()),
    "error": message,
}
_LINE = record({}, _SAYS)


def read(host: str, line: str) -> Said | None:
    """Parse a line of the listener on ``host``. None: nothing that matters.

    :raises InvalidAnswer: the line begins like one of the listener's, and is not valid.
    """
    if not line.startswith(MARK):
        return None
    try:
        said = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):
        raise _invalid(host, Misshapen("line", "JSON", line[:200])) from None
    try:
        _LINE(said, "")
        for having, needs in (("event", "uuid"), ("answer", "states")):
            if having in said and needs not in said:
                raise Misshapen(needs, "given", None)
    except Misshapen as wrong:
        raise _invalid(host, wrong) from None
    if "event" in said:
        name = _name(*said["event"])
        return Said(event=Event(said["uuid"].lower(), name)) if name else None
    states = {u.lower(): power_state_of(state) for u, state in said.get("states", {}).items()}
    answer = Said(
        listening=bool(said.get("listening")),
        boot_id=said.get("boot_id", ""),
        answer=said.get("answer"),
        power_states=states if "answer" in said else None,
        error=legible(said.get("error", "")),
    )
    return None if answer == Said() else answer


def _name(event: int, detail: int, job: int) -> str | None:
    """Nova's name of an event of libvirt; None where nothing follows from it."""
    if event == _SUSPENDED and detail == _POSTCOPY:
        return "Postcopy started"
    if event == _SUSPENDED and detail == _MIGRATED and job == _JOB_COMPLETED:
        return "Migration completed"  # also sent when it failed
    return NAMES.get(event)


def _invalid(host: str, wrong: Misshapen) -> InvalidAnswer:
    got = legible(repr(wrong.got)[:200])
    return InvalidAnswer(host=host, module="the listener", path=wrong.path, expects=wrong.expects, got=got)
