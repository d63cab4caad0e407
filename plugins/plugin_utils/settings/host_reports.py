# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of compute hosts in this playbook, where check mode keeps them out of the ledger."""

from __future__ import annotations

import typing as t

from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, host_variables
from ..run.ledger_action import LedgerAction

# As playbooks register the task compute_report.
REPORTED = "bootflow_reported"


def of_this_run(action: LedgerAction) -> dict[str, t.Mapping[str, t.Any]]:
    """host -> what it reported in this playbook, or why it did not; hosts that were not asked are left out."""
    found = host_variables.results(action.task_vars["hostvars"], action.compute_hosts(), REPORTED)
    return {h: report for h, report in found.items() if report.get("reported") or report.get("error")}


def instances_in(report: t.Mapping[str, t.Any]) -> set[str]:
    """Return the UUIDs for which a host reported a domain, a folder or logical volumes, less instances removed from it after that."""
    node = report.get("compute_node") or {}
    found = {
        *(d["uuid"] for d in node.get("domains") or ()),
        *(node.get("instance_folders") or ()),
        *(node.get("instance_volumes") or ()),
    }
    return found.difference(report.get("cleaned") or ())


def warn_of_emulation(action: LedgerAction, reasons: t.Mapping[str, str]) -> None:
    """Warn of hosts whose guests run without KVM. :arg reasons: host -> reason, as it reported it"""
    if not reasons:
        return
    from ...module_utils.flows.instances.operation import some  # of few hosts
    from ...module_utils.ledger.compute import hypervisors

    remedy = "Enable virtualization in its firmware, or set bootflow_virt_type to qemu if that is meant."
    hosts: dict[str, list[str]] = {}
    for host in sorted(reasons):
        hosts.setdefault(reasons[host], []).append(host)
    for reason, names in hosts.items():
        action._display.warning("%s: %s. %s" % (some(names), hypervisors.EMULATED % reason, remedy))


def warn_of_guest_content(action: LedgerAction, host: str, reasons: t.Sequence[str]) -> None:
    """Warn of a host that is not kept away from the content of guests' disks. :arg reasons: as it reported them"""
    if reasons:
        text = "%s is not safe from what guests write on their disks: %s. Run bootflow.compute.prepare for it."
        action._display.warning(text % (host, "; ".join(reasons)))


def warn_of_placements(action: LedgerAction, reasons: t.Mapping[str, str]) -> None:
    """Warn of chosen hosts whose guests run without KVM, except hosts that reported in this playbook: their reports warned."""
    if reasons:
        reported = of_this_run(action)
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
