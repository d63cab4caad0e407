# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Admin passwords: the request's, or derived from the run's secret. Neither is handed around, or stored unless the person names a folder."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import random
import tempfile
import typing as t

from ...module_utils.core.errors import InvalidInput
from ...module_utils.core.instances import states
from ...module_utils.core.reading.identifiers import generate_password
from ...module_utils.core.request.guest_data import GuestSecrets, SecretsOfRequest
from ...module_utils.ledger.compute import history, instances
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..guest_data import private_folder
from ..run import tables
from ..run.ledger_action import RUN_SECRET, LedgerAction


def password_of(uuid: str, secrets: GuestSecrets | None, purpose: str = "") -> str:
    """The password of an instance in this run. :arg purpose: of another one than its boot's"""
    if secrets is not None and secrets.admin_password:
        return secrets.admin_password
    digest = hmac.new(RUN_SECRET, (uuid + purpose).encode(), hashlib.sha256).digest()
    # A separate generator for each password, seeded with a secret of 256 bits: the same in every worker.
    return generate_password(random.Random(digest))


def of_run(action: LedgerAction, ledger: Ledger, uuids: t.Sequence[str] | None) -> dict[str, dict[str, str]]:
    """uuid -> name, project and password of the instances that this run started. :arg uuids: only of these; None: of all"""
    secrets_of = SecretsOfRequest(action.options["instances"], action.options["project"]).guest_secrets
    run = action.context().run.id

    def read(tx: Transaction) -> tuple[list[Instance], set[str]]:
        rows = instances.select_live(tx, uuids=uuids, run_id=run)
        rebuilt = (states.REBUILDING, states.REBUILD_SPAWNING)
        rows = [r for r in rows if states.ACTIVE == r.vm_state or r.task_state in rebuilt]
        return rows, history.with_event(tx, [r.uuid for r in rows], "resume")

    rows, resumed = ledger.inspect(read)
    passwords = {}
    for row in rows:
        secrets = secrets_of(row.project, row.display_name)
        # A config drive that a dead run wrote has a password that died with it, unless the request names it.
        known = (
            row.uuid not in resumed or row.task_state is not None or (secrets is not None and secrets.admin_password)
        )
        if row.config_drive and known:
            password = password_of(row.uuid, secrets)
            passwords[row.uuid] = {"name": row.display_name, "project": row.project, "password": password}
    return passwords


def leave(action: LedgerAction, passwords: t.Mapping[str, t.Mapping[str, str]]) -> bool:
    """Leave the passwords of of_run() in the folder of the option ``admin_password_dir``. Returns whether there was something to leave.

    :raises InvalidInput: see leave_in().
    """
    folder = action.options["admin_password_dir"]
    if not (folder and passwords):
        return False
    leave_in(folder, {uuid: entry["password"] for uuid, entry in passwords.items()})
    if action.options["print_table"]:
        tables.show(action.ports.display, ["Admin passwords: in %s, in files named by UUID" % folder])
    return True


def check_folder(folder: str) -> None:
    """Have the folder before guests get passwords that only its files will tell. :raises InvalidInput: see leave_in()."""
    leave_in(folder, {})
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput(
            message="The admin passwords cannot be written to %s: %s" % (folder, os.strerror(errno.EACCES)),
            remedy="Set bootflow_admin_password_dir to a folder that this user may write.",
        )


def leave_in(folder: str, passwords: t.Mapping[str, str]) -> None:
    """Write each password into its own file that only this user can read.

    :arg passwords: by the names of the files, the UUIDs of the instances.
    :raises InvalidInput: the folder cannot be made or written, or other users could exchange what is in it.
    """
    try:
        folder = private_folder.make(folder)
        for uuid, password in passwords.items():
            handle, partial = tempfile.mkstemp(prefix=".", dir=folder)  # 0600
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(password + "\n")
            os.replace(partial, os.path.join(folder, uuid))
    except private_folder.NotPrivate as error:
        raise InvalidInput(
            message="The admin passwords are not written to %s: %s." % (folder, error),
            remedy="Set bootflow_admin_password_dir to a folder of this user that no other user may write to, for example below the home directory.",
        ) from None
    except OSError as error:
        raise InvalidInput(
            message="The admin passwords cannot be written to %s: %s" % (folder, error.strerror),
            remedy="Set bootflow_admin_password_dir to a folder that this user may write. A generated password that was not returned"
            " is lost: delete such an instance and boot it again.",
        ) from None
