# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power states of guests, set by the module domain_power."""

from __future__ import annotations

import typing as t

from ...module_utils.core.instances.operation_outcomes import Answers
from ..run import host_settings
from ..run.firewall.port_filters import STARTING
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from .work import Items, Problems, Work, uuids_of


class PowerWork(Work):
    """Brings guests into a power state. :arg state: of the module domain_power"""

    sets_power = True

    def __init__(self, action: LedgerAction, state: str, starts_guests: bool = False, connects_volumes: bool = False):
        super().__init__(action)
        self.state = state
        self.starts_guests = starts_guests
        self.starts_any = state in STARTING
        self.connects_volumes = connects_volumes

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        result = self.action.run_module("domain_power", self._arguments(items))
        return result["outcomes"], item_errors(result, uuids_of(items))

    def _arguments(self, items: Items) -> dict[str, t.Any]:
        settings = host_settings.read_current_host(self.action)
        return {
            **host_settings.libvirt_arguments(self.action),
            "domains": [{"uuid": item["uuid"], **item["details"]} for item in items],
            "state": self.state,
            "shutdown_timeout": settings.shutdown_timeout,
            "wait_soft_reboot_seconds": settings.wait_soft_reboot_seconds,
            "wait_timeout": settings.wait_timeout,
            "vif_plugging_timeout": settings.vif_plugging_timeout,
            "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
            "workers": host_settings.workers(self.action, len(items)),
        }
