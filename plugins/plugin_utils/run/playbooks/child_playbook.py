# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another playbook with the command line of this ansible-playbook: with the same inventory, variables, users and keys."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import typing as t

from ....module_utils.core import errors

ASKED = ("ask_pass", "become_ask_pass", "ask_vault_pass")  # options of ansible-playbook that ask people
OF_RUNNER = "awx_display"
ENDS_WITHIN = 30.0  # seconds that a process has to end after SIGTERM


def command(
    argv: t.Sequence[str], options: t.Mapping[str, t.Any], playbook: str, caller: str, otherwise: str = ""
) -> list[str]:
    """Return the command line ``argv`` of this ansible-playbook, with ``playbook`` in the place of its playbook.

    :arg options: of ansible-playbook, as it has read them from ``argv``.
    :arg caller: what runs it, for messages: "bootflow_watch_sync runs power_sync". :arg otherwise: what else a person can do, after the remedy.
    :raises InvalidInput: it has no other place, or asks for a password.
    """
    played = [str(argument) for argument in options.get("args") or ()]
    if len(played) != 1 or list(argv).count(played[0]) != 1:
        raise errors.InvalidInput(
            reason="%s with the command line of this run, which names %s"
            % (caller, ", ".join(played) or "no playbook"),
            remedy="Run one playbook, whose name occurs once in the command line.",
        )
    prompts = [
        str(vault_id)
        for vault_id in options.get("vault_ids") or ()
        if str(vault_id).rpartition("@")[2].startswith("prompt")
    ]
    if prompts or any(options.get(name) for name in ASKED):
        raise errors.InvalidInput(
            reason="%s without a person who could give a password" % caller,
            remedy="Give passwords in files (--become-password-file, --vault-password-file) or variables%s."
            % otherwise,
        )
    return [playbook if word == played[0] else word for word in argv]


def environment(variables: t.Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the other playbook, from ``variables`` of this process.

    ansible-runner, and with it AWX, has a stdout callback that writes events between the lines: the other playbook has the callback that it took the place
    of, as its lines become lines of this one.
    """
    result = dict(variables)
    if result.get("ANSIBLE_STDOUT_CALLBACK") == OF_RUNNER:
        result["ANSIBLE_STDOUT_CALLBACK"] = result.get("ORIGINAL_STDOUT_CALLBACK") or "default"
        result.pop("AWX_ISOLATED_DATA_DIR", None)
        # Ansible loads each file of these folders, and this one changes how Ansible displays as soon as it is loaded.
        folders = result.pop("ANSIBLE_CALLBACK_PLUGINS", "").split(os.pathsep)
        others = [folder for folder in folders if not os.path.exists(os.path.join(folder, OF_RUNNER + ".py"))]
        result.update({"ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(others)} if any(others) else {})
    return result


class ChildPlaybook:
    """A playbook that runs. It gets the signals that end the worker that started it, as it is in the worker's process group.

    :arg argv: its program and arguments. :arg show: gets what it prints, line by line, at each look.
    """

    def __init__(self, argv: t.Sequence[str], show: t.Callable[[str], None]):
        self._show = show
        self._shown = 0
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment(os.environ),
        )
        self.lines: list[str] = []

    def look(self) -> int | None:
        """Show what it printed since the last look. Returns its exit code; None while it runs."""
        code = self._process.poll()
        text = b""
        # The process writes at the offset that both share, which pread leaves as it is.
        while piece := os.pread(self._output.fileno(), 1 << 16, self._shown + len(text)):
            text += piece
        if code is None:
            text = text[: text.rfind(b"\n") + 1]
        self._shown += len(text)
        for line in text.decode(errors="replace").splitlines():
            self.lines.append(line)
            self._show(line)
        return code

    def end(self) -> None:
        """End it, if it runs: SIGTERM, which it passes to its workers, then SIGKILL."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDS_WITHIN)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.look()


def wait_for_all(
    children: t.Sequence[ChildPlaybook], seconds: float | None, interrupted: t.Callable[[], bool], pause: float = 0.2
) -> list[int | None]:
    """Wait until all have ended. Returns their exit codes, None of a child that was ended because its time was over.

    :arg seconds: at most so long; None: each step of theirs has a limit. :arg interrupted: says whether to end all at once.
    """
    end = None if seconds is None else time.monotonic() + seconds
    codes = [child.look() for child in children]
    try:
        while None in codes and not interrupted() and (end is None or time.monotonic() < end):
            time.sleep(pause)
            codes = [child.look() if code is None else code for child, code in zip(children, codes)]
    finally:
        for child, code in zip(children, codes):
            if code is None:
                child.end()
    return codes
