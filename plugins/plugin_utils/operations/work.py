# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of an operation: its part on the hosts of instances, and its additions to the stages on the controller."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.operation_outcomes import Answers, Item, Outcome
from ...module_utils.flows.instances import operation as flow
from ...module_utils.flows.instances.operation import Begun, Operation, Selection
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction

Items = t.Sequence[Item]
Problems = t.Dict[str, errors.BootflowError]  # by the uuids of instances


class Work:
    """The work of one operation in one task. A subclass has on_host(), and overrides the other steps where it adds something."""

    #: The variable of its image: without it each instance's own image is taken. "": it takes no image.
    image_variable = ""
    #: Whether it sets the power state of guests that keep their domains. Any other work defines domains, or leaves power states alone.
    sets_power = False
    starts_guests = False  # by setting their power state
    connects_volumes = False  # the guests' volumes are connected to the host first
    #: End of the names of its password files, behind the UUID; None: it sets no passwords.
    password_suffix: str | None = None

    def __init__(self, action: LedgerAction):
        self.action = action

    # --- begin, on the controller -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read the settings that begin() needs: no transaction waits for a template."""

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        """Begin the operation in the ledger. :raises BootflowError: see begin() of flows.instances.operation"""
        return flow.begin(tx, operation, selection, known_hosts, self.action.options["quotas"], ask)

    def check(self, tx: Transaction, begun: Begun) -> None:
        """Check more than the states of instances. :raises BootflowError: the operation cannot begin"""

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        """Return the fields of an instance that only this work adds to its item."""
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
        self, tx: Transaction, operation: Operation, items: t.Mapping[str, Item], outcomes: t.Mapping[str, Outcome]
    ) -> None:
        """Undo the writes of begin() for failed instances. :arg items: by their uuids"""

    def password(self, uuid: str) -> str:
        """Return the password of an instance in this run. Called where there is a password_suffix."""
        raise NotImplementedError


def uuids_of(items: Items) -> list[str]:
    return [item["uuid"] for item in items]
