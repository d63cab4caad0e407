# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks that this ansible-playbook process was started with."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible import context

COLLECTION = "bootflow.compute"
HOME = Path(os.path.realpath(__file__)).parents[4]
PLAYBOOKS = str(HOME / "playbooks") + os.sep
ROLES = str(HOME / "roles") + os.sep


def playbooks() -> list[str]:
    """As they were named on the command line."""
    return [str(argument) for argument in context.CLIARGS.get("args") or ()]


def own_name(playbook: str) -> str:
    """``boot`` of ``bootflow.compute.boot``; "" of a playbook that is not of this collection, or named by its path."""
    collection, _dot, name = playbook.rpartition(".")
    return name if collection == COLLECTION else ""


def is_alone() -> bool:
    """Whether a playbook of this collection is all that is run, so that no later play of others sees what its tasks register."""
    played = playbooks()
    return len(played) == 1 and bool(own_name(played[0]))


def in_playbooks(part: t.Any) -> bool:
    """Whether a play or task of Ansible is written in a playbook of this collection, also when another playbook imports it."""
    return _path(part).startswith(PLAYBOOKS)


def playbook_of(part: t.Any) -> str:
    """Return the name of the playbook of this collection in which a play or task of Ansible is written; "": it is in none."""
    path = _path(part)
    return Path(path.rpartition(":")[0]).stem if path.startswith(PLAYBOOKS) else ""


def in_roles(part: t.Any) -> bool:
    """Whether a task of Ansible is written in a role of this collection."""
    return _path(part).startswith(ROLES)


def was_named(playbooks_named: t.Iterable[str]) -> str:
    """The first of these arguments of ansible-playbook that is a playbook of this collection, by name or path; "" if none is."""
    for argument in playbooks_named:
        if own_name(argument) or os.path.realpath(argument).startswith(PLAYBOOKS):
            return argument
    return ""


def left_out_by_tags(task: t.Any, variables: t.Mapping[str, t.Any]) -> str:
    """The options --tags and --skip-tags that leave out the tasks after ``task``; "" where they leave out nothing.

    :arg task: the first one of a playbook of this collection, which has the tag ``always`` so that it runs in any case.
    """
    only, skip = list(context.CLIARGS.get("tags") or ()), list(context.CLIARGS.get("skip_tags") or ())
    if (
        (only in ([], ["all"]) and not skip)
        or "always" not in (getattr(task, "_tags", None) or ())
        or not in_playbooks(task)
    ):
        return ""
    # Ansible has put the tags of all that the task is in to its own. The tasks after it have the tags of the block and of the play,
    # which has the tags of the import.
    following = task.copy()
    following._tags = list({*task._parent.tags, *task.get_play().tags})
    if following.evaluate_tags(only, skip, dict(variables)):
        return ""
    options = [("--tags", sorted(map(str, only)) if only != ["all"] else []), ("--skip-tags", sorted(map(str, skip)))]
    return " ".join("%s %s" % (name, ",".join(tags)) for name, tags in options if tags)


def _path(part: t.Any) -> str:
    return os.path.realpath(str(part.get_path() or ""))
