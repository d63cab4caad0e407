# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that resizes and cold migrations begin with, from the options of an action."""

from __future__ import annotations

import typing as t

from ...module_utils.core.model import Flavor
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.request import REQUEST
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import cold
from ..run import host_settings, inventory_hosts
from ..run.ledger_action import LedgerAction, read_settings
from . import scheduler_settings


def wanted(
    action: LedgerAction,
    selection: Selection,
    pci_aliases: t.Any,
    flavor: Flavor | None = None,
    flavors: t.Mapping[str, Flavor] | None = None,
) -> cold.Wanted:
    """:arg flavor: for all. :arg flavors: uuid -> flavor"""
    hosts = action.compute_hosts()
    variables = scheduler_settings.variables_of_hosts(action)
    zero_disk = REQUEST.options("allow_zero_disk_flavor")
    given = {name: action.options.get(name) for name in zero_disk}
    return cold.Wanted(
        selection,
        frozenset(hosts),
        {h: host_settings.disk_place(HOST.read(variables[h])) for h in hosts},
        flavor,
        flavors or {},
        pci_aliases,
        action.options["instance_overhead"],
        scheduler_settings.reading_of(action).filters,
        action.options["quotas"],
        inventory_hosts.all_of(action),
        action.options["allow_resize_to_same_host"],
        read_settings(zero_disk, given, action.variable)["allow_zero_disk_flavor"],
    )
