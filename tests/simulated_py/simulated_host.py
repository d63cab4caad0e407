# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose state is a file: what it was asked, the faults that wait for the next modules, and the state of its model (host_model.py).

A fault is a mapping: ``module``, a name or "*"; ``kind``, one of KINDS; ``times`` that it still happens, null for always; and what its kind needs.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import importlib
import json
import os
import time
import typing as t
from pathlib import Path

from host_model import MODULES, HostModel

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer

PROBE = "probe"  # in place of a module: a command by which an action finds out whether the host answers
FAILS, ITEMS_FAIL, NONSENSE, UNREACHABLE, SLOW = KINDS = ("fails", "items_fail", "nonsense", "unreachable", "slow")
PROBLEMS = "problems"  # the file of what the models do not know
# The modules whose work a module does, too: faults of items are named by these.
OF_BENCHMARK = ("instance_build",)  # what benchmarks/controller.py counts: a boot that asks more of each host ends it
PARTS = {"instance_build": ("virtual_network", "instance_disks", "config_drive", "domain")}


class Unreachable(Exception):
    """The host does not answer."""


class SimulatedHost:
    """One host of a folder of hosts. Without a folder the host remembers nothing and has no faults.

    :arg checked: whether arguments and answers are compared with what the modules declare, and questions are noted. Benchmarks do without it,
        as it would take the processor of the controller; there are no faults then.
    """

    def __init__(self, name: str, folder: str | Path, checked: bool = True):
        self.name = name
        self.folder = Path(folder) if folder else None
        self.checked = checked and self.folder is not None

    @contextlib.contextmanager
    def state(self) -> t.Iterator[dict[str, t.Any]]:
        """The state of the host, for one process at a time. The state is written when the block ends."""
        if self.folder is None:
            yield new_state(self.name)
            return
        path = self.folder / ("%s.json" % self.name)
        with (self.folder / ("%s.lock" % self.name)).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = path.read_text() if path.exists() else ""
            state = json.loads(before) if before else new_state(self.name)
            yield state
            after = json.dumps(state, indent=1 if self.checked else None)
            if after != before:
                part = path.with_suffix(".part")
                part.write_text(after)
                os.replace(part, path)

    def ask(self, module: str) -> list[dict[str, t.Any]]:
        """Note that the host is asked. Returns the faults that are of this time.

        :raises Unreachable: one of them has the host not answer.
        """
        if not self.checked:
            return []
        faults = []
        with self.state() as state:
            state["asked"].append(module)
            for fault in state["faults"]:
                named = fault["module"] in ("*", module) or fault["module"] in PARTS.get(module, ())
                if named and fault["times"] != 0:
                    faults.append(dict(fault))
                    fault["times"] = None if fault["times"] is None else fault["times"] - 1
        if any(fault["kind"] == UNREACHABLE for fault in faults):
            raise Unreachable("Failed to connect to the host via simulated: %s is silent" % self.name)
        return faults

    def answer(self, module: str | None, arguments: t.Mapping[str, t.Any]) -> bytes:
        """What the module prints on the host.

        :raises Unreachable: see ask(). :raises SystemExit: the model does not know the module or its arguments, or its answer has not their shape.
        """
        if module not in (MODULES if self.folder is not None else OF_BENCHMARK):
            self._stop("the simulated host does not know the module %r" % module)
        faults = self.ask(module)
        self._wait(faults, after=False)
        printed = self._printed(module, arguments, faults)
        self._wait(faults, after=True)
        return printed

    def _printed(self, module: str, arguments: t.Mapping[str, t.Any], faults: list[dict[str, t.Any]]) -> bytes:
        by_kind = {fault["kind"]: fault for fault in faults}
        if NONSENSE in by_kind:
            return str(by_kind[NONSENSE]["text"]).encode()
        if FAILS in by_kind:
            return self._checked(module, failed(by_kind[FAILS]["error"]), arguments)
        check_mode = bool(arguments.get("_ansible_check_mode"))
        given = {name: value for name, value in arguments.items() if not name.startswith("_ansible_")}
        # Nothing of a module is loaded where it is not checked.
        read = self._read(module, given) if self.checked else filled(self._spec(module), given)
        item_faults = {f["module"]: errors.from_dict(f["error"]) for f in faults if f["kind"] == ITEMS_FAIL}
        with self.state() as state:
            model = HostModel(self.name, copy.deepcopy(state["model"]) if check_mode else state["model"], item_faults)
            try:
                result = MODULES[module](model, read)
            except errors.BootflowError as e:
                result = failed(e.as_dict())
        # The benchmark counts the processor time of the controller: nothing that a host does not do is done.
        return self._checked(module, result, arguments) if self.checked else json.dumps(result).encode()

    def _spec(self, module: str) -> dict[str, t.Any]:
        """The options of the module, kept in the folder for all hosts; empty without a folder."""
        if self.folder is None:
            return {}
        path = self.folder / ("%s.spec" % module)
        if not path.exists():
            part = path.with_suffix(".part-%d" % os.getpid())
            part.write_text(json.dumps(argument_spec(module)[0]))
            os.replace(part, path)
        return t.cast("dict[str, t.Any]", json.loads(path.read_text()))

    def _read(self, module: str, given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The arguments as the module itself reads them."""
        program = importlib.import_module("ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.program")
        spec, rules = argument_spec(module)
        try:
            return t.cast("dict[str, t.Any]", program.read_arguments(spec, given, set(), rules))
        except program.NeedsAnsible as e:
            self._stop("%s does not take its arguments as they are: %s" % (module, e))

    def _checked(self, module: str, result: dict[str, t.Any], arguments: t.Mapping[str, t.Any]) -> bytes:
        """The result as text, which has the shape that the controller expects."""
        try:
            check = answer.check_failure if result.get("failed") else answer.check
            check(module, self.name, result, str(arguments.get("step") or ""))
        except errors.InvalidAnswer as e:
            self._stop("the model of %s answers what no host may: %s" % (module, e.message))
        return json.dumps(result).encode()

    def _wait(self, faults: list[dict[str, t.Any]], after: bool) -> None:
        for fault in faults:
            if fault["kind"] == SLOW and fault["after"] == after:
                time.sleep(fault["seconds"])

    def _stop(self, problem: str) -> t.NoReturn:
        """End the run loudly. The file says why, whatever becomes of the worker's output."""
        if self.folder is not None:
            with (self.folder / PROBLEMS).open("a") as file:
                file.write("%s: %s\n" % (self.name, problem))
        raise SystemExit(problem)


def new_state(name: str) -> dict[str, t.Any]:
    """The state of a host that was never asked anything."""
    return {"model": HostModel.empty(name), "faults": [], "asked": []}


def failed(error: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result of a module that failed as a whole, as hosts/os/module_errors.fail() has it."""
    plain = dict(error)
    message, code = plain.pop("message"), plain.pop("code")
    return {"failed": True, "changed": False, "msg": message, "error_code": code, **plain}


def filled(spec: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The arguments as given, with the defaults of all other options."""
    arguments: dict[str, t.Any] = {**{name: option.get("default") for name, option in spec.items()}, **given}
    for name, option in spec.items():
        value, options = arguments[name], option.get("options")
        if options and isinstance(value, dict):
            arguments[name] = filled(options, value)
        elif options and isinstance(value, list):
            arguments[name] = [filled(options, each) for each in value]
    return arguments


class _Specified(Exception):
    """What a module hands to AnsibleModule."""


def argument_spec(module: str) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """The options of a module of the collection, and the rules between them."""
    found = importlib.import_module("ansible_collections.bootflow.compute.plugins.modules.%s" % module)

    def instead(argument_spec: dict[str, t.Any], supports_check_mode: bool = False, **rules: t.Any) -> t.NoReturn:
        raise _Specified(argument_spec, rules)

    real, found.AnsibleModule = found.AnsibleModule, instead
    try:
        found.main()
    except _Specified as specified:
        spec, rules = specified.args
        return spec, rules
    finally:
        found.AnsibleModule = real
    raise AssertionError("%s has no options" % module)
