# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of compute hosts in this playbook, where check mode keeps them out of the ledger."""

from __future__ import annotations

import typing as t

from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.stage_results import StageResults

ANSWER = "answer"  # of a host, until it is written
REPORT, SILENCE = "report", "silence"  # results of compute_report: of hosts that answered, or why a host did not
OF_FACTS = ("compute_node", "configuration")  # large fields of a report, which the ledger has


def results_of(action: LedgerAction) -> StageResults:
    """Return the reports of this run, in the folder of the run."""
    return StageResults(action, "compute_report")


def leave(action: LedgerAction, host: str, report: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Leave a report for later stages. Returns the part of it that its task returns."""
    results = results_of(action)
    stage, other = (REPORT, SILENCE) if report["reported"] else (SILENCE, REPORT)
    kept_report = {"reported": report["reported"], "error": report.get("error")}
    if report.get("compute_node"):
        kept_report["instances"] = sorted(instances_in(report))
    if action.check_mode:  # otherwise the ledger has them
        kept_report["compute_node"] = report.get("compute_node")
    results.remove(other, host)
    results.leave(stage, host, kept_report)
    return {name: value for name, value in report.items() if name not in OF_FACTS}


def leave_answer(action: LedgerAction, host: str, answer: t.Mapping[str, t.Any]) -> None:
    """Leave what a host answered for the task that writes the answers of all hosts."""
    results_of(action).leave(ANSWER, host, answer)


def take_answers(action: LedgerAction) -> dict[str, t.Mapping[str, t.Any]]:
    """Return the answers that hosts left in this run, by host, and remove them: they are written once."""
    results = results_of(action)
    answers = {host: results.read(ANSWER, host) for host in results.hosts(ANSWER)}
    for host in answers:
        results.remove(ANSWER, host)
    return answers


def report_of(action: LedgerAction, host: str) -> t.Mapping[str, t.Any]:
    """Return the report of ``host`` in this run, or why it did not answer; empty if it was not asked."""
    results = results_of(action)
    return results.read(REPORT, host) or results.read(SILENCE, host) or {}


def of_this_run(action: LedgerAction) -> dict[str, t.Mapping[str, t.Any]]:
    """Return the reports of this run by their hosts, or why a host did not answer; hosts that were not asked are left out."""
    results = results_of(action)
    asked = {*results.hosts(REPORT), *results.hosts(SILENCE)}
    return {host: report_of(action, host) for host in action.compute_hosts() if host in asked}


def silences(action: LedgerAction) -> dict[str, t.Mapping[str, t.Any]]:
    """Return the hosts that did not answer in this run, with the errors."""
    results = results_of(action)
    return {host: results.read(SILENCE, host)["error"] for host in results.hosts(SILENCE)}


def instances_in(report: t.Mapping[str, t.Any]) -> set[str]:
    """Return the UUIDs for which a host reported a domain, a folder or logical volumes, less instances removed from it after that."""
    node = report.get("compute_node") or {}
    uuids = {
        *(d["uuid"] for d in node.get("domains") or ()),
        *(node.get("instance_folders") or ()),
        *(node.get("instance_volumes") or ()),
    }
    return uuids.difference(report.get("cleaned") or ())


def warn_of_emulation(action: LedgerAction, reasons: t.Mapping[str, str]) -> None:
    """Warn of hosts whose guests run without KVM. :arg reasons: host -> reason, as it reported it"""
    if not reasons:
        return
    from ...module_utils.flows.instances.operation import some  # of few hosts
    from ...module_utils.ledger.compute import hypervisors

    hosts: dict[str, list[str]] = {}
    for host in sorted(reasons):
        hosts.setdefault(reasons[host], []).append(host)
    for reason, names in hosts.items():
        action._display.warning(
            "%s: %s. %s" % (some(names), hypervisors.EMULATED % reason, hypervisors.remedy_of_emulation(reason))
        )


def warn_of_guest_content(action: LedgerAction, host: str, reasons: t.Sequence[str]) -> None:
    """Warn of a host that is not kept away from the content of guests' disks. :arg reasons: as it reported them"""
    if reasons:
        text = "%s is not safe from what guests write on their disks: %s. Run bootflow.compute.prepare for it."
        action._display.warning(text % (host, "; ".join(reasons)))


def warn_of_placements(action: LedgerAction, reasons: t.Mapping[str, str]) -> None:
    """Warn of chosen hosts whose guests run without KVM, except hosts that reported in this playbook: their reports warned."""
    if reasons:
        reported = set(results_of(action).hosts(REPORT))
        warn_of_emulation(action, {host: reason for host, reason in reasons.items() if host not in reported})


def follow_power(action: LedgerAction, tx: Transaction) -> None:
    """Check mode: instances are what hosts reported of their guests, until ``tx`` is rolled back."""
    from ...module_utils.flows.recovery import power_sync  # of check mode only

    reports = {
        host: power_sync.Report(
            tx.now,
            {d["uuid"]: d["power_state"] for d in report["compute_node"]["domains"]},
            report["compute_node"].get("boot_id") or "",
            host_settings.resumes(action, host),
        )
        for host, report in of_this_run(action).items()
        if report.get("reported") and report.get("compute_node")
    }
    if reports:
        power_sync.sync(tx, reports)


def rehearse(
    tx: Transaction,
    reports: t.Mapping[str, t.Mapping[str, t.Any]],
    configurations: t.Mapping[str, t.Mapping[str, t.Any]],
) -> None:
    """Check mode: what hosts reported is in the ledger, until ``tx`` is rolled back."""
    for host, report in reports.items():
        if report.get("reported"):
            nodes.record_report(tx, host, report["compute_node"], configurations[host])
        else:
            nodes.record_unreachable(tx, host, report["error"]["message"])
    nodes.configure(tx, configurations)
