# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_move.

One task per host and stage, whatever the number of instances; an instance that fails never fails its neighbours. The stages hand on what they
registered: nothing of it is secret, as each derives the tokens of the copies from the secret of this run.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import asdict

from ..module_utils.core import errors
from ..module_utils.core.guest.nvram import NVRAM
from ..module_utils.core.instances import states
from ..module_utils.core.model import Flavor
from ..module_utils.core.request import catalogue
from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN, TIME_LIMITS
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import MOVE
from ..module_utils.flows.attachments import life, moving
from ..module_utils.flows.instances.operation import Outcome, Selection
from ..module_utils.flows.instances.operations import OPERATIONS
from ..module_utils.flows.moves import cold, cold_life, confirm, local_disks
from ..module_utils.flows.moves.local_disks import Journey
from ..module_utils.flows.moves.moving_instance import Moving
from ..module_utils.flows.moves.revert import begin_revert, former_hosts
from ..module_utils.flows.recovery import moves as recovery
from ..module_utils.ledger.compute import moves as ledger_moves
from ..module_utils.ledger.compute import nodes
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.builds.domain_builder import blank_disk
from ..plugin_utils.moves import live_settings
from ..plugin_utils.moves.move_action import (
    Candidates,
    Item,
    MoveAction,
    Outcomes,
    as_it_is,
    hosts_to_ask,
    item_of,
    line_of,
    not_placed,
    report,
)
from ..plugin_utils.operations import hard_reboot
from ..plugin_utils.operations.cleaning import clean_host, clear_lost, resize_arguments, warn_of_leftovers
from ..plugin_utils.run import host_settings
from ..plugin_utils.run.inventory_hosts import all_of, reachable, refuse_left_out
from ..plugin_utils.run.results import diff, item_errors
from ..plugin_utils.settings import apply_plan, host_reports, resize_settings, scheduler_settings, variable_names
from ..plugin_utils.volumes.attached_volumes import come_to_host, connectors_of, leave_host, sources_on

OF = {"resize": cold_life.RESIZE, "migrate": cold_life.MIGRATE, "revert_resize": cold_life.REVERT}
# As playbooks/move.yml registers what the controller and the hosts answered.
BEGUN, SWITCHED, WENT_BACK = "bootflow_move_begun", "bootflow_move_switched", "bootflow_move_went_back"
DEPARTED, ARRIVED, SETTLED, RETURNED = (
    "bootflow_move_departed",
    "bootflow_move_arrived",
    "bootflow_move_settled",
    "bootflow_move_returned",
)
PHASES = ("check", "begin", "depart", "arrive", "switch", "settle", "back", "return", "finish")

Flavors = t.Mapping[str, t.Tuple[str, str]]  # uuid -> the names of the former and the new one

_IF_LOST = "If %s is lost, make sure that it is off and force it down: the same command then brings the instance back without that host."
_NOWHERE = {"address": "", "port": 0, "fingerprint": ""}  # nothing is fetched
# Where disks that are logical volumes come to.
_GROUP = ("volume_group", "volume_clear", "volume_clear_size_mb")


class ActionModule(MoveAction):
    begun_as = BEGUN
    ARGUMENTS = {
        "operation": {"type": "str", "choices": list(OF), "required": True},
        "phase": {"type": "str", "choices": list(PHASES), "default": "begin"},
        **MOVE.options(),
        **FOLLOW.options(),
        **REQUEST.options("flavors", "pci_alias", "quotas", "instance_overhead", "default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.operation = OF[self.options["operation"]]
        self.reverts = self.operation is cold_life.REVERT
        return self.stage(
            {
                "check": self._check,
                "begin": self._begin,
                "switch": self._switch,
                "back": self._back,
                "finish": self._finish,
            },
            {name: self._with_its_own(work) for name, work in self._on_hosts().items()},
        )

    def _on_hosts(self) -> dict[str, t.Callable[[str], dict[str, t.Any]]]:
        return {"depart": self._depart, "arrive": self._arrive, "settle": self._settle, "return": self._return}

    # --- on the controller: check and begin ---------------------------------------------------------------------------

    def _wanted(self) -> cold.Wanted:
        found = catalogue.parse_catalogue(
            self.options["flavors"], None, None, None, None, self.options["pci_alias"], default_project=""
        )
        flavor: Flavor | None = None
        flavors: dict[str, Flavor] = {}
        if self.operation is cold_life.RESIZE and self.options["follow_file"]:
            of_file = apply_plan.registered(self, apply_plan.BEGUN).get("flavors") or {}
            flavors = {uuid: found.flavor(name) for uuid, name in of_file.items()}
        elif self.operation is cold_life.RESIZE:
            if not self.options["flavor"]:
                raise errors.InvalidInput(
                    message="bootflow_resize_flavor is not set", remedy="Name the flavor that the instances are to get."
                )
            flavor = found.flavor(self.options["flavor"])
        return resize_settings.wanted(self, Selection.from_options(self.options), found.pci_aliases, flavor, flavors)

    def _check(self) -> dict[str, t.Any]:
        """Fail before any host is asked for anything. Names the hosts that should report before others are chosen."""
        variable_names.refuse(self, MOVE)
        if self.reverts:
            host_settings.check_common(self)
            ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
            former = ledger.inspect(former_hosts, Selection.from_options(self.options))
            return {
                "changed": False,
                "stale_hosts": self.within_limit(sorted(former.intersection(self.compute_hosts()))),
            }
        scheduler_settings.check(self)
        wanted = self._wanted()
        ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        ledger.inspect(cold.check, wanted)
        return {"changed": False, "stale_hosts": hosts_to_ask(self, ledger)}

    def _begin(self) -> dict[str, t.Any]:
        if self.reverts:
            selection, known = Selection.from_options(self.options), frozenset(self.compute_hosts())
            reports = host_reports.of_this_run(self)

            def revert(tx: Transaction) -> tuple[cold.Begun, Flavors, set[str]]:
                recovery.settle_on_lost(tx, selection)
                silent = {h: _silence(h, reports.get(h) or {}) for h in former_hosts(tx, selection)}
                told = {h: e for h, e in silent.items() if e is not None}
                said = [h for h in silent if h not in told and reports[h].get("compute_node")]
                has = {h: host_reports.instances_in(reports[h]) for h in said}
                back = begin_revert(tx, selection, known, self.options["quotas"], told, all_of(self), has)
                begun = cold.Begun(back.moving, back.failed, back.rows, back.unchanged)
                down = nodes.forced_down(tx)
                self._check_limit(tx, back.moving, down)
                return begun, cold_life.flavors_of(tx, back.moving), down

            begun, flavors, down = self.write(revert)
            return self._begun(begun, {}, {}, flavors, down=down)
        wanted = self._wanted()
        candidates = Candidates(self)

        def begin(tx: Transaction) -> tuple[cold.Begun, dict[str, str], dict[str, Journey], Flavors, list[str]]:
            candidates.rehearse(tx)
            begun = cold.begin(tx, wanted, candidates.read, candidates.options)
            self._check_limit(tx, begun.moving)
            addresses = {r.host: r.host_ip for r in nodes.rows(tx, ("host", "node", "host_ip"))}
            journeys = local_disks.journeys(tx, [m.move for m in begun.moving])
            new = sorted({m.move.dest_compute for m in begun.moving if not ledger_moves.stays(m.move)})
            unheard = [] if self.check_mode or not new else nodes.stale_hosts(tx, new, confirm.SURE)
            return begun, addresses, journeys, cold_life.flavors_of(tx, begun.moving), unheard

        return self._begun(*self.write(begin))

    def _check_limit(self, tx: Transaction, moving: t.Sequence[Moving], down: t.Collection[str] = ()) -> None:
        """:raises InvalidInput: see refuse_left_out(). :arg down: hosts that are not asked"""
        hosts = {m.move.source_compute for m in moving} | {m.move.dest_compute for m in moving}
        hosts |= {*reachable(self, life.storage_hosts_of(tx, [m.uuid for m in moving]))}
        refuse_left_out(hosts - set(down), self.within_limit(sorted(hosts)))

    def _begun(
        self,
        begun: cold.Begun,
        addresses: t.Mapping[str, str],
        journeys: t.Mapping[str, Journey],
        flavors: Flavors,
        unheard: t.Sequence[str] = (),
        down: t.Collection[str] = (),
    ) -> dict[str, t.Any]:
        """:arg journeys: of their local disks; none: a revert. :arg unheard: new hosts that are asked before a guest is shut down for them
        :arg down: hosts that are forced down, without whose answer instances leave them
        """
        items: list[Item] = [
            {
                **item_of(m),
                "address": live_settings.address_of(self, m.move.source_compute, addresses.get(m.move.source_compute)),
                "runs": m.runs,
                "lost": m.move.dest_compute in down,
                "details": OPERATIONS["stop"].details(m.row),
                "disks": asdict(journeys.get(m.uuid, Journey())),
                "files": bool(m.row.config_drive or journeys.get(m.uuid, Journey()).sizes),
            }
            for m in begun.moving
        ]
        there = [] if self.reverts or self.check_mode else items  # hosts do nothing in check mode: no task goes to them
        failed = not_placed(begun.rows, begun.failed)
        unchanged = [as_it_is(r) for r in begun.unchanged]
        before, after = "", ""
        for m, item in zip(begun.moving, items):
            ends = (item["source"], m.move.old_disks), (item["destination"], m.move.new_disks)
            (leaves, had), (comes, has) = reversed(ends) if self.reverts else ends
            item["disk_changes"] = local_disks.changes(had or (), has or ())
            if NVRAM in item["disks"]["left"]:
                item["disk_changes"].append("UEFI variables: new, with other keys")
            old, new = flavors[m.uuid][::-1] if self.reverts else flavors[m.uuid]
            item["flavor_change"] = "flavor %s -> %s" % (old, new) if old != new else ""
            had_flavor, has_flavor = (["flavor %s" % name] if old != new else [] for name in (old, new))
            words = ", ".join([leaves, *had_flavor, *local_disks.sizes(had or ())])
            before += "%s %s: %s\n" % (item["name"], item["uuid"], words)
            words = ", ".join([comes, *has_flavor, *local_disks.sizes(has or ())])
            after += "%s %s: %s\n" % (item["name"], item["uuid"], words)
        return {
            "changed": bool(items or failed),
            "instances": items,
            "not_placed": failed,
            "unchanged": unchanged,
            "sources": sorted({i["source"] for i in there}),
            "destinations": sorted({i["destination"] for i in there}),
            "unheard": list(unheard),
            "diff": diff("instances", before, after),
        }

    # --- on each host -------------------------------------------------------------------------------------------------

    def _with_its_own(self, work: t.Callable[[str], dict[str, t.Any]]) -> t.Callable[[str], dict[str, t.Any]]:
        """A stage of a host, which knows of each instance whether it is this run's still."""

        def begin(host: str) -> dict[str, t.Any]:
            uuids = {u for u, i in self.items().items() if host in (i["source"], i["destination"])}
            with contextlib.closing(self.open_ledger()) as ledger:
                self.mine = {m.uuid for m in ledger.inspect(cold_life.load, sorted(uuids))}
                self.lost = ledger.inspect(cold_life.lost, uuids - self.mine)
            return work(host)

        return begin

    def _those_lost(self, uuids: t.Iterable[str]) -> Outcomes:
        """uuid -> the error of those of these instances that another run has now: nothing is done with them."""
        return {u: {"error": self.lost[u].as_dict()} for u in uuids if u in self.lost}

    def _power(self, domains: t.Sequence[t.Mapping[str, t.Any]], state: str) -> tuple[Outcomes, t.Any]:
        settings = host_settings.of(self)
        result = self.run_module(
            "domain_power",
            {
                **host_settings.libvirt_arguments(self),
                "instances_path": settings.instances_path,
                "domains": domains,
                "state": state,
                "shutdown_timeout": settings.shutdown_timeout,
                "wait_timeout": settings.wait_timeout,
                "vif_plugging_timeout": settings.vif_plugging_timeout,
                "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
                "workers": host_settings.workers(self, len(domains)),
            },
        )
        return result["outcomes"], item_errors(result, [d["uuid"] for d in domains])

    def _depart(self, host: str) -> dict[str, t.Any]:
        """The guests are shut down, the host is disconnected from their volumes, and their disks are offered. A guest whose new host does not
        answer runs on.
        """
        items = [i for i in self.items().values() if i["source"] == host]
        lost = self._those_lost(i["uuid"] for i in items)
        unheard = self.registered(BEGUN).get("unheard") or ()
        silent = {h: _silence(h, self.registered(host_reports.REPORTED, h)) for h in unheard}
        away = {i["uuid"]: silent.get(i["destination"]) or self._there_already(i, host) for i in items}
        lost.update({u: {"error": e.as_dict()} for u, e in away.items() if e is not None and u not in lost})
        items = [i for i in items if i["uuid"] not in lost]
        with contextlib.closing(self.open_ledger()) as ledger:
            volumes = ledger.inspect(sources_on, host, [i["uuid"] for i in items])
        domains = [
            {"uuid": i["uuid"], "leaves": True, "volumes": volumes.get(i["uuid"], {}), **i["details"]} for i in items
        ]
        outcomes = self.guarded([i["uuid"] for i in items], lambda: self._power(domains, "shutdown"))
        was_off = [u for u, o in outcomes.items() if not o.get("error") and not o.get("changed")]
        at_rest = [u for u, o in outcomes.items() if not o.get("error")]
        outcomes.update(self.guarded(at_rest, lambda: (_of(outcomes, at_rest), leave_host(self, at_rest))))
        # One without disks here may have UEFI variables.
        off = [i for i in items if not outcomes[i["uuid"]].get("error") and not _stays(i)]
        place: dict[str, t.Any] = {}

        def offer() -> tuple[Outcomes, t.Any]:
            first, last = map(int, host_settings.of(self).copy_ports.split("-"))
            result = self.run_module(
                "instance_disks_offer",
                {
                    "instances_path": host_settings.of(self).instances_path,
                    "instances": [
                        {
                            "uuid": i["uuid"],
                            "token": self.token(i["uuid"]),
                            "left": i["disks"]["left"],
                            "has_disks": i["files"],
                        }
                        for i in off
                    ],
                    "first_port": first,
                    "last_port": last,
                    "stop_token": self.token(host),
                    # The plays of this stage may wait for other hosts, each for its limit.
                    "lifetime": 2.0 * host_settings.values(self, TIME_LIMITS).copy_timeout,
                    "workers": host_settings.workers(self, len(off)),
                },
            )
            place.update(address=off[0]["address"], port=result["port"], fingerprint=result["fingerprint"])
            return result["outcomes"], item_errors(result, [i["uuid"] for i in off])

        offered = self.guarded([i["uuid"] for i in off], offer) if off else {}
        return {"outcomes": {**lost, **outcomes, **offered}, "place": place, "was_off": was_off}

    def _there_already(self, item: Item, host: str) -> errors.BootflowError | None:
        """Why the guest is not shut down: its new host has reported in this run that it has the instance. :arg host: where it is"""
        said = self.registered(host_reports.REPORTED, item["destination"])
        if _stays(item) or item["uuid"] not in host_reports.instances_in(said):
            return None
        found = "%s has it" % item["destination"]
        return errors.InstanceElsewhere(instance_uuid=item["uuid"], host=host, found=found)

    def _arrive(self, host: str) -> dict[str, t.Any]:
        """The disks are fetched from where they are offered."""
        wanted = []
        for item in self.items().values():
            departed = self.registered(DEPARTED, item["source"])
            its = departed.get("outcomes", {}).get(item["uuid"]) or {}
            if item["destination"] != host or _stays(item) or not its or its.get("error") or item["uuid"] in self.lost:
                continue
            if item["files"] and not its.get("files"):
                continue
            files = its.get("files") or []
            place = departed["place"] if files else _NOWHERE
            known = {"token": self.token(item["uuid"]), "made_for": item["made_for"]}
            its_files = {"files": files, "limits": item["disks"]["limits"]}
            wanted.append({**known, **its_files, **self._to_have(item), **place})

        def fetch() -> tuple[Outcomes, t.Any]:
            found = host_settings.cleanup_arguments(self)
            arguments = {
                **host_settings.libvirt_arguments(self),
                **{n: found[n] for n in ("instances_path", "ledger_id", *_GROUP)},
                "instances": wanted,
                "workers": host_settings.workers(self, len(wanted)),
            }
            result = self.run_module("instance_disks_fetch", arguments)
            return result["outcomes"], item_errors(result, [w["uuid"] for w in wanted])

        there = [w["uuid"] for w in wanted]
        fetched = self.guarded(there, fetch) if there else {}
        lost = self._those_lost(u for u, i in self.items().items() if i["destination"] == host)
        return {"outcomes": {**lost, **fetched, **self._copied(host)}}

    def _copied(self, host: str) -> Outcomes:
        """The disks of those that are resized here are copied."""
        departed = self.registered(DEPARTED, host).get("outcomes", {})
        off = [i for i in self.items().values() if _stays(i) and i["source"] == host and i["uuid"] in self.mine]
        off = [i for i in off if not (departed.get(i["uuid"]) or {"error": True}).get("error")]
        return self._resize_disks("prepared", [{**self._to_have(i), "left": i["disks"]["left"]} for i in off])

    def _to_have(self, item: Item) -> Item:
        """The disks that an instance gets on the current host, beside those that are copied as they are."""
        settings = host_settings.of(self)
        made = [blank_disk(d, settings) for d in item["disks"]["made"]]
        return {"uuid": item["uuid"], "sizes": item["disks"]["sizes"], "made": made}

    def _resize_disks(self, state: str, instances: t.Sequence[Item]) -> Outcomes:
        """The module instance_disks_resize on the current host."""
        uuids = [i["uuid"] for i in instances]

        def resize() -> tuple[Outcomes, t.Any]:
            result = self.run_module("instance_disks_resize", resize_arguments(self, state, instances))
            return result["outcomes"], item_errors(result, uuids)

        return self.guarded(uuids, resize) if uuids else {}

    def _settle(self, host: str) -> dict[str, t.Any]:
        """On the new hosts: guests start whose disks have arrived; of all others nothing remains."""
        switched = self.registered(SWITCHED)
        items = [i for i in self.items().values() if i["destination"] == host and i["uuid"] in switched["to_settle"]]
        mine = [i for i in items if i["uuid"] in switched["switched"]]
        off = [i["uuid"] for i in mine if not i["runs"]]
        with contextlib.closing(self.open_ledger()) as ledger:
            uuids = ledger.inspect(cold_life.arrived_on, host, [i["uuid"] for i in mine])
        here = [{"uuid": i["uuid"]} for i in mine if i["uuid"] in uuids and _stays(i)]
        taken = self._resize_disks("resized", here)
        ready = [u for u in uuids if not taken.get(u, {}).get("error")]
        outcomes = {**taken, **self.guarded(ready, lambda: self._with_volumes(ready, off))}
        to_clean = [i for i in items if (outcomes.get(i["uuid"]) or {"error": True}).get("error")]
        cleaned = clean_host(self, [self._to_remove(i) for i in to_clean if not _stays(i)])
        # The mark of what this move made is another one since its guest was started: the host keeps it.
        problems = {**cleaned.problems, **{u: _started(u, host) for u in cleaned.kept.intersection(ready)}}
        # What another run has taken over is settled by it.
        failed = [{"uuid": i["uuid"]} for i in to_clean if _stays(i) and i["uuid"] in self.mine]
        went_back = self._resize_disks("undone", failed)
        problems.update({u: errors.from_dict(r["error"]) for u, r in went_back.items() if r.get("error")})
        undone = [u for u, r in went_back.items() if not r.get("error")]
        left = self.guarded(undone, lambda: ({}, leave_host(self, undone)))
        problems.update({u: errors.from_dict(r["error"]) for u, r in left.items() if r.get("error")})
        for item in to_clean:
            its = outcomes.setdefault(item["uuid"], {})
            problem = problems.get(item["uuid"])
            its["cleaned"] = problem is None
            if problem is not None and not its.get("error"):
                its["error"] = problem.as_dict()
        clear_lost(self, ready)
        return {"outcomes": outcomes}

    def _to_remove(self, item: Item) -> Item:
        """What the current host removes of an instance: all of it where it is brought back; else what was made for this move, as nobody but the host
        knows whether it had something before."""
        its = {"uuid": item["uuid"], "name": item["domain"]}
        return its if self.reverts else {**its, "made_for": item["made_for"]}

    def _return(self, host: str) -> dict[str, t.Any]:
        """On the former hosts: nothing is offered any more, and guests start that did not move, or came back."""
        place = self.registered(DEPARTED, host).get("place") or {}
        if place.get("port"):
            found = {n: place[n] for n in ("port", "fingerprint")}
            arguments = {**found, "state": "absent", "stop_token": self.token(host)}
            with contextlib.suppress(errors.BootflowError):  # it ends by itself
                self.run_module("instance_disks_offer", arguments)
        back = self.registered(WENT_BACK)
        start, undone, reconnect = (
            [u for u in back.get(n, {}).get(host, []) if u in self.mine] for n in ("start", "undone", "reconnect")
        )
        outcomes = self._resize_disks("reverted", [{"uuid": u} for u in undone])
        able = [u for u in start if not outcomes.get(u, {}).get("error")]
        lacking = [u for u in reconnect if not outcomes.get(u, {}).get("error")]
        off = [u for u in lacking if u not in able]
        outcomes.update(self.guarded(lacking, lambda: self._with_volumes(lacking, off)))
        whole = [u for u in able if u not in lacking]
        domains = [{"uuid": uuid} for uuid in whole]
        outcomes.update(self.guarded(whole, lambda: self._power(domains, "running")))
        clear_lost(self, [*lacking, *whole])
        return {"outcomes": outcomes}

    def _with_volumes(self, uuids: t.Sequence[str], off: t.Collection[str]) -> tuple[Outcomes, t.Any]:
        """Define the guests as the ledger has them, connected to their volumes, and start them. :arg off: those that are not started"""
        fresh, problems = come_to_host(self, uuids)
        left = [u for u in uuids if u not in problems]
        outcomes, failed = hard_reboot.reboot(self, left, [u for u in off if u in left], fresh) if left else ({}, {})
        lost: Outcomes = {u: {"power_state": states.SHUTDOWN} for u in problems}
        return {**lost, **outcomes}, {**problems, **failed}

    # --- on the controller: over, and back --------------------------------------------------------------------------------

    def _switch(self) -> dict[str, t.Any]:
        """The instances whose disks have arrived go over to their new hosts."""
        items = self.items()
        problems: dict[str, t.Any] = {}
        reached: set[str] = set()  # whose new host may have something of it
        if self.check_mode:
            lists: dict[str, list[str]] = {n: [] for n in ("switched", "lost", "to_settle", "hosts", "storage_hosts")}
            return {"changed": False, "problems": {}, **lists}
        if self.reverts:
            to_settle = list(items)
            hosts = sorted({i["destination"] for i in items.values()})
            return {
                "changed": False,
                "switched": [],
                "lost": [],
                "to_settle": to_settle,
                "problems": {},
                "hosts": hosts,
                "storage_hosts": [],
            }
        for uuid, item in items.items():
            its = self.said(DEPARTED, "depart", item["source"], uuid)
            if not its.get("error"):
                reached.add(uuid)
                its = self.said(ARRIVED, "arrive", item["destination"], uuid)
            if its.get("error"):
                problems[uuid] = its["error"]
        arrived = [u for u in items if u not in problems]
        moved = {m.uuid for m in self.open_ledger().transact(cold_life.switch, arrived)} if arrived else set()
        return {
            "changed": bool(moved),
            "switched": sorted(moved),
            "lost": sorted(set(arrived) - moved),
            "to_settle": sorted(reached),
            "problems": problems,
            "hosts": sorted({items[u]["destination"] for u in reached}),
            "storage_hosts": self._follow(items)[0],
        }

    def _follow(self, uuids: t.Iterable[str]) -> tuple[list[str], set[str]]:
        """Bind the volumes of these instances to the hosts where they are now.

        Returns the storage hosts that are to let them in there, and the instances that have volumes to be connected.
        """
        hosts_of_items = {i[end] for i in self.items().values() for end in ("source", "destination")}
        connectors = connectors_of(self.task_vars["hostvars"], hosts_of_items)
        hosts, lacking = self.open_ledger().transact(moving.follow, sorted(uuids), connectors)
        return reachable(self, hosts), lacking

    def _back(self) -> dict[str, t.Any]:
        """Those that failed on their new hosts, or are reverted, are where they were when these have nothing of them."""
        items = self.items()
        if self.check_mode:
            lists: dict[str, list[str]] = {n: [] for n in ("hosts", "storage_hosts")}
            return {"changed": False, "results": {}, "start": {}, "undone": {}, "reconnect": {}, **lists}
        switched = self.registered(SWITCHED)
        results: dict[str, dict[str, t.Any]] = {}
        # Whose new hosts are forced down, and gave no answer; one that says that it failed may run the guest.
        lost: list[str] = []
        for uuid, item in items.items():
            error = switched["problems"].get(uuid)
            its: dict[str, t.Any] = {"cleaned": True}
            if uuid in switched["to_settle"]:
                its = self.said(SETTLED, "settle", item["destination"], uuid)
                error = error or its.get("error")
            over = uuid in switched["switched"] or self.reverts
            problem = errors.from_dict(error) if error and not its.get("cleaned") else None
            silent = isinstance(problem, errors.HostUnreachable) and not isinstance(problem, errors.InvalidAnswer)
            if self.reverts and problem is not None and silent and not _stays(item):
                if item["lost"]:
                    lost.append(uuid)
                    warn_of_leftovers(self, item["destination"], {uuid: problem})
                    error = None
                else:
                    problem.remedy = " ".join((problem.remedy, _IF_LOST % item["destination"]))
                    error = problem.as_dict()
            stays = over and (not its.get("cleaned") if (error or self.reverts) else True) and uuid not in lost
            results[uuid] = {
                "error": error,
                "cleaned": bool(its.get("cleaned")),
                "over": over,
                "stays": stays,
                "power_state": its.get("power_state") or 0,
            }
        back = [u for u, r in results.items() if r["over"] and not r["stays"]]
        went = {m.uuid for m in self.open_ledger().transact(cold_life.go_back, back, lost)} if back else set()
        at_home = [u for u, r in results.items() if not r["over"] or u in went]
        start: dict[str, list[str]] = {}
        undone: dict[str, list[str]] = {}
        reconnect: dict[str, list[str]] = {}
        mine = [u for u in at_home if u not in switched["lost"]]
        storage_hosts, lacking = self._follow(mine) if mine else ([], set())
        if self.reverts and mine:  # those are defined again, as those are whose volumes are connected again
            lacking |= self.open_ledger().inspect(ledger_moves.detached_while_away, mine)
        for uuid in sorted(lacking):
            reconnect.setdefault(items[uuid]["source"], []).append(uuid)
        for uuid in at_home:
            # What this run did not shut down was off, and may run where its new host refused it.
            off = uuid in self.registered(DEPARTED, items[uuid]["source"]).get("was_off", ()) and uuid not in went
            if items[uuid]["runs"] and uuid not in switched["lost"] and not off:
                start.setdefault(items[uuid]["source"], []).append(uuid)
            if uuid in went and _stays(items[uuid]):
                undone.setdefault(items[uuid]["source"], []).append(uuid)
        return {
            "changed": bool(went),
            "results": results,
            "start": start,
            "undone": undone,
            "reconnect": reconnect,
            "hosts": sorted({*start, *undone, *reconnect, *self.registered(BEGUN).get("sources", [])}),
            "storage_hosts": storage_hosts,
        }

    # --- finish -------------------------------------------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        begun, items = self.registered(BEGUN), self.items()
        results = self._results(items)
        failed: dict[str, errors.BootflowError] = {u: r.error for u, r in results.items() if r.error is not None}
        if results and not self.check_mode:
            failed = self.open_ledger().transact(cold_life.finish, self.operation, results)
        at_new = {u: r["stays"] for u, r in self.registered(WENT_BACK).get("results", {}).items()}
        shown = []
        for uuid, item in items.items():
            there = at_new.get(uuid, not self.reverts)
            problem = failed.get(uuid)
            result = results.get(uuid, cold_life.Result())
            shown.append(
                {
                    "name": item["name"],
                    "uuid": uuid,
                    "source": item["source"],
                    "destination": item["destination"],
                    "host": item["destination"] if there else item["source"],
                    "vm_state": _vm_state(item, there, result),
                    "power_state": result.power_state,
                    "disk_changes": item["disk_changes"],
                    "flavor_change": item["flavor_change"],
                    "error": None if problem is None else problem.as_dict(),
                }
            )
        if self.check_mode and self.options["follow_file"]:  # what applies the file prints the plan
            return {"changed": not all(i["error"] for i in shown), "instances": shown}
        more = [line_of(i, self._why(i)) for i in begun.get("unchanged", [])]
        before = {uuid: item["vm_state"] for uuid, item in items.items()}
        lost = begun.get("not_placed", [])
        return report(self, self.operation, shown, lost, _note, more, back=self.reverts, before=before)

    def _why(self, unchanged: Item) -> str:
        """Why nothing is done with it."""
        if not self.reverts:
            return "waits to be confirmed or reverted"
        if unchanged["vm_state"] != states.ACTIVE or unchanged["power_state"] == states.RUNNING:
            return "nothing to do"
        # Its module was killed between the start and the first step of its CPUs; it may also be paused by somebody.
        return "is back: unpause it" if unchanged["power_state"] == states.POWER_PAUSED else "is back: start it"

    def _results(self, items: t.Mapping[str, Item]) -> dict[str, cold_life.Result]:
        """uuid -> what came of it."""
        if self.check_mode:
            return {}
        back = self.registered(WENT_BACK)
        found = {}
        for uuid, its in back["results"].items():
            error = errors.from_dict(its["error"]) if its["error"] else None
            outcome = Outcome(int(its["power_state"]))
            host = items[uuid]["source"]
            if not its["stays"]:
                if uuid in back["start"].get(host, ()):
                    returned = self.said(RETURNED, "return", host, uuid)
                else:  # its guest is off
                    said = self.registered(RETURNED, host).get("outcomes", {}).get(uuid) or {}
                    returned = {"power_state": states.SHUTDOWN, **said}
                problem = errors.from_dict(returned["error"]) if returned.get("error") else None
                outcome = Outcome.of_answer(returned, problem)
                error = error or problem
            cleaned = its["cleaned"]
            if uuid in back["undone"].get(host, ()):
                returned = self.said(RETURNED, "return", host, uuid)
                cleaned = not returned.get("error")
                error = error or (None if cleaned else errors.from_dict(returned["error"]))
            found[uuid] = cold_life.Result(outcome.power_state, error, cleaned, outcome.gone)
        return found


def _started(uuid: str, host: str) -> errors.BootflowError:
    """Why the new host is not cleaned of an instance whose guest was started there, whatever failed afterwards."""
    return errors.Conflict(
        message="The guest of instance %s was started on %s, and may run there" % (uuid, host),
        remedy="Look at the guest there. bootflow.compute.revert_resize brings the instance back.",
    )


def _silence(host: str, report: t.Mapping[str, t.Any]) -> errors.BootflowError | None:
    """Why nothing goes to ``host``; None: it has answered."""
    if report.get("reported"):
        return None
    if report.get("error"):
        return errors.from_dict(report["error"])
    return errors.HostUnreachable(host=host, reason="it was not asked")


def _stays(item: Item) -> bool:
    """Whether it is resized on its own host."""
    return bool(item["source"] == item["destination"])


def _vm_state(item: Item, there: bool, result: cold_life.Result) -> str:
    """What cold_life.finish() writes. :arg there: it is on its new host"""
    if there:
        return states.RESIZED
    return cold_life.vm_state_at_source(states.ACTIVE if item["runs"] else states.STOPPED, result)


def _note(item: Item) -> str:
    return "; ".join(filter(None, (item["flavor_change"], *item["disk_changes"])))


def _of(outcomes: Outcomes, uuids: t.Collection[str]) -> Outcomes:
    return {u: outcomes[u] for u in uuids}
