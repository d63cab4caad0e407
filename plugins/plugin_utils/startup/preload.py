# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads the code of the next tasks while the current one works: Ansible's main process would only wait for its worker.

Ansible loads an action in its main process before it forks the worker that runs it. An action names here, as it is loaded, what is to be
loaded after that fork. It takes no time where a second core is idle. A boot with nothing to do loads what it does not need: 0.1 s of processor.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t
from pathlib import Path

from ...module_utils.core.optional import optional_import
from ..run.playbooks import playbook_of_this_run
from ..run.playbooks.playbook_of_this_run import COLLECTION

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
# Actions and playbooks in the order of a playbook's file.
NAMES = re.compile(r"^\s+(?:%s\.(\w+):|import_playbook: (\w+\.yml))" % re.escape(COLLECTION), re.MULTILINE)
# Of tasks that begin a playbook, or have no hosts in most runs.
FIRST = ("ledger", "compute_report")

_wanted: list[str | t.Callable[[], object]] = []


def load(*wanted: str | t.Callable[[], object]) -> None:
    """Load these modules, or call these functions, after the next fork, one after the other until its worker ends."""
    _wanted.extend(wanted)


def action(name: str) -> str:
    """The module of an action plugin of this collection."""
    return "ansible_collections.%s.plugins.action.%s" % (COLLECTION, name)


def load_action_after_the_first() -> None:
    """Load the action that follows FIRST in the playbook of this run, if that is one of this collection."""
    name = next((playbook_of_this_run.own_name(playbook) for playbook in playbook_of_this_run.playbooks()), "")
    if name:
        following = next((action_name for action_name in _actions(name + ".yml") if action_name not in FIRST), None)
        if following is not None:
            load(action(following))


def _actions(playbook: str) -> t.Iterator[str]:
    try:
        text = (PLAYBOOKS / playbook).read_text()
    except (OSError, ValueError):
        return
    for name, imported in NAMES.findall(text):
        if name:
            yield name
        else:
            yield from _actions(imported)


def _load_wanted() -> None:
    wanted = _wanted[:]
    _wanted.clear()  # what these want in turn is for the next fork; what is left of them is needed at once
    for target in wanted:
        if _a_child_ended():
            break
        if isinstance(target, str):
            optional_import(target)
        else:
            with contextlib.suppress(Exception):  # an error is seen where the module is used
                target()


def _a_child_ended() -> bool:
    """Whether a worker's result waits for this process."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


os.register_at_fork(after_in_parent=_load_wanted, after_in_child=_wanted.clear)
