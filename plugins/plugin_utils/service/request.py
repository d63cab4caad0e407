# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request for a rolling service: its hosts, the tasks of the user, and settings that would change what other playbooks work on."""

from __future__ import annotations

import os
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.playbook.role.include import RoleInclude

from ...module_utils.core import errors
from ...module_utils.core.reading.nearest import suggestion
from ..run.ledger_action import LedgerAction
from ..settings import scheduler_settings

#: What the service passes to other playbooks itself.
OF_STEPS = ("names", "uuids", "reservation_ids", "host", "all", "drain_host", "live_migrate_host", "live_migrate_hosts")
#: Options of ansible-playbook with which a service cannot run other playbooks.
OPTIONS = {"start_at_task": "--start-at-task", "step": "--step"}


def check(action: LedgerAction) -> None:
    """:raises InvalidInput: variables or options of the command line that the other playbooks of the service would read, too."""
    given = ["bootflow_" + name for name in OF_STEPS if action.variable("bootflow_" + name)]
    if given:
        raise errors.InvalidInput(
            reason="%s: service takes all instances of the hosts of bootflow_service_hosts" % ", ".join(given),
            remedy="Leave it out.",
        )
    options = [word for name, word in OPTIONS.items() if context.CLIARGS.get(name)]
    if options:
        raise errors.InvalidInput(
            reason="bootflow.compute.service runs other playbooks, which %s would change" % " and ".join(options),
            remedy="Leave it out: the service goes on by itself where it stopped.",
        )


def zones(action: LedgerAction) -> dict[str, str]:
    """Return the selected hosts, in the order of the inventory: host -> its availability zone.

    :raises ComputeHostNotFound: hosts that are not compute hosts of the inventory. :raises InvalidInput: no host is selected.
    """
    known = action.compute_hosts()
    named = action.options["hosts"]
    for host in named or ():
        if host not in known:
            raise errors.ComputeHostNotFound(host=host, remedy=suggestion(host, known, "The list of compute hosts"))
    selected = action.within_limit([h for h in known if named is None or h in named])
    if not selected:
        raise errors.InvalidInput(
            reason="no compute host is selected",
            remedy="Name compute hosts in bootflow_service_hosts, and have them in the limit of ansible-playbook, if there is one.",
        )
    columns = scheduler_settings.configurations(action)
    return {host: str(columns[host]["availability_zone"]) for host in selected}


def tasks(action: LedgerAction) -> dict[str, str]:
    """Return the variables of the playbook service_tasks: the file of tasks, or the role by its path or name.

    :raises InvalidInput: there are none, or both; the file or role does not exist, or has no list of tasks.
    """
    path, role = action.options["tasks"], action.options["role"]
    if (path is None) == (role is None):
        raise errors.InvalidInput(
            reason="%s of bootflow_service_tasks and bootflow_service_role is set"
            % ("none" if path is None else "each"),
            remedy="Set one of them: what is to be done with a host that has no instance.",
        )
    if path is not None:
        _check_file(action, path)
        return {"bootflow_service_tasks": path}
    return {"bootflow_service_role": _role(action, role)}


def _check_file(action: LedgerAction, path: str) -> None:
    problem = "" if os.path.isfile(path) else "does not exist"
    if not problem:
        try:
            content = action._loader.load_from_file(path)
        except AnsibleError as e:
            problem = "cannot be read: %s" % " ".join(str(e).split())
        else:
            problem = "" if isinstance(content, list) else "has no list of tasks"
    if problem:
        raise errors.InvalidInput(
            reason="the file %s of bootflow_service_tasks %s" % (path, problem),
            remedy="Give a file with a list of tasks, as include_tasks takes it.",
        )


def _role(action: LedgerAction, name: str) -> str:
    """Return the path of a role as this playbook finds it; the name of one of a collection."""
    try:
        role = RoleInclude.load(name, play=action._task.get_play(), loader=action._loader)
    except AnsibleError as e:
        raise errors.InvalidInput(
            reason="the role of bootflow_service_role: %s" % " ".join(str(e).split()),
            remedy="Name a role in ANSIBLE_ROLES_PATH or of a collection (namespace.name.role).",
        ) from e
    return name if role._role_collection else str(role._role_path)


def of_import(action: LedgerAction) -> dict[str, t.Any]:
    """Return the variables that the playbook gets from the play that imports it, which other playbooks get only if they are passed on."""
    play = action._task.get_play()
    return {name: value for name, value in (play.vars if play else {}).items() if name.startswith("bootflow_")}
