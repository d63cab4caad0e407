# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.audit."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.audit import plan as core_audit
from ..module_utils.core.audit.plan import DhcpNetwork, Domain, Evidence, Finding, Reservation, Snapshot, Unplugged
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import AUDIT
from ..module_utils.flows.instances import cleanup, delete
from ..module_utils.flows.recovery import audit as ledger_audit
from ..module_utils.flows.recovery import reservations, storage_audit
from ..module_utils.flows.recovery.audit import Todo
from ..module_utils.flows.recovery.storage_audit import Ends
from ..module_utils.ledger.compute import nodes
from ..module_utils.ledger.database import Ledger
from ..plugin_utils.builds.dhcp import reserve
from ..plugin_utils.operations.cleaning import clean_host
from ..plugin_utils.run import host_settings, host_variables, tables
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff
from ..plugin_utils.settings.storage_settings import storage_hosts
from ..plugin_utils.volumes import audit_storage
from ..plugin_utils.volumes.attached_volumes import sources_on

# As playbooks/audit.yml registers what the hosts and the controller answered.
AUDITING = "bootflow_auditing"
INSPECTED = "bootflow_inspected"
AUDITED = "bootflow_audited"
_RESERVATION = ("mac", "address", "complete", "used")
STRANGER = "the host is not in the inventory"
PHASES = ["begin", "inspect", "repair", "clean", "unexport", "release", "finish"]


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": PHASES, "default": "begin"},
        **AUDIT.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        phases = {
            "begin": self._begin,
            "inspect": self._inspect,
            "repair": self._repair,
            "clean": self._clean,
            "unexport": self._unexport,
            "release": self._release,
            "finish": self._finish,
        }
        return phases[self.options["phase"]]()

    # --- begin: which hosts -----------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, t.Any]:
        hosts = list(dict.fromkeys([*self.compute_hosts(), *storage_hosts(self)]))
        wanted = self.options["hosts"]
        unknown = sorted(set(wanted or ()) - set(hosts))
        if unknown:
            raise errors.ComputeHostNotFound(
                host=", ".join(unknown), remedy="bootflow_audit_hosts takes compute and storage hosts of the inventory."
            )
        ledger = self._ledger_to_read()
        try:
            prefixes = ledger.inspect(storage_audit.iqn_prefixes)
            known = ledger.inspect(storage_audit.known_targets)
        finally:
            ledger.close()
        return {
            "changed": False,
            "hosts": [h for h in hosts if not wanted or h in wanted],
            "iqn_prefixes": prefixes,
            "known_targets": known,
        }

    def _ledger_to_read(self) -> Ledger:
        """In check mode an empty one where there is none yet."""
        return self.rehearsal_ledger() if self.check_mode else self.open_ledger()

    # --- inspect: on each host --------------------------------------------------------------------------------------

    def _inspect(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        found: dict[str, t.Any] = {"changed": False}
        if host in self.compute_hosts():
            found.update(self._inspect_compute(host))
        if host in storage_hosts(self):
            ledger = self._ledger_to_read()
            try:
                found["storage"] = audit_storage.ask(self, ledger, host)
            finally:
                ledger.close()
        return found

    def _inspect_compute(self, host: str) -> dict[str, t.Any]:
        configuration = host_settings.configuration(host_variables.of_host(self.task_vars["hostvars"], host), host)
        auditing = self._registered(AUDITING)
        began_at = self.context().now
        ledger = self._ledger_to_read()
        try:
            volumes = ledger.inspect(sources_on, host)
        finally:
            ledger.close()
        try:
            answer = self.run_module(
                "compute_node_info",
                {
                    **host_settings.node_info_arguments(self, configuration),
                    "iqn_prefixes": auditing.get("iqn_prefixes") or [],
                    "known_targets": (auditing.get("known_targets") or {}).get(host, []),
                    "list_reservations": True,
                    "list_other_disks": True,
                    "volumes": volumes,
                },
            )
        except errors.BootflowError as e:
            self._display.warning("%s did not answer: %s" % (host, e.paragraph))
            return {"inspected": False, "error": e.as_dict()}
        return {
            "inspected": True,
            "began_at": began_at,
            "compute_node": answer["compute_node"],
            "iscsi": answer.get("iscsi") or {},
            "dhcp": answer.get("dhcp") or {},
            "configuration": configuration,
        }

    # --- repair: on the controller ----------------------------------------------------------------------------------

    def _repair(self) -> dict[str, t.Any]:
        answers = self._answers()
        storage = audit_storage.answers(self, INSPECTED)
        ledger = self._ledger_to_read()
        try:
            evidence = self._evidence(ledger, answers, storage)
            findings = ledger.inspect(ledger_audit.plan, evidence)
            todo: dict[str, Todo] = {}
            ends: dict[str, Ends] = {}
            if self.check_mode:
                findings += ledger.rehearsal(ledger_audit.follow, evidence)
            else:
                if any(f.changes for f in findings):
                    repaired = ledger.transact(ledger_audit.repair, findings, evidence)
                    findings, todo, ends = repaired.findings, repaired.todo, repaired.ends
                    reasons = {**dict.fromkeys(evidence.strangers, STRANGER), **evidence.unreachable}
                    for host, uuids in sorted(repaired.abandoned.items()):
                        ledger.transact(ledger_audit.abandon, host, uuids, reasons[host], _died(findings))
                    for host, died in sorted(repaired.complete.items()):
                        self._settle_builds(ledger, host, answers[host], died)
                findings += ledger.transact(ledger_audit.follow, evidence)
                for host in evidence.snapshots:
                    answer = answers[host]
                    ledger.transact(
                        nodes.record_report,
                        host,
                        answer["compute_node"],
                        answer["configuration"],
                        answer["began_at"],
                        collisions=3,
                    )
                audit_storage.record(ledger, storage)
        finally:
            ledger.close()
        return self._result(findings, todo, ends)

    def _settle_builds(
        self, ledger: Ledger, host: str, answer: t.Mapping[str, t.Any], died: t.Mapping[str, str]
    ) -> None:
        from ..plugin_utils.builds import dead_builds  # with all that makes domains

        dead_builds.settle(self, ledger, host, answer["compute_node"], answer["began_at"], died)

    def _answers(self) -> dict[str, t.Mapping[str, t.Any]]:
        hostvars = self.task_vars["hostvars"]
        answers = {h: hostvars[h].get(INSPECTED) for h in self.compute_hosts()}
        return {h: a for h, a in answers.items() if a and "inspected" in a}

    def _evidence(
        self,
        ledger: Ledger,
        answers: t.Mapping[str, t.Mapping[str, t.Any]],
        storage: t.Mapping[str, t.Mapping[str, t.Any]],
    ) -> Evidence:
        wanted = self.options["hosts"]
        known = set(ledger.inspect(ledger_audit.hosts_named))
        return Evidence(
            snapshots={
                h: _snapshot(h, a, host_settings.resumes(self, h)) for h, a in answers.items() if a["inspected"]
            },
            unreachable={h: a["error"]["message"] for h, a in answers.items() if not a["inspected"]},
            strangers=frozenset(known - set(self.compute_hosts())),
            hosts=frozenset(wanted) if wanted else None,
            remove_orphans=self.options["remove_orphans"],
            storage=audit_storage.evidence(storage, answers),
        )

    def _result(
        self, findings: t.Sequence[Finding], todo: t.Mapping[str, Todo], ends: t.Mapping[str, Ends]
    ) -> dict[str, t.Any]:
        memory = core_audit.foreign_memory(findings)
        if self.options["print_table"]:
            tables.show(self._display, self._lines(findings, memory))
        for f in findings:
            if f.kind == core_audit.USAGE:
                self._display.warning("%s: %s was %s, and is %s now." % (f.host, f.what, f.old, f.new))
        inventory = set(self.task_vars.get("groups", {}).get("all", []))
        to_clean = {h for h, what in todo.items() if what} | {h for h, e in ends.items() if e.sessions or e.secrets}
        if not self.check_mode:
            to_clean |= {str(f.host) for f in findings if f.action == core_audit.RESERVE}
        return {
            "changed": any(f.changes for f in findings),
            "findings": [f.as_dict() for f in findings],
            "foreign_memory_mb": memory,
            "hosts": sorted(to_clean & inventory),
            "target_hosts": sorted({h for h, e in ends.items() if e.targets} & inventory),
            "ends": {h: e.as_dict() for h, e in ends.items()},
            "todo": {h: what.as_dict() for h, what in todo.items()},
            "died": _died(findings),
            "diff": _diff([f for f in findings if f.changes]),
        }

    def _lines(self, findings: t.Sequence[Finding], memory: t.Mapping[str, int]) -> list[str]:
        """The findings as people read them. :arg memory: host -> MB that foreign domains use."""
        if not findings:
            return ["Audit: nothing to repair."]
        table = tables.table(
            ("HOST", "KIND", "INSTANCE", "WHAT", "FROM", "TO", "ACTION"),
            [
                (f.host or "-", f.kind, f.instance or "-", f.what, _short(f.old), _short(f.new), f.action)
                for f in findings
            ],
        )
        return [
            "Would do (nothing is touched):" if self.check_mode else "Audit:",
            *table,
            *("%s: %d MiB are used by domains that are not instances." % (h, mb) for h, mb in sorted(memory.items())),
            *("Remedy: %s" % r for r in dict.fromkeys(f.remedy for f in findings if f.remedy)),
        ]

    def _repaired(self) -> t.Mapping[str, t.Any]:
        """What the phase repair answered in this playbook."""
        return self._registered(AUDITED)

    def _registered(self, name: str) -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"]["localhost"].get(name) or {})

    # --- clean: on each host with pending cleanups ----------------------------------------------------------------

    def _clean(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        host = self.task_vars["inventory_hostname"]
        repaired = self._repaired()
        todo = Todo(**(repaired.get("todo", {}).get(host) or {}))
        ends = self._ends(host)
        ledger = self.open_ledger()
        try:
            wanted = ledger.inspect(ledger_audit.open_todo, host, todo)
            problems: dict[str, errors.BootflowError] = {}
            if wanted:
                with lease_kept(self):
                    of_builds: dict[str, t.Any] = {"unfinished": True}  # of the others the pending cleanups decide
                    problems, parts, _kept = clean_host(
                        self,
                        [
                            {"uuid": u, "name": n, **(of_builds if u in todo.builds else {})}
                            for u, n in sorted(wanted.items())
                        ],
                    )
                died = repaired.get("died") or {}
                self._cleaned(ledger, host, todo, wanted, problems, died, cleanup.parts_on(host, parts))
            with lease_kept(self):
                unplugged = audit_storage.unplug(self, ledger, ends.sessions, ends.secrets)
            reserved = self._reserve(ledger, host)
        finally:
            ledger.close()
        removed = self._removed(host, {**{u: problems.get(u) for u in wanted}, **unplugged})
        return {**removed, "changed": removed["changed"] or bool(reserved), "reserved": reserved}

    def _reserve(self, ledger: Ledger, host: str) -> list[str]:
        """Reserve the addresses that the phase repair found missing, of those guests that are still here. Returns the addresses."""
        found = self._repaired().get("findings") or ()
        lacking = {(f["instance"], f["to"]) for f in found if f["action"] == core_audit.RESERVE and f["host"] == host}
        if not lacking:
            return []
        guests = ledger.inspect(reservations.of_hosts, [host]).get(host, {})
        return reserve(self, [n for uuid, needed in guests.items() for n in needed if (uuid, n["address"]) in lacking])

    @staticmethod
    def _cleaned(
        ledger: Ledger,
        host: str,
        todo: Todo,
        wanted: t.Mapping[str, str],
        problems: t.Mapping[str, errors.BootflowError],
        died: t.Mapping[str, str],
        parts: cleanup.Parts,
    ) -> None:
        now = Todo(*([u for u in part if u in wanted] for part in (todo.builds, todo.deleting, todo.leftovers)))
        ledger.transact(ledger_audit.builds_cleaned, host, now, problems, died)
        ledger.transact(ledger_audit.deletes_cleaned, host, now, problems)
        ledger.transact(ledger_audit.leftovers_cleaned, host, [u for u in now.leftovers if u not in problems], parts)

    def _ends(self, host: str) -> Ends:
        return Ends(**((self._repaired().get("ends") or {}).get(host) or {}))

    def _removed(self, host: str, outcomes: t.Mapping[str, errors.BootflowError | None]) -> dict[str, t.Any]:
        """The result of a phase that removed things from a host. :arg outcomes: UUID or target -> None, or why not."""
        problems = {name: problem for name, problem in sorted(outcomes.items()) if problem is not None}
        for name, problem in problems.items():
            self._display.warning("Could not remove %s from %s: %s" % (name, host, problem.message))
        return {
            "changed": bool(outcomes),
            "removed": sorted(set(outcomes) - set(problems)),
            "problems": {name: problem.as_dict() for name, problem in problems.items()},
        }

    # --- unexport: on each storage host that has unowned targets -------------------------------------------------------

    def _unexport(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        host = self.task_vars["inventory_hostname"]
        ledger = self.open_ledger()
        try:
            with lease_kept(self):
                ended = audit_storage.end_targets(self, ledger, self._ends(host).targets)
        finally:
            ledger.close()
        return self._removed(host, ended)

    # --- release: on the controller ---------------------------------------------------------------------------------

    def _release(self) -> dict[str, t.Any]:
        if self.check_mode or not self._repaired().get("ends"):
            return {"changed": False}
        ledger = self.open_ledger()
        try:
            ledger.transact(storage_audit.release)
        finally:
            ledger.close()
        return {"changed": False}

    # --- finish: on the controller ----------------------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        repaired = self._repaired()
        if not any(f["action"] == core_audit.FINISH for f in repaired.get("findings") or ()):
            return {"changed": False, "deleted": [], "left": []}
        ledger = self.open_ledger()
        try:
            gone, left = ledger.transact(delete.finish)
        finally:
            ledger.close()
        if self.options["print_table"]:
            tables.show(self._display, ["Deleted: %s" % (", ".join(gone) or "nothing")])
        return {"changed": bool(gone), "deleted": gone, "left": left}


def _snapshot(host: str, answer: t.Mapping[str, t.Any], resumes: bool) -> Snapshot:
    facts = answer["compute_node"]
    return Snapshot(
        host=host,
        node=facts["hypervisor_hostname"],
        began_at=answer["began_at"],
        domains=[Domain.of(d) for d in facts["domains"]],
        folders=list(facts.get("instance_folders") or ()),
        volumes=dict(facts.get("instance_volumes") or {}),
        columns=ledger_audit.columns_of(facts, answer["configuration"]),
        networks=_networks(answer["dhcp"]),
        unplugged=[Unplugged(**tap) for tap in answer["dhcp"].get("unplugged") or ()],
        networks_error=answer["dhcp"].get("error"),
        boot_id=facts.get("boot_id") or "",
        at_work=frozenset(facts.get("at_work") or ()),
        complete=frozenset(facts.get("complete_guests") or ()),
        resumes=resumes,
        machine=facts.get("host_uuid") or "",
    )


def _networks(dhcp: t.Mapping[str, t.Any]) -> dict[str, DhcpNetwork] | None:
    if not dhcp or dhcp.get("error"):
        return None
    return {
        n["name"]: DhcpNetwork(n["ours"], [Reservation(**{f: r[f] for f in _RESERVATION}) for r in n["reservations"]])
        for n in dhcp["networks"]
    }


def _diff(findings: t.Sequence[Finding]) -> dict[str, str]:
    """What the ledger has, and what it is to have."""
    before = ["%s %s %s: %s\n" % (f.host, f.instance or "", f.what, _short(f.old)) for f in findings]
    after = ["%s %s %s: %s\n" % (f.host, f.instance or "", f.what, _short(f.new)) for f in findings]
    return diff("ledger", "".join(before), "".join(after))


def _died(findings: t.Iterable[Finding]) -> dict[str, str]:
    """Build -> the run that died."""
    return {str(f.instance): str(f.key) for f in findings if f.kind == core_audit.DEAD_BUILD}


def _short(value: t.Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join("%s %s" % (k, v) for k, v in value.items())
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
