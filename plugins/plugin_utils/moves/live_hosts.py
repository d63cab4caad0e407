# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of hosts in a live migration: sources look at the guests, destinations prepare for them, sources send them, and both clean up."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.stores.registry import is_shared
from ...module_utils.core.instances import states
from ...module_utils.core.instances.moves import data_gb
from ...module_utils.core.instances.progress import path_of
from ...module_utils.core.instances.verdicts.answer import Answer
from ...module_utils.core.networks import dhcp
from ...module_utils.core.settings.hosts import GUEST
from ...module_utils.core.settings.live import LIVE_MIGRATION
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.core.volumes.states import ATTACHED
from ...module_utils.flows.boot import builds as of_ledger
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import cleanup
from ...module_utils.flows.moves import live_life
from ...module_utils.ledger.compute import instances, ports
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..builds.dhcp import reserve
from ..builds.pool_disks import ARRIVING, open_disks
from ..operations.cleaning import clean_host, warn_of_leftovers
from ..run import host_settings, host_variables
from ..run.results import item_errors
from ..run.stages import Failed, Item, Outcomes, Result, Stages
from ..volumes.attached_volumes import connect_before_arrival, disks_on_destination, sources_on
from . import live_progress, live_settings
from .arriving_guest import limits_of
from .guest_networks import ensure_networks
from .live_progress import Leaving


class LiveHosts(Stages):
    """The stages of hosts."""

    called = event = live_life.LIVE_MIGRATE.name
    answered_by = {
        "look": "source",
        "prepare": "destination",
        "migrate": "source",
        "settle": "destination",
        "clean": "source",
    }

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {
            "look": self._look,
            "prepare": self._prepare,
            "migrate": self._migrate,
            "settle": self._settle_destination,
            "clean": self._clean,
        }

    # --- look -----------------------------------------------------------------------------------------------------------

    def _batch(self, arguments: t.Mapping[str, t.Any], uuids: t.Sequence[str]) -> tuple[Outcomes, Failed]:
        """Run a step of the module domain_migration. :arg arguments: with its step"""
        result = self.action.run_module(
            "domain_migration", {**host_settings.libvirt_arguments(self.action), **arguments}
        )
        return result["outcomes"], item_errors(result, uuids)

    def _look(self, host: str) -> Result:
        """Read what the destinations must know of the guests."""
        uuids = [i["uuid"] for i in self.items_on(host, "source")]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            volumes = ledger.inspect(sources_on, host, uuids)
        arguments = {
            "step": "describe",
            "instances_path": host_settings.read_current_host(self.action).instances_path,
            "uuids": uuids,
            "volumes": volumes,
        }

        def look() -> tuple[Outcomes, Failed]:
            outcomes, failed = self._batch(arguments, uuids)
            return outcomes, {**failed, **self._with_others(uuids, outcomes, failed)}

        return {"changed": False, "outcomes": self.guarded(uuids, look)}

    def _with_others(self, uuids: t.Sequence[str], outcomes: Outcomes, failed: t.Collection[str]) -> Failed:
        """Return why guests cannot go: they do not have the volumes that the ledger says they have."""
        with contextlib.closing(self.action.open_ledger()) as ledger:
            known = ledger.inspect(attachments.of_instances, uuids)
        problems: dict[str, errors.BootflowError] = {}
        for uuid in [u for u in uuids if u not in failed]:
            has = {v["id"] for v in outcomes[uuid]["guest"]["volumes"]}
            other = sorted(has ^ {r.volume_id for r in known.get(uuid, ()) if r.attach_status == ATTACHED})
            if other:
                problems[uuid] = errors.MigrationPreCheckError(
                    reason="guest %s %s volume %s, and the ledger says otherwise"
                    % (uuid, "has" if other[0] in has else "does not have", other[0]),
                    remedy="Reboot the instance hard, which defines the guest as the ledger has it.",
                )
        return problems

    # --- prepare --------------------------------------------------------------------------------------------------------

    def _prepare(self, host: str) -> Result:
        """Make networks and empty disks for the guests that can come, and start the process that lets them in."""
        items, looked = self.items_on(host, "destination"), self.answers("look")
        guests = {i["uuid"]: looked[i["uuid"]]["guest"] for i in items if not looked[i["uuid"]].get("error")}
        lacking = self.guarded(list(guests), lambda: ({}, ensure_networks(self.action, list(guests))))
        able = [u for u in guests if not lacking.get(u, {}).get("error")]
        having = [i["uuid"] for i in items if i["volumes"] and i["uuid"] in able]
        lacking.update(self.guarded(having, lambda: ({}, connect_before_arrival(self.action, having))))
        able = [u for u in able if not lacking.get(u, {}).get("error")]
        lacking.update(self.guarded(able, lambda: ({}, open_disks(self.action, able, ARRIVING))))
        able = [u for u in able if not lacking.get(u, {}).get("error")]
        place: dict[str, t.Any] = {}
        prepared = self.guarded(able, lambda: self._let_in(host, {u: guests[u] for u in able}, place))
        return {
            "outcomes": {**lacking, **prepared},
            "place": place,
            "folder": host_settings.read_current_host(self.action).instances_path,
            "vnc_listen": host_settings.values(self.action, GUEST).vnc_listen,
        }

    def _let_in(
        self, host: str, guests: t.Mapping[str, t.Mapping[str, t.Any]], place: dict[str, t.Any]
    ) -> tuple[Outcomes, Failed]:
        """Start the process that lets guests in. :arg guests: what their sources said of them. :arg place: gets where it listens"""
        settings, uuids, items = host_settings.read_current_host(self.action), list(guests), self.items()
        first, last = map(int, settings.copy_ports.split("-"))
        begun = self.result("begin")
        limits, volumes = self._limits(uuids), self._volumes_here(host, uuids)
        result = self.action.run_module(
            "domain_migration",
            {
                **host_settings.libvirt_arguments(self.action),
                "step": "prepare",
                "instances_path": settings.instances_path,
                "ledger_id": self.action.ledger_id(),
                "volume_group": host_settings.volume_group(settings),
                "disk_pool": host_settings.disk_pool(settings),
                "arriving_guests": [
                    {
                        "uuid": u,
                        "token": self.token(u),
                        "guest": guests[u],
                        "limits": limits[u],
                        "volumes": volumes.get(u, {}),
                        "made_for": items[u]["made_for"],
                    }
                    for u in uuids
                ],
                "first_port": first,
                "last_port": last,
                "stop_token": self.token(host),
                "lifetime": self._longest(guests),
                "patience": live_settings.patience(self.action, begun["sources"], begun["destinations"]),
            },
        )
        place.update(address=items[uuids[0]]["address"], port=result["port"], fingerprint=result["fingerprint"])
        return result["outcomes"], item_errors(result, uuids)

    def _limits(self, uuids: t.Sequence[str]) -> dict[str, dict[str, t.Any]]:
        """Return the limits for the definitions of guests here, for anything that their sources send."""
        builds = {b.uuid: b for b in self._builds(uuids)}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            port_lists = ledger.inspect(
                lambda tx: [ports.ports_of(tx, uuids, leaving=leaving) for leaving in (False, True)]
            )
        settings = host_settings.values(self.action, GUEST)
        return {
            u: limits_of(builds[u], settings, [*port_lists[0][u], *port_lists[1][u]], self.items()[u]["pins"])
            for u in uuids
        }

    def _volumes_here(self, host: str, uuids: t.Sequence[str]) -> dict[str, dict[str, str]]:
        """Return how ``host``, the destination, has the volumes of instances: uuid -> id of the volume -> its disk."""
        having = [u for u in uuids if self.items()[u]["volumes"]]
        if not having:
            return {}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(disks_on_destination, host, having)

    def _longest(self, guests: t.Mapping[str, t.Mapping[str, t.Any]]) -> float:
        """Return the seconds that all guests may take, one after the other."""
        limits = host_settings.values(self.action, TIME_LIMITS)
        return float(limits.copy_timeout) + sum(2.0 * self._time_of(u, guest) for u, guest in guests.items())

    def _time_of(self, uuid: str, guest: t.Mapping[str, t.Any]) -> float:
        """Return the seconds that the guest has, by its size. source: Nova's live_migration_completion_timeout"""
        item = self.items()[uuid]
        settings = LIVE_MIGRATION.read(host_variables.of_host(self.action.task_vars["hostvars"], item["source"]))
        sizes = [int(d["record"]["virtual_size"]) for d in guest["disks"]]
        return float(settings.live_migration_completion_timeout) * data_gb(item["memory_mb"], sizes)

    def _builds(self, uuids: t.Sequence[str]) -> list[Build]:
        def load(tx: Transaction) -> list[Build]:
            rows = [r for r in instances.select_live(tx, uuids=uuids) if instances.is_placed(r)]
            return of_ledger.load(tx, rows)

        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(load)

    # --- migrate --------------------------------------------------------------------------------------------------------

    def _migrate(self, host: str) -> Result:
        """Send the guests to their destinations, a few at a time."""
        looked, prepared = self.answers("look"), self.answers("prepare")
        ready = [
            i
            for i in self.items_on(host, "source")
            if not prepared[i["uuid"]].get("error") and not looked[i["uuid"]].get("error")
        ]
        to_send = {i["uuid"]: self._to_send(i, looked[i["uuid"]]["guest"], prepared[i["uuid"]]) for i in ready}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            owned = set(ledger.transact(live_life.mark_running, list(to_send)))
        items = [i for i in ready if i["uuid"] in owned]
        volumes = {i["uuid"]: self._volumes_here(i["destination"], [i["uuid"]]).get(i["uuid"], {}) for i in items}
        settings = host_settings.values(self.action, LIVE_MIGRATION)
        name = self.token("progress of %s" % host)[:32]
        arguments = {
            "step": "migrate",
            "progress": name,
            "instances_path": host_settings.read_current_host(self.action).instances_path,
            "departing_guests": [{**to_send[u], "volumes": disks} for u, disks in volumes.items()],
            "timeout_action": settings.live_migration_timeout_action,
            "permit_post_copy": settings.live_migration_permit_post_copy,
            "permit_auto_converge": settings.live_migration_permit_auto_converge,
            "downtime": settings.live_migration_downtime,
            "bandwidth": settings.live_migration_bandwidth,
            "workers": host_settings.at_once(settings.max_concurrent_live_migrations, len(owned)),
        }
        leaving = [Leaving(*(i[n] for n in ("uuid", "name", "source", "destination", "memory_mb"))) for i in items]

        def migrate() -> tuple[Outcomes, Failed]:
            with live_progress.watched(self.action, path_of(name), leaving, self.options["print_table"]):
                return self._batch(arguments, sorted(owned))

        return {"outcomes": self.guarded(sorted(owned), migrate)}

    def _to_send(self, item: Item, guest: t.Mapping[str, t.Any], prepared: Answer) -> dict[str, t.Any]:
        """Return what the source must know to send a guest, without its volumes. :arg prepared: the answer of the destination"""
        uuid, destination = item["uuid"], item["destination"]
        of_host = self.result("prepare", destination)
        return {
            "uuid": uuid,
            "token": self.token(uuid),
            "name": guest["name"],
            "virt_type": guest["virt_type"],
            "disks": [
                *(d["target"] for d in guest["disks"] if not is_shared(d["record"])),
                *filter(None, [guest.get("drive_target")]),
            ],
            "devices": prepared.get("devices") or {},
            "drive": guest["drive"],
            "path_there": of_host["folder"],
            "vnc_listen": of_host["vnc_listen"],
            "pins": item["pins"],
            "completion_timeout": self._time_of(uuid, guest),
            **of_host["place"],
        }

    # --- settle and clean -----------------------------------------------------------------------------------------------

    def _power_states(self) -> t.Mapping[str, int]:
        result = self.action.run_module("domain_info", host_settings.libvirt_arguments(self.action))
        return t.cast("t.Mapping[str, int]", result["power_states"])

    def _settle_destination(self, host: str) -> Result:
        """Close the gate of a destination, reserve the addresses of the guests that arrived, and remove the other instances."""
        switched = self.result("switch")
        items = {i["uuid"]: i for i in self.items_on(host, "destination")}
        arrived = [u for u in items if u in switched["over"]]
        self._close_gate(host, arrived, any(u in switched["unknown"] for u in items))

        def look() -> tuple[Outcomes, Failed]:
            power_states = self._power_states()
            builds = self._builds(arrived)
            reserve(
                self.action,
                [
                    reservation
                    for build in builds
                    for port, network in build.ports
                    for reservation in dhcp.reservations(port.mac_address, port.fixed_ips, network, build.row.hostname)
                ],
            )
            return {u: {"power_state": power_states.get(u, states.NOSTATE)} for u in arrived}, {}

        outcomes = self.guarded(arrived, look)
        staying = [u for u in items if u in switched["reached"] and u not in switched["over"]]
        made = [{"uuid": u, "name": items[u]["domain"], "made_for": items[u]["made_for"]} for u in staying]
        problems = clean_host(self.action, made).problems
        outcomes.update({u: {"cleaned": u not in problems} for u in staying})
        return {"outcomes": outcomes}

    def _close_gate(self, host: str, arrived: t.Sequence[str], is_used: bool) -> None:
        """End the process that lets guests in. :arg arrived: uuids of the guests that have arrived. :arg is_used: another guest may be on its way"""
        place = self.result("prepare", host).get("place") or {}
        if not place.get("port") or is_used:  # a guest may be on its way: it ends by itself
            return
        arguments = {
            **host_settings.libvirt_arguments(self.action),
            "step": "close",
            "port": place["port"],
            "fingerprint": place["fingerprint"],
            "instances_path": host_settings.read_current_host(self.action).instances_path,
            "arrived": arrived,
            "stop_token": self.token(host),
        }
        with contextlib.suppress(errors.BootflowError):
            self.action.run_module("domain_migration", arguments)

    def _clean(self, host: str) -> Result:
        """Remove the instances whose guests left, and look at the other guests."""
        switched = self.result("switch")
        items = {i["uuid"]: i for i in self.items_on(host, "source") if i["uuid"] not in switched["unknown"]}
        departed = [u for u in items if u in switched["over"]]
        problems, parts, _preexisting_uuids = clean_host(
            self.action, [{"uuid": u, "name": items[u]["domain"]} for u in departed]
        )
        done = [u for u in departed if u not in problems]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            ledger.transact(cleanup.finish, {host: done}, cleanup.parts_on(host, parts))
        warn_of_leftovers(self.action, host, problems)
        stay = [u for u in items if u not in departed]

        def look() -> tuple[Outcomes, Failed]:
            power_states = self._power_states()
            return {u: {"power_state": power_states.get(u, states.NOSTATE)} for u in stay}, {}

        return {"outcomes": {**self.guarded(stay, look), **{u: {"cleaned": u in done} for u in departed}}}
