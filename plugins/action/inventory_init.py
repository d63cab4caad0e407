# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.inventory_init."""

from __future__ import annotations

import os
import typing as t

from ..module_utils.core import errors, first_folder
from ..module_utils.core.settings.run import INIT, RUN
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction

KEYS = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")


class ActionModule(LedgerAction):
    ARGUMENTS = {**INIT.options(), **RUN.options("print_table")}

    def act(self) -> dict[str, t.Any]:
        options = self.options
        folder = os.path.abspath(options["init_dir"])
        hosts = [first_folder.read_host(text) for text in options["init_hosts"]]
        is_root = os.geteuid() == 0
        by_sudo = first_folder.becomes_root(hosts, options["init_user"], is_root)
        wanted = first_folder.files(
            folder, hosts, options["init_user"], self._public_key(options["init_public_key"]), is_root
        )
        existing_paths = [path for path in wanted if os.path.lexists(os.path.join(folder, path))]
        new = {path: text for path, text in wanted.items() if path not in existing_paths}
        if not self.check_mode:
            self._write(folder, new)
        if options["print_table"]:
            tables.show(self._display, self._lines(folder, list(new), existing_paths, by_sudo))
        return {
            "changed": bool(new),
            "folder": folder,
            "created": list(new),
            "kept": existing_paths,
            "diff": [
                {"before": "", "after": text, "before_header": path, "after_header": os.path.join(folder, path)}
                for path, text in new.items()
            ],
        }

    def _refuse_unmeant_ledger(self) -> None:
        """This opens no ledger, and there is no inventory yet."""

    def _public_key(self, named: str | None) -> str:
        paths = [named] if named else [os.path.join(os.path.expanduser("~/.ssh"), name) for name in KEYS]
        reason = ""
        for path in paths:
            try:
                with open(path, encoding="utf-8") as stream:
                    return first_folder.read_public_key(stream.read(), path)
            except UnicodeDecodeError:
                return first_folder.read_public_key("", path)
            except OSError as error:
                reason = "%s: %s" % (path, error.strerror)
        raise errors.InvalidInput(
            message="There is no public SSH key to log in to guests with (%s)" % reason,
            remedy="Make one with ssh-keygen -t ed25519, or name its file in bootflow_init_public_key.",
        )

    @staticmethod
    def _write(folder: str, new: t.Mapping[str, str]) -> None:
        """:raises InvalidInput: a file cannot be written. An existing one is never opened for writing."""
        for path, text in new.items():
            whole = os.path.join(folder, path)
            try:
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                with open(whole, "x", encoding="utf-8") as stream:
                    stream.write(text)
            except OSError as error:
                raise errors.InvalidInput(
                    message="%s cannot be written: %s" % (whole, error.strerror),
                    remedy="Set bootflow_init_dir to a folder that this user may write.",
                ) from None

    def _lines(self, folder: str, new: t.Sequence[str], existing_paths: t.Sequence[str], by_sudo: bool) -> list[str]:
        verb = "Would write" if self.check_mode else "Wrote"
        lines = ["%s into %s: %s" % (verb, folder, ", ".join(new))] if new else []
        lines += ["Left as they are in %s: %s" % (folder, ", ".join(existing_paths))] if existing_paths else []
        if self.check_mode:
            return lines
        return [
            *lines,
            "Look at group_vars/all/catalogue.yml, then:",
            "  cd %s" % folder,
            "  ansible-playbook bootflow.compute.prepare",
            "  ansible-playbook bootflow.compute.boot -e @web.yml",
            "  ansible instances -m ping",
            *(
                ["On the compute hosts the playbooks become root by sudo: give them -K where it asks for a password."]
                if by_sudo
                else []
            ),
        ]
