# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of the audit: inspect all hosts, repair the ledger, clean the hosts."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.audit import plan as core_audit
from ...module_utils.core.audit.evidence import Evidence
from ...module_utils.core.audit.plan import Finding
from ...module_utils.flows.instances import cleanup, delete
from ...module_utils.flows.recovery import audit as ledger_audit
from ...module_utils.flows.recovery import reservations, storage_audit
from ...module_utils.flows.recovery.audit import Todo
from ...module_utils.flows.recovery.storage_audit import Ends
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..builds.dhcp import reserve
from ..operations.cleaning import clean_host
from ..run import host_settings, tables
from ..run.lease import lease_kept
from ..run.ovn import northbound
from ..run.stages import Result, Stages
from ..settings.storage_settings import storage_hosts
from ..volumes.attached_volumes import sources_by_host
from ..watch.fleet_reports import AT_ONCE
from . import storage
from .inspection import Answer, inspect_compute_host, ledger_to_read, read_snapshot
from .report import findings_diff, findings_lines

STRANGER = "the host is not in the inventory"
_SKIPPED = {"changed": False, "skipped": True}

Todos = t.Mapping[str, Todo]
AllEnds = t.Mapping[str, Ends]


class Audit(Stages):
    """All stages. Hosts are inspected in check mode, too, and cleaned without it only."""

    called = "audit"
    rehearses_on_hosts = True
    keeps_lease = False
    returns = ("repair", "finish")

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "repair": self._repair, "release": self._release, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"inspect": self._inspect, "clean": self._clean, "unexport": self._unexport}

    # --- begin and inspect ----------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        hosts = list(dict.fromkeys([*self.action.compute_hosts(), *storage_hosts(self.action)]))
        wanted = self.options["hosts"]
        unknown = sorted(set(wanted or ()) - set(hosts))
        if unknown:
            raise errors.ComputeHostNotFound(
                host=", ".join(unknown), remedy="bootflow_audit_hosts takes compute and storage hosts of the inventory."
            )
        began_at = self.action.context().now
        with contextlib.closing(ledger_to_read(self.action)) as ledger:
            prefixes = ledger.inspect(storage_audit.iqn_prefixes)
            known = ledger.inspect(storage_audit.known_targets)
            volumes = ledger.inspect(sources_by_host)
        return {
            "changed": False,
            "began_at": began_at,
            "volumes": volumes,
            "compute": [h for h in hosts if not wanted or h in wanted],
            "iqn_prefixes": prefixes,
            "known_targets": known,
        }

    def _inspect(self, host: str) -> Result:
        result: Result = {"changed": False}
        if host in self.action.compute_hosts():
            result.update(inspect_compute_host(self.action, host, self.result("begin")))
        if host in storage_hosts(self.action):
            with contextlib.closing(ledger_to_read(self.action)) as ledger:
                result["storage"] = storage.ask(self.action, ledger, host)
        return result

    # --- repair ---------------------------------------------------------------------------------------------------------

    def _repair(self) -> Result:
        answers = self._answers()
        of_storage = self._answers_of_storage()
        todo: Todos = {}
        ends: AllEnds = {}
        with contextlib.closing(ledger_to_read(self.action)) as ledger:
            evidence = self._evidence(ledger, answers, of_storage)
            findings = ledger.inspect(ledger_audit.plan, evidence)
            if self.action.check_mode:
                findings += ledger.rehearsal(ledger_audit.record_power_states, evidence)
            else:
                if any(f.changes for f in findings):
                    findings, todo, ends = self._repair_ledger(ledger, findings, evidence, answers)
                findings += ledger.transact(ledger_audit.record_power_states, evidence)
                _record_reports(ledger, {h: answers[h] for h in evidence.snapshots})
                storage.record(ledger, of_storage)
        result = self._repaired(findings, todo, ends)
        return {**result, "changed": self._follow_in_ovn() or result["changed"]}

    def _follow_in_ovn(self) -> bool:
        """Have the northbound database of OVN be as the ledger says, also one that was lost. Returns whether it was not."""
        if not northbound.is_configured(self.action):
            return False
        try:
            followed = northbound.follow_ledger(self.action)
        except errors.BootflowError as error:
            self.action.ports.display.warning("Ports of OVN networks were not audited: %s %s" % (error, error.remedy))
            return False
        if followed.total and self.options["print_table"]:
            verb = "would be" if self.action.check_mode else "was"
            lines = ["The northbound database of OVN %s repaired:" % verb, *("  " + line for line in followed.words)]
            tables.show(self.action.ports.display, lines)
        return bool(followed.total)

    def _answers(self) -> dict[str, Answer]:
        """Return what the compute hosts answered; hosts that were not asked are left out."""
        answers = {h: self.result("inspect", h) for h in self.action.compute_hosts()}
        return {h: a for h, a in answers.items() if "inspected" in a}

    def _answers_of_storage(self) -> dict[str, Answer]:
        """Return what the storage hosts answered; hosts that were not asked are left out."""
        answers = {host: self.result("inspect", host).get("storage") for host in storage_hosts(self.action)}
        return {host: answer for host, answer in answers.items() if answer}

    def _evidence(
        self, ledger: Ledger, answers: t.Mapping[str, Answer], of_storage: t.Mapping[str, Answer]
    ) -> Evidence:
        wanted = self.options["hosts"]
        known = set(ledger.inspect(ledger_audit.hosts_named))
        return Evidence(
            snapshots={
                h: read_snapshot(h, a, host_settings.resumes(self.action, h))
                for h, a in answers.items()
                if a["inspected"]
            },
            unreachable={h: a["error"]["message"] for h, a in answers.items() if not a["inspected"]},
            strangers=frozenset(known - set(self.action.compute_hosts())),
            hosts=frozenset(wanted) if wanted else None,
            remove_orphans=self.options["remove_orphans"],
            storage=storage.evidence(of_storage, answers),
        )

    def _repair_ledger(
        self, ledger: Ledger, planned: t.Sequence[Finding], evidence: Evidence, answers: t.Mapping[str, Answer]
    ) -> tuple[list[Finding], Todos, AllEnds]:
        """Carry out the plan. Returns the findings, and what hosts have to remove."""
        repaired = ledger.transact(ledger_audit.repair, planned, evidence)
        died = core_audit.runs_of_dead_builds(repaired.findings)
        reasons = {**dict.fromkeys(evidence.strangers, STRANGER), **evidence.unreachable}
        for host, uuids in sorted(repaired.abandoned.items()):
            ledger.transact(ledger_audit.abandon, host, uuids, reasons[host], died)
        for host, complete in sorted(repaired.complete.items()):
            self._settle_builds(ledger, host, answers[host], complete)
        return repaired.findings, repaired.todo, repaired.ends

    def _settle_builds(self, ledger: Ledger, host: str, answer: Answer, died: t.Mapping[str, str]) -> None:
        from ..builds import dead_builds  # with all that makes domains

        dead_builds.settle_builds(self.action, ledger, host, answer["compute_node"], answer["began_at"], died)

    def _repaired(self, findings: t.Sequence[Finding], todo: Todos, ends: AllEnds) -> Result:
        """Return the result of the stage."""
        memory = core_audit.foreign_memory(findings)
        display = self.action.ports.display
        if self.options["print_table"]:
            tables.show(display, findings_lines(findings, memory, self.action.check_mode))
        for finding in findings:
            if finding.kind == core_audit.USAGE:
                display.warning(
                    "%s: %s was %s, and is %s now." % (finding.host, finding.what, finding.old, finding.new)
                )
        inventory = set(self.action.task_vars.get("groups", {}).get("all", []))
        to_clean = {h for h, what in todo.items() if what} | {h for h, e in ends.items() if e.sessions or e.secrets}
        if not self.action.check_mode:
            to_clean |= {str(f.host) for f in findings if f.action == core_audit.RESERVE}
        return {
            "changed": any(f.changes for f in findings),
            "findings": [f.as_dict() for f in findings],
            "foreign_memory_mb": memory,
            "compute": sorted(to_clean & inventory),
            "storage": sorted({h for h, e in ends.items() if e.targets} & inventory),
            "ends": {h: e.as_dict() for h, e in ends.items()},
            "todo": {h: what.as_dict() for h, what in todo.items()},
            "died": core_audit.runs_of_dead_builds(findings),
            "diff": findings_diff([f for f in findings if f.changes]),
        }

    # --- clean: on each host with pending cleanups ----------------------------------------------------------------------

    def _clean(self, host: str) -> Result:
        if self.action.check_mode:
            return _SKIPPED
        ends = self._ends(host)
        with contextlib.closing(self.action.open_ledger()) as ledger:
            outcomes = self._clean_instances(ledger, host)
            with lease_kept(self.action):
                outcomes.update(storage.unplug(self.action, ledger, ends.sessions, ends.secrets))
            reserved = self._reserve(ledger, host)
        removed = self._removed(host, outcomes)
        return {**removed, "changed": removed["changed"] or bool(reserved), "reserved": reserved}

    def _clean_instances(self, ledger: Ledger, host: str) -> storage.Outcomes:
        """Remove from the host what dead runs left there of instances. Returns UUID -> None, or why not."""
        repaired = self.result("repair")
        todo = Todo(**(repaired.get("todo", {}).get(host) or {}))
        wanted = ledger.inspect(ledger_audit.open_todo, host, todo)
        if not wanted:
            return {}
        of_builds: dict[str, t.Any] = {"unfinished": True}  # of the others the pending cleanups decide
        items = [{"uuid": u, "name": n, **(of_builds if u in todo.builds else {})} for u, n in sorted(wanted.items())]
        with lease_kept(self.action):
            problems, parts, _kept_uuids = clean_host(self.action, items)
        now = Todo(*([u for u in part if u in wanted] for part in (todo.builds, todo.deleting, todo.leftovers)))
        ledger.transact(ledger_audit.builds_cleaned, host, now, problems, repaired.get("died") or {})
        ledger.transact(ledger_audit.deletes_cleaned, host, now, problems)
        cleaned = [u for u in now.leftovers if u not in problems]
        ledger.transact(ledger_audit.leftovers_cleaned, host, cleaned, cleanup.parts_on(host, parts))
        return {u: problems.get(u) for u in wanted}

    def _reserve(self, ledger: Ledger, host: str) -> list[str]:
        """Reserve the addresses that the repair found missing, of guests that are still here. Returns the addresses."""
        findings = self.result("repair").get("findings") or ()
        lacking = {
            (f["instance"], f["to"]) for f in findings if f["action"] == core_audit.RESERVE and f["host"] == host
        }
        if not lacking:
            return []
        guests = ledger.inspect(reservations.of_hosts, [host]).get(host, {})
        needed = [
            n for uuid, guest_addresses in guests.items() for n in guest_addresses if (uuid, n["address"]) in lacking
        ]
        return reserve(self.action, needed)

    # --- unexport: on each storage host that has unowned targets --------------------------------------------------------

    def _unexport(self, host: str) -> Result:
        if self.action.check_mode:
            return _SKIPPED
        with contextlib.closing(self.action.open_ledger()) as ledger, lease_kept(self.action):
            ended = storage.end_targets(self.action, ledger, self._ends(host).targets)
        return self._removed(host, ended)

    def _ends(self, host: str) -> Ends:
        return Ends(**((self.result("repair").get("ends") or {}).get(host) or {}))

    def _removed(self, host: str, outcomes: storage.Outcomes) -> Result:
        """Return the result of a stage that removed things from a host. :arg outcomes: UUID or target -> None, or why not"""
        problems = {name: problem for name, problem in sorted(outcomes.items()) if problem is not None}
        for name, problem in problems.items():
            text = "Could not remove %s from %s: %s" % (name, host, problem.message)
            self.action.ports.display.warning(text)
        return {
            "changed": bool(outcomes),
            "removed": sorted(set(outcomes) - set(problems)),
            "problems": {name: problem.as_dict() for name, problem in problems.items()},
        }

    # --- release and finish: on the controller --------------------------------------------------------------------------

    def _release(self) -> Result:
        if not self.action.check_mode and self.result("repair").get("ends"):
            with contextlib.closing(self.action.open_ledger()) as ledger:
                ledger.transact(storage_audit.release)
        return {"changed": False}

    def _finish(self) -> Result:
        if self.action.check_mode:
            return _SKIPPED
        if not any(f["action"] == core_audit.FINISH for f in self.result("repair").get("findings") or ()):
            return {"changed": False, "deleted": [], "left": []}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            deleted, remaining = ledger.transact(delete.finish)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, ["Deleted: %s" % (", ".join(deleted) or "nothing")])
        return {"changed": bool(deleted), "deleted": deleted, "left": remaining}


def _record_reports(ledger: Ledger, answers: t.Mapping[str, Answer]) -> None:
    """Enter the answers of compute hosts as their reports."""
    hosts = sorted(answers)
    for first in range(0, len(hosts), AT_ONCE):
        some = {host: answers[host] for host in hosts[first : first + AT_ONCE]}
        ledger.transact(_record_some, some, collisions=3)


def _record_some(tx: Transaction, answers: t.Mapping[str, Answer]) -> None:
    nodes.lock_hosts(tx, answers)  # as all that lock rows of hosts do, in the order of their ids
    for host, answer in answers.items():
        nodes.record_report(tx, host, answer["compute_node"], answer["configuration"], answer["began_at"])
