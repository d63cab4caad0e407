# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_networks."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds as ledger_builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.builds import Build
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reservations
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings
from ansible_collections.bootflow.compute.plugins.plugin_utils.dhcp import reserve
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import item_errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import Outcomes, StageAction


class ActionModule(StageAction):
    STAGE = ledger_builds.NETWORKING

    def work(self, builds: list[Build]) -> Outcomes:
        networks = {n.name: n for b in builds for _p, n in b.ports}
        if not networks:
            return {b.uuid: None for b in builds}
        result = self.run_module(
            "virtual_network",
            {
                **host_settings.libvirt_arguments(self),
                "networks": [_module_network(asdict(n)) for n in networks.values()],
            },
        )
        self._restore({n.source for n in networks.values() if result["outcomes"].get(n.name, {}).get("defined")})
        problems = item_errors(result, networks)
        outcomes: dict[str, t.Optional[errors.BootflowError]] = {}
        for build in builds:
            outcomes[build.uuid] = next((problems[n.name] for _p, n in build.ports if n.name in problems), None)
        return outcomes

    def _restore(self, made: set[str]) -> None:
        """Reserve the addresses of the guests that a network had here before somebody removed it. :arg made: names in libvirt."""
        if not made:
            return
        host = self.task_vars["inventory_hostname"]
        ledger = self.open_ledger()
        try:
            guests = ledger.inspect(reservations.of_hosts, [host]).get(host, {})
        finally:
            ledger.close()
        reserve(self, [each for needed in guests.values() for each in needed if each["network"] in made])


def _module_network(network: dict[str, t.Any]) -> dict[str, t.Any]:
    return {k: network[k] for k in ("name", "type", "source", "manage", "forward", "mtu", "subnets")}
