# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a run keeps user data and injected files, by its settings."""

from __future__ import annotations

import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.settings.run import GUEST_DATA, IN_LEDGER
from ...module_utils.ledger.db.address import as_address
from ..run.ledger_action import LedgerAction, read_settings
from .guest_data_folder import GuestDataFolder, default_folder
from .guest_data_table import GuestDataTable
from .kept_guest_data import KeptGuestData


def check(action: LedgerAction) -> dict[str, t.Any]:
    """Return the settings. :raises InvalidInput: one is wrong."""
    values = read_settings(GUEST_DATA.options(), {}, action.variable)
    _check_keys(values["user_data_keys"], values["user_data_store"])
    return values


def of_action(action: LedgerAction) -> KeptGuestData:
    """Return the place of this run for its ledger: several ledgers may have their folders in one folder.

    :raises InvalidInput: a setting is wrong.
    """
    values = check(action)
    if not values["keep_user_data"]:
        return KeptGuestData()
    if values["user_data_store"] == IN_LEDGER:
        return GuestDataTable(action.open_ledger, action.ledger_id(), values["user_data_keys"])
    folder = values["user_data_dir"] or default_folder(as_address(action.options["ledger_url"]).url)
    return KeptGuestData() if folder is None else GuestDataFolder(os.path.join(folder, action.ledger_id()))


def _check_keys(keys: t.Sequence[t.Any], store: str) -> None:
    if keys and store != IN_LEDGER:
        raise errors.InvalidInput(
            reason="bootflow_user_data_keys encrypts user data of the ledger only, and bootflow_user_data_store is %s"
            % store,
            remedy="Set bootflow_user_data_store to ledger, or remove the keys.",
        )
