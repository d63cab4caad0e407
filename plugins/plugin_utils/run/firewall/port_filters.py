# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the current host's ports: they are there before a module starts a guest or plugs an interface in, whichever operation it is for.

Each module that a task sends to a host comes by here, so that no operation can forget it. A host that cannot filter starts no guest.
"""

from __future__ import annotations

import typing as t

from ....module_utils.core.firewall.driver import NFTABLES
from ....module_utils.core.settings.hosts import FIREWALL
from ....module_utils.ledger.db.transaction import Transaction
from .. import host_settings
from ..ovn import northbound
from ..stage_results import Ports
from . import filter_handover

Arguments = t.Mapping[str, t.Any]
Result = t.TypeVar("Result")


class OnFilteredHost(host_settings.OnHostOfLedger, t.Protocol):
    """An action whose current host may filter ports."""

    check_mode: bool

    @property
    def ports(self) -> Ports:
        """The folder of the run."""

    def write(self, function: t.Callable[[Transaction], Result]) -> Result:
        """Run a function in a transaction; in check mode, roll it back."""

    def run_module(self, name: str, arguments: Arguments) -> dict[str, t.Any]:
        """Run a module on the current host."""


def filters(action: host_settings.OnHost) -> bool:
    """Whether the current host filters the ports of its guests."""
    return bool(host_settings.values(action, FIREWALL).firewall_driver == NFTABLES)


def are_filtered(action: host_settings.OnHost) -> bool:
    """Whether ports of guests are filtered at all: by hosts, or by OVN. Requests may name security groups then."""
    return filters(action) or northbound.is_configured(action)


def before(action: OnFilteredHost, module: str, arguments: Arguments) -> None:
    """Have the host filter as the ledger says, where ``module`` may start a guest there or plug an interface in.

    :raises BootflowError: the host cannot, and the module is not to run
    """
    if may_start(module, arguments) and not action.check_mode and filters(action):
        apply(action)


def apply(action: OnFilteredHost) -> dict[str, t.Any]:
    """Have the current host filter as the ledger says; in check mode, ask what it would change. Returns the answer of the module.

    A document that the controller's task handed over is as new as the ports that this task works for. Without one, or where another run gave
    the host a newer one, the ledger is asked.

    :raises BootflowError: the host cannot
    """
    from ....module_utils.flows.networks.port_filters import port_filters_of  # only where hosts filter
    from ....module_utils.ledger.networks import filter_marks

    host = action.task_vars["inventory_hostname"]
    given = None if action.check_mode else filter_handover.find(action, host)
    if given is not None:
        answer = action.run_module("port_filters", given)
        if not answer["superseded"]:
            filter_handover.leave(action, host, answer["revision"])
            return answer

    def push() -> dict[str, t.Any]:
        document = action.write(lambda tx: port_filters_of(tx, [host]))[host]
        answer = action.run_module("port_filters", {"document": document, "ledger_id": action.ledger_id()})
        if not (answer["superseded"] or action.check_mode):
            action.write(lambda tx: filter_marks.confirm(tx, {host: document["revision"]}))
        return answer

    answer = push()
    # What another run gave the host meanwhile is newer. What no run of this ledger gave is of the ledger before it was restored.
    if answer["superseded"] and not action.check_mode:
        if action.write(lambda tx: filter_marks.catch_up(tx, host, answer["revision"])):
            answer = push()
    return answer


def may_start(module: str, arguments: Arguments) -> bool:
    """Whether a module may start a guest on its host, or plug an interface in."""
    if module == "domain_power":
        return arguments.get("state") in STARTING
    if module == "domain_migration":
        return arguments.get("step") == "prepare"
    if module == "domain_interface":
        return any(i.get("state", "attached") == "attached" for i in arguments.get("interfaces") or ())
    return module in STARTERS


#: States that a guest which is off may be started for.
STARTING = ("running", "rebooted", "unpaused")
#: Modules that always may.
STARTERS = ("domain", "instance_build", "domain_rescue", "instance_disks_revert")
