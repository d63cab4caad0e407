# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of variables that begin as ours do and do not exist: a typo would be a setting without effect."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.setting import Setting
from ...module_utils.core.settings.names import strangers
from ..run.ledger_action import LedgerAction


def warn(action: LedgerAction, hosts: t.Mapping[str, t.Iterable[str]] | None = None) -> None:
    """Warn of them, by the names alone. :arg hosts: host -> names of its variables; without it the current host's"""
    own = set(action.task_vars)
    names = own if hosts is None else {name for of_host in hosts.values() for name in of_host} - own
    if strangers(names):
        _warn(action, names)


def refuse(action: LedgerAction, *tables: t.Iterable[Setting], meant: t.Mapping[str, str] | None = None) -> None:
    """Refuse names that do not exist and are near one of these settings, which say what is worked on: without it, that would be something else.

    :arg meant: other names that do not exist -> the variables that they are taken for.
    :raises InvalidInput: there is one.
    """
    names = strangers(action.task_vars)
    if not names:
        return
    from ...module_utils.core.settings import table
    from .scheduler_settings import settings_of_users

    deciding = {setting.variable for settings in tables for setting in settings}
    for name, near in {**table.unknown(names, settings_of_users(action)), **(meant or {})}.items():
        if name in names and (near in deciding or name in (meant or {})):
            raise errors.InvalidInput(
                reason="variable %s does not exist, and nothing was begun without it" % name,
                remedy="Did you mean %s? Correct it, or remove it." % near,
            )


def _warn(action: LedgerAction, names: set[str]) -> None:
    # Loaded only now: they take all settings with the whole scheduler, and the user's filters.
    from ...module_utils.core.settings import table
    from .scheduler_settings import settings_of_users

    for name, near in table.unknown(names, settings_of_users(action)).items():
        hint = "; did you mean %s?" % near if near else " (docs/variables.md lists all)."
        action._display.warning("Variable %s does not exist%s" % (name, hint))
