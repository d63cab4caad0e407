# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reports of all hosts of a playbook, written by one task of the controller.

No task of a host opens the ledger. Hosts on which a report has something to do, and hosts whose answer cannot be written together with other answers, are
named for the next play, in which each writes its own report.
"""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.recovery import host_answers
from ...module_utils.flows.recovery.host_answers import HostAnswer
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction
from ..settings import host_reports
from .host_report import show_to_resume

Result = t.Dict[str, t.Any]  # of a task
Answers = t.Dict[str, HostAnswer]  # by host

AT_ONCE = 25  # hosts of a transaction: boots wait for the rows of hosts as long as it takes


class FleetReports:
    """The answers that hosts left in this run."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.settled: dict[str, str] = {}
        self.stopped: list[str] = []
        self.to_resume: list[str] = []
        self.changed = False

    def write(self) -> Result:
        """Write the answers. Returns the result of the task, whose ``compute`` names the hosts that have to report by themselves."""
        if self.action.check_mode:
            return {"changed": False, "compute": []}
        asked_by_host = host_reports.take_answers(self.action)
        answers = {host: _answer(asked) for host, asked in asked_by_host.items() if asked["reported"]}
        silent = {host: asked for host, asked in asked_by_host.items() if not asked["reported"]}
        ledger = self.action.open_ledger()
        alone = {host for host, answer in answers.items() if answer.facts.get("vxlan_networks")}
        alone |= ledger.inspect(host_answers.hosts_with_work) & answers.keys()
        together = sorted(answers.keys() - alone)
        for first in range(0, len(together), AT_ONCE):
            alone |= self._write_together(ledger, {host: answers[host] for host in together[first : first + AT_ONCE]})
        for host, asked in sorted(silent.items()):
            self._write_silence(ledger, host, asked)
        return {
            "changed": self.changed,
            "compute": [host for host in self.action.compute_hosts() if host in alone],
            "settled": self.settled,
            "stopped": sorted(self.stopped),
            "to_resume": sorted(self.to_resume),
        }

    def _write_together(self, ledger: Ledger, answers: Answers) -> set[str]:
        """Write the answers of these hosts in one transaction. Returns the hosts that have to report by themselves."""
        try:
            written = ledger.transact(_record_current, answers)
        except Exception as e:  # it may be the answer of one of them: their own tasks say of which, and stop no other
            self.action.unexpected(e)
            return set(answers)
        settled_by_host, synced = written
        for settled in settled_by_host.values():
            self.settled.update(settled)
        self.stopped += synced.stopped
        for uuids in show_to_resume(self.action, synced).values():
            self.to_resume += uuids
        hosts_settled = {host for host, settled in settled_by_host.items() if settled}
        self.changed |= bool(hosts_settled or synced.changed)
        # What was settled may have something to be cleaned, without which it cannot be started.
        return ledger.inspect(host_answers.hosts_with_work) & hosts_settled if hosts_settled else set()

    def _write_silence(self, ledger: Ledger, host: str, asked: t.Mapping[str, t.Any]) -> None:
        """Write that a host did not answer, if no other run had a report of it meanwhile."""
        reason = errors.from_dict(asked["error"]).message
        try:
            ledger.transact(_record_silence, host, asked["asked_at"], reason)
        except errors.BootflowError as e:
            self.action.ports.display.warning(
                "The silence of %s was not written to the ledger: %s" % (host, e.paragraph)
            )


def _answer(asked: t.Mapping[str, t.Any]) -> HostAnswer:
    return HostAnswer(asked["compute_node"], asked["configuration"], asked["asked_at"], asked["resumes"])


def _record_current(tx: Transaction, answers: Answers) -> tuple[dict[str, dict[str, str]], t.Any]:
    """Record the answers, without hosts that have reported to another run since they were asked."""
    old = host_answers.outdated(tx, {host: answer.asked_at for host, answer in answers.items()})
    return host_answers.record(tx, {host: answer for host, answer in answers.items() if host not in old})


def _record_silence(tx: Transaction, host: str, asked_at: float, reason: str) -> None:
    if not host_answers.outdated(tx, {host: asked_at}):
        host_answers.record_silence(tx, host, reason)
