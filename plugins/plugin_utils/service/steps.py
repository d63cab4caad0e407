# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the service of a host, by other playbooks: drain, the tasks of the user, the report, and what comes back."""

from __future__ import annotations

import contextlib
import json
import os
import time
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.service.host_life import DRAIN, REPORT, RETURN, TASKS
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import cold, drain, live
from ...module_utils.flows.service import rolling
from ..moves import live_settings
from ..run import tables
from ..run.ledger_action import LedgerAction
from ..run.playbooks.child_playbook import ChildPlaybook, wait_for_all
from ..settings import resize_settings
from . import request

CALLER = "bootflow.compute.service runs other playbooks"
PAUSE = 5.0  # seconds between two questions to a host that is to come back
LAST_LINES = 40  # of a playbook that failed

Problems = t.Dict[str, errors.ServiceStopped]  # host -> why its step failed


class Steps:
    """The steps of the hosts of a service.

    :arg tasks: the variables of the playbook service_tasks. :arg aliases: bootflow_pci_alias, parsed.
    """

    def __init__(self, action: LedgerAction, tasks: t.Mapping[str, str], aliases: t.Any):
        self.action = action
        self.options = action.options
        self.name = action.options["name"]
        self.stranded: dict[str, list[str]] = {}  # host -> names of instances that did not come back
        self._tasks = tasks
        self._aliases = aliases
        self._parent = os.getppid()
        self._passed = request.of_import(action)
        self._steps = {
            DRAIN: self._drain,
            TASKS: self._run_tasks,
            REPORT: self._wait_for_reports,
            RETURN: self._bring_back,
        }

    def run(self, state: str, hosts: t.Sequence[str]) -> Problems:
        """Do the step of this state for these hosts. Returns the hosts whose step failed, and why."""
        return self._steps[state](hosts)

    def is_interrupted(self) -> bool:
        """Return whether ansible-playbook, whose worker this is, is gone."""
        return os.getppid() != self._parent

    def cold(self, hosts: t.Sequence[str] | None = None) -> cold.Wanted:
        """Return the settings of cold migrations of the instances of ``hosts``."""
        return resize_settings.wanted(self.action, Selection(hosts=list(hosts or [])), self._aliases)

    def live(self, hosts: t.Sequence[str] | None = None) -> live.Wanted | None:
        """Return the settings of live migrations; None: guests are shut down for it (bootflow_drain_live)."""
        return live_settings.wanted(self.action, Selection(hosts=list(hosts or []))) if self.options["live"] else None

    # --- other playbooks ----------------------------------------------------------------------------------------------

    def _begin(self, playbook: str, *options: str, **variables: t.Any) -> ChildPlaybook:
        argv = self.action.ports.other_playbook(playbook, CALLER)
        given = {**self._passed, **{"bootflow_" + name: value for name, value in variables.items()}}
        return ChildPlaybook([*argv, "-e", json.dumps(given), *options], self.action._display.v)

    def _play(
        self, playbook: str, *options: str, seconds: float | None = None, **variables: t.Any
    ) -> ChildPlaybook | None:
        """Run a playbook to its end. Returns it if it failed."""
        child = self._begin(playbook, *options, **variables)
        codes = wait_for_all([child], seconds, self.is_interrupted)
        return None if codes == [0] else child

    def _show_failed(self, child: ChildPlaybook) -> None:
        if self.action._display.verbosity == 0:  # else it was shown as it came
            tables.show(self.action.ports.display, child.lines[-LAST_LINES:])

    def let_report(self) -> None:
        """Have all compute hosts report."""
        self._play("heartbeat", print_table=False)

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _drain(self, hosts: t.Sequence[str]) -> Problems:
        problems = {}
        for host in hosts:
            if not self.inspect(drain.remaining_instances, host):
                continue
            failed = self._play("drain", drain_host=host)
            if failed is not None:
                self._show_failed(failed)
                problems[host] = errors.ServiceStopped(
                    name=self.name,
                    host=host,
                    reason="not all of its instances left it, as the output of drain above says",
                )
            if self.is_interrupted():
                break
        return problems

    def _run_tasks(self, hosts: t.Sequence[str]) -> Problems:
        children = [self._begin("service_tasks", service_host=host, **self._variables()) for host in hosts]
        seconds = self.options["tasks_timeout"]
        problems: Problems = {}
        for host, child, code in zip(hosts, children, wait_for_all(children, seconds, self.is_interrupted)):
            if code != 0:
                self._show_failed(child)
                reason = "its tasks failed, as their output above says"
                if code is None:
                    reason = "its tasks did not end within %d s, and were ended" % seconds
                problems[host] = errors.ServiceTasksFailed(name=self.name, host=host, reason=reason)
        return problems

    def _variables(self) -> dict[str, str]:
        return {name[len("bootflow_") :]: value for name, value in self._tasks.items()}

    def _wait_for_reports(self, hosts: t.Sequence[str]) -> Problems:
        seconds = self.options["report_timeout"]
        end = time.monotonic() + seconds
        silent = list(hosts)
        while silent and not self.is_interrupted():
            remaining = end - time.monotonic()
            if remaining <= 0:
                break
            limit = ",".join([*silent, "localhost"])
            self._play("heartbeat", "--limit", limit, seconds=max(remaining, 1.0), print_table=False)
            silent = [h for h in silent if not self.inspect(rolling.has_reported, self.name, h)]
            if silent:
                time.sleep(max(0.0, min(PAUSE, end - time.monotonic())))
        return {h: errors.HostNotBack(name=self.name, host=h, seconds=seconds) for h in silent}

    def _bring_back(self, hosts: t.Sequence[str]) -> Problems:
        """Have instances return. One that cannot stays where it is: filters and groups decide that, and nothing fails."""
        for host in hosts if self.options["return"] else ():
            self._confirm(host)
            wanted, running = self.cold(), self.live()
            returning: drain.Drained = self.inspect(rolling.to_return, self.name, host, wanted, running)
            if returning.live:
                self._play(
                    "live_migrate",
                    uuids=[r.uuid for r in returning.live], live_migrate_host=host, project=None,
                )  # fmt: skip
            if returning.leaves:
                uuids = [r.uuid for r in returning.leaves]
                self._play("migrate", uuids=uuids, hosts=[host], project=None)
                self._confirm(host)
            rows = self.inspect(rolling.absent, self.name, host)
            if rows:
                self.stranded[host] = sorted(r.display_name for r in rows)
            if self.is_interrupted():
                break
        return {}

    def _confirm(self, host: str) -> None:
        uuids = self.inspect(rolling.to_confirm, self.name, host)
        if uuids:
            self._play("confirm_resize", uuids=uuids, project=None)

    def inspect(self, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        """Return what ``function(tx, *arguments)`` reads in the ledger as it is now."""
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(function, *arguments)
