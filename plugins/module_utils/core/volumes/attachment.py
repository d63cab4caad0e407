# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of an attachment as a table: its states, and the events that lead from one to the next.

A state has three parts, the columns of the same names:

- ``attach_status``: the volume and the instance. ``reserved``: the volume is still being created;
  ``attaching``: on the way to the guest; ``attached``: the guest has it, also while it moves to another host;
  ``detached``: the attachment is to end; ``error_attaching``: its target could not be created. source: Cinder's VolumeAttachStatus; a live row in
  ``detached`` replaces the deletion of Nova's block device mapping, which has no state.
- ``export``: the storage host's end, a target. source: Cinder's create_export and remove_export
- ``connection``: the compute host's end, a session or a secret. source: Cinder's attachment_update and Nova's
  connect_volume

Each end is ``none``, ``begun``, ``done`` or ``ending``. ``begun`` is written before the host is asked, so the ledger knows
what a killed run may have left. A connection is never ``ending``: a host that fails to disconnect stays connected.

LAWS are true of every state that the table leads to.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..errors import VolumeAttachmentConflict
from .states import ATTACHED, ATTACHING, DETACHED, ERROR_ATTACHING, RESERVED

NONE, BEGUN, DONE, ENDING = "none", "begun", "done", "ending"
PROGRESS = (NONE, BEGUN, DONE, ENDING)

ON_THE_WAY = (RESERVED, ATTACHING, ERROR_ATTACHING)

#: A target may be made, and its host connect: for a new attachment, or for a guest that has the volume and comes to another host.
_TO_CONNECT = (ATTACHING, ATTACHED)


class State(t.NamedTuple):
    """The state of an attachment. None instead: the attachment does not exist (yet, or any more)."""

    attach_status: str
    export: str = NONE
    connection: str = NONE

    def __str__(self) -> str:
        return "%s (export %s, connection %s)" % self


#: An attachment that only has to be ended: neither host has a part of it.
IDLE = State(DETACHED)


@dataclass(frozen=True)
class Rule:
    """The states in which an event may happen, and the state that follows.

    A part that is not named may have any value; a part that ``to`` does not name keeps its value.
    """

    attach_status: tuple[str, ...] = ()
    export: tuple[str, ...] = ()
    connection: tuple[str, ...] = ()
    to: t.Mapping[str, str] = field(default_factory=dict)

    def admits(self, state: State) -> bool:
        wanted = (self.attach_status, self.export, self.connection)
        return all(not values or value in values for values, value in zip(wanted, state))


@dataclass(frozen=True)
class Event:
    """An event of an attachment: the first of ``rules`` that admits the state gives the next one.

    ``needs``: columns that are written with it. ``clears``: columns and the values they get.
    ``first``: the event begins the life, in this state. ``last``: it ends the life; the row stays for the history.
    """

    name: str
    meaning: str
    rules: tuple[Rule, ...] = ()
    needs: tuple[str, ...] = ()
    clears: t.Mapping[str, t.Any] = field(default_factory=dict)
    first: State | None = None
    last: bool = False

    def admits(self, state: State | None) -> bool:
        if state is None:
            return self.first is not None
        return any(rule.admits(state) for rule in self.rules)

    def after(self, state: State | None, attachment_id: str = "") -> State:
        """The next state; after the ``last`` event, the state that the row keeps.

        :raises VolumeAttachmentConflict: the event cannot happen in this state.
        """
        if state is None and self.first is not None:
            return self.first
        for rule in self.rules if state is not None else ():
            if state is not None and rule.admits(state):
                return state._replace(**rule.to)
        raise VolumeAttachmentConflict(attachment_id=attachment_id, state=str(state or "ended"), event=self.name)


_HALF = (ATTACHING, ERROR_ATTACHING)

RESERVE = Event(
    "reserve",
    "The volume is kept for an instance.",
    first=State(RESERVED),
    needs=("volume_id", "instance_uuid"),
)
VOLUME_READY = Event(
    "volume_ready",
    "The volume exists, so attaching can begin. A volume that existed before is ready at once.",
    (Rule(attach_status=(RESERVED,), to={"attach_status": ATTACHING}),),
)
BIND_HOST = Event(
    "bind_host",
    "The instance has a compute host, or gets another one, so it is known whom the volume is exported to.",
    (Rule(attach_status=ON_THE_WAY), Rule(attach_status=(ATTACHED,), connection=(NONE,))),
    needs=("attached_host", "initiator", "connector"),
)
EXPORT_AGAIN = Event(
    "export_again",
    "The target has to admit another initiator than the one it was created for.",
    (
        Rule(attach_status=ON_THE_WAY, export=(DONE,), to={"export": BEGUN}),
        Rule(attach_status=(ATTACHED,), export=(DONE,), connection=(NONE,), to={"export": BEGUN}),
    ),
)
RESUME = Event(
    "resume",
    "Another run continues, or moves the instance. Unless the compute host is connected, the target gets new credentials: the former"
    " ones died with the run that set them.",
    (
        Rule(attach_status=(RESERVED,)),
        Rule(attach_status=_HALF, export=(DONE,), to={"attach_status": ATTACHING, "export": BEGUN}),
        Rule(attach_status=_HALF, to={"attach_status": ATTACHING}),
        Rule(attach_status=(ATTACHED,), export=(DONE,), connection=(NONE, BEGUN), to={"export": BEGUN}),
        Rule(attach_status=(ATTACHED,)),
    ),
    needs=("run_id",),
)
EXPORT_BEGUN = Event(
    "export_begun",
    "The storage host is asked to create the target, or to admit the initiator to it.",
    (Rule(attach_status=_TO_CONNECT, export=(NONE, BEGUN), to={"export": BEGUN}),),
    needs=("storage_host",),
)
EXPORTED = Event(
    "exported",
    "The target exists and admits the initiator.",
    (Rule(attach_status=(*_TO_CONNECT, DETACHED), export=(BEGUN,), to={"export": DONE}),),
    needs=("iqn", "lun", "portals", "connection_info", "connector"),
)
EXPORT_FAILED = Event(
    "export_failed",
    "The target could not be created; a part of it may exist.",
    (
        Rule(attach_status=(ATTACHING,), export=(BEGUN,), to={"attach_status": ERROR_ATTACHING}),
        Rule(attach_status=(ATTACHED,), export=(BEGUN,)),
    ),
)
CONNECTING = Event(
    "connecting",
    "The compute host is asked to connect.",
    (
        Rule(attach_status=_TO_CONNECT, export=(DONE,), connection=(NONE, BEGUN), to={"connection": BEGUN}),
        Rule(attach_status=_TO_CONNECT, export=(DONE,), connection=(DONE,)),
    ),
)
CONNECTED = Event(
    "connected",
    "The compute host is connected.",
    (
        Rule(attach_status=(*_HALF, DETACHED), connection=(BEGUN, DONE), to={"connection": DONE}),
        Rule(attach_status=(ATTACHED,), export=(DONE,), connection=(BEGUN, DONE), to={"connection": DONE}),
    ),
    needs=("device_path",),
)
ATTACHED_TO_GUEST = Event(
    "attached",
    "The guest has the volume.",
    (Rule(attach_status=(ATTACHING,), export=(DONE,), connection=(DONE,), to={"attach_status": ATTACHED}),),
    needs=("attached_at",),
    clears={"run_id": None},
)
DETACH = Event(
    "detach",
    "The attachment is to end: the volume is detached, or the instance is deleted or its build failed. A target without"
    " a connected compute host can be removed at once.",
    (
        Rule(export=(NONE,), connection=(NONE,), to={"attach_status": DETACHED}),
        Rule(connection=(NONE,), to={"attach_status": DETACHED, "export": ENDING}),
        Rule(to={"attach_status": DETACHED}),
    ),
)
DISCONNECTED = Event(
    "disconnected",
    "The compute host is disconnected, so the target can be removed.",
    (
        Rule(attach_status=(*ON_THE_WAY, DETACHED), export=(NONE,), connection=(NONE,)),
        Rule(attach_status=(*ON_THE_WAY, DETACHED), to={"connection": NONE, "export": ENDING}),
    ),
    clears={"device_path": None, "rescan": False},
)
LEFT_HOST = Event(
    "left_host",
    "The instance leaves its compute host, which is disconnected. The volume stays attached: its target admits the next host once it does"
    " not admit this one.",
    (
        Rule(attach_status=(ATTACHED,), export=(NONE,), connection=(NONE,)),
        Rule(attach_status=(ATTACHED,), to={"connection": NONE, "export": ENDING}),
    ),
    clears={"device_path": None, "rescan": False},
)
CUT_OFF = Event(
    "cut_off",
    "The compute host is forced down, and the instance goes to another one. The host may be connected still: its target is to end its"
    " sessions and let it in no longer.",
    (Rule(attach_status=(ATTACHED, DETACHED), connection=(BEGUN, DONE), to={"connection": NONE, "export": ENDING}),),
)
STILL_ADMITTED = Event(
    "still_admitted",
    "The storage host did not cut the compute host off, which has what it had.",
    (Rule(attach_status=(ATTACHED,), export=(ENDING,), connection=(NONE,), to={"connection": DONE, "export": DONE}),),
)
QEMU_GONE = Event(
    "qemu_gone",
    "The host has lost the domain whose QEMU was connected, and with it the user of the login.",
    (Rule(attach_status=(ATTACHED,), export=(DONE,), connection=(DONE,), to={"connection": NONE}),),
    clears={"device_path": None, "rescan": False},
)
UNBIND_HOST = Event(
    "unbind_host",
    "The build moves to another host, or the instance has left its host. The reservation, or the attachment, stays, and the former host's target is"
    " removed.",
    (
        Rule(attach_status=(RESERVED,), connection=(NONE,)),
        Rule(attach_status=(ATTACHED,), export=(NONE,), connection=(NONE,)),
        Rule(attach_status=(ATTACHED,), connection=(NONE,), to={"export": ENDING}),
        Rule(attach_status=_HALF, export=(NONE,), connection=(NONE,), to={"attach_status": ATTACHING}),
        Rule(attach_status=_HALF, connection=(NONE,), to={"attach_status": ATTACHING, "export": ENDING}),
    ),
    clears={"attached_host": None, "initiator": None, "connector": None},
)
RESERVE_AGAIN = Event(
    "reserve_again",
    "The instance is built again before the attachment ended. The old export is removed first.",
    (Rule(attach_status=(DETACHED,), connection=(NONE,), to={"attach_status": ATTACHING}),),
    needs=("run_id",),
    clears={"attached_host": None, "initiator": None, "connector": None, "attached_at": None},
)
UNEXPORTED = Event(
    "unexported",
    "The target is gone, or admits the initiator no longer.",
    (Rule(export=(ENDING,), connection=(NONE,), to={"export": NONE}),),
    clears={"iqn": None, "lun": None, "portals": None, "connection_info": None},
)
END = Event(
    "end",
    "Neither host has a part of the attachment: it has ended.",
    (Rule(attach_status=(DETACHED,), export=(NONE,), connection=(NONE,)),),
    clears={"run_id": None},
    last=True,
)
VOLUME_DELETED = Event(
    "volume_deleted",
    "The volume was deleted, so nothing remains to be exported.",
    (Rule((*ON_THE_WAY, DETACHED), (NONE,), (NONE,), to={"attach_status": DETACHED}),),
    clears={"run_id": None},
    last=True,
)

EVENTS = (
    RESERVE, VOLUME_READY, BIND_HOST, EXPORT_AGAIN, RESUME, EXPORT_BEGUN, EXPORTED, EXPORT_FAILED, CONNECTING, CONNECTED,
    ATTACHED_TO_GUEST, DETACH, DISCONNECTED, LEFT_HOST, CUT_OFF, STILL_ADMITTED, QEMU_GONE, UNBIND_HOST, RESERVE_AGAIN, UNEXPORTED, END, VOLUME_DELETED,
)  # fmt: skip

#: Sentence -> whether it is true of a state. The tests check every state that the table leads to.
LAWS: dict[str, t.Callable[[State], bool]] = {
    "While a compute host is connected, or may be, the volume is exported to it.": lambda s: (
        s.connection == NONE or s.export in (BEGUN, DONE)
    ),
    "A volume that is not ready is neither exported nor connected.": lambda s: (
        s.attach_status != RESERVED or s.export == s.connection == NONE
    ),
    "A guest that is connected to a volume that it has is connected to a finished target.": lambda s: (
        s.attach_status != ATTACHED or s.connection != DONE or s.export == DONE
    ),
    "A target without connections is removed when the attachment is to end.": lambda s: (
        s.attach_status != DETACHED or s.connection != NONE or s.export in (NONE, ENDING)
    ),
    "A connection is never ending.": lambda s: s.connection != ENDING,
}
