# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Admin passwords of running guests, set by their agents. source: Nova's set_admin_password"""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.guest.devices import has_agent
from ...module_utils.core.guest.values import is_windows
from ...module_utils.core.instances.operation_outcomes import Answers
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.flows.instances import operation
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, passwords
from ..run import host_settings
from ..run.results import item_errors
from .work import Items, Work, uuids_of

PURPOSE = "set_admin_password"


class SetAdminPassword(Work):
    """Sets the admin passwords of guests."""

    password_suffix = ""

    def check(self, tx: Transaction, begun: operation.Begun) -> None:
        """Check that the guests have agents, and that the passwords will be known.

        :raises QemuGuestAgentNotEnabled: the image of one does not say that it has an agent.
        :raises InvalidInput: no password is given, and no folder for generated ones; or it cannot be written.
        """
        options = self.action.options
        if not options["admin_password"] and not options["admin_password_dir"]:
            raise errors.InvalidInput(
                message="bootflow_admin_password is not set, and a generated password would be lost",
                remedy="Set bootflow_admin_password, or bootflow_admin_password_dir for a generated one of each instance.",
            )
        if options["admin_password_dir"] and not self.action.check_mode:
            passwords.check_folder(options["admin_password_dir"])
        without = [r for r in begun.rows if not has_agent(_properties(r))]
        operation.refuse(
            [
                errors.QemuGuestAgentNotEnabled(message="QEMU guest agent is not enabled: %s" % r.display_name)
                for r in without
            ]
        )

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        return {"user": _user(row)}

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        domains = [{"uuid": i["uuid"], "user": i["user"], "password": self.password(i["uuid"])} for i in items]
        result = self.action.run_module(
            "domain_password",
            {
                **host_settings.libvirt_arguments(self.action),
                "domains": domains,
                "workers": host_settings.workers(self.action, len(domains)),
            },
        )
        return result["outcomes"], item_errors(result, uuids_of(items))

    def password(self, uuid: str) -> str:
        given = self.action.options["admin_password"]
        return passwords.password_of(uuid, GuestSecrets(admin_password=given) if given else None, PURPOSE)


def _properties(row: Instance) -> t.Mapping[str, t.Any]:
    return t.cast("t.Mapping[str, t.Any]", (row.spec["image"] or {}).get("properties") or {})


def _user(row: Instance) -> str:
    properties = _properties(row)
    return str(properties.get("os_admin_user") or ("Administrator" if is_windows(properties) else "root"))
