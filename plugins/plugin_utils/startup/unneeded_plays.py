# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays of this collection that were not needed, and so have no hosts, are shown by no callback.

Ansible prints three lines for each of them, and a playbook cannot end before its last play: 230 lines of a playbook apply that has nothing to do. Plays of
others are shown as ever, and with -v all are. Nothing else changes: plays without hosts run nothing. With an Ansible that tells its callbacks otherwise
they are shown.
"""

from __future__ import annotations

import functools
import sys
import typing as t

START, NO_HOSTS = "v2_playbook_on_play_start", "v2_playbook_on_no_hosts_matched"
_MARK = "_bootflow_hidden_play"  # attribute of Ansible's queue manager: the play that was not shown


def hide() -> None:
    """Hide them in this process, if it runs playbooks."""
    manager = getattr(sys.modules.get("ansible.executor.task_queue_manager"), "TaskQueueManager", None)
    send = getattr(manager, "send_callback", None)
    if send is not None:  # this is called once, as the package of the plugins is loaded
        manager.send_callback = _without_unneeded(send)  # type: ignore[union-attr]


def _without_unneeded(send: t.Callable[..., None]) -> t.Callable[..., None]:
    @functools.wraps(send)
    def sent(manager: t.Any, method_name: str, *arguments: t.Any, **named: t.Any) -> None:
        if method_name == START and arguments:
            hidden = _is_unneeded(manager, arguments[0])
            setattr(manager, _MARK, hidden)
            if hidden:
                return
        if method_name == NO_HOSTS and getattr(manager, _MARK, False):
            return
        send(manager, method_name, *arguments, **named)

    return sent


def _is_unneeded(manager: t.Any, play: t.Any) -> bool:
    from ansible.utils.display import Display

    from ..run.playbooks import playbook_of_this_run

    inventory = getattr(manager, "_inventory", None)
    return bool(
        inventory is not None
        and not Display().verbosity
        and playbook_of_this_run.in_playbooks(play)
        and not inventory.get_hosts(play.hosts)
    )
