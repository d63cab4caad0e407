# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common ground of all ledger-side actions: options with variables behind them, the run's identity, errors as results.

Ledger-side modules are action plugins: they run in the controller's process, where the database drivers and the facts of
the fleet are. An option that is not given is read from the variable that its argument names, so that a playbook run,
an AWX job template and a single task mean the same.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import getpass
import os
import re
import secrets
import shlex
import sys
import traceback
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ...module_utils.core import errors
from ...module_utils.core.answers import answer
from ...module_utils.core.legible import legible
from ...module_utils.core.reading.nearest import nearest
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import PREFIX, Setting
from ...module_utils.core.reading.size import check_variable
from ...module_utils.core.settings.names import GIVEN, VARIABLES, strangers
from ...module_utils.core.settings.request import CATALOGUE, SHIPPED_IMAGES
from ...module_utils.core.settings.run import LEDGER, READING, RUN, TIME_LIMITS
from ...module_utils.ledger import database, replica
from ...module_utils.ledger.db import this_run
from ...module_utils.ledger.db.address import LedgerAddress, normalise_url, password_in, url_is_sqlite
from ...module_utils.ledger.db.this_run import Context
from ...module_utils.ledger.db.transaction import Transaction
from ..transport import drivers, host_programs, packed_modules
from . import host_settings, tables, time_limits
from .firewall import port_filters
from .playbooks import playbook_of_this_run
from .results import error_result, module_error, traceback_of
from .run_lease import RunLease
from .shipped_images import with_shipped
from .stage_results import CONTROLLER, StageResults

# Made when the parent process loads the first action, inherited by every worker it forks, gone with the run: what
# generated passwords are derived from, so that they are handed around and stored nowhere.
RUN_SECRET = secrets.token_bytes(32)
drivers.load()

# What Ansible says of its classes behind what is wrong.
CLASSES = re.compile(r": <class '[\w.]*'> cannot be converted to an? \w+")

Result = t.TypeVar("Result")

Arguments = t.Mapping[str, t.Union[Setting, t.Mapping[str, t.Any]]]

COMMON: Arguments = LEDGER.options()
READS: Arguments = READING.options()  # of the actions that only read the ledger, see open_reader()

# Of the actions that a playbook begins with: their plays name all hosts where ansible-playbook has a limit.
RUN_LIMIT: Arguments = {"run_limit": {"type": "str"}}
REMOVES = "instance_cleanup"  # the module


IMAGES, SHIPPED = CATALOGUE.named("images"), SHIPPED_IMAGES.named("shipped_images")


def read_settings(
    arguments: Arguments,
    given: t.Mapping[str, t.Any],
    variable: t.Callable[[str], t.Any],
    others: t.Callable[[dict[str, t.Any], Problems], None] | None = None,
    meant: t.Callable[[str], str] = lambda variable: "",
) -> dict[str, t.Any]:
    """The options that are settings: as given, else from their variables, else their defaults.

    :arg meant: what a person may have given instead of a variable that is required and missing, as a remedy; "" for nothing.
    :arg others: adds its own problems when an option does not fit; it is given the options with defaults in place of those.
    :raises InvalidRequest: each one that does not fit, or is required and missing.
    """
    values: dict[str, t.Any] = {}
    problems = Problems()
    for name, setting in arguments.items():
        if not isinstance(setting, Setting):
            continue
        value, called = given.get(name), name
        if value is None:
            value, called = variable(setting.variable), setting.variable
        with problems.collect(called):
            if value is None and setting.required:
                raise errors.InvalidInput(
                    message="%s is not set" % setting.variable,
                    remedy=meant(setting.variable)
                    or "Set it in the inventory, in group_vars or with -e @FILE (docs/variables.md), or give the option %s."
                    % name,
                )
            values[name] = setting.read(value, called)
            if setting.variable == IMAGES.variable and SHIPPED.read(variable(SHIPPED.variable), SHIPPED.variable):
                values[name] = with_shipped(values[name])
    if problems.errors and others is not None:
        others({**{n: s.default for n, s in arguments.items() if isinstance(s, Setting)}, **values}, problems)
    problems.raise_if_any()
    return values


class OwnConnection:
    """The host of an action by its own connection, so that a program can run there while the action's connection is in use."""

    def __init__(self, action: ActionBase):
        self._action = copy.copy(action)
        for name in ("_low_level_execute_command", "_remove_tmp_path"):  # see Ports.run_module()
            vars(self._action).pop(name, None)
        self._action._connection = copy.copy(action._connection)
        self._action._connection.become = copy.copy(action._connection.become)

    def output(self, words: t.Sequence[str]) -> str:
        """Return the output of a program there. :raises AnsibleError: the host is not reached"""
        return str(self._action._low_level_execute_command(shlex.join(words))["stdout"])


class Ports:
    """Interfaces of an action to the outside: people, variables, hosts, the ledger, this run. Tests hand in their own."""

    def __init__(self, action: ActionBase):
        self._action = action
        self.display = action._display

    def template(self, value: t.Any) -> t.Any:
        return self._action._templar.template(value)

    def run_module(
        self, name: str, arguments: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any], seconds: float
    ) -> dict[str, t.Any]:
        """The result of the module ``name`` on the host of ``variables``. :arg seconds: its time limit."""
        with self._checked_at_each_command(name):
            result = self._execute(name, arguments, variables, seconds)
            if host_programs.NEEDS_ANSIBLE in result:
                self.display.vvv("%s runs as Ansible runs modules: %s" % (name, result[host_programs.NEEDS_ANSIBLE]))
                with host_programs.without(self._action):
                    result = self._execute(name, arguments, variables, seconds)
        if isinstance(result.get("warnings"), list):
            # Texts until ansible-core 2.18, later objects with the text in their event.
            warnings = result["warnings"]
            result["warnings"] = [getattr(getattr(warning, "event", None), "msg", warning) for warning in warnings]
        return result

    def _execute(
        self, name: str, arguments: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any], seconds: float
    ) -> dict[str, t.Any]:
        given = {**arguments, "time_limit": seconds}
        result = self._action._execute_module(module_name=name, module_args=given, task_vars=variables)
        return t.cast("dict[str, t.Any]", result)

    @contextlib.contextmanager
    def _checked_at_each_command(self, name: str) -> t.Iterator[None]:
        """In the block the lease is looked at before each command that goes to the host, the one that runs the module among them; not when
        Ansible removes its files there, which may be hours after the module began.
        """
        execute, remove = self._action._low_level_execute_command, self._action._remove_tmp_path
        removing: list[bool] = []

        def checked(*arguments: t.Any, **named: t.Any) -> t.Any:
            if not removing:
                self._action.check_lease(name.rpartition(".")[2])
            return execute(*arguments, **named)

        def removed(*arguments: t.Any, **named: t.Any) -> t.Any:
            removing.append(True)
            try:
                return remove(*arguments, **named)
            finally:
                removing.pop()

        self._action._low_level_execute_command, self._action._remove_tmp_path = checked, removed
        try:
            yield
        finally:
            del self._action._low_level_execute_command, self._action._remove_tmp_path

    def program(self, host: str, variables: t.Mapping[str, t.Any], line: str) -> list[str]:
        """The local program that runs ``line`` on ``host``. :raises HostUnreachable: there is none."""
        from ..transport import remote_programs  # of one action only

        return remote_programs.program(host, variables, line)

    def power_sync(self) -> list[str]:
        """The program here that runs the playbook power_sync as this one is run. :raises InvalidInput: there is none."""
        from .playbooks import syncs  # of one action only

        return [sys.executable, *syncs.command(sys.argv, context.CLIARGS)]

    def other_playbook(self, name: str, caller: str) -> list[str]:
        """Return the program here that runs another playbook of the collection as this one is run. :arg caller: see child_playbook.command()

        :raises InvalidInput: there is none.
        """
        from .playbooks import child_playbook  # of one action only

        playbook = "%s.%s" % (playbook_of_this_run.COLLECTION, name)
        limit = ["--limit", "all,localhost"] if context.CLIARGS.get("subset") else []
        return [sys.executable, *child_playbook.command(sys.argv, context.CLIARGS, playbook, caller), *limit]

    def run_python(self, variables: t.Mapping[str, t.Any], paths: t.Sequence[str] = ()) -> set[str]:
        """Start Python on the host of ``variables``, and nothing more. Returns the ``paths`` that are there."""
        interpreter = str(self.template(variables.get("ansible_python_interpreter") or ""))
        # Without a path Ansible has not found the interpreter yet: any program shows that the host answers.
        commands = ["%s -IS -c pass" % interpreter] if interpreter.startswith("/") else []
        commands.append(shlex.join(["ls", "-d", "--", *paths]) if paths else "true")
        listing = self._action._low_level_execute_command(" && ".join(commands))
        return set(paths) & set(str(listing["stdout"]).splitlines())

    def open_own_connection(self) -> OwnConnection:
        """The current host, for another thread than the one that runs a module there."""
        return OwnConnection(self._action)

    def open_ledger(self, address: LedgerAddress, **options: bool) -> database.Ledger:
        return database.open_ledger(address, tell=self.display.warning, **options)

    def open_reader(self, address: LedgerAddress, url: str) -> database.Ledger:
        return replica.open_reader(address, url, self.display.warning)

    def remember_database(self, address: LedgerAddress) -> None:
        drivers.remember(address.url)

    def folder(self) -> Path:
        """Return the path of a folder that only the tasks of this ansible-playbook process share."""
        return Path(constants.DEFAULT_LOCAL_TMP) / "bootflow"

    def context(self, actor: str, **settings: t.Any) -> Context:
        """This run: the ansible-playbook process is the parent of the worker that we are in."""
        run = this_run.identify(os.getppid(), this_run.controller_name(), actor)
        return Context(run=run, request_id="req-%s" % run.id, **settings)


class LedgerAction(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Base of the ledger-side actions: a subclass has ARGUMENTS and act()."""

    # option -> the setting that is read where the option is not given; or, of what no variable sets, its argument spec
    ARGUMENTS: Arguments = {}
    sends_programs = True  # to hosts, instead of what Ansible packs
    _ledger: database.Ledger | None = None
    leases_kept = 0  # blocks of lease_kept() that the task is in
    _supports_async = False
    _supports_check_mode = True

    def __init__(self, *args: t.Any, ports: Ports | None = None, **kwargs: t.Any):
        super().__init__(*args, **kwargs)
        self.ports = ports or Ports(self)
        self._silent: errors.HostTimeout | None = None
        self._display = self.ports.display

    def run(self, tmp: t.Any = None, task_vars: t.Any = None) -> dict[str, t.Any]:
        result = t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
        with tables.shown_after_error(self._display, result):
            try:
                left_out = playbook_of_this_run.left_out_by_tags(self._task, task_vars or {})
                if left_out:
                    result.update(self._left_out(left_out))
                    return result
                self.prepare(task_vars or {})
                result.update(self.act())
            except errors.BootflowError as e:
                result.update(error_result(e))
        return result

    def prepare(self, task_vars: t.Mapping[str, t.Any]) -> None:
        """Read the options."""
        self.task_vars = task_vars
        self._check_run_limit(self._task.args.get("run_limit"))
        self._refuse_unmeant_ledger()
        self.options = self._read_options()
        # The URL with all that belongs to it: what opens a ledger takes it where it takes a URL.
        self.options["ledger_url"] = self._address()

    def act(self) -> dict[str, t.Any]:
        """Do the work; returns the result."""
        raise AnsibleActionFail("%s has no act()" % type(self).__name__)

    def unexpected(self, error: Exception) -> errors.RemoteError:
        """An exception that is not of the family, as the failure of items: in one line, and in full where it is journalled."""
        self._display.vvv(traceback.format_exc(), host=self.task_vars["inventory_hostname"])
        return errors.RemoteError(reason="%s: %s" % (type(error).__name__, error), traceback=errors.unexpected(error))

    def _left_out(self, tags: str) -> dict[str, t.Any]:
        """The result of the first task of a playbook whose other tasks ``tags`` leave out: nothing is begun.

        :raises InvalidInput: the playbook was named on the command line. One that a playbook of the user imports may be left out.
        """
        named = playbook_of_this_run.was_named(playbook_of_this_run.playbooks())
        if named:
            raise errors.InvalidInput(
                message="%s leaves out all tasks of %s, which have no tags" % (tags, named),
                remedy="Run it without %s. To choose instances or hosts, use bootflow_names or bootflow_hosts."
                % " and ".join(word for word in tags.split() if word.startswith("--")),
            )
        text = (
            "%s leaves out a playbook of bootflow.compute. To run it, give its import_playbook one of these tags."
            % tags
        )
        self._display.warning(text)
        return {"changed": False, "skipped": True, "msg": text}

    def _check_run_limit(self, limit: str | None) -> None:
        """:raises InvalidInput: the limit leaves out localhost. Ansible itself skips such plays and ends with 0."""
        if limit and CONTROLLER not in self.task_vars.get("ansible_play_hosts_all", ()):
            raise errors.InvalidInput(
                message="the limit %s leaves out localhost, where the playbook works on the ledger" % limit,
                remedy="Add localhost to the limit (%s,localhost; in AWX the field Limit). To boot on some hosts only, name"
                " them in bootflow_hosts instead, without a limit." % limit,
            )

    @property
    def check_mode(self) -> bool:
        return bool(self._task.check_mode)

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        """A variable of the current host, templated."""
        value = self.task_vars.get(name)
        if value is None:
            return default
        check_variable(name, self.task_vars)
        return self.ports.template(value)

    def check_settings(self, problems: Problems) -> None:
        """Check settings that are not options: their problems are reported together with options that do not fit."""

    def _check_others(self, options: dict[str, t.Any], problems: Problems) -> None:
        self.options = options
        self.check_settings(problems)

    def _meant(self, variable: str) -> str:
        """The remedy where ``variable`` is missing, and something else was given that a person may have meant."""
        for given in map(str, context.CLIARGS.get("extra_vars") or ()):
            if not given.startswith("@") and "=" not in given and not given.lstrip().startswith(("{", "[")):
                return "Ansible reads %s as a file only behind an @: write -e @%s." % (given, given)
        short = variable[len(PREFIX) :]
        others = [name for name in self.task_vars if name.startswith(PREFIX) and self.task_vars[name] is not None]
        near = short if short in self.task_vars else ""
        # What the inventory plugin gives to guests means nothing here.
        unread = sorted(strangers(others) | (GIVEN & set(others)))
        near = near or next((name for name in unread if nearest(name, VARIABLES, PREFIX) == variable), "")
        near = near or next((name for name in (short[:-1], "servers", "vms") if name in self.task_vars), "")
        return "The variable %s was given, which nothing reads: rename it to %s." % (near, variable) if near else ""

    def _read_options(self) -> dict[str, t.Any]:
        arguments = {**COMMON, **self.ARGUMENTS}
        settings = read_settings(arguments, self._task.args, self.variable, self._check_others, self._meant)
        spec = {n: {"type": "raw"} if isinstance(a, Setting) else dict(a) for n, a in arguments.items()}
        try:
            _validation, options = self.validate_argument_spec(argument_spec=spec)
        except AnsibleError as e:
            raise errors.InvalidInput(
                message=CLASSES.sub("", str(e)),
                remedy="Correct it; ansible-doc %s lists the forms." % self._task.action,
            ) from e
        return {**options, **settings}

    # --- the ledger -----------------------------------------------------------------------------------------------

    def open_ledger(self, create: bool = False, check_revision: bool = True, patient: bool = True) -> database.Ledger:
        ledger = self.ports.open_ledger(
            self.options["ledger_url"], create=create, check_revision=check_revision, patient=patient
        )
        for text in ledger.warnings:
            self._display.warning(text)
        self._ledger = ledger.for_run(self.context())
        return self._ledger

    def open_reader(self) -> database.Ledger:
        """The ledger for an action that only reads it: its replica, where there is one."""
        url = self.options["ledger_read_url"]
        if url is None:
            return self.open_ledger()
        self._warn_of_password("ledger_read_url", url)
        self._ledger = self.ports.open_reader(self.options["ledger_url"], url).for_run(self.context())
        return self._ledger

    def ledger_id(self) -> str:
        """The id of the ledger, for what hosts mark with it. In check mode, of one in memory where there is none yet.

        The first task of a playbook has left it for the tasks of hosts, which need no connection for it then.
        """
        if self._ledger is None:
            opened = StageResults(self, "ledger").read("open", CONTROLLER) or {}
            if opened.get("ledger_id") and opened.get("ledger") == str(self.options["ledger_url"]):
                return str(opened["ledger_id"])
            self._ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        return self._ledger.id

    def rehearsal_ledger(self) -> database.Ledger:
        """The ledger for check mode: the real one when it is there, else an empty one in memory."""
        try:
            return self.open_ledger()
        except errors.LedgerMissing:
            return database.memory_ledger().for_run(self.context())

    def write(self, function: t.Callable[[Transaction], Result], collisions: int = 0) -> Result:
        """The result of ``function``, its writes committed; in check mode they are rolled back. :arg collisions: see transact()"""
        if self.check_mode:
            return self.rehearsal_ledger().rehearsal(function)
        return self.open_ledger().transact(function, collisions=collisions)

    def _address(self) -> LedgerAddress:
        url = normalise_url(self.options["ledger_url"])
        self._warn_of_password("ledger_url", url)
        settings = {name[len("ledger_") :]: self.options[name] for name in COMMON if name != "ledger_url"}
        address = LedgerAddress(url=url, application_name="bootflow %s" % _run_id(), **settings)
        address.check()
        return address

    def _refuse_unmeant_ledger(self) -> None:
        """:raises InvalidInput: no ledger is named, and Ansible read no inventory that could have named it."""
        if self._task.args.get("ledger_url") is not None or self.task_vars.get("bootflow_ledger_url") is not None:
            return
        if self.task_vars.get("groups") is not None and not self.task_vars["groups"].get("all"):
            raise errors.InvalidInput(
                message="no inventory was read, and bootflow_ledger_url is not set: the default ledger %s may not be the one you mean"
                % LEDGER.named("ledger_url").default,
                remedy="Name your inventory with -i (or in ansible.cfg), or set bootflow_ledger_url.",
            )

    def _warn_of_password(self, option: str, url: str) -> None:
        if not url_is_sqlite(url) and password_in(url):
            self._display.warning(
                "bootflow_%s contains a password, and everything that shows variables shows it. Leave it out of the URL"
                " and set bootflow_ledger_password (in a vault), bootflow_ledger_password_file or ~/.pgpass." % option
            )

    def context(self) -> Context:
        """This run, with its settings."""
        run = host_settings.values(self, RUN)
        threshold = "consecutive_build_service_disable_threshold"
        return self.ports.context(
            self._actor(),
            notify_on_state_change=run.notify_on_state_change,
            count_failed_builds=self.options.get(threshold, getattr(run, threshold)) != 0,
            lease_seconds=self.options.get("lease_seconds", run.lease_seconds),
            base_mac=run.base_mac,
            filters_ports=port_filters.filters(self),
            lease=self.lease,
        )

    @functools.cached_property
    def lease(self) -> RunLease:
        """The lease of this run, and what this task knows by it."""
        return RunLease(
            self.ports.folder(), self.options.get("lease_seconds", host_settings.values(self, RUN).lease_seconds)
        )

    def check_lease(self, module: str) -> None:
        """Called right before ``module`` goes to the current host: what this task read in the ledger must be true still.

        The removal of instances belongs to no run: it has to be read shortly before in any case.

        :raises LeaseOver: the run stood still meanwhile, so that another one may have taken over what the module would work on.
        """
        removes = module == REMOVES
        if not (removes or self.leases_kept):
            return
        now = self.context().now
        if not self.lease.holds(now, removes):
            host = self.task_vars.get("inventory_hostname", "?")
            seconds = int(now - (self.lease.read_at or now))
            raise errors.LeaseOver(host=host, module=module, seconds=seconds)

    def _actor(self) -> str:
        # AWX tells the person behind the job template.
        for name in ("awx_user_name", "tower_user_name", "bootflow_actor"):
            value = self.task_vars.get(name)
            if value:
                return str(self.ports.template(value))
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return str(os.getuid())

    # --- the inventory ----------------------------------------------------------------------------------------------

    def compute_hosts(self) -> list[str]:
        """The compute hosts of the inventory, in its order."""
        group = host_settings.values(self, RUN).compute_group
        return list(self.task_vars.get("groups", {}).get(group, []))

    def hosts_to_use(self) -> list[str]:
        """Return the compute hosts that this run may place instances on: the hosts of bootflow_hosts, within the limit of the run."""
        return self.within_limit(host_settings.named_hosts(self, self.compute_hosts()))

    def within_limit(self, hosts: t.Sequence[str]) -> list[str]:
        """Return the ``hosts`` that plays of this run can reach: all, unless ansible-playbook has a limit."""
        if self.options.get("run_limit"):
            limit = self.task_vars["ansible_play_hosts_all"]
        else:
            limit = (StageResults(self, "ledger").read("open", CONTROLLER) or {}).get("run_limit")
        if limit is None:
            return list(hosts)
        reached = set(limit)
        return [h for h in hosts if h in reached]

    # --- host-side modules ------------------------------------------------------------------------------------------

    def _configure_module(
        self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> tuple[t.Any, str]:
        """Ansible asks here for what it sends to the host."""
        pack = super()._configure_module
        if not module_name.startswith("bootflow.compute."):  # those by which Ansible moves files
            return t.cast("tuple[t.Any, str]", pack(module_name, module_args, task_vars))
        program = host_programs.built(self, module_name, module_args, task_vars) if self.sends_programs else None
        if program is not None:
            return program
        with packed_modules.reuse_packed_module(module_name):
            return t.cast("tuple[t.Any, str]", pack(module_name, module_args, task_vars))

    @contextlib.contextmanager
    def within(self, seconds: float, what: str) -> t.Iterator[None]:
        """Wait for the current host at most so long. A host that did not answer once is not asked again by this task.

        :raises HostTimeout: it did not answer.
        """
        if self._silent is not None:
            raise self._silent
        try:
            with time_limits.given(seconds + time_limits.GRACE):
                yield
        except time_limits.TimeIsUp:
            host = self.task_vars.get("inventory_hostname", "?")
            self._silent = errors.HostTimeout(host=host, module=what, seconds=int(seconds))
            raise self._silent from None

    def probe(self, paths: t.Sequence[str] = ()) -> set[str]:
        """Find out whether the current host answers, for a module that may take much longer than an answer.

        :arg paths: files on the host. Returns the paths that are there.
        :raises HostTimeout: not within bootflow_work_timeout. :raises HostUnreachable: the connection failed.
        """
        seconds = host_settings.values(self, TIME_LIMITS).work_timeout
        try:
            with self.within(seconds, "Python"):
                return self.ports.run_python(self.task_vars, paths)
        except AnsibleConnectionFailure as e:
            raise errors.HostUnreachable(
                host=self.task_vars.get("inventory_hostname", "?"), reason=_one_line(e).rstrip(".")
            ) from e

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Run bootflow.compute.``name`` on the current host.

        :raises HostTimeout: the host did not answer in time.
        :raises HostUnreachable: the connection failed, or what came back is not an answer of this module (InvalidAnswer).
        :raises BootflowError: the module failed; ``details["answer"]`` is its result, with what it did nevertheless.
        """
        host = self.task_vars.get("inventory_hostname", "?")
        delegated = self._task.delegate_to
        if delegated and delegated != host:
            raise AnsibleActionFail(
                "delegate_to is %s, whose answer would be written as that of %s. "
                "Remedy: Name the hosts in the play (hosts), and remove delegate_to." % (delegated, host)
            )
        port_filters.before(self, name, arguments)
        seconds, step = time_limits.limit_of(self, name, arguments), str(arguments.get("step") or "")
        self.check_lease(name)
        try:
            with self.within(seconds, name):
                result = self.ports.run_module("bootflow.compute.%s" % name, arguments, self.task_vars, seconds)
        except AnsibleConnectionFailure as e:
            raise errors.HostUnreachable(host=host, reason=_one_line(e).rstrip(".")) from e
        except AnsibleError as e:
            raise errors.RemoteError(reason="%s on %s: %s" % (name, host, _one_line(e))) from e
        if result.get("unreachable"):
            raise errors.HostUnreachable(host=host, reason=_one_line(result.get("msg", "")).rstrip("."))
        if result.get("failed"):
            if result.get("error_code"):
                answer.check_failure(name, host, result, step)
            error = module_error(name, host, result)
            self._show_tracebacks(name, host, [result, {"traceback": traceback_of(result)}])
            error.details["answer"] = result
            raise error
        answer.check(name, host, result, step)
        self._show_tracebacks(name, host, [o.get("error") or {} for o in (result.get("outcomes") or {}).values()])
        for text in result.get("warnings") or []:
            self._display.warning(legible("%s: %s" % (host, text)))
        return result

    def _show_tracebacks(self, name: str, host: str, failed: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        """Print the tracebacks of unexpected errors of a module, at -vvv."""
        for frames in dict.fromkeys(str(failure["traceback"]) for failure in failed if failure.get("traceback")):
            self._display.vvv(legible("%s:\n%s" % (name, frames)), host=host)


def _run_id() -> str:
    return this_run.identify(os.getppid(), this_run.controller_name(), "").id


def _one_line(text: t.Any) -> str:
    return legible(" ".join(str(text).split())[:500])
