# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling service: the plan, one batch of hosts after the other, and what was done."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.request import catalogue
from ...module_utils.core.service.host_life import BEGUN, DONE, DRAIN, PENDING, REPORT, RETURN, TASKS
from ...module_utils.core.service.order import HostInService, batches, next_batch
from ...module_utils.core.service.window import Window
from ...module_utils.core.times import utc
from ...module_utils.flows.boot import whatif
from ...module_utils.flows.service import rolling
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.service import services
from ..run import host_settings, tables
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..run.results import diff, error_result
from ..scheduling import inventory_fleet
from ..settings import scheduler_settings, variable_names
from . import request
from .service_texts import batch_lines, end_lines, host_line
from .steps import Steps

Result = t.Dict[str, t.Any]  # of a task
Batch = t.Sequence[HostInService]
#: Of a batch: ([{name, source, host}] of the instances that would leave, why the batch is not possible now).
Examined = t.Tuple[t.List[t.Dict[str, t.Any]], t.Optional[errors.ServiceNotPossible]]


class RollingService:
    """A run of the playbook service."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options
        self.name = action.options["name"]
        self.problems: dict[str, errors.ServiceStopped] = {}  # host -> why its step failed
        self.serviced: list[str] = []
        self.over = False  # the window
        self.longest = 0.0

    def run(self) -> Result:
        """Service the hosts. Returns the result of the task.

        :raises BootflowError: the request has errors, or no host may begin. Nothing was touched then.
        """
        variable_names.warn(self.action)
        request.check(self.action)
        scheduler_settings.check(self.action)
        self.zones = request.zones(self.action)
        self.action.ports.other_playbook("drain", "bootflow.compute.service runs other playbooks")  # or raises an error
        tasks = request.tasks(self.action)
        aliases = catalogue.parse_catalogue(
            None, None, None, None, None, self.options["pci_alias"], default_project=""
        ).pci_aliases
        self.steps = Steps(self.action, tasks, aliases)
        if self.action.check_mode:
            return self._rehearse()
        with lease_kept(self.action):
            return self._run()

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _rehearse(self) -> Result:
        """Print the plan, by what the ledger has of the hosts. Returns the result of check mode."""
        with contextlib.closing(self.action.rehearsal_ledger()) as ledger:
            overview = ledger.rehearsal(rolling.enter, self.name, self.zones, self.options["restart"])
        self._open_window(overview.longest)
        refused = self._plan(overview)
        remaining = [h for h in overview.hosts if h.state != DONE]
        result = self._result(overview, changed=bool(remaining), planned=[h.name for h in remaining])
        after = "".join("%s %s\n" % (h.name, DONE) for h in overview.hosts)
        result["diff"] = diff("hosts", "".join("%s %s\n" % (h.name, h.state) for h in overview.hosts), after)
        return error_result(refused, **result) if refused is not None else result

    def _plan(self, overview: rolling.Overview) -> errors.ServiceNotPossible | None:
        """Print the order of hosts, and what would leave each batch for where. Returns why one is not possible now, the first of them."""
        planned = batches(overview.hosts, self.options["at_once"], self.options["zone_at_once"])
        lines = ["Plan of the service %s%s:" % (self.name, " (nothing is touched)" if self.action.check_mode else "")]
        lines += [
            "= %s is done since %s" % (h.name, utc(overview.done_at[h.name])) for h in overview.hosts if h.state == DONE
        ]
        refused = None
        examined = self._examine([[h.name for h in batch if h.state not in BEGUN] for batch in planned])
        for number, (batch, (moves, problem)) in enumerate(zip(planned, examined), 1):
            lines += batch_lines(number, batch, moves, problem)
            refused = refused or problem
        if not planned:
            lines.append("All selected hosts are done. bootflow_service_restart: true services them again.")
        if self.options["print_table"]:
            tables.show(self.action.ports.display, lines)
        for host in overview.unselected:
            self.action._display.warning(
                "%s was begun by the service %s and is not selected: it stays as it is, and may be disabled."
                % (host, self.name)
            )
        return refused

    def _examine(self, planned: t.Sequence[t.Sequence[str]]) -> list[Examined]:
        """Find out for each batch whether the instances of its hosts can leave, and fit on the others."""
        hosts = [host for batch in planned for host in batch]
        usable = host_settings.named_hosts(self.action, self.action.compute_hosts())
        read_fleet, options = inventory_fleet.reader(self.action, usable)
        wanted, running = self.steps.cold(hosts), self.steps.live(hosts)

        def examine(tx: Transaction) -> list[Examined]:
            silent = nodes.silent_hosts(tx, hosts)
            refused = rolling.refusals(tx, hosts, wanted, running).values()
            answers = whatif.leave_together(tx, read_fleet, options, planned)
            return [self._examined(batch, answer, silent, refused) for batch, answer in zip(planned, answers)]

        return self.steps.inspect(examine) if hosts else [([], None) for _batch in planned]

    @staticmethod
    def _examined(
        batch: t.Sequence[str],
        answer: t.Mapping[str, t.Any],
        silent: t.Collection[str],
        refused: t.Iterable[tuple[Instance, errors.BootflowError]],
    ) -> Examined:
        reasons = ["%s does not answer, or is forced down" % h for h in batch if h in silent]
        leaving = [(row, e) for row, e in refused if row.host in batch]
        reasons += ["%s cannot leave %s: %s" % (row.display_name, row.host, e.message) for row, e in leaving]
        reasons += ["%s of %s fits nowhere: %s" % (i["name"], i["source"], i["reason"]) for i in answer["stuck"]]
        if not reasons:
            return answer["moved"], None
        reason = "; ".join(r.rstrip(".") for r in reasons)
        return answer["moved"], errors.ServiceNotPossible(hosts=", ".join(batch), reason=reason)

    def _open_window(self, longest: float) -> None:
        """:raises ServiceWindowTooShort: no host would be done before its end."""
        options, now = self.options, self.action.context().now
        self.window = Window.begin(now, options["window"], options["host_time"], longest)
        if not self.window.has_room(now):
            raise errors.ServiceWindowTooShort(window=options["window"], expected="%d" % self.window.expected)

    # --- the run ------------------------------------------------------------------------------------------------------

    def _run(self) -> Result:
        overview = self.steps.inspect(rolling.overview, self.name, self.zones)
        self._open_window(overview.longest)
        self._let_report()
        overview = self._write(rolling.enter, self.name, self.zones, self.options["restart"])
        try:
            refused = self._plan(overview)
            if refused is not None:
                raise refused
            stopped = self._service_all(overview)
        finally:
            if not self.steps.is_interrupted():
                self._write(services.leave, self.name, self.longest)
        overview = self.steps.inspect(rolling.overview, self.name, self.zones)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, end_lines(self.name, overview.hosts, self.steps, self.over))
        result = self._result(overview, changed=bool(self.serviced or self.problems), planned=[])
        return error_result(stopped, **result) if stopped is not None else result

    def _service_all(self, overview: rolling.Overview) -> errors.BootflowError | None:
        """Service batch by batch. Returns why the service stopped; None if all hosts are done, or the window is over."""
        hosts, first = list(overview.hosts), True
        while batch := next_batch(hosts, self.options["at_once"], self.options["zone_at_once"]):
            now = self.action.context().now
            new = [h.name for h in batch if h.state == PENDING]
            if new and not replace(self.window, expected=max(self.window.expected, self.longest)).has_room(now):
                self.over = True
                return None
            if new and not first:  # the plan has just looked at the first one
                self._let_report()
                ((_moves, refused),) = self._examine([new])
                if refused is not None:
                    return refused
            self._service(batch)
            if new and not self.problems:
                self.longest = max(self.longest, self.action.context().now - now)
            if self.problems:
                return next(iter(self.problems.values()))
            states = {h.name: DONE for h in batch}
            hosts, first = [replace(h, state=states.get(h.name, h.state)) for h in hosts], False
        return None

    def _service(self, batch: Batch) -> None:
        """Do all steps of these hosts that are to be done. A host whose step failed stays there; the others of the batch are finished."""
        self._write(rolling.begin, self.name, [h.name for h in batch])
        states = {h.name: DRAIN if h.state == PENDING else h.state for h in batch}
        for state in (DRAIN, TASKS, REPORT, RETURN):
            hosts = [h for h in states if states[h] == state and h not in self.problems]
            if not hosts:
                continue
            if self.options["print_table"]:
                for host in hosts:
                    tables.say(self.action.ports.display, host_line(host, state))
            problems = self.steps.run(state, hosts)
            if self.steps.is_interrupted():
                raise errors.ServiceStopped(name=self.name, host=", ".join(hosts), reason="ansible-playbook was ended")
            for host in hosts:
                self._write(rolling.step, self.name, host, state, host not in problems)
                if host in problems:
                    self.problems[host] = problems[host]
            following = {DRAIN: TASKS, TASKS: REPORT, REPORT: RETURN, RETURN: DONE}[state]
            states.update({h: following for h in hosts if h not in problems})
        self.serviced += [h for h, state in states.items() if state == DONE]

    def _let_report(self) -> None:
        """Have all hosts report if a report is too old to judge by."""
        age, hosts = self.options["facts_max_age"], self.action.compute_hosts()
        if self.steps.inspect(nodes.stale_hosts, hosts, age):
            self.steps.let_report()

    def _write(self, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(function, *arguments)

    def _result(self, overview: rolling.Overview, changed: bool, planned: t.Sequence[str]) -> Result:
        return {
            "changed": changed,
            "service": self.name,
            "hosts": [{"host": h.name, "zone": h.zone, "state": h.state} for h in overview.hosts],
            "planned": list(planned),
            "serviced": self.serviced,
            "not_returned": self.steps.stranded,
            "finished": all(h.state == DONE for h in overview.hosts),
        }
