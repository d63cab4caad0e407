# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents of packet filters on their way from the controller's task to the hosts' tasks, and what hosts took on the way back.

One transaction numbers the documents of all hosts of the next play, and one confirms them: a host's task reads a file in the folder of this
ansible-playbook process (mode 0700, gone with it) instead of opening the ledger. A document is valid until the controller's next task.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from urllib.parse import unquote

from ....module_utils.core.firewall.driver import NFTABLES
from ....module_utils.core.settings.hosts import FIREWALL
from ....module_utils.ledger.db.transaction import Transaction
from .. import host_variables
from ..ovn import northbound
from ..stage_results import OfRun, folder_of, path_of, write_whole

Result = t.TypeVar("Result")

GIVEN, TAKEN = "filters", "filtered"


class OnController(OfRun, northbound.OnController, t.Protocol):
    """An action of the controller."""

    check_mode: bool
    task_vars: t.Mapping[str, t.Any]

    def write(self, function: t.Callable[[Transaction], Result]) -> Result:
        """Run a function in a transaction; in check mode, roll it back."""

    def ledger_id(self) -> str:
        """Return the id of the ledger."""


def give(action: OnController, hosts: t.Iterable[str]) -> None:
    """Hand documents to the next tasks of ``hosts``, where these filter. The database of OVN has their ports before."""
    next_hosts = sorted(set(hosts))
    if next_hosts:
        northbound.follow_or_warn(action)
    filtering = [] if action.check_mode else _filtering(action, next_hosts)
    if not filtering:
        return
    from ....module_utils.flows.networks.port_filters import port_filters_of  # only where hosts filter

    documents = action.write(lambda tx: port_filters_of(tx, filtering))
    ledger_id = action.ledger_id()
    for host, document in documents.items():
        text = json.dumps({"document": document, "ledger_id": ledger_id})
        write_whole(path_of(folder_of(action), host, GIVEN), text)


def find(action: OfRun, host: str) -> dict[str, t.Any] | None:
    """Return the arguments of the module port_filters that were handed to ``host``; None: none were."""
    try:
        arguments: dict[str, t.Any] = json.loads(path_of(folder_of(action), host, GIVEN).read_text())
    except FileNotFoundError:
        return None
    return arguments


def leave(action: OfRun, host: str, revision: int) -> None:
    """Leave for collect() that ``host`` filters by the document of this number."""
    write_whole(path_of(folder_of(action), host, TAKEN), str(revision))


def collect(action: OnController) -> None:
    """Confirm the documents that hosts took, and end all that were handed over. The controller's tasks begin with it."""
    folder = folder_of(action)
    given = {path: int(json.loads(path.read_text())["document"]["revision"]) for path in folder.glob("*.%s" % GIVEN)}
    brought = {path: int(path.read_text()) for path in folder.glob("*.%s" % TAKEN)}
    if not (given or brought):
        return
    from ....module_utils.ledger.networks import filter_marks  # only where hosts filter

    confirmed = {_host_of(path): revision for path, revision in brought.items()}
    untaken = {_host_of(path): revision for path, revision in given.items() if _host_of(path) not in confirmed}

    def write(tx: Transaction) -> None:
        filter_marks.confirm(tx, confirmed)
        filter_marks.give_back(tx, untaken)

    action.write(write)
    for path in (*given, *brought):
        path.unlink(missing_ok=True)


def _filtering(action: OnController, hosts: t.Sequence[str]) -> list[str]:
    known = [host for host in hosts if host in action.task_vars["hostvars"]]
    variables = host_variables.settings_of(action.task_vars["hostvars"], known)
    drivers: dict[int, str] = {}  # hosts with the same settings share their variables
    for host in known:
        if id(variables[host]) not in drivers:
            drivers[id(variables[host])] = str(FIREWALL.read(variables[host]).firewall_driver)
    return [host for host in known if drivers[id(variables[host])] == NFTABLES]


def _host_of(path: Path) -> str:
    return unquote(path.stem)
