# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of compute hosts to the question for their facts, of one host or of many: they enter the ledger, and settle what dead runs left."""

from __future__ import annotations

import typing as t

from ...ledger.compute import cleanups, instances, nodes
from ...ledger.db.transaction import Transaction
from . import operations, power_sync


class HostAnswer(t.NamedTuple):
    """The answer of a host."""

    facts: t.Mapping[str, t.Any]  # of the module compute_node_info
    configuration: t.Mapping[str, t.Any]  # of the host in the inventory
    asked_at: float  # seconds since the epoch
    resumes: bool  # its guests run again after its restart


def record(
    tx: Transaction, answers: t.Mapping[str, HostAnswer], cleaned: t.Collection[str] = ()
) -> tuple[dict[str, dict[str, str]], power_sync.Synced]:
    """Enter the reports. Returns the instances whose operation they settled, as its run died, host -> UUID -> vm_state, and other changes of instances.

    A guest that should not run, or is to run again after its host's restart, is left to the playbook power_sync.

    :arg answers: by host. :arg cleaned: instances that the hosts were cleaned of since they were asked
    """
    reports = {
        host: power_sync.Report(
            answer.asked_at,
            {d["uuid"]: d["power_state"] for d in answer.facts["domains"]},
            answer.facts.get("boot_id") or "",
            answer.resumes,
        )
        for host, answer in answers.items()
    }
    restarted = power_sync.restarted(tx, reports)
    settled = {}
    for host in sorted(answers):
        domains = answers[host].facts["domains"]
        settled[host] = operations.settle_operations(
            tx,
            host,
            reports[host].power_states,
            answers[host].asked_at,
            [d["uuid"] for d in domains if d.get("rescued")],
            host in restarted,
            {d["uuid"]: d["moving"] for d in domains if d.get("moving")},
            answers[host].facts.get("at_work") or (),
        )
    synced = power_sync.sync(tx, reports)
    if len(answers) > 1:  # as all that lock rows of hosts do, in the order of their ids
        nodes.lock_hosts(tx, answers)
    for host, answer in sorted(answers.items()):
        nodes.record_report(tx, host, answer.facts, answer.configuration, answer.asked_at, cleaned)
    return settled, synced


def record_silence(tx: Transaction, host: str, reason: str) -> None:
    """Enter that the host did not answer. :arg reason: why, for people"""
    from . import leases  # with all of a boot

    leases.host_is_silent(tx, host, reason)


def outdated(tx: Transaction, asked_at: t.Mapping[str, float]) -> set[str]:
    """Return the hosts that reported to another run after this one asked them: what they said here is older. :arg asked_at: by host"""
    return nodes.reported_since(tx, asked_at)


def hosts_with_work(tx: Transaction) -> set[str]:
    """Return the hosts on which a report has to do something: they have builds of dead runs, or something that is to be removed."""
    builds = [*instances.builds_of_expired_runs(tx, tx.run.id), *instances.builds_taken_over(tx)]
    return {str(build.host) for build in builds if build.host} | cleanups.hosts(tx)
