# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Admin passwords of running guests, set by their agents. source: Nova's set_admin_password"""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.guest.devices import has_agent
from ...module_utils.core.guest.platform import is_windows
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.flows.instances import operation
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, passwords
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from .hard_reboot import Outcomes

PURPOSE = "set_admin_password"


def check(action: LedgerAction, _tx: Transaction, begun: operation.Begun) -> None:
    """Check that the guests have agents, and that somebody will know the passwords.

    :raises QemuGuestAgentNotEnabled: the image of one does not say that it has an agent.
    :raises InvalidInput: no password is given, and no folder for those that are generated; or it cannot be written.
    """
    if not action.options["admin_password"] and not action.options["admin_password_dir"]:
        raise errors.InvalidInput(
            message="bootflow_admin_password is not set, and a generated password would be lost",
            remedy="Set bootflow_admin_password, or bootflow_admin_password_dir for a generated one of each instance.",
        )
    if action.options["admin_password_dir"] and not action.check_mode:
        passwords.check_folder(action.options["admin_password_dir"])
    without = [r for r in begun.rows if not has_agent(_properties(r))]
    operation.refuse(
        [
            errors.QemuGuestAgentNotEnabled(message="QEMU guest agent is not enabled: %s" % r.display_name)
            for r in without
        ]
    )


def password_of(action: LedgerAction, uuid: str) -> str:
    """The new password of an instance in this run."""
    given = action.options["admin_password"]
    return passwords.password_of(uuid, GuestSecrets(admin_password=given) if given else None, PURPOSE)


def change(action: LedgerAction, uuids: t.Sequence[str]) -> tuple[Outcomes, build_parts.Problems]:
    """Set those of these. Returns the outcomes of the module domain_password, and why instances failed."""
    with contextlib.closing(action.open_ledger()) as ledger:
        rows = ledger.inspect(lambda tx: instances.select_live(tx, uuids=uuids))
    problems: build_parts.Problems = {
        uuid: errors.InstanceNotFound(instance_id=uuid) for uuid in set(uuids) - {r.uuid for r in rows}
    }
    if not rows:
        return {}, problems
    domains = [{"uuid": r.uuid, "user": _user(r), "password": password_of(action, r.uuid)} for r in rows]
    result = action.run_module(
        "domain_password",
        {
            **host_settings.libvirt_arguments(action),
            "domains": domains,
            "workers": host_settings.workers(action, len(domains)),
        },
    )
    problems.update(item_errors(result, [r.uuid for r in rows]))
    return result["outcomes"], problems


def _properties(row: Instance) -> t.Mapping[str, t.Any]:
    return t.cast("t.Mapping[str, t.Any]", (row.spec["image"] or {}).get("properties") or {})


def _user(row: Instance) -> str:
    properties = _properties(row)
    return str(properties.get("os_admin_user") or ("Administrator" if is_windows(properties) else "root"))
