# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DHCP reservations of guests that exist, on the current host."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import item_errors


def reserve(action: LedgerAction, wanted: t.Sequence[t.Mapping[str, str]]) -> dict[str, errors.BootflowError]:
    """Returns why addresses could not be reserved, by their MAC addresses."""
    if not wanted:
        return {}
    result = action.run_module(
        "virtual_network", {**host_settings.libvirt_arguments(action), "reservations": list(wanted)}
    )
    return item_errors({"outcomes": result.get("reservations") or {}}, [each["mac"] for each in wanted])
