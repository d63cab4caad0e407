# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of storage hosts on their backends: as the result of a task, and as the ledger takes them."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import backends, snapshots, volumes
from ...module_utils.ledger.storage.backends import BackendReport
from ...module_utils.ledger.storage.volumes import VolumeRow
from ..run.ledger_action import LedgerAction
from ..run.stage_results import StageResults
from ..settings import host_reports
from ..settings.storage_settings import storage_hosts
from .drivers.registry import VOLUME_DRIVERS, volume_driver

# Lists of volumes in the module's answer, which are not facts of the backend.
_LISTS = ("error", "volumes", "orphans", "other_ledgers", "changed")


def known_ids(tx: Transaction, host: str) -> list[str]:
    """The volumes and snapshots that the ledger has on the backends of ``host``: what else is ours there is an orphan."""
    pool_hosts = [b.pool_host for b in backends.rows_of(tx, host)]
    ids = [row.id for row in volumes.select(tx, pool_hosts=pool_hosts)] if pool_hosts else []
    return ids + ([row.id for row in snapshots.select(tx, volume_ids=ids)] if ids else [])


def ask(
    action: LedgerAction,
    ledger: Ledger,
    configurations: t.Sequence[t.Mapping[str, t.Any]],
    targets: t.Collection[tuple[str, str]] = (),
) -> dict[str, t.Any]:
    """Ask the current host, in one call for each driver, as storage_backend_info answers. Warns where the content of guests' disks can do harm there.

    :arg targets: (kind, prefix) of targets to look for, too.
    :raises BootflowError: it did not answer, or the module failed as a whole.
    """
    # Before the host is asked: what is made meanwhile is in the ledger first, and seldom taken for an orphan.
    host = action.task_vars["inventory_hostname"]
    known = ledger.inspect(known_ids, host)
    arguments: dict[str, t.Any] = {"known": known, "ledger_id": ledger.id}
    answer: dict[str, t.Any] = {"backends": {}, "targets": []}
    for driver in VOLUME_DRIVERS.values():
        group = [c for c in configurations if volume_driver(c) is driver]
        of_driver = targets if driver.kind.has_portals else ()
        if group or of_driver:
            said = driver.report(action, group, arguments, of_driver)
            answer = {**answer, **said, "backends": {**answer["backends"], **said["backends"]}}
    host_reports.warn_of_guest_content(action, host, answer.get("guest_content") or ())
    return answer


def backend_data(configuration: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """One backend in the result of storage_report: {name, pool_host, configuration, capacity|None, error|None}.

    Of the lists of volumes that the module gives only the orphans' names and ids are kept.
    """
    error = (facts or {}).get("error")
    if facts is None:
        error = errors.RemoteError(reason="the module gave no answer for %s" % configuration["pool_host"]).as_dict()
    return {
        "name": configuration["name"],
        "pool_host": configuration["pool_host"],
        "configuration": dict(configuration),
        "capacity": None if error else _capacity(facts or {}),
        "error": error or None,
    }


def _capacity(facts: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    capacity = {k: v for k, v in facts.items() if k not in _LISTS}
    return {**capacity, "orphans": [{"name": o["name"], "id": o["id"]} for o in facts.get("orphans") or ()]}


def report_of(backend: t.Mapping[str, t.Any], volumes_there: t.Sequence[t.Mapping[str, t.Any]] = ()) -> BackendReport:
    """One backend as the ledger takes it. :arg volumes_there: the logical volumes that are in its numbers."""
    capacity = backend["capacity"]
    return BackendReport(
        backend=backend["name"],
        pool=backend["configuration"]["pool"],
        configuration=backend["configuration"],
        capacity={**capacity, "volumes": list(volumes_there)} if capacity and volumes_there else capacity,
        error=errors.from_dict(backend["error"]) if backend["error"] else None,
    )


def why_silent(host: str, message: str) -> str:
    """Why a host did not report, without the words with which the ledger begins to tell it."""
    beginning = errors.HostUnreachable(host=host, reason="").message
    return message[len(beginning) :] if message.startswith(beginning) else message


def of_this_run(action: LedgerAction) -> list[tuple[str, t.Mapping[str, t.Any]]]:
    """Return the storage hosts that were asked in this run, each with its report or why it did not answer."""
    results = StageResults(action, "storage_report")
    asked = set(results.hosts("report"))
    return [(host, results.read("report", host)) for host in storage_hosts(action) if host in asked]


def rehearse(tx: Transaction, reports: t.Iterable[tuple[str, t.Mapping[str, t.Any]]]) -> None:
    """Enter the reports of this run, which check mode did not write, into a ledger whose changes are rolled back."""
    for host, report in reports:
        if report.get("reported"):
            backends.record_report(tx, host, [report_of(b) for b in report["backends"]])
        else:
            backends.record_unreachable(tx, host, why_silent(host, report["error"]["message"]))


def stale_hosts_of(action: LedgerAction, choose: t.Callable[[Transaction], t.Iterable[VolumeRow]]) -> list[str]:
    """Storage hosts to be asked before anything that needs room there. :arg choose: (tx) -> rows of such volumes."""

    def read(tx: Transaction) -> list[str]:
        theirs = {volumes.host_of(row.pool_host) for row in choose(tx) if row.pool_host}
        hosts = [h for h in storage_hosts(action) if h in theirs]
        return backends.stale_hosts(tx, hosts, action.options["facts_max_age"])

    return (action.rehearsal_ledger() if action.check_mode else action.open_ledger()).inspect(read)
