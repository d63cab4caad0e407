# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of an image as a table: its statuses, and the events that lead from one to the next.

A state has two parts, the columns of the same names:

- ``status``: Glance's. ``queued``: the record exists, without bytes; ``saving``: the bytes are being written to a store; ``active``: a store has all
  of them, and they were verified; ``killed``: the bytes did not arrive; ``deleted``: the row stays for the history until it is purged.
- ``progress``: of the place, the file of the image in a store. ``none``: there is no place; ``begun`` is written before the store is asked, so the
  ledger knows what a killed run may have left there; ``done``: the store has the whole file; ``ending``: what the store has is to be removed.

An image may be in several stores. Each event is applied to all places of an image; an event that begins a place names its store.

LAWS are true of every state that the table leads to.
source: Glance's image statuses, Nova's _create_image and ComputeManager._snapshot_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..errors import ImageStatusConflict

QUEUED, SAVING, ACTIVE, KILLED, DELETED = "queued", "saving", "active", "killed", "deleted"
STATUSES = (QUEUED, SAVING, ACTIVE, KILLED, DELETED)

NONE, BEGUN, DONE, ENDING = "none", "begun", "done", "ending"
PROGRESS = (NONE, BEGUN, DONE, ENDING)

#: A run works on an image in one of these: that of its run_id, unless the run is dead.
BUSY = (QUEUED, SAVING)


class State(t.NamedTuple):
    """The state of an image and of a place of it. None instead: the image does not exist yet."""

    status: str
    progress: str = NONE

    def __str__(self) -> str:
        return "%s (place %s)" % self


@dataclass(frozen=True)
class Rule:
    """The states in which an event may happen, and the state that follows. A part that ``to`` does not name keeps its value."""

    status: tuple[str, ...]
    progress: tuple[str, ...]
    to: t.Mapping[str, str] = field(default_factory=dict)

    def admits(self, state: State) -> bool:
        return state.status in self.status and state.progress in self.progress


@dataclass(frozen=True)
class Event:
    """An event of an image: the first of ``rules`` that admits the state gives the next one.

    ``needs``: columns of the image that are written with it. ``first``: the event begins the life, in this state.
    """

    name: str
    meaning: str
    rules: tuple[Rule, ...] = ()
    needs: tuple[str, ...] = ()
    first: State | None = None

    def admits(self, state: State | None) -> bool:
        if state is None:
            return self.first is not None
        return any(rule.admits(state) for rule in self.rules)

    def after(self, state: State | None, image_id: str = "") -> State:
        """The next state.

        :raises ImageStatusConflict: the event cannot happen in this state.
        """
        if state is None and self.first is not None:
            return self.first
        for rule in self.rules if state is not None else ():
            if state is not None and rule.admits(state):
                return state._replace(**rule.to)
        raise ImageStatusConflict(image_id=image_id, state=str(state or "not there"), event=self.name)


CREATE = Event(
    "create",
    "The record is made, before any byte is written.",
    first=State(QUEUED),
    needs=("id", "name", "project"),
)
UPLOAD_BEGUN = Event(
    "upload_begun",
    "A store is asked to take the bytes.",
    (Rule((QUEUED,), (NONE,), to={"status": SAVING, "progress": BEGUN}),),
    needs=("run_id",),
)
UPLOADED = Event(
    "uploaded",
    "The store has all bytes, and they were verified.",
    (Rule((SAVING,), (BEGUN,), to={"status": ACTIVE, "progress": DONE}),),
    needs=("size", "checksum"),
)
COMPOSED = Event(
    "composed",
    "The image has no bytes, and all snapshots of volumes that it maps are there.",
    (Rule((QUEUED,), (NONE,), to={"status": ACTIVE}),),
    needs=("size",),
)
UPLOAD_FAILED = Event(
    "upload_failed",
    "The bytes do not arrive. A part of them may be in the store, and is to be removed.",
    (
        Rule((QUEUED,), (NONE,), to={"status": KILLED}),
        Rule((SAVING,), (BEGUN,), to={"status": KILLED, "progress": ENDING}),
    ),
    needs=("run_id", "fault"),
)
DELETE = Event(
    "delete",
    "A person deletes the image, or another takes the place of one whose bytes did not arrive. What stores have of it is to be removed.",
    (
        Rule((QUEUED, ACTIVE, KILLED), (NONE,), to={"status": DELETED}),
        Rule((SAVING, ACTIVE, KILLED), (BEGUN, DONE, ENDING), to={"status": DELETED, "progress": ENDING}),
    ),
    needs=("run_id", "deleted_at", "deleted"),
)
PLACE_REMOVED = Event(
    "place_removed",
    "The store has nothing of the image.",
    (Rule((KILLED, DELETED), (ENDING,), to={"progress": NONE}),),
)

EVENTS = (CREATE, UPLOAD_BEGUN, UPLOADED, COMPOSED, UPLOAD_FAILED, DELETE, PLACE_REMOVED)

#: Sentence -> whether it is true of a state. The tests check every state that the table leads to.
LAWS: dict[str, t.Callable[[State], bool]] = {
    "Before an upload begins no store has a part of the image.": lambda s: s.status != QUEUED or s.progress == NONE,
    "While bytes are written the ledger names the store that may have a part of them.": lambda s: (
        s.status != SAVING or s.progress == BEGUN
    ),
    "A store has all bytes of an active image, or the image has none: a half image is never seen.": lambda s: (
        s.status != ACTIVE or s.progress in (NONE, DONE)
    ),
    "What a store has of a killed or deleted image is to be removed.": lambda s: (
        s.status not in (KILLED, DELETED) or s.progress in (NONE, ENDING)
    ),
}
