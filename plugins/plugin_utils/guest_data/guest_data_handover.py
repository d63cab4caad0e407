# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files that the ledger keeps, on their way from the controller's task to the tasks of hosts that make guests again.

They are in files of mode 0600 in the folder of this ansible-playbook process (mode 0700, gone with it), and in no result. What a folder of the
controller keeps is not handed over: hosts' tasks read it there.
"""

from __future__ import annotations

import json
import os
import typing as t

from ...module_utils.core.model import InjectedFile
from ...module_utils.core.request.guest_data import GuestSecrets
from ..run.ledger_action import LedgerAction
from ..run.stage_results import folder_of, path_of

GIVEN = "guest-data"


def give(action: LedgerAction, secrets_by_host: t.Mapping[str, t.Mapping[str, GuestSecrets]]) -> None:
    """Hand the secrets of instances to the next tasks of their hosts: host -> uuid -> secrets. What was given before is void."""
    folder = folder_of(action)
    for path in folder.glob("*.%s" % GIVEN):
        path.unlink()
    for host, secrets_by_uuid in secrets_by_host.items():
        data = {
            uuid: {"user_data": s.user_data, "files": [[f.path, f.contents] for f in s.injected_files]}
            for uuid, s in secrets_by_uuid.items()
        }
        handle = os.open(path_of(folder, host, GIVEN), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(data, file)


def find(action: LedgerAction, uuid: str) -> GuestSecrets | None:
    """Return the secrets of an instance that were handed to the current host; None: none were."""
    try:
        text = path_of(folder_of(action), action.task_vars["inventory_hostname"], GIVEN).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    data = json.loads(text).get(uuid)
    if data is None:
        return None
    return GuestSecrets(data["user_data"], tuple(InjectedFile(path=p, contents=c) for p, c in data["files"]))
