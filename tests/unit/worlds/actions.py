# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions on the ledger of a world, as tasks of a playbook run them."""

from __future__ import annotations

import importlib
import json
import pathlib
import time
import types
import typing as t

from ansible_collections.bootflow.compute.plugins import modules
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.program import read_arguments
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import Ports
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.stage_results import StageResults
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import host_reports

from .world import World


class Borrowed:
    """A ledger that stays open when an action closes it."""

    def __init__(self, ledger: t.Any):
        self._ledger = ledger

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._ledger, name)

    def for_run(self, context: t.Any) -> Borrowed:
        return Borrowed(self._ledger.for_run(context))

    def close(self) -> None:
        pass


class WorldPorts(Ports):
    """Variables are plain, what is displayed is kept, and runs have the names and the clock of the world.

    :arg modules: what runs a host's module: (name without its collection, arguments) -> its result
    """

    def __init__(self, world: World, run: str, modules: t.Callable[..., dict[str, t.Any]] | None = None):
        self.world = world
        self.of_run = run
        self.modules = modules
        self.probed = 0
        self.hangs = False
        self.has_files = True  # those that run_python looks for
        self.shown: list[str] = []
        self.warnings: list[str] = []
        self.on_stderr: list[str] = []
        self.verbose: list[str] = []  # with -v
        self.display = types.SimpleNamespace(
            display=lambda text, stderr=False: (self.on_stderr if stderr else self.shown).append(text),
            warning=self.warnings.append,
            v=self.verbose.append,
            verbosity=1,
            vvv=lambda *_args, **_how: None,
        )

    def template(self, value: t.Any) -> t.Any:
        return value

    def run_module(
        self, name: str, arguments: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any], seconds: float
    ) -> dict[str, t.Any]:
        assert self.modules is not None, "%s runs %s" % (variables.get("inventory_hostname"), name)
        name = name.rpartition(".")[2]
        if arguments:  # the tests of answers give none
            check_arguments(name, {**arguments, "time_limit": seconds})
        return (
            build_in_parts(self.modules, arguments)
            if name == "instance_build" and arguments
            else self.modules(name, arguments)
        )

    def run_python(self, variables: t.Mapping[str, t.Any], paths: t.Sequence[str] = ()) -> set[str]:
        self.probed += 1
        if self.hangs:
            time.sleep(60)
        return set(paths) if self.has_files else set()

    def remember_database(self, address: t.Any) -> None:
        """Not the tester's own."""

    def folder(self) -> pathlib.Path:
        return pathlib.Path(self.world.shared.name) / self.of_run

    def open_ledger(self, address: t.Any, **options: bool) -> t.Any:
        return Borrowed(self.world.ledger)

    def context(self, actor: str, **settings: t.Any) -> t.Any:
        return self.world.context(self.of_run, **settings)


def check_arguments(name: str, arguments: t.Mapping[str, t.Any]) -> None:
    """What an action gives to a module fits as it is: otherwise its program would leave the work to Ansible."""
    module = importlib.import_module("%s.%s" % (modules.__name__, name))
    if hasattr(module, "argument_spec"):
        read_arguments(module.argument_spec(), json.loads(json.dumps(arguments)), set())


# part of instance_build -> the module that does the same, and where the keys of its items are
PARTS = {
    "networks": ("virtual_network", "networks"),
    "disks": ("instance_disks", "instances"),
    "drives": ("config_drive", "drives"),
    "domains": ("domain", "domains"),
}


def build_in_parts(modules: t.Callable[..., dict[str, t.Any]], arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The answer of the module instance_build, by ``modules`` as the four that it consists of; each gets its own options."""
    parts: dict[str, t.Any] = {}
    stopped: set[str] = set()
    others = {items for _module, items in PARTS.values()}
    for part, (module, items) in PARTS.items():
        mine = [i for i in arguments[items] if i.get("uuid") not in stopped]
        its = {k: v for k, v in arguments.items() if k not in others or k == items}
        result = modules(module, {**its, items: mine}) if mine else {"outcomes": {}}
        if result.get("failed") or result.get("unreachable"):
            return result
        parts[part] = result
        ended = {k for k, outcome in result["outcomes"].items() if outcome.get("error") or outcome.get("pending")}
        if part == "networks":
            ended = {uuid for uuid, names in arguments.get("networks_of", {}).items() if ended & set(names)}
        stopped |= ended
    return {"parts": parts}


def action_of(
    module: t.Any,
    ports: WorldPorts,
    variables: t.Mapping[str, t.Any],
    check_mode: bool = False,
    **options: t.Any,
) -> t.Any:
    """The action of ``module`` with its options read; act() does its work."""
    task = types.SimpleNamespace(
        action="bootflow.compute." + module.__name__.rpartition(".")[2],
        args={"ledger_url": ports.world.url, **options},
        check_mode=check_mode,
        delegate_to=None,
    )
    action = module.ActionModule(task=task, connection=None, play_context=None, loader=None, templar=None, ports=ports)
    action.prepare(variables)
    return action


def results_of(ports: WorldPorts, family: str) -> StageResults:
    """The results that the stages of an action left in the run of ``ports``."""
    return StageResults(t.cast("t.Any", types.SimpleNamespace(ports=ports)), family)


def limit_run(ports: WorldPorts, hosts: t.Sequence[str] | None) -> None:
    """The run of ``ports`` has a limit to these hosts; None: it has none."""
    results_of(ports, "ledger").leave("open", "localhost", {"run_limit": hosts})


def leave_report(ports: WorldPorts, host: str, report: t.Mapping[str, t.Any]) -> None:
    """``host`` reported in the run of ``ports``, or did not answer, as in check mode."""
    host_reports.leave(t.cast("t.Any", types.SimpleNamespace(ports=ports, check_mode=True)), host, report)


# action -> the stage of its result, or the stage whose result it leaves for the stages of another action
OF_OTHERS = {
    "boot_accept": ("boot_accept", "accept"),
    "compute_report": ("compute_report", "report"),
    "instance_remove": ("instance_delete", "remove"),
}
REPLACED = {"again": "begin"}


def run_stage(action: t.Any) -> dict[str, t.Any]:
    """What the task of a stage returns, and what it leaves for later stages."""
    returned = action.act()
    name, stage = action._task.action.rpartition(".")[2], action.options.get("phase", "")
    family, stage = OF_OTHERS.get(name, (name, REPLACED.get(stage, stage)))
    left = results_of(action.ports, family).read(stage, action.task_vars.get("inventory_hostname", "localhost"))
    return {**(left or {}), **returned}


class Runner:
    """Runs actions with options as a task would have them, in an inventory of ``hosts``; each in a run of its own."""

    def __init__(self, world: World, hosts: t.Sequence[str]):
        self.world = world
        self.hosts = hosts
        self.way = "qemu"
        self.variables: dict[str, t.Any] = {}  # of each host
        self.limit: list[str] | None = None  # of the runs
        self.runs = 0

    def __call__(
        self, module: t.Any, check_mode: bool = False, run: str = "", **options: t.Any
    ) -> tuple[dict[str, t.Any], str]:
        """Its result, and what it displayed."""
        self.runs += 1
        ports = WorldPorts(self.world, run or "run%d" % self.runs)
        variables = {
            "hostvars": {"localhost": {}, **{h: self._variables(h) for h in self.hosts}},
            "groups": {
                "all": list(self.hosts),
                "bootflow_compute": [h for h in self.hosts if h.startswith("h")],
                "bootflow_storage": [h for h in self.hosts if h.startswith("s")],
            },
        }
        limit_run(ports, self.limit)
        result = run_stage(action_of(module, ports, variables, check_mode, **options))
        return result, "\n".join(ports.shown + ports.warnings)

    def _variables(self, host: str) -> dict[str, t.Any]:
        backends = [{"name": "lvm"}] if host.startswith("s") else None
        return {
            "ansible_host": "192.0.2.1",
            "bootflow_storage_backends": backends,
            "bootflow_volume_attach": self.way,
            **self.variables,
        }
