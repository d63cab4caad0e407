# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find out whether anything can read the instances that a task returns. Ansible copies and converts each of their fields, 0.5 ms an instance."""

from __future__ import annotations

import typing as t

from ansible import constants, context

from ..results import statistics
from . import playbook_of_this_run

Views = t.Sequence[t.Mapping[str, t.Any]]

MOST = 1000  # instances that are returned whole, whoever reads them
KEPT = ("name", "uuid", "vm_state")
# Callbacks that print no field of a successful task and no custom statistics by default.
_BLIND = ("default", "concise", "timer", "profile_tasks", "profile_roles")


def someone_reads(hook: bool = False) -> bool:
    """Whether anything in this run can read what a task of a playbook of this collection returns: a later play or task of the user, a callback,
    or a person. :arg hook: whether tasks of the user follow in the playbook"""
    callbacks = (str(constants.DEFAULT_STDOUT_CALLBACK), *map(str, constants.CALLBACKS_ENABLED or ()))
    return (
        hook
        or not playbook_of_this_run.is_alone()
        or bool(context.CLIARGS.get("verbosity"))
        or bool(constants.SHOW_CUSTOM_STATS)
        or any(name.rpartition(".")[2] not in _BLIND for name in callbacks)
    )


def returned(instances: Views, hook: bool = False) -> Views:
    """Return the part of ``instances`` that a task returns: all of them whole, or name, uuid and vm_state of each of more than 1,000 that nothing can read.

    :arg hook: see someone_reads()
    """
    if len(instances) <= MOST or someone_reads(hook):
        return instances
    return [{name: view[name] for name in KEPT} for view in instances]


def fields(instances: Views, set_stats: bool, hook: bool = False) -> dict[str, t.Any]:
    """Return the instances as fields of a task's result, with the statistic if it is wanted: whoever reads that one could read the instances.

    :arg hook: see someone_reads()
    """
    returned_views = returned(instances, hook)
    return {"instances": returned_views, **(statistics(instances) if set_stats and returned_views is instances else {})}
