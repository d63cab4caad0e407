# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_spawn."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.metadata import pack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import dhcp
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import Values
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import SecretsOfRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds as ledger_builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.builds import Build
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    attached_volumes,
    guest_of_build,
    host_settings,
    passwords,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import item_errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import Outcomes, StageAction


class ActionModule(StageAction):
    ARGUMENTS = REQUEST.options("instances", "project")
    STAGE = ledger_builds.SPAWNING

    def work(self, builds: list[Build]) -> Outcomes:
        self._power_states: dict[str, int] = {}
        self._names: dict[str, str] = {}
        secrets_of = SecretsOfRequest(self.options["instances"], self.options["project"]).of
        outcomes: Outcomes = {}
        settings = host_settings.of(self)
        drives, domains = [], []
        with_volumes = [b.uuid for b in builds if guest_of_build.has_volumes(b)]
        volumes = self.open_ledger().inspect(attached_volumes.load, with_volumes) if with_volumes else {}
        places = self._define_tagged(builds, settings, volumes, outcomes)
        for build in builds:
            if build.uuid in outcomes:
                continue
            try:
                if build.row.config_drive:
                    secrets = secrets_of(build.row.project, build.row.display_name)
                    password = passwords.password_of(build.uuid, secrets)
                    files = guest_of_build.config_drive(
                        build, settings, secrets, password, volumes.get(build.uuid, ()), places.get(build.uuid, ())
                    )
                    drives.append(
                        {
                            "uuid": build.uuid,
                            "path": guest_of_build.config_drive_path(build, settings),
                            "format": settings.config_drive_format,
                            "files": pack_files(files),
                            "keep": build.resumed,
                        }
                    )
                domains.append(self._domain(build, settings, volumes.get(build.uuid, ())))
            except errors.BootflowError as e:
                outcomes[build.uuid] = e
        if drives:
            result = self.run_module("config_drive", {"drives": drives})
            outcomes.update(item_errors(result, [d["uuid"] for d in drives]))
        domains = [d for d in domains if outcomes.get(d["uuid"]) is None]
        if domains:
            result = self._run_domains(domains, settings, outcomes)
            good = {u: r for u, r in result["outcomes"].items() if not r.get("error")}
            self._power_states = {u: r["power_state"] for u, r in good.items()}
            self._names = {u: r["name"] for u, r in good.items() if r.get("name")}
        return {b.uuid: outcomes.get(b.uuid) for b in builds}

    def finish(self, tx: Transaction, host: str, good: list[Build]) -> list[str]:
        power_states = {b.uuid: self._power_states[b.uuid] for b in good}
        with_volumes = {b.uuid for b in good if b.volumes}
        renamed = {
            b.uuid: self._names[b.uuid] for b in good if self._names.get(b.uuid, b.row.domain_name) != b.row.domain_name
        }
        _active, lost = ledger_builds.spawned(tx, host, power_states, with_volumes, renamed)
        return lost

    def _define_tagged(
        self,
        builds: t.Sequence[Build],
        settings: Values,
        volumes: t.Mapping[str, t.Sequence[attached_volumes.Attached]],
        outcomes: Outcomes,
    ) -> dict[str, t.Any]:
        """Define the guests that are told where they find devices with a tag. Returns the places of each one's devices.

        libvirt gives the devices their addresses, and the config drive, which tells them, is written before the guest starts.
        """
        domains = []
        for build in builds:
            if build.row.config_drive and guest_of_build.has_tags(build):
                try:
                    domain = self._domain(build, settings, volumes.get(build.uuid, ()))
                except errors.BootflowError as e:
                    outcomes[build.uuid] = e
                else:
                    domains.append(
                        {**{k: domain[k] for k in ("uuid", "name", "spare_names", "xml")}, "state": "defined"}
                    )
        if not domains:
            return {}
        result = self._run_domains(domains, settings, outcomes)
        return {uuid: outcome.get("devices") or () for uuid, outcome in result["outcomes"].items()}

    def _run_domains(
        self, domains: t.Sequence[t.Mapping[str, t.Any]], settings: Values, outcomes: Outcomes
    ) -> dict[str, t.Any]:
        """:arg outcomes: gets the errors"""
        result = self.run_module(
            "domain",
            {
                **host_settings.libvirt_arguments(self),
                "domains": domains,
                "workers": host_settings.workers(self, len(domains)),
                "instances_path": settings.instances_path,
                "max_builds": settings.max_concurrent_builds,
                "place_timeout": settings.build_place_timeout,
            },
        )
        outcomes.update(item_errors(result, [d["uuid"] for d in domains]))
        return result

    def _domain(
        self,
        build: Build,
        settings: Values,
        volumes: t.Sequence[attached_volumes.Attached],
    ) -> dict[str, t.Any]:
        wanted: dict[str, t.Any] = {
            "uuid": build.uuid,
            "name": build.row.domain_name,
            "spare_names": guest_of_build.spare_names(build),
            "xml": guest_of_build.domain_xml(build, settings, volumes),
            "state": "running",
            "wait_timeout": settings.wait_timeout,
            "vif_plugging_timeout": settings.vif_plugging_timeout,
            "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
            "reservations": [
                reserved
                for port, network in build.ports
                for reserved in dhcp.reservations(port.mac_address, port.fixed_ips, network, build.row.hostname)
            ],
        }
        if settings.wait_console:
            wanted["wait_console"] = {
                "pattern": settings.wait_console,
                "timeout": settings.wait_guest_timeout,
                "log": guest_of_build.console_log(build, settings),
            }
        addresses = [f["ip_address"] for p, _n in build.ports for f in p.fixed_ips]
        if settings.wait_address and addresses:
            wanted["wait_address"] = {"address": addresses[0], "timeout": settings.wait_guest_timeout}
        if settings.wait_agent and guest_of_build.has_agent(build):
            wanted["wait_agent"] = settings.wait_guest_timeout
        return wanted
