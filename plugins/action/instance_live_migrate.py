# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_live_migrate.

One task per host and stage, whatever the number of instances; an instance that fails never fails its neighbours. Where nobody knows whether a guest
went over, nothing is written and nothing is removed: the reports of both hosts tell it when this run is over.
"""

from __future__ import annotations

import contextlib
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.instances import live_refusals, states
from ..module_utils.core.instances.moves import data_gb
from ..module_utils.core.instances.progress import path_of
from ..module_utils.core.legible import legible
from ..module_utils.core.networks import dhcp
from ..module_utils.core.settings.hosts import GUEST
from ..module_utils.core.settings.live import LIVE, LIVE_TARGET
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN, TIME_LIMITS
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import INSTANCES
from ..module_utils.core.volumes.states import ATTACHED
from ..module_utils.flows.attachments import life, moving
from ..module_utils.flows.boot import builds as of_ledger
from ..module_utils.flows.boot.builds import Build
from ..module_utils.flows.instances import cleanup
from ..module_utils.flows.instances.operation import Outcome, Selection
from ..module_utils.flows.moves import live, live_life, live_pins
from ..module_utils.ledger.compute import instances, nodes, ports
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import attachments
from ..plugin_utils.builds import build_parts
from ..plugin_utils.builds.dhcp import reserve, restore
from ..plugin_utils.moves import live_progress, live_settings
from ..plugin_utils.moves.arriving_guest import limits_of
from ..plugin_utils.moves.live_progress import Leaving
from ..plugin_utils.moves.move_action import (
    Candidates,
    Item,
    MoveAction,
    Outcomes,
    hosts_to_ask,
    item_of,
    not_placed,
    report,
)
from ..plugin_utils.operations.cleaning import clean_host, warn_of_leftovers
from ..plugin_utils.run import host_settings, host_variables, tables
from ..plugin_utils.run.inventory_hosts import reachable, refuse_left_out
from ..plugin_utils.run.results import diff, item_errors
from ..plugin_utils.settings import scheduler_settings
from ..plugin_utils.volumes.attached_volumes import connect_beside, disks_there, sources_on

# As playbooks/live_migrate.yml registers what the controller and the hosts answered.
BEGUN, LOOKED, PREPARED = "bootflow_live_begun", "bootflow_live_looked", "bootflow_live_prepared"
MIGRATED, SWITCHED = "bootflow_live_migrated", "bootflow_live_switched"
SETTLED, CLEANED = "bootflow_live_settled", "bootflow_live_cleaned"
PHASES = ("check", "begin", "again", "look", "prepare", "migrate", "switch", "settle", "clean", "finish")


class ActionModule(MoveAction):
    begun_as = BEGUN
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(PHASES), "default": "begin"},
        **INSTANCES.options(),
        **LIVE_TARGET.options(),
        **REQUEST.options("default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.operation = live_life.LIVE_MIGRATE
        return self.stage(
            {
                "check": self._check,
                "begin": self._begin,
                "again": self._again,
                "switch": self._switch,
                "finish": self._finish,
            },
            {
                "look": self._look,
                "prepare": self._prepare,
                "migrate": self._migrate,
                "settle": self._settle,
                "clean": self._clean,
            },
        )

    # --- on the controller: check and begin ---------------------------------------------------------------------------

    def _wanted(self) -> live.Wanted:
        return live_settings.wanted(self, Selection.from_options(self.options), self.options["to_host"])

    def _check(self) -> dict[str, t.Any]:
        """Fail before any host is asked for anything. Names the hosts that should report before others are chosen."""
        scheduler_settings.check(self)
        ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        ledger.inspect(live.check, self._wanted())
        return {"changed": False, "stale_hosts": hosts_to_ask(self, ledger)}

    def _begin(self) -> dict[str, t.Any]:
        wanted = self._wanted()
        candidates = Candidates(self)
        connectors = live_settings.connectors(self, wanted.known_hosts)
        begun, result = self._start(
            candidates, lambda tx: live.begin(tx, wanted, candidates.read, candidates.options, connectors)
        )
        failed = not_placed(begun.rows, begun.failed)
        return {**result, "changed": bool(begun.moving or failed), "not_placed": failed, "attempt": 1}

    def _start(
        self, candidates: Candidates, work: t.Callable[[Transaction], live.Begun]
    ) -> tuple[live.Begun, dict[str, t.Any]]:
        """What ``work`` began, and of the result what the next stages and the diff need."""

        def begin(tx: Transaction) -> tuple[live.Begun, dict[str, str], dict[str, dict[str, t.Any]], list[str]]:
            candidates.rehearse(tx)
            begun = work(tx)
            sources = {m.move.source_compute for m in begun.moving}
            asked = sources.union(reachable(self, life.storage_hosts_of(tx, begun.with_volumes)))
            refuse_left_out(asked, self.within_limit(sorted(asked)))
            addresses = {r.host: r.host_ip for r in nodes.rows(tx, ("host", "node", "host_ip"))}
            storage_hosts = reachable(self, moving.storage_hosts(tx)) if begun.with_volumes else []
            return begun, addresses, live_pins.of(tx, begun.moving), storage_hosts

        begun, addresses, pins, storage_hosts = self.write(begin)
        items = [
            {
                **item_of(m),
                "address": live_settings.address_of(self, m.move.dest_compute, addresses.get(m.move.dest_compute)),
                "memory_mb": m.row.memory_mb,
                "pins": pins[m.uuid],
                "volumes": m.uuid in begun.with_volumes,
            }
            for m in begun.moving
        ]
        before, after = (
            "".join("%s %s: %s\n" % (i["name"], i["uuid"], i[key]) for i in items) for key in ("source", "destination")
        )
        return begun, {
            "instances": items,
            # Hosts do nothing in check mode: no task goes to them.
            "sources": [] if self.check_mode else sorted({i["source"] for i in items}),
            "destinations": [] if self.check_mode else sorted({i["destination"] for i in items}),
            "storage_hosts": [] if self.check_mode else storage_hosts,
            "diff": diff("instances", before, after),
        }

    def _again(self) -> dict[str, t.Any]:
        """End the migrations of the round before; where the new host refused the guest, another one is claimed in the same transaction."""
        last, items, wanted = self.registered(BEGUN), self.items(), self._wanted()
        results, unknown = self._results()
        refused: dict[str, live.Refused] = {}
        tried: dict[str, list[dict[str, t.Any]]] = {}  # uuid -> the errors of the hosts that refused it
        for uuid in self.registered(SWITCHED)["refused"]:
            item, its = items[uuid], results[uuid]
            # A host that may be connected to the volumes still keeps them from a third one.
            if its.gone or its.error is None or (item["volumes"] and not its.cleaned):
                continue
            tried[uuid] = [*item.get("tried", ()), {"host": item["destination"], **its.error.as_dict()}]
            refused[uuid] = live.Refused(its, {str(each["host"]) for each in tried[uuid]})
        others = {u: r for u, r in results.items() if u not in refused}
        candidates = Candidates(self)
        connectors = live_settings.connectors(self, wanted.known_hosts)
        failed: dict[str, errors.BootflowError] = {}

        def again(tx: Transaction) -> live.Begun:
            failed.update(live_life.finish(tx, others))
            return live.again(tx, wanted, refused, candidates.read, candidates.options, connectors)

        begun, result = self._start(candidates, again)
        for uuid, error in begun.failed.items():
            failed[uuid] = errors.from_dict(tried[uuid][-1]) if isinstance(error, errors.NoValidHost) else error
        for item in result["instances"]:
            item["tried"] = tried.pop(item["uuid"])
        done = set(items).difference(m.uuid for m in begun.moving)
        self._show_next_hosts(result["instances"])
        return {
            **result,
            "changed": True,
            "not_placed": last.get("not_placed", []),
            "attempt": self.attempt() + 1,
            "shown": [
                *last.get("shown", ()),
                *self._shown({u: items[u] for u in items if u in done}, results, {**unknown, **failed}, tried),
            ],
        }

    def _show_next_hosts(self, items: t.Sequence[Item]) -> None:
        """Print which host refused each guest, and which one is tried next."""
        for item in items if self.options["print_table"] else ():
            refusal = item["tried"][-1]
            line = (item["name"], refusal["host"], refusal["code"], item["destination"])
            tables.say(self._display, legible("live_migrate: %s: host %s refused the guest (%s). Trying %s." % line))

    # --- on each host -------------------------------------------------------------------------------------------------

    def _batch(self, module: str, arguments: t.Mapping[str, t.Any], uuids: t.Sequence[str]) -> tuple[Outcomes, t.Any]:
        result = self.run_module(module, {**host_settings.libvirt_arguments(self), **arguments})
        return result["outcomes"], item_errors(result, uuids)

    def _look(self, host: str) -> dict[str, t.Any]:
        """What the new hosts must know of the guests."""
        mine = [u for u, i in self.items().items() if i["source"] == host]
        with contextlib.closing(self.open_ledger()) as ledger:
            volumes = ledger.inspect(sources_on, host, mine)
        arguments = {"instances_path": host_settings.of(self).instances_path, "uuids": mine, "volumes": volumes}

        def look() -> tuple[Outcomes, t.Any]:
            found, failed = self._batch("domain_migration_info", arguments, mine)
            return found, {**failed, **self._with_others(mine, found, failed)}

        return {"changed": False, "outcomes": self.guarded(mine, look)}

    def _with_others(
        self, uuids: t.Sequence[str], found: Outcomes, failed: t.Collection[str]
    ) -> dict[str, errors.BootflowError]:
        """Why guests cannot go that do not have the volumes that the ledger says they have."""
        with contextlib.closing(self.open_ledger()) as ledger:
            known = ledger.inspect(attachments.of_instances, uuids)
        problems: dict[str, errors.BootflowError] = {}
        for uuid in [u for u in uuids if u not in failed]:
            has = {v["id"] for v in found[uuid]["guest"]["volumes"]}
            other = sorted(has ^ {r.volume_id for r in known.get(uuid, ()) if r.attach_status == ATTACHED})
            if other:
                problems[uuid] = errors.MigrationPreCheckError(
                    reason="guest %s %s volume %s, and the ledger says otherwise"
                    % (uuid, "has" if other[0] in has else "does not have", other[0]),
                    remedy="Reboot the instance hard, which defines the guest as the ledger has it.",
                )
        return problems

    def _guest(self, item: Item) -> t.Mapping[str, t.Any] | None:
        """What its host said of a guest; None if nothing."""
        its = self.said(LOOKED, "look", item["source"], item["uuid"])
        return None if its.get("error") else its["guest"]

    def _prepare(self, host: str) -> dict[str, t.Any]:
        """Networks and empty disks for the guests that can come, and the process that lets them in."""
        items = [i for i in self.items().values() if i["destination"] == host]
        guests = {i["uuid"]: g for i in items if (g := self._guest(i)) is not None}
        without: Outcomes = {}
        if guests:
            without = self.guarded(list(guests), lambda: self._networks(list(guests)))
        ready = [u for u in guests if not without.get(u, {}).get("error")]
        having = [i["uuid"] for i in items if i["volumes"] and i["uuid"] in ready]
        without.update(self.guarded(having, lambda: ({}, connect_beside(self, having))))
        ready = [u for u in ready if not without.get(u, {}).get("error")]
        place: dict[str, t.Any] = {}

        def prepare() -> tuple[Outcomes, t.Any]:
            settings = host_settings.of(self)
            first, last = map(int, settings.copy_ports.split("-"))
            begun = self.registered(BEGUN)
            limits, volumes = self._limits(ready), self._volumes_here(host, ready)
            result = self.run_module(
                "domain_migration_target",
                {
                    **host_settings.libvirt_arguments(self),
                    "instances_path": settings.instances_path,
                    "ledger_id": self.ledger_id(),
                    "volume_group": host_settings.volume_group(settings),
                    "guests": [
                        {
                            "uuid": u,
                            "token": self.token(u),
                            "guest": guests[u],
                            "limits": limits[u],
                            "volumes": volumes.get(u, {}),
                            "made_for": self.items()[u]["made_for"],
                        }
                        for u in ready
                    ],
                    "first_port": first,
                    "last_port": last,
                    "stop_token": self.token(host),
                    "lifetime": self._longest(ready, guests),
                    "patience": live_settings.patience(self, begun["sources"], begun["destinations"]),
                },
            )
            place.update(address=items[0]["address"], port=result["port"], fingerprint=result["fingerprint"])
            return result["outcomes"], item_errors(result, ready)

        return {
            "outcomes": {**without, **self.guarded(ready, prepare)},
            "place": place,
            "folder": host_settings.of(self).instances_path,
            "vnc_listen": host_settings.values(self, GUEST).vnc_listen,
        }

    def _limits(self, uuids: t.Sequence[str]) -> dict[str, dict[str, t.Any]]:
        """What the definitions of these guests may have here, whatever their present hosts send."""
        builds = {b.uuid: b for b in self._builds(uuids)}
        with contextlib.closing(self.open_ledger()) as ledger:
            found = ledger.inspect(lambda tx: [ports.ports_of(tx, uuids, leaving=each) for each in (False, True)])
        settings = host_settings.values(self, GUEST)
        return {u: limits_of(builds[u], settings, [*found[0][u], *found[1][u]], self.items()[u]["pins"]) for u in uuids}

    def _volumes_here(self, host: str, uuids: t.Sequence[str]) -> dict[str, dict[str, str]]:
        """uuid -> id of the volume -> how ``host``, the new one, has it."""
        having = [u for u in uuids if self.items()[u]["volumes"]]
        if not having:
            return {}
        with contextlib.closing(self.open_ledger()) as ledger:
            return ledger.inspect(disks_there, host, having)

    def _longest(self, uuids: t.Sequence[str], guests: t.Mapping[str, t.Mapping[str, t.Any]]) -> float:
        """Seconds that all of these may take, one after the other."""
        limits = host_settings.values(self, TIME_LIMITS)
        return float(limits.copy_timeout) + sum(2.0 * self._time_of(u, guests[u]) for u in uuids)

    def _time_of(self, uuid: str, guest: t.Mapping[str, t.Any]) -> float:
        """Seconds that the guest has, by its size. source: Nova's live_migration_completion_timeout"""
        item = self.items()[uuid]
        settings = LIVE.of(host_variables.of_host(self.task_vars["hostvars"], item["source"]))
        sizes = [int(d["record"]["virtual_size"]) for d in guest["disks"]]
        return float(settings.live_migration_completion_timeout) * data_gb(item["memory_mb"], sizes)

    def _builds(self, uuids: t.Sequence[str]) -> list[Build]:
        def load(tx: Transaction) -> list[Build]:
            rows = [r for r in instances.select_live(tx, uuids=uuids) if instances.is_placed(r)]
            return of_ledger.load(tx, rows)

        with contextlib.closing(self.open_ledger()) as ledger:
            return ledger.inspect(load)

    def _networks(self, uuids: t.Sequence[str]) -> tuple[Outcomes, t.Mapping[str, errors.BootflowError]]:
        """The networks of the guests, as a build makes them: also of interfaces that they are losing, and have still. Returns what instances
        lack."""
        with contextlib.closing(self.open_ledger()) as ledger:
            found = ledger.inspect(lambda tx: [ports.ports_of(tx, uuids, leaving=each) for each in (False, True)])
        of_guests = {u: {n.name: n for its in found for _port, n in its[u]} for u in uuids}
        networks = {name: network for its in of_guests.values() for name, network in its.items()}
        if not networks:
            return {}, {}
        result = self.run_module("virtual_network", build_parts.network_arguments(self, networks.values()))
        restore(self, networks, result)
        without = item_errors(result, networks)
        lacking = {u: sorted(set(its) & set(without)) for u, its in of_guests.items()}
        return {}, {u: without[names[0]] for u, names in lacking.items() if names}

    def _migrate(self, host: str) -> dict[str, t.Any]:
        """The guests go to their new hosts, a few at a time."""
        settings = host_settings.values(self, LIVE)
        guests = []
        for item in self.items().values():
            if item["source"] != host:
                continue
            prepared = self.registered(PREPARED, item["destination"])
            its, guest = self.said(PREPARED, "prepare", item["destination"], item["uuid"]), self._guest(item)
            if its["error"]:
                continue
            if guest is None:
                continue
            guests.append(
                {
                    "uuid": item["uuid"],
                    "token": self.token(item["uuid"]),
                    "name": guest["name"],
                    "virt_type": guest["virt_type"],
                    "disks": [*(d["target"] for d in guest["disks"]), *filter(None, [guest.get("drive_target")])],
                    "volumes": {},
                    "devices": its.get("devices") or {},
                    "drive": guest["drive"],
                    "path_there": prepared["folder"],
                    "vnc_listen": prepared["vnc_listen"],
                    "pins": item["pins"],
                    "completion_timeout": self._time_of(item["uuid"], guest),
                    **prepared["place"],
                }
            )
        with contextlib.closing(self.open_ledger()) as ledger:
            mine = set(ledger.transact(live_life.run, [g["uuid"] for g in guests]))
        for guest_there in guests:
            item = self.items()[guest_there["uuid"]]
            guest_there["volumes"] = self._volumes_here(item["destination"], [item["uuid"]]).get(item["uuid"], {})
        name = self.token("progress of %s" % host)[:32]
        arguments = {
            "progress": name,
            "instances_path": host_settings.of(self).instances_path,
            "guests": [g for g in guests if g["uuid"] in mine],
            "timeout_action": settings.live_migration_timeout_action,
            "permit_post_copy": settings.live_migration_permit_post_copy,
            "permit_auto_converge": settings.live_migration_permit_auto_converge,
            "downtime": settings.live_migration_downtime,
            "bandwidth": settings.live_migration_bandwidth,
            "workers": host_settings.at_once(settings.max_concurrent_live_migrations, len(mine)),
        }
        items = [i for i in self.items().values() if i["uuid"] in mine]
        leaving = [Leaving(*(i[n] for n in ("uuid", "name", "source", "destination", "memory_mb"))) for i in items]

        def migrate() -> tuple[Outcomes, t.Any]:
            with live_progress.watched(self, path_of(name), leaving, self.options["print_table"]):
                return self._batch("domain_migration", arguments, sorted(mine))

        return {"outcomes": self.guarded(sorted(mine), migrate)}

    # --- over -----------------------------------------------------------------------------------------------------------

    def _switch(self) -> dict[str, t.Any]:
        """The instances whose guests went over are on their new hosts."""
        items = self.items()
        nothing = {
            "changed": False,
            "over": [],
            "unknown": [],
            "problems": {},
            "stats": {},
            "reached": [],
            "refused": [],
        }
        if self.check_mode or not items:
            return {**nothing, "sources": [], "destinations": [], "storage_hosts": []}
        problems: dict[str, t.Any] = {}
        unknown: list[str] = []
        left: list[str] = []
        reached: list[str] = []  # whose new host may have something of it
        refused: list[str] = []  # that another host may take
        stats: dict[str, t.Any] = {}
        for uuid, item in items.items():
            its = self.said(LOOKED, "look", item["source"], uuid)
            if not its.get("error"):
                its = self.said(PREPARED, "prepare", item["destination"], uuid)
                reached.append(uuid)
                if its.get("error") and self._tries_another(errors.from_dict(its["error"])):
                    refused.append(uuid)
            if not its.get("error"):
                its = self.said(MIGRATED, "migrate", item["source"], uuid)
                if its.get("error") and not its.get("stays"):
                    unknown.append(uuid)
                elif not its.get("error"):
                    left.append(uuid)
                    stats[uuid] = {n: its.get(n) for n in ("seconds", "downtime", "transferred", "power_state")}
            if its.get("error"):
                problems[uuid] = its["error"]
        stay = sorted(set(problems) - set(unknown))
        ledger = self.open_ledger()
        over = {m.uuid for m in ledger.transact(live_life.switch, left, stay)} if left or stay else set()
        having = [i["uuid"] for i in items.values() if i["volumes"]]
        storage_hosts = reachable(self, ledger.inspect(attachments.storage_hosts, having)) if having else []
        return {
            **nothing,
            "changed": bool(over),
            "over": sorted(over),
            "unknown": unknown,
            "problems": problems,
            "stats": stats,
            "reached": sorted(set(reached) - set(unknown)),
            "refused": refused,
            "sources": sorted({items[u]["source"] for u in items if u not in unknown}),
            "destinations": sorted({items[u]["destination"] for u in reached}),
            "storage_hosts": storage_hosts,
        }

    def _tries_another(self, error: errors.BootflowError) -> bool:
        named, most = self.options["to_host"] is not None, self.options["max_attempts"]
        return live_refusals.tries_another(error, named, self.attempt(), most)

    def _power_states(self) -> t.Mapping[str, int]:
        result = self.run_module("domain_info", host_settings.libvirt_arguments(self))
        return t.cast("t.Mapping[str, int]", result["power_states"])

    def _settle(self, host: str) -> dict[str, t.Any]:
        """On the new hosts: their gate is closed, addresses are reserved for who came, and of who did not nothing remains."""
        switched = self.registered(SWITCHED)
        items = {u: i for u, i in self.items().items() if i["destination"] == host}
        came = [u for u in items if u in switched["over"]]
        self._close_gate(host, came, any(u in switched["unknown"] for u in items))

        def look() -> tuple[Outcomes, t.Any]:
            found = self._power_states()
            builds = self._builds(came)
            reserve(
                self,
                [
                    each
                    for build in builds
                    for port, network in build.ports
                    for each in dhcp.reservations(port.mac_address, port.fixed_ips, network, build.row.hostname)
                ],
            )
            return {u: {"power_state": found.get(u, states.NOSTATE)} for u in came}, {}

        outcomes = self.guarded(came, look)
        gone = [u for u in items if u in switched["reached"] and u not in switched["over"]]
        made = [{"uuid": u, "name": items[u]["domain"], "made_for": items[u]["made_for"]} for u in gone]
        problems = clean_host(self, made).problems
        outcomes.update({u: {"cleaned": u not in problems} for u in gone})
        return {"outcomes": outcomes}

    def _close_gate(self, host: str, came: t.Sequence[str], is_used: bool) -> None:
        """:arg came: uuids of the guests that have arrived. :arg is_used: another guest may be on its way"""
        place = self.registered(PREPARED, host).get("place") or {}
        if not place.get("port") or is_used:  # a guest may be on its way: it ends by itself
            return
        arguments = {
            **host_settings.libvirt_arguments(self),
            "port": place["port"],
            "fingerprint": place["fingerprint"],
            "state": "absent",
            "instances_path": host_settings.of(self).instances_path,
            "arrived": came,
            "stop_token": self.token(host),
        }
        with contextlib.suppress(errors.BootflowError):
            self.run_module("domain_migration_target", arguments)

    def _clean(self, host: str) -> dict[str, t.Any]:
        """On the former hosts: of who left nothing remains; the others are looked at."""
        switched = self.registered(SWITCHED)
        items = {u: i for u, i in self.items().items() if i["source"] == host and u not in switched["unknown"]}
        gone = [u for u in items if u in switched["over"]]
        problems, parts, _kept = clean_host(self, [{"uuid": u, "name": items[u]["domain"]} for u in gone])
        done = [u for u in gone if u not in problems]
        with contextlib.closing(self.open_ledger()) as ledger:
            ledger.transact(cleanup.finish, {host: done}, cleanup.parts_on(host, parts))
        warn_of_leftovers(self, host, problems)
        stay = [u for u in items if u not in gone]

        def look() -> tuple[Outcomes, t.Any]:
            found = self._power_states()
            return {u: {"power_state": found.get(u, states.NOSTATE)} for u in stay}, {}

        return {"outcomes": {**self.guarded(stay, look), **{u: {"cleaned": u in done} for u in gone}}}

    # --- finish -------------------------------------------------------------------------------------------------------

    def _result(self, item: Item) -> live_life.Result | None:
        """What came of an instance; None if nobody knows."""
        switched, uuid = self.registered(SWITCHED), item["uuid"]
        if uuid in switched["unknown"]:
            return None
        if uuid in switched["over"]:
            its = self.said(SETTLED, "settle", item["destination"], uuid)
            power_state = int(its.get("power_state", switched["stats"][uuid]["power_state"]))
            return live_life.Result(power_state, gone=its.get("power_state") == states.NOSTATE)
        error = (
            switched["problems"].get(uuid)
            or errors.RemoteError(reason="its live migration did not take place").as_dict()
        )
        outcome = Outcome.of_answer(self.said(CLEANED, "clean", item["source"], uuid), errors.from_dict(error))
        cleaned = uuid not in switched["reached"] or bool(
            self.said(SETTLED, "settle", item["destination"], uuid).get("cleaned")
        )
        return live_life.Result(outcome.power_state, outcome.error, cleaned, outcome.gone)

    def _results(self) -> tuple[dict[str, live_life.Result], dict[str, errors.BootflowError]]:
        """(uuid -> what came of the instance, uuid -> the error of one of which nobody knows)."""
        found = {u: self._result(i) for u, i in self.items().items()}
        unknown = {u: self._unknown(i) for u, i in self.items().items() if found[u] is None}
        return {u: r for u, r in found.items() if r is not None}, unknown

    def _finish(self) -> dict[str, t.Any]:
        begun, items = self.registered(BEGUN), self.items()
        results: dict[str, live_life.Result] = {}
        failed: dict[str, errors.BootflowError] = {}
        if items and not self.check_mode:
            results, failed = self._results()
            failed.update(self.open_ledger().transact(live_life.finish, results))
        shown = [*begun.get("shown", ()), *self._shown(items, results, failed, {})]
        lost = begun.get("not_placed", [])
        return report(self, self.operation, shown, lost, _note)

    def _shown(
        self,
        items: t.Mapping[str, Item],
        results: t.Mapping[str, live_life.Result],
        failed: t.Mapping[str, errors.BootflowError],
        tried: t.Mapping[str, list[dict[str, t.Any]]],
    ) -> list[Item]:
        """What is told of these instances in the end. :arg failed: uuid -> why. :arg tried: of those without another host, else as ``items`` say"""
        switched = self.registered(SWITCHED)
        shown = []
        for uuid, item in items.items():
            over = self.check_mode or uuid in switched.get("over", ())
            problem = failed.get(uuid)
            is_gone = problem is not None and uuid in results and results[uuid].gone
            stats = switched.get("stats", {}).get(uuid, {})
            shown.append(
                {
                    **{n: item[n] for n in ("name", "uuid", "source", "destination")},
                    "vm_state": states.ERROR if is_gone else item["vm_state"],
                    "host": item["destination"] if over else item["source"],
                    "power_state": results[uuid].power_state if uuid in results else states.NOSTATE,
                    **{n: stats.get(n) for n in ("seconds", "downtime", "transferred")},
                    "error": None if problem is None else _with_all(problem, item, tried.get(uuid)),
                }
            )
        return shown

    def _unknown(self, item: Item) -> errors.BootflowError:
        problem = errors.from_dict(self.registered(SWITCHED)["problems"][item["uuid"]])
        problem.remedy = (
            "The guest is on %(source)s or on %(destination)s, or still on the way: when both hosts answer, run bootflow.compute.audit."
            % item
        )
        return problem


def _with_all(
    problem: errors.BootflowError, item: Item, tried: t.Sequence[t.Mapping[str, t.Any]] | None
) -> dict[str, t.Any]:
    """The data of ``problem``, with the errors of all hosts where there is another than this one.

    :arg tried: None: those that ``item`` has, and ``problem``, which is that of its last host
    """
    its = problem.as_dict()
    if tried is None:
        tried = [*item.get("tried", ()), {"host": item["destination"], **its}]
    others = len(tried) > 1 or tried[0] != {"host": item["destination"], **its}
    return {**its, "tried": list(tried)} if others else its


def _note(item: Item) -> str:
    """What people are told of a guest that went over."""
    if item["seconds"] is None:
        return ""
    return "%.1f s, stood still for %.2f s, %d MiB" % (item["seconds"], item["downtime"], item["transferred"] >> 20)
