# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The northbound database follows the ledger: one transaction of a run writes all that changed, before guests start or get interfaces.

The database is read before the ledger. So a row that another run adds in between is never taken for a row that is left over, and each run ends
with the rows of all runs before it.
"""

from __future__ import annotations

import typing as t
from collections import Counter

from ....module_utils.core import errors
from ....module_utils.core.networks.network import Network
from ....module_utils.core.ovn.difference import Difference, difference
from ....module_utils.core.ovn.render import Ledger, render
from ....module_utils.core.settings.request import NETWORKS
from ....module_utils.core.settings.run import OVN
from ....module_utils.ledger.db.transaction import Transaction
from .. import host_settings
from .northbound_client import NorthboundClient, NorthboundConflict

Result = t.TypeVar("Result")

CONFLICTS = 5  # transactions that other runs were quicker than
#: A transaction has so many new ports at most, and a ledger fewer than this.
MOST_TRANSACTIONS = 1000


class OnController(host_settings.OnHostOfLedger, t.Protocol):
    """An action of the controller that writes the database."""

    check_mode: bool

    @property
    def ports(self) -> t.Any:
        """Ansible's display, among others."""

    def write(self, function: t.Callable[[Transaction], Result]) -> Result:
        """Run a function in a transaction; in check mode, roll it back."""


class Followed(t.NamedTuple):
    """Changes of the database, done or to be done: table -> rows."""

    created: Counter[str]
    changed: Counter[str]
    removed: Counter[str]

    @property
    def total(self) -> int:
        return sum(map(sum, (counter.values() for counter in self)))

    @property
    def words(self) -> list[str]:
        """A line for each table and change: Port_Group: 2 created."""
        verbs = ("created", "changed", "removed")
        return sorted(
            "%s: %d %s" % (table, n, verb) for verb, counter in zip(verbs, self) for table, n in counter.items() if n
        )


def is_configured(action: host_settings.OnHost) -> bool:
    """Whether the run has a northbound database."""
    return host_settings.values(action, OVN).ovn_northbound is not None


def check(action: host_settings.OnHost, networks: t.Iterable[Network]) -> None:
    """Find out whether the database answers, before anything is claimed for guests of these networks.

    :raises InvalidInput: a network needs the database, and the run has none. :raises NorthboundError: it does not answer
    """
    logical = sorted(network.name for network in networks if network.is_logical)
    if not logical:
        return
    if not is_configured(action):
        raise errors.InvalidInput(
            message="network %s is of OVN, and bootflow_ovn_northbound is not set" % logical[0],
            remedy="Set bootflow_ovn_northbound for all hosts and localhost, as docs/ovn.md says, or use a network of another type.",
        )
    NorthboundClient(host_settings.values(action, OVN)).check()


def refusal(action: host_settings.OnHost, networks: t.Iterable[Network]) -> errors.BootflowError | None:
    """Return why nothing can be claimed for guests of these networks; None: it can. See check()."""
    try:
        check(action, networks)
    except errors.BootflowError as error:
        return error
    return None


def follow_or_warn(action: OnController) -> None:
    """Write what changed, if the run has a database. One that does not answer is a warning: running guests keep their network, and a guest whose
    port is new fails on its host, which waits for the port.
    """
    if action.check_mode or not is_configured(action):
        return
    try:
        follow_ledger(action)
    except errors.BootflowError as error:
        action.ports.display.warning("Ports of OVN networks are as they were: %s %s" % (error, error.remedy))


def follow_ledger(action: OnController) -> Followed:
    """Have the database follow the ledger; in check mode, find out what would change.

    :raises NorthboundError: the database does not answer, or refuses a transaction
    """
    client = NorthboundClient(host_settings.values(action, OVN))
    catalogue = _catalogue(action)
    followed = Followed(Counter(), Counter(), Counter())
    conflicts = 0
    for _transaction in range(MOST_TRANSACTIONS):
        step = _difference(action, client, catalogue)
        if step.commands and not action.check_mode:
            try:
                client.write(step.arguments)
            except NorthboundConflict:
                conflicts += 1
                if conflicts == CONFLICTS:
                    raise
                continue
        for total, counter in zip(followed, (step.created, step.changed, step.removed)):
            total.update(counter)
        if step.is_last or action.check_mode:
            break
    return followed


def _difference(action: OnController, client: NorthboundClient, catalogue: t.Mapping[str, Network]) -> Difference:
    from ....module_utils.flows.networks.logical_networks import logical_networks_of  # only with OVN

    rows = client.read()
    ledger_id = action.ledger_id()

    def read(tx: Transaction) -> Ledger:
        return logical_networks_of(tx, catalogue, ledger_id)

    rendered = render(action.write(read))
    if rendered.unsaid:
        action.ports.display.warning(
            "OVN has no words for the ports of security group rules %s: what they would allow stays closed."
            % ", ".join(rendered.unsaid[:5])
        )
    return difference(rendered.rows, rows, ledger_id)


def _catalogue(action: host_settings.OnHost) -> dict[str, Network]:
    """Return id -> network of the inventory."""
    from ....module_utils.core.request.catalogue import parse_catalogue  # with all that requests need

    parsed = parse_catalogue(None, None, host_settings.values(action, NETWORKS).networks, None)
    return {network.id: network for network in parsed.networks.values()}
