# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: flow
type: stdout
short_description: Screen output with a line for each instance that is booted, and the table last
version_added: "0.9.0"
description:
  - Prints what P(bootflow.compute.concise#callback) prints, and of a boot one line for each instance, with the host that it was scheduled on, the seconds
    that its networking, disks and spawning took, hosts on which it failed, and its state at the end.
  - On a terminal the lines of instances that are being built stand at the bottom of the screen and grow. The newest line of progress of each
    live migration and copy of an image stands there, too, while it lasts.
  - Elsewhere, and where E(ANSIBLE_NOCOLOR) or E(NO_COLOR) is set, each line is printed once, without escapes. The line of an instance is printed when
    it is over, a line of progress at each tenth.
  - A problem of a host because of which a build goes to another host is printed as it happens, once for all instances.
  - The table of a task that failed is printed after its error, which the registered result has in C(table).
  - A boot that changes nothing prints three lines in place of the table.
  - It reads the results of tasks only. It opens no ledger, and asks no host.
  - Plays and tasks of others are printed as with P(ansible.builtin.default#callback). With C(-v) everything is.
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
  stdout_callback = bootflow.compute.flow
"""

import sys
import time
import typing as t

from ansible import constants

from ansible_collections.bootflow.compute.plugins.callback.concise import CallbackModule as Concise
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks import playbook_of_this_run
from ansible_collections.bootflow.compute.plugins.plugin_utils.screen import board
from ansible_collections.bootflow.compute.plugins.plugin_utils.screen.instance_lines import (
    DONE,
    FAILED,
    PROBLEM,
    InstanceLines,
    Line,
)

COLORS = {DONE: constants.COLOR_OK, FAILED: constants.COLOR_ERROR, PROBLEM: constants.COLOR_WARN}


class CallbackModule(Concise):
    CALLBACK_NAME = "bootflow.compute.flow"

    def __init__(self) -> None:
        super().__init__()
        self._instances = InstanceLines()
        redraws = not self._display.verbosity and board.is_usable(sys.stdout)
        self._board = board.Board(self._display) if redraws else None

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        if self._board is not None:
            self._board.end_progress()
        if not self._is_quiet(task):  # a task of others may ask people, and write where the lines stand
            self._give_up()
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._take_stages(result)
        super().v2_runner_on_ok(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._take_stages(result)
        super().v2_runner_on_failed(result, ignore_errors)
        if result.result.get("table"):
            self._display.display("\n".join(result.result["table"]))

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self._board is not None:
            self._board.end_progress()
        self._give_up()
        super().v2_playbook_on_stats(stats)

    def _take_stages(self, result: t.Any) -> None:
        """Take what the result of a task of a boot says of instances."""
        task, answer = result.task, result.result
        if not self._is_quiet(task) or task.check_mode or not playbook_of_this_run.in_playbooks(task):
            return
        now, stage = time.monotonic(), str(task.resolved_action).removeprefix("bootflow.compute.")
        if stage == "boot_accept":
            self._instances.accept(now)
        elif stage == "boot_schedule":
            self._instances.schedule(answer.get("placed") or ())
            self._show([])
        elif stage == "boot_build":
            builds, failed_builds = answer.get("builds") or (), answer.get("failed_builds") or ()
            self._show(self._instances.build(result.host.get_name(), builds, failed_builds, now))
        elif stage == "boot_report":
            self._show(self._instances.report(answer.get("instances") or (), now))

    def _give_up(self) -> None:
        """Print the lines of instances of which nothing follows."""
        self._show(self._instances.unfinished())

    def _show(self, lines: t.Sequence[Line]) -> None:
        if self._board is not None:
            self._board.set_lines(self._instances.growing())
        for line in lines:
            self._display.display(line.text, color=COLORS[line.kind])
