# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: concise
type: stdout
short_description: Screen output of what the playbooks of this collection say, without their plays and tasks
version_added: "0.9.0"
description:
  - Prints what P(ansible.builtin.default#callback) prints of the plays and tasks of others.
  - Of the plays and tasks in the playbooks of this collection it prints only what they say themselves (tables, plans, progress), one line for each
    step that works on hosts, warnings, diffs, and what failed. The recap is left out where nothing else was run.
  - A play of this collection without hosts was not needed, and is not shown. A play of others says C(no hosts matched), as by default.
  - Prints the tasks in the roles of this collection that changed something, failed or have a message.
  - An error of this collection is shown as one paragraph, which ends with what to do. Its data are in the registered result, and with C(-v) on the
    screen.
  - With C(-v) everything is shown as usual.
author: bootflow.compute authors (@bootflow)
requirements:
  - Set as C(stdout_callback) in the section C(defaults) of F(ansible.cfg), or in the environment variable E(ANSIBLE_STDOUT_CALLBACK).
extends_documentation_fragment:
  - ansible.builtin.default_callback
  - ansible.builtin.result_format_callback
"""

EXAMPLES = r"""
ansible.cfg: |
  [defaults]
  stdout_callback = bootflow.compute.concise
"""

import typing as t

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks import playbook_of_this_run

NAMED = 4  # hosts of a step


class CallbackModule(Default):
    CALLBACK_NAME = "bootflow.compute.concise"

    def __init__(self) -> None:
        super().__init__()
        self._unshown: t.Any = None  # a play that has shown nothing yet
        self._quiet_play = False  # the play is one of the collection's playbooks
        self._only_own = True  # nothing but plays of the collection's playbooks has been shown

    # --- plays and tasks ----------------------------------------------------------------------------------------------

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._unshown, self._play = play, play
        self._quiet_play = not self._display.verbosity and playbook_of_this_run.in_playbooks(play)
        if self._display.verbosity:
            self._show_play()

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say nothing of the collection's plays, which were not needed; for others the line may be the only sign of a wrong pattern, or of missing hosts."""
        if not self._quiet_play:
            self._show_play()
            super().v2_playbook_on_no_hosts_matched()
        self._unshown = None

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        if not self._quiet_play:
            super().v2_playbook_on_no_hosts_remaining()

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        if not self._is_quiet(task):
            self._show_play()
            super().v2_playbook_on_task_start(task, is_conditional)
            return
        # The banner waits until there is something to say.
        self._task_type_cache[task._uuid] = "TASK"
        self._last_task_name = task.get_name().strip()
        hosts = _of_hosts(self._play)
        if hosts and playbook_of_this_run.in_playbooks(task):
            more = "" if len(hosts) <= NAMED else " and %d more" % (len(hosts) - NAMED)
            self._display.display("%s: %s%s" % (self._last_task_name, ", ".join(hosts[:NAMED]), more))

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        if not self._is_quiet(task):
            self._show_play()
            super().v2_playbook_on_handler_task_start(task)
            return
        self._task_type_cache[task._uuid] = "RUNNING HANDLER"
        self._last_task_name = task.get_name().strip()

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        if not self._is_quiet(included_file._task):
            super().v2_playbook_on_include(included_file)

    def _is_quiet(self, task: t.Any) -> bool:
        return not self._display.verbosity and (
            playbook_of_this_run.in_playbooks(task) or playbook_of_this_run.in_roles(task)
        )

    def _show_play(self) -> None:
        self._only_own = self._only_own and self._quiet_play
        if self._unshown is not None and not self._quiet_play:
            super().v2_playbook_on_play_start(self._unshown)
        self._unshown = None

    def _print_task_banner(self, task: t.Any) -> None:
        self._show_play()
        if playbook_of_this_run.in_roles(task):
            self._only_own = False
        super()._print_task_banner(task)

    # --- results ------------------------------------------------------------------------------------------------------

    def v2_runner_on_ok(self, result: t.Any) -> None:
        if self._says_nothing(result):
            self._warnings_of(result)
        else:
            super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        if self._is_quiet(result.task):
            self._warnings_of(result)
        else:
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_ok(self, result: t.Any) -> None:
        if self._says_nothing(result):
            self._warnings_of(result)
        else:
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_skipped(self, result: t.Any) -> None:
        if not self._is_quiet(result.task):
            super().v2_runner_item_on_skipped(result)

    def _says_nothing(self, result: t.Any) -> bool:
        """Whether the result is not printed: all in the collection's playbooks, unchanged ones in its roles."""
        if not self._is_quiet(result.task) or result.task.resolved_action == "ansible.builtin.debug":
            return False
        return playbook_of_this_run.in_playbooks(result.task) or not result.result.get("changed", False)

    def _warnings_of(self, result: t.Any) -> None:
        self._handle_warnings_and_exception(result)

    def v2_on_file_diff(self, result: t.Any) -> None:
        if self._is_quiet(result.task) and playbook_of_this_run.in_playbooks(result.task):
            self._last_task_banner = result.task._uuid  # without a banner
        super().v2_on_file_diff(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        answer = result.result
        if self._display.verbosity or "error_code" not in answer:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        if self._last_task_banner != result.task._uuid and not playbook_of_this_run.in_playbooks(result.task):
            self._print_task_banner(result.task)
        self._handle_warnings(answer)
        text = "fatal: [%s]: %s" % (self.host_label(result), answer.get("msg") or answer["error_code"])
        self._display.display(text, color=constants.COLOR_ERROR, stderr=self.get_option("display_failed_stderr"))
        if ignore_errors:
            self._display.display("...ignoring", color=constants.COLOR_SKIP)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self._display.verbosity or not self._only_own or (stats.custom and self.get_option("show_custom_stats")):
            super().v2_playbook_on_stats(stats)


def _of_hosts(play: t.Any) -> list[str]:
    """The hosts that a play works on; none of a play on the controller."""
    if play is None or str(play.connection or "") in ("local", "ansible.builtin.local"):
        return []
    hosts = play.hosts if isinstance(play.hosts, (list, tuple)) else [play.hosts]
    return [str(host) for host in hosts if str(host) != "localhost"]
