# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rebalance: the plan, one round of live migrations after the other, and what was done."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ansible import context

from ...module_utils.core import errors
from ...module_utils.core.reading.nearest import suggestion
from ...module_utils.core.rebalance import plan_data, planning
from ...module_utils.core.rebalance.plan_data import Aims, Plan, Step
from ...module_utils.core.settings.live import LIVE_MIGRATION
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.rebalance import snapshot
from ...module_utils.flows.rebalance.snapshot import Snapshot
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..moves import live_settings
from ..run import host_settings, host_variables, tables
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..run.playbooks.child_playbook import ChildPlaybook, wait_for_all
from ..run.results import diff, outcome
from ..scheduling import inventory_fleet
from ..settings import scheduler_settings, variable_names
from .rebalance_texts import end_lines, plan_lines, round_line, step_data

CALLER = "bootflow.compute.rebalance runs other playbooks"
LAST_LINES = 40  # of a playbook that failed
#: What the playbook passes to live_migrate itself.
OF_STEPS = ("names", "uuids", "reservation_ids", "host", "all", "live_migrate_host", "live_migrate_hosts")
#: Options of ansible-playbook with which no other playbooks can be run.
OPTIONS = {"start_at_task": "--start-at-task", "step": "--step"}

Result = t.Dict[str, t.Any]  # of a task


class Rebalancing:
    """A run of the playbook rebalance."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options
        self.done: list[Step] = []
        self.problems: dict[str, str] = {}  # uuid of a step that was not done -> why
        self._parent = os.getppid()

    def run(self) -> Result:
        """Return the result of the task.

        :raises BootflowError: the request has errors. Nothing was touched then.
        """
        variable_names.warn(self.action)
        self._check()
        scheduler_settings.check(self.action)
        self.kept_hosts = self._kept_hosts()
        self.action.ports.other_playbook("live_migrate", CALLER)  # or raises an error
        self.read_fleet, self.scheduling = inventory_fleet.reader(self.action, self.action.compute_hosts())
        if self.action.check_mode:
            return self._rehearse()
        with lease_kept(self.action):
            return self._run()

    def _check(self) -> None:
        """:raises InvalidInput: variables or options of the command line that live_migrate would read, too."""
        given = ["bootflow_" + name for name in OF_STEPS if self.action.variable("bootflow_" + name)]
        if given:
            raise errors.InvalidInput(
                reason="%s: rebalance looks at all instances" % ", ".join(given),
                remedy="Leave it out. bootflow_rebalance_keep_instances and bootflow_rebalance_keep_hosts name what stays.",
            )
        options = [word for name, word in OPTIONS.items() if context.CLIARGS.get(name)]
        if options:
            raise errors.InvalidInput(
                reason="bootflow.compute.rebalance runs another playbook, which %s would change"
                % " and ".join(options),
                remedy="Leave it out: a rerun plans from the fleet as it is then.",
            )

    def _kept_hosts(self) -> dict[str, str]:
        """Return host -> why the user leaves it alone.

        :raises ComputeHostNotFound: hosts that are not compute hosts of the inventory.
        """
        known = self.action.compute_hosts()
        for host in self.options["keep_hosts"]:
            if host not in known:
                raise errors.ComputeHostNotFound(host=host, remedy=suggestion(host, known, "The list of compute hosts"))
        usable = set(self.action.hosts_to_use())
        outside = {h: "it is not among the hosts of this run" for h in known if h not in usable}
        return {**outside, **dict.fromkeys(self.options["keep_hosts"], "it is left alone")}

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _rehearse(self) -> Result:
        """Print the plan, by what the ledger has. Returns the result of check mode."""
        with contextlib.closing(self.action.rehearsal_ledger()) as ledger:
            plan, present = self._planned(ledger)
        self._show(plan, present)
        result = self._result(plan, present, bool(plan.steps))
        before, after = (
            "".join("%s %s: %s\n" % (s.name, s.uuid, getattr(s, end)) for s in plan.steps)
            for end in ("source", "destination")
        )
        result["diff"] = diff("instances", before, after)
        return result

    def _aims(self, silent: t.Collection[str]) -> Aims:
        options = self.options
        return Aims(
            policy=options["policy"],
            moves=options["moves"],
            least_gain=options["least_gain"],
            tolerance=options["tolerance"],
            kept_hosts={**dict.fromkeys(sorted(silent), "it does not answer"), **self.kept_hosts},
        )

    def _planned(self, ledger: Ledger) -> tuple[Plan, Snapshot]:
        present, aims = self._look(ledger)
        return planning.make_plan(present.fresh_fleet, present.guests, self.scheduling, aims), present

    def _look(self, ledger: Ledger) -> tuple[Snapshot, Aims]:
        """Read the fleet as it is now. Settings of hosts are read before."""
        wanted, hosts = live_settings.wanted(self.action, Selection()), self.action.compute_hosts()

        def look(tx: Transaction) -> tuple[Snapshot, Aims]:
            kept_instances = self.options["keep_instances"]
            present = snapshot.read(tx, wanted, kept_instances, self.read_fleet, self.scheduling)
            return present, self._aims(nodes.silent_hosts(tx, hosts))

        return ledger.inspect(look)

    def _show(self, plan: Plan, present: Snapshot) -> None:
        if self.options["print_table"]:
            rounds = len(plan_data.rounds(plan.steps, self._at_once()))
            lines = plan_lines(plan, self.options, present.stays, rounds, self.action.check_mode)
            tables.show(self.action.ports.display, lines)

    def _at_once(self) -> dict[str, int]:
        """Return host -> guests that leave it at the same time."""
        hostvars = self.action.task_vars["hostvars"]
        return {
            host: int(LIVE_MIGRATION.read(host_variables.of_host(hostvars, host)).max_concurrent_live_migrations)
            for host in self.action.compute_hosts()
        }

    # --- the run ------------------------------------------------------------------------------------------------------

    def _run(self) -> Result:
        self._let_report()
        with contextlib.closing(self.action.open_ledger()) as ledger:
            plan, present = self._planned(ledger)
        self._show(plan, present)
        at_once, remaining, number = self._at_once(), list(plan.steps), 0
        while remaining and not self._is_interrupted():
            number += 1
            due = plan_data.first_round(remaining, at_once)
            self._do(number, due)
            possible, dependents = plan_data.without_dependents(remaining, self.problems)
            for step in dependents:
                self.problems[step.uuid] = "a guest that was to make room on %s for it did not leave" % step.destination
            finished = {step.uuid for step in self.done}
            remaining = [step for step in possible if step.uuid not in finished]
        if remaining:
            raise errors.RemoteError(reason="ansible-playbook was ended", remedy="Run the playbook again.")
        return self._ended(plan, present)

    def _do(self, number: int, due: t.Sequence[Step]) -> None:
        """Do the steps of a round that are possible as the fleet is now."""
        if number > 1:  # the plan has just looked at the first ones
            with contextlib.closing(self.action.open_ledger()) as ledger:
                present, aims = self._look(ledger)
            self.problems.update(planning.judge(present.fleet, present.guests, self.scheduling, aims, due))
        possible = [step for step in due if step.uuid not in self.problems]
        if not possible:
            return
        if self.options["print_table"]:
            tables.say(self.action.ports.display, round_line(number, possible))
        destinations = {step.uuid: step.destination for step in possible}
        self._play("live_migrate", uuids=list(destinations), live_migrate_hosts=destinations, project=None)
        self._play("heartbeat", print_table=False)  # the space that hosts have on their disks is what they report
        with contextlib.closing(self.action.open_ledger()) as ledger:
            places = ledger.inspect(snapshot.places, list(destinations))
        for step in possible:
            if places.get(step.uuid) == step.destination:
                self.done.append(step)
            else:
                self.problems[step.uuid] = "its live migration failed, as the output of live_migrate above says"

    def _ended(self, plan: Plan, present: Snapshot) -> Result:
        steps = {step.uuid: step for step in plan.steps}
        items = [
            errors.failed_item(
                steps[uuid].name, uuid, errors.RemoteError(reason=why).as_dict(), host=steps[uuid].source
            )
            for uuid, why in self.problems.items()
        ]
        after = plan.before
        if self.done:
            with contextlib.closing(self.action.open_ledger()) as ledger:
                now, aims = self._look(ledger)
            after = planning.score_of(now.fleet, now.guests, self.scheduling, aims)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, end_lines(self.done, plan, after, self.problems))
        incomplete = errors.RebalanceIncomplete(items, len(plan.steps))
        return outcome(incomplete, **self._result(plan, present, bool(self.done), after))

    def _result(self, plan: Plan, present: Snapshot, changed: bool, score_after: float | None = None) -> Result:
        return {
            "changed": changed,
            "steps": [step_data(step) for step in plan.steps],
            "done": [step.uuid for step in self.done],
            "stays": [dict(zip(("name", "uuid", "host", "reason"), row)) for row in present.stays],
            "kept_hosts": dict(plan.kept_hosts),
            "score_before": round(plan.before, 4),
            "score_after": round(plan.after if score_after is None else score_after, 4),
            "bytes": plan.cost,
        }

    # --- other playbooks ----------------------------------------------------------------------------------------------

    def _let_report(self) -> None:
        """Have all hosts report if a report is too old to judge by."""
        hosts = [h for h in self.action.compute_hosts() if h not in self.kept_hosts]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            is_old = ledger.inspect(nodes.stale_hosts, hosts, host_settings.facts_age(self.options))
        if is_old:
            self._play("heartbeat", print_table=False)

    def _play(self, playbook: str, **variables: t.Any) -> None:
        """Run a playbook to its end; its last lines are shown if it failed."""
        argv = self.action.ports.other_playbook(playbook, CALLER)
        play = self.action._task.get_play()
        passed = {n: v for n, v in (play.vars if play else {}).items() if n.startswith("bootflow_")}
        given = {**passed, **{"bootflow_" + name: value for name, value in variables.items()}}
        child = ChildPlaybook([*argv, "-e", json.dumps(given)], self.action._display.v)
        codes = wait_for_all([child], None, self._is_interrupted)
        if codes != [0] and playbook != "heartbeat" and self.action._display.verbosity == 0:
            tables.show(self.action.ports.display, child.lines[-LAST_LINES:])

    def _is_interrupted(self) -> bool:
        """Return whether ansible-playbook, whose worker this is, is gone."""
        return os.getppid() != self._parent
