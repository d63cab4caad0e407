# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: concise
type: stdout
short_description: Screen output without plays that have no hosts, and errors as one paragraph
version_added: "0.1.0"
description:
  - Prints what P(ansible.builtin.default#callback) prints, except for two things.
  - A play without hosts is not shown. The playbooks of this collection have plays for each step and each further round of a boot; those that are not
    needed have no hosts.
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


class CallbackModule(Default):
    CALLBACK_NAME = "bootflow.compute.concise"

    def __init__(self) -> None:
        super().__init__()
        self._unshown: t.Any = None  # a play of which no task has begun

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._unshown = play
        if self._display.verbosity:
            self._show_play()

    def v2_playbook_on_no_hosts_matched(self) -> None:
        if self._display.verbosity:
            super().v2_playbook_on_no_hosts_matched()
        self._unshown = None

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self._show_play()
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        self._show_play()
        super().v2_playbook_on_handler_task_start(task)

    def _show_play(self) -> None:
        if self._unshown is not None:
            super().v2_playbook_on_play_start(self._unshown)
            self._unshown = None

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        found = result.result
        if self._display.verbosity or "error_code" not in found:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._handle_warnings(found)
        text = "fatal: [%s]: %s" % (self.host_label(result), found.get("msg") or found["error_code"])
        self._display.display(text, color=constants.COLOR_ERROR, stderr=self.get_option("display_failed_stderr"))
        if ignore_errors:
            self._display.display("...ignoring", color=constants.COLOR_SKIP)
