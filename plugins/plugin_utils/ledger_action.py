# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every ledger-side action shares: options with variables behind them, the run's identity, errors as results.

Ledger-side modules are action plugins: they run in the controller's process, where the database drivers and the facts of
the fleet are. An option that is not given is read from the variable that its argument names, so that a playbook run,
an AWX job template and a single task mean the same.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.instances import (
    NOTIFY_CHOICES,
    NOTIFY_NOTHING,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.context import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import (
    SSL_MODES,
    LedgerAddress,
    normalise_url,
    password_in,
    url_is_sqlite,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import error_result, module_error

LEAST_LEASE = 30
DEFAULT_LEDGER_URL = "sqlite:////var/lib/bootflow/ledger.db"

# Made when the parent process loads the first action, inherited by every worker it forks, gone with the run: what
# generated passwords are derived from, so that they are handed around and stored nowhere.
RUN_SECRET = secrets.token_bytes(32)

# What Ansible says of its own classes behind what is wrong.
CLASSES = re.compile(r": <class '[\w.]*'> cannot be converted to an? \w+")

COMMON: dict[str, dict[str, t.Any]] = {
    "ledger_url": {
        "type": "str",
        "variable": "bootflow_ledger_url",
        "fallback_default": DEFAULT_LEDGER_URL,
        "no_log": True,
    },
    "ledger_password": {"type": "str", "variable": "bootflow_ledger_password", "no_log": True},
    # the path is no secret, whatever its name makes Ansible think
    "ledger_password_file": {"type": "path", "variable": "bootflow_ledger_password_file", "no_log": False},
    "ledger_sslmode": {"type": "str", "choices": list(SSL_MODES), "variable": "bootflow_ledger_sslmode"},
    "ledger_sslrootcert": {"type": "path", "variable": "bootflow_ledger_sslrootcert"},
    "ledger_sslcert": {"type": "path", "variable": "bootflow_ledger_sslcert"},
    "ledger_sslkey": {"type": "path", "variable": "bootflow_ledger_sslkey", "no_log": False},
    "ledger_connect_timeout": {
        "type": "int",
        "variable": "bootflow_ledger_connect_timeout",
        "fallback_default": LedgerAddress.connect_timeout,
    },
    "ledger_lock_timeout": {
        "type": "float",
        "variable": "bootflow_ledger_lock_timeout",
        "fallback_default": LedgerAddress.lock_timeout,
    },
    "ledger_statement_timeout": {
        "type": "float",
        "variable": "bootflow_ledger_statement_timeout",
        "fallback_default": LedgerAddress.statement_timeout,
    },
    "ledger_idle_timeout": {
        "type": "float",
        "variable": "bootflow_ledger_idle_timeout",
        "fallback_default": LedgerAddress.idle_timeout,
    },
    "ledger_retry_timeout": {
        "type": "float",
        "variable": "bootflow_ledger_retry_timeout",
        "fallback_default": LedgerAddress.retry_timeout,
    },
}


class LedgerAction(ActionBase):
    """Base of the ledger-side actions: a subclass has ARGUMENTS and act()."""

    # argument spec; `variable` names the variable that is read when the option is not given, `fallback_default` what holds else
    ARGUMENTS: t.Mapping[str, t.Mapping[str, t.Any]] = {}
    _supports_async = False
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: t.Any = None) -> dict[str, t.Any]:
        result = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        try:
            self.options = self._read_options()
            # The URL with all that belongs to it: what opens a ledger takes it where it takes a URL.
            self.options["ledger_url"] = self._address()
            result.update(self.act())
        except errors.BootflowError as e:
            result.update(error_result(e))
        return t.cast("dict[str, t.Any]", result)

    def act(self) -> dict[str, t.Any]:
        """Do the work; returns the result."""
        raise AnsibleActionFail("%s has no act()" % type(self).__name__)

    @property
    def check_mode(self) -> bool:
        return bool(self._task.check_mode)

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        """A variable of the current host, templated."""
        value = self.task_vars.get(name)
        return default if value is None else self._templar.template(value)

    def _read_options(self) -> dict[str, t.Any]:
        spec: dict[str, dict[str, t.Any]] = {}
        from_variables = set()
        for name, argument in {**COMMON, **self.ARGUMENTS}.items():
            spec[name] = {k: v for k, v in argument.items() if k not in ("variable", "fallback_default")}
            if self._task.args.get(name) is None and argument.get("variable"):
                value = self.variable(argument["variable"], argument.get("fallback_default"))
                if value is not None:
                    self._task.args[name] = value
                    from_variables.add(name)
        for name, argument in self.ARGUMENTS.items():
            if argument.get("required") and self._task.args.get(name) is None:
                raise errors.InvalidInput(
                    message="%s is not set" % argument["variable"],
                    remedy="Set it in the inventory, in group_vars or with -e (docs/variables.md), or give the option %s."
                    % name,
                )
        try:
            _validation, options = self.validate_argument_spec(argument_spec=spec)
        except AnsibleError as e:
            variables = sorted({str(self.ARGUMENTS[n]["variable"]) for n in from_variables if "'%s'" % n in str(e)})
            raise errors.InvalidInput(
                message="%s%s" % ("%s: " % ", ".join(variables) if variables else "", CLASSES.sub("", str(e))),
                remedy="Correct it; ansible-doc %s tells the forms." % self._task.action,
            ) from e
        return t.cast("dict[str, t.Any]", options)

    # --- the ledger -----------------------------------------------------------------------------------------------

    def open_ledger(self, create: bool = False, check_revision: bool = True, patient: bool = True) -> database.Ledger:
        ledger = database.open_ledger(
            self.options["ledger_url"], create=create, check_revision=check_revision, patient=patient
        )
        for text in ledger.warnings:
            self._display.warning(text)
        return ledger

    def _address(self) -> LedgerAddress:
        url = normalise_url(self.options["ledger_url"])
        if not url_is_sqlite(url) and password_in(url):
            self._display.warning(
                "bootflow_ledger_url has a password in it, which whatever shows variables shows. Leave it out of the URL"
                " and set bootflow_ledger_password (in a vault), bootflow_ledger_password_file or ~/.pgpass."
            )
        settings = {name[len("ledger_") :]: self.options[name] for name in COMMON if name != "ledger_url"}
        address = LedgerAddress(url=url, application_name="bootflow %s" % _run_id(), **settings)
        address.check()
        return address

    def context(self) -> Context:
        """This run: the ansible-playbook process is the parent of the worker that we are in."""
        run = runs.identify(os.getppid(), runs.controller_name(), self._actor())
        notify = str(self.variable("bootflow_notify_on_state_change", NOTIFY_NOTHING))
        if notify not in NOTIFY_CHOICES:
            raise errors.InvalidInput(
                reason="bootflow_notify_on_state_change is %r" % notify,
                remedy="Give one of: %s." % ", ".join(NOTIFY_CHOICES),
            )
        return Context(
            run=run,
            request_id="req-%s" % run.id,
            notify_on_state_change=notify,
            count_failed_builds=self._number("bootflow_consecutive_build_service_disable_threshold", 10) != 0,
            lease_seconds=self._lease_seconds(),
        )

    def _lease_seconds(self) -> float:
        seconds = self._number("bootflow_lease_seconds", runs.LEASE_SECONDS)
        if not LEAST_LEASE <= seconds < float("inf"):
            raise errors.InvalidInput(
                reason="bootflow_lease_seconds is %s" % seconds,
                remedy="Give %d or more: a run that works must have time to renew its lease." % LEAST_LEASE,
            )
        return seconds

    def _number(self, name: str, default: float) -> float:
        value = self.variable(name, default)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise errors.InvalidInput(
                reason="%s is %r" % (name, value), remedy="Give a number; docs/variables.md tells which."
            ) from None

    def _actor(self) -> str:
        # AWX tells the person behind the job template.
        for name in ("awx_user_name", "tower_user_name", "bootflow_actor"):
            value = self.task_vars.get(name)
            if value:
                return str(self._templar.template(value))
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return str(os.getuid())

    # --- the inventory ----------------------------------------------------------------------------------------------

    def compute_hosts(self) -> list[str]:
        """The compute hosts of the inventory, in its order."""
        group = self.variable("bootflow_compute_group", "bootflow_compute")
        return list(self.task_vars.get("groups", {}).get(group, []))

    # --- host-side modules ------------------------------------------------------------------------------------------

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Run bootflow.compute.``name`` on the current host.

        :raises HostUnreachable: the connection failed.
        :raises BootflowError: the module failed as a whole.
        """
        host = self.task_vars.get("inventory_hostname", "?")
        try:
            result = self._execute_module(
                module_name="bootflow.compute.%s" % name, module_args=dict(arguments), task_vars=self.task_vars
            )
        except AnsibleConnectionFailure as e:
            raise errors.HostUnreachable(host=host, reason=_one_line(e)) from e
        except AnsibleError as e:
            raise errors.RemoteError(reason="%s on %s: %s" % (name, host, _one_line(e))) from e
        if result.get("unreachable"):
            raise errors.HostUnreachable(host=host, reason=_one_line(result.get("msg", "")))
        if result.get("failed"):
            raise module_error(name, host, result)
        for text in result.get("warnings") or []:
            self._display.warning("%s: %s" % (host, text))
        return t.cast("dict[str, t.Any]", result)


def _run_id() -> str:
    return runs.identify(os.getppid(), runs.controller_name(), "").id


def _one_line(text: t.Any) -> str:
    return " ".join(str(text).split())[:500]
