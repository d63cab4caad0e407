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
    starts_any = False  # its hosts may start guests, by whatever means
    connects_volumes = False  # the guests' volumes are connected to the host first
    needs_guests = False  # on_host() needs the guests as builds, with their volumes: see given_guests()
    reads_disks = False  # it reads or exchanges local disks, as it cannot where they are in a pool of Ceph
    settles = False  # it has settle_snapshots(), where storage hosts work for it
    #: End of the names of its password files, behind the UUID; None: it sets no passwords.
    password_suffix: str | None = None

    def __init__(self, action: LedgerAction):
        self.action = action
        self.frozen: t.Mapping[
            str, Item
        ] = {}  # the outcomes of freeze() on the current host, by the uuids of instances

    # --- begin, on the controller -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read the settings that begin() needs: no transaction waits for a template."""

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        """Begin the operation in the ledger. :raises BootflowError: see begin() of flows.instances.operation"""
        return flow.begin(tx, operation, selection, known_hosts, self.action.options["quotas"], ask)

    def hosts_to_ask(self, tx: Transaction, operation: Operation, selection: Selection) -> t.Set[str]:
        """Return hosts that should report before the operation begins, besides the hosts of instances that are as requested."""
        return set()

    def check(self, tx: Transaction, begun: Begun) -> None:
        """Check more than the states of instances. :raises BootflowError: the operation cannot begin"""

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        """Return the fields of an instance that only this work adds to its item."""
        return {}

    def note_of_unchanged(self, row: Instance) -> str:
        """Return the note of an instance that is as requested."""
        return "nothing to do"

    def change_of(self, row: Instance) -> tuple[str, str]:
        """Return the words of the diff for an instance, before and after the operation, in addition to its vm_state."""
        return "", ""

    def begin_images(self, rows: t.Sequence[Instance]) -> dict[str, t.Any]:
        """Begin the round that brings images of the stores of hosts to the hosts of these instances. Returns what its play needs: see rounds.begin_for()"""
        return {}

    @property
    def storage_work(self) -> t.Mapping[str, str]:
        """Instances whose volumes are worked on by storage hosts before on_host(), and these hosts. Their hosts disconnect these volumes first, see
        release(), and connect them again afterwards.
        """
        return {}

    # --- on a host --------------------------------------------------------------------------------------------------

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Do the work with instances of the current host.

        :arg fresh: attachments that this run has connected with new credentials
        :raises BootflowError: all of them failed. Returns their answers, and why some failed.
        """
        raise NotImplementedError

    def undo_on_host(self, items: Items) -> Answers:
        """Undo on the current host what began with instances whose volumes were not connected, so that on_host() is not called. Returns their answers."""
        return {}

    def screen(self, items: Items, released: Answers | None) -> tuple[Answers, Problems]:
        """Settle on the current host what storage hosts did not do, before volumes are connected.

        :arg released: of release(), also errors; None: the host did not answer
        Returns the answers of instances that on_host() leaves out, and why they failed.
        """
        return {}, {}

    def judged(self, items: Items, answers: Answers) -> Answers:
        """Return the answers of the current host, with the vm_state of instances that only this work knows to have lost something."""
        return answers

    # --- on a host, before storage hosts work -----------------------------------------------------------------------------

    def is_frozen(self, item: Item) -> bool:
        """Whether the file systems of the guest stand still while storage hosts work."""
        return False

    def freeze(self, items: Items) -> tuple[Answers, Problems]:
        """Have the file systems of guests of the current host stand still. Returns see on_host()"""
        raise NotImplementedError

    def release(self, items: Items) -> tuple[Answers, Problems]:
        """Disconnect the current host from volumes that storage hosts are to work on. Called for instances of storage_work. Returns see on_host()"""
        raise NotImplementedError

    # --- on storage hosts, before the hosts of instances ------------------------------------------------------------------

    def storage_hosts(self) -> list[str]:
        """Return the storage hosts that work for the instances of begin(). Where there are some, settle_snapshots() follows the hosts of the instances."""
        return []

    def settle_snapshots(
        self, tx: Transaction, items: t.Mapping[str, Item], failed: t.Mapping[str, errors.BootflowError]
    ) -> tuple[Problems, list[str]]:
        """Find out what became of the work of storage hosts, and give up what failed. Returns why instances failed, and the storage hosts to clean.

        :arg items, failed: by the uuids of instances
        """
        raise NotImplementedError

    # --- on the host of a store -------------------------------------------------------------------------------------

    def store_hosts(self, rows: t.Sequence[Instance]) -> list[str]:
        """Return the hosts that receive something from the hosts of these instances, after their work."""
        return []

    def on_store_host(self, host: str, items: Items, answers: t.Mapping[str, Item]) -> tuple[Answers, Problems]:
        """Receive on the current host what the instances' hosts give. :arg answers: of these hosts, also errors. Returns see on_host()"""
        raise NotImplementedError

    def with_stored(
        self, host: str, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], outcomes: Answers | None
    ) -> t.Mapping[str, Item]:
        """Return the answers, with what became of what ``host`` was to receive. :arg outcomes: of on_store_host(); None: it answered nothing"""
        raise NotImplementedError

    # --- finish, on the controller ----------------------------------------------------------------------------------

    def undo(
        self, tx: Transaction, operation: Operation, items: t.Mapping[str, Item], outcomes: t.Mapping[str, Outcome]
    ) -> None:
        """Undo the writes of begin() for failed instances. :arg items: by their uuids"""

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        """Write the results that only this work has, in the transaction that ends the operation. Returns why more instances failed.

        :arg items, failed: by the uuids of instances
        """
        return {}

    def result_of(self, item: Item) -> dict[str, t.Any]:
        """Return the fields of an instance that only this work adds to the result of the playbook."""
        return {}

    def password(self, uuid: str) -> str:
        """Return the password of an instance in this run. Called where there is a password_suffix."""
        raise NotImplementedError


def uuids_of(items: Items) -> list[str]:
    return [item["uuid"] for item in items]
