# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of an operation: what it does on the hosts of instances, and what it adds to the steps on the controller."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.operation_outcomes import Answers, Item, Outcome
from ...module_utils.flows.instances import operation
from ...module_utils.flows.instances.operation import Begun, Operation, Selection
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction

Items = t.Sequence[Item]
Problems = t.Dict[str, errors.BootflowError]  # by the uuids of instances


class Work:
    """The work of one operation in one task. A subclass overrides the steps that it has something to add to."""

    #: The variable of its image: without it each instance's own image is taken. "": it takes no image.
    image_variable = ""
    #: Whether it sets the power state of guests that keep their domains. Any other work defines domains, or leaves power states alone.
    sets_power = False
    starts_guests = False  # by setting their power state
    connects_volumes = False  # the guests' volumes are connected to the host first
    #: What the names of the files of its passwords have after the UUID; None: it sets no passwords.
    password_suffix: str | None = None

    def __init__(self, action: LedgerAction):
        self.action = action

    # --- begin, on the controller -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read the settings that begin() needs: no transaction waits for a template."""

    def begin(
        self, tx: Transaction, its: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        """Begin the operation ``its`` in the ledger. :raises BootflowError: see operation.begin()"""
        return operation.begin(tx, its, selection, known_hosts, self.action.options["quotas"], ask)

    def check(self, tx: Transaction, begun: Begun) -> None:
        """Check more than the states of instances. :raises BootflowError: the operation cannot begin"""

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        """Return what later stages must know of an instance, in addition to what they know of any."""
        return {}

    def change_of(self, row: Instance) -> tuple[str, str]:
        """Return the words of the diff for an instance, before and after the operation, in addition to its vm_state."""
        return "", ""

    # --- on a host --------------------------------------------------------------------------------------------------

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Do the work with instances of the current host.

        :arg fresh: attachments that this run has connected with new credentials
        :raises BootflowError: all of them failed. Returns their answers, and why some failed.
        """
        raise NotImplementedError

    # --- finish, on the controller ----------------------------------------------------------------------------------

    def undo(
        self, tx: Transaction, its: Operation, items: t.Mapping[str, Item], outcomes: t.Mapping[str, Outcome]
    ) -> None:
        """Undo in the ledger what begin() wrote of failed instances. :arg items: by their uuids"""

    def password(self, uuid: str) -> str:
        """Return the password that an instance got in this run."""
        raise NotImplementedError


def uuids_of(items: Items) -> list[str]:
    return [item["uuid"] for item in items]
