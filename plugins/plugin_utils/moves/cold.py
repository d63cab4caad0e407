# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A resize, a cold migration, or the revert of one: the stages of the controller. cold_hosts has the stages of hosts."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, replace

from ...module_utils.core import errors
from ...module_utils.core.guest.nvram import NVRAM
from ...module_utils.core.instances import states
from ...module_utils.core.instances.verdicts import cold as verdicts
from ...module_utils.core.instances.verdicts.cold import Move, Verdict
from ...module_utils.core.instances.verdicts.ending import Ending
from ...module_utils.core.model import Flavor
from ...module_utils.core.request import catalogue
from ...module_utils.core.settings.selection import MOVE
from ...module_utils.flows.attachments import life, moving
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.instances.operations import OPERATIONS
from ...module_utils.flows.moves import cold, cold_life, confirm, local_disks, revert
from ...module_utils.flows.moves.local_disks import Journey
from ...module_utils.flows.moves.moving_instance import MovingInstance
from ...module_utils.flows.recovery import moves as recovery
from ...module_utils.ledger.compute import moves as ledger_moves
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.db.transaction import Transaction
from ..operations.cleaning import warn_of_leftovers
from ..plans.set_plans import is_set, places_of_plan
from ..run import host_settings
from ..run.inventory_hosts import all_of, reachable, refuse_left_out
from ..run.ledger_action import LedgerAction
from ..run.results import diff
from ..run.stages import Item, Result
from ..scheduling import shared_disks
from ..scheduling.candidates import Candidates, hosts_to_ask
from ..settings import apply_plan, host_reports, resize_settings, scheduler_settings, variable_names
from ..volumes.attached_volumes import connectors_of
from . import live_settings
from .cold_hosts import ColdHosts, on_one_host, silence_in
from .report import as_it_is, item_of, line_of, not_placed, report

if t.TYPE_CHECKING:
    from ..plans.move_plans import MovePlan

OPERATION = {"resize": cold_life.RESIZE, "migrate": cold_life.MIGRATE, "revert_resize": cold_life.REVERT}

Part = t.TypeVar("Part")
Flavors = t.Mapping[str, t.Tuple[str, str]]  # uuid -> the names of the former and the new one


class ColdMove(ColdHosts):
    """All stages of the operation that the options of the action name."""

    def __init__(self, action: LedgerAction, family: str):
        super().__init__(action, family)
        self.operation = OPERATION[self.options["operation"]]
        self.reverts = self.operation is cold_life.REVERT
        self.starts = {"back": "compute"} if self.reverts else {"switch": "compute", "back": "compute"}
        self.called = self.event = self.operation.name
        self._places = places_of_plan(action) if is_set(action) and not self.reverts else None

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        begin = self._begin_revert if self.reverts else self._begin
        switch = self._settle_all if self.reverts else self._switch
        return {
            "check": self._check,
            "begin": begin,
            "switch": switch,
            "back": self._bring_back,
            "finish": self._finish,
        }

    # --- check and begin ------------------------------------------------------------------------------------------------

    def _wanted(self) -> cold.Wanted:
        parsed = catalogue.parse_catalogue(
            self.options["flavors"], None, None, None, None, self.options["pci_alias"], default_project=""
        )
        flavor: Flavor | None = None
        flavors: dict[str, Flavor] = {}
        if self.operation is cold_life.RESIZE and self.options["follow_file"]:
            of_file = apply_plan.result_of(self.action, apply_plan.BEGIN).get("flavors") or {}
            flavors = {uuid: parsed.flavor(name) for uuid, name in of_file.items()}
        elif self.operation is cold_life.RESIZE:
            if not self.options["flavor"]:
                raise errors.InvalidInput(
                    message="bootflow_resize_flavor is not set", remedy="Name the flavor that the instances are to get."
                )
            flavor = parsed.flavor(self.options["flavor"])
        selection = Selection.from_options(self.options)
        wanted = resize_settings.wanted(self.action, selection, parsed.pci_aliases, flavor, flavors)
        return replace(wanted, to_hosts=self._places or {})

    def _check(self) -> Result:
        """Fail before any host is contacted. Returns the hosts that should report before others are chosen."""
        action = self.action
        variable_names.refuse(action, MOVE)
        if self.reverts:
            self._refuse_plan()
            host_settings.check_common(action)
            scheduler_settings.check_underlay(action)
            ledger = action.rehearsal_ledger() if action.check_mode else action.open_ledger()
            former = ledger.inspect(revert.former_hosts, Selection.from_options(self.options))
            hosts = sorted(former.intersection(action.compute_hosts()))
            return {"changed": False, "ask": action.within_limit(hosts)}
        scheduler_settings.check(action)
        wanted = self._wanted()
        ledger = action.rehearsal_ledger() if action.check_mode else action.open_ledger()
        if self._has_plan() and self._plans().check(action, ledger, self.operation.name, wanted):
            return {"changed": False, "ask": []}  # the hosts of the plan have reported, and no other is needed
        ledger.inspect(cold.check, wanted)
        return {"changed": False, "ask": hosts_to_ask(action, ledger)}

    def _has_plan(self) -> bool:
        """Return whether this run uses or writes a plan of these moves. A step of a drain has the hosts of the plan in ``_places``."""
        return is_set(self.action) and self._places is None

    @staticmethod
    def _plans() -> t.Any:
        from ..plans import move_plans  # of few runs

        return move_plans

    def _refuse_plan(self) -> None:
        """:raises PlanNotTaken: a revert has no plan."""
        if self._has_plan():
            from ..plans import chosen  # of few runs

            chosen.refuse(self.action, self.operation.name)

    def _begin_revert(self) -> Result:
        selection, known = Selection.from_options(self.options), frozenset(self.action.compute_hosts())
        reports = host_reports.of_this_run(self.action)

        def begin(tx: Transaction) -> tuple[revert.Reverting, Flavors, set[str]]:
            recovery.settle_on_lost_hosts(tx, selection)
            silences = {h: silence_in(h, reports.get(h) or {}) for h in revert.former_hosts(tx, selection)}
            silent = {h: e for h, e in silences.items() if e is not None}
            heard = [h for h in silences if h not in silent and "instances" in reports[h]]
            reported = {h: set(reports[h]["instances"]) for h in heard}
            limits, inventory = self.options["quotas"], all_of(self.action)
            begun = revert.begin_revert(tx, selection, known, limits, silent, inventory, reported)
            down = nodes.forced_down(tx)
            self._check_limit(tx, begun.moving, down)
            return begun, cold_life.flavor_names(tx, begun.moving), down

        reverted_moves, flavors, down = self.action.write(begin)
        items = [self._item(m, Journey(), flavors[m.uuid], down=down) for m in reverted_moves.moving]
        return self._begun(
            cold.Begun(reverted_moves.moving, reverted_moves.failed, reverted_moves.rows, reverted_moves.unchanged),
            items,
            flavors,
        )

    def _begin(self) -> Result:
        wanted = self._wanted()
        candidates = Candidates(self.action)
        plan = self._plan(wanted, candidates)

        def begin(tx: Transaction) -> tuple[cold.Begun, dict[str, str], dict[str, Journey], Flavors, list[str]]:
            candidates.rehearse(tx)
            begun = cold.begin(tx, wanted, candidates.read, candidates.options) if plan is None else plan.begin(tx)
            self._check_limit(tx, begun.moving)
            addresses = {r.host: r.host_ip for r in nodes.rows(tx, ("host", "node", "host_ip"))}
            journeys = local_disks.journeys(tx, [m.move for m in begun.moving])
            new = sorted({m.move.dest_compute for m in begun.moving if not ledger_moves.is_same_host_resize(m.move)})
            # Destinations that are asked before a guest is shut down for them.
            unheard = [] if self.action.check_mode or not new else nodes.stale_hosts(tx, new, confirm.SURE)
            return begun, addresses, journeys, cold_life.flavor_names(tx, begun.moving), unheard

        try:
            begun, addresses, journeys, flavors, unheard = self.action.write(begin)
        except errors.BootflowError:
            if plan is not None:
                plan.discard()
            raise
        items = [
            self._item(m, journeys.get(m.uuid, Journey()), flavors[m.uuid], addresses.get(m.move.source_compute))
            for m in begun.moving
        ]
        result = self._begun(begun, items, flavors, unheard)
        return result if plan is None else {**result, **plan.write()}

    def _plan(self, wanted: cold.Wanted, candidates: Candidates) -> MovePlan | None:
        """Return the plan that the moves use, or write; None: there is none, or it does not fit, which the table shows."""
        if not self._has_plan():
            return None
        move_plans = self._plans()
        try:
            return t.cast("MovePlan", move_plans.MovePlan(self.action, self.operation.name, wanted, candidates))
        except move_plans.held_moves.Unplaced:
            return None

    def _check_limit(self, tx: Transaction, moves: t.Sequence[MovingInstance], down: t.Collection[str] = ()) -> None:
        """Refuse moves whose hosts the limit of the run leaves out. :arg down: hosts that are not asked

        :raises InvalidInput: see refuse_left_out().
        """
        hosts = {m.move.source_compute for m in moves} | {m.move.dest_compute for m in moves}
        hosts |= {*reachable(self.action, life.storage_hosts_of(tx, [m.uuid for m in moves]))}
        refuse_left_out(hosts - set(down), self.action.within_limit(sorted(hosts)))

    def _item(
        self,
        moving_instance: MovingInstance,
        journey: Journey,
        flavors: tuple[str, str],
        address: str | None = None,
        down: t.Collection[str] = (),
    ) -> Item:
        """Return what all stages must know of an instance.

        :arg journey: of its local disks; in a revert they have none. :arg address: of its source
        :arg down: hosts that are forced down, which instances leave without an answer
        """
        old, new = self._in_order(*flavors)
        old_disks, new_disks = self._in_order(moving_instance.move.old_disks, moving_instance.move.new_disks)
        changes = local_disks.changes(old_disks or (), new_disks or ())
        if NVRAM in journey.left_behind:
            changes.append("UEFI variables: new, with other keys")
        return {
            **item_of(moving_instance),
            "address": live_settings.address_of(self.action, moving_instance.move.source_compute, address),
            "runs": moving_instance.runs,
            "lost": moving_instance.move.dest_compute in down,
            "details": OPERATIONS["stop"].details(moving_instance.row),
            "disks": asdict(journey),
            "files": bool(moving_instance.row.config_drive or journey.sizes),
            "disk_changes": changes,
            "flavor_change": "flavor %s -> %s" % (old, new) if old != new else "",
        }

    def _in_order(self, former: Part, new: Part) -> tuple[Part, Part]:
        """Return what is before the operation, and after it."""
        return (new, former) if self.reverts else (former, new)

    def _described(self, moving_instance: MovingInstance, flavors: tuple[str, str]) -> tuple[str, str]:
        """Return the lines of the diff: an instance before and after."""
        ends = (
            (moving_instance.move.source_compute, flavors[0], moving_instance.move.old_disks),
            (moving_instance.move.dest_compute, flavors[1], moving_instance.move.new_disks),
        )
        lines = []
        for host, flavor, disks in self._in_order(*ends):
            named = ["flavor %s" % flavor] if flavors[0] != flavors[1] else []
            words = ", ".join([host, *named, *local_disks.sizes(disks or ())])
            lines.append("%s %s: %s\n" % (moving_instance.row.display_name, moving_instance.uuid, words))
        return lines[0], lines[1]

    def _begun(
        self, begun: cold.Begun, items: t.Sequence[Item], flavors: Flavors, unheard: t.Sequence[str] = ()
    ) -> Result:
        """Return the result of the stage. :arg unheard: hosts that are to report now"""
        # Hosts do nothing in check mode: no task goes to them.
        asked = [] if self.reverts or self.action.check_mode else items
        failed = not_placed(begun.rows, begun.failed)
        described = [self._described(m, flavors[m.uuid]) for m in begun.moving]
        return {
            "changed": bool(items or failed),
            "instances": list(items),
            "not_placed": failed,
            "unchanged": [as_it_is(r) for r in begun.unchanged],
            "sources": sorted({i["source"] for i in asked}),
            "destinations": sorted({i["destination"] for i in asked}),
            "ask": list(unheard),
            "diff": diff("instances", "".join(b for b, _a in described), "".join(a for _b, a in described)),
        }

    # --- switch ---------------------------------------------------------------------------------------------------------

    def _settle_all(self) -> Result:
        """Return the instances of a revert: their destinations are to remove them."""
        items = {} if self.action.check_mode else self.items()
        return {
            **_NOT_SWITCHED,
            "to_settle": list(items),
            "compute": sorted({i["destination"] for i in items.values()}),
        }

    def _switch(self) -> Result:
        """Relocate the instances whose disks have arrived."""
        if self.action.check_mode:
            return _NOT_SWITCHED
        items, departed, arrived = self.items(), self.answers("depart"), self.answers("arrive")
        arrivals = {u: verdicts.arrival(departed[u], arrived[u]) for u in items}
        problems = {u: arrival.error for u, arrival in arrivals.items() if arrival.error}
        able = [u for u in items if u not in problems]
        moved = {m.uuid for m in self.action.open_ledger().transact(cold_life.switch, able)} if able else set()
        reached = sorted(u for u, arrival in arrivals.items() if arrival.reached)
        return {
            "changed": bool(moved),
            "switched": sorted(moved),
            "lost": sorted(set(able) - moved),
            "to_settle": reached,
            "problems": problems,
            "compute": sorted({items[u]["destination"] for u in reached}),
            "storage": self._rebind_volumes(items)[0],
        }

    def _rebind_volumes(self, uuids: t.Iterable[str]) -> tuple[list[str], set[str]]:
        """Bind the volumes of instances to the hosts where they are now.

        Returns the storage hosts that are to export them there, and the instances that have volumes to be connected.
        """
        hosts_of_items = {i[end] for i in self.items().values() for end in ("source", "destination")}
        connectors = connectors_of(self.action.task_vars["hostvars"], hosts_of_items)
        hosts, lacking = self.action.open_ledger().transact(moving.rebind_to_current_host, sorted(uuids), connectors)
        return reachable(self.action, hosts), lacking

    # --- back -----------------------------------------------------------------------------------------------------------

    def _bring_back(self) -> Result:
        """Bring back the instances that failed on their destinations, or are reverted, where these have nothing of them."""
        if self.action.check_mode:
            empty: dict[str, t.Any] = {"results": {}, "start": {}, "undone": {}, "reconnect": {}, "stay": {}}
            return {"changed": False, **empty, "compute": [], "storage": []}
        items, decided = self.items(), self._verdicts()
        uuids_to_return = [u for u, verdict in decided.items() if verdict.comes_back]
        uuids_of_lost_hosts = [u for u, verdict in decided.items() if verdict.ignored_error]
        went: set[str] = set()
        if uuids_to_return:
            ledger = self.action.open_ledger()
            went = {m.uuid for m in ledger.transact(cold_life.roll_back, uuids_to_return, uuids_of_lost_hosts)}
        at_home = [u for u, verdict in decided.items() if not verdict.over or u in went]
        taken_over = self.result("switch")["lost"]
        owned = [u for u in at_home if u not in taken_over]
        storage_hosts, lacking = self._rebind_volumes(owned) if owned else ([], set())
        if self.reverts and owned:  # their guests are defined again, as are guests whose volumes are connected again
            lacking |= self.action.open_ledger().inspect(ledger_moves.detached_while_away, owned)
        start = []
        for uuid in at_home:
            was_off = uuid in self.result("depart", items[uuid]["source"]).get("was_off", ())
            if verdicts.starts_at_source(self._move(items[uuid]), uuid in went, was_off, uuid in taken_over):
                start.append(uuid)
        work = {
            "start": self._by_source(start),
            "undone": self._by_source([u for u in at_home if u in went and on_one_host(items[u])]),
            "reconnect": self._by_source(sorted(lacking)),
            # Where they may have disks that their former destination has written to.
            "stay": self._by_source(
                [u for u in owned if not on_one_host(items[u])] if self._has_shared_disks() else []
            ),
        }
        hosts = {host for of_hosts in work.values() for host in of_hosts}
        return {
            "changed": bool(went),
            "results": {u: asdict(verdict) for u, verdict in decided.items()},
            **work,
            "compute": sorted({*hosts, *self.result("begin").get("sources", [])}),
            "storage": storage_hosts,
        }

    def _has_shared_disks(self) -> bool:
        return bool(shared_disks.places(self.action))

    def _move(self, item: Item) -> Move:
        return Move(item["source"], item["destination"], item["runs"], self.reverts, item["lost"])

    def _verdicts(self) -> dict[str, Verdict]:
        """Return where each instance stays. Warns of destinations that are lost."""
        switched, answers = self.result("switch"), self.answers("settle")
        decided = {}
        for uuid, item in self.items().items():
            switched_over, reached = uuid in switched["switched"], uuid in switched["to_settle"]
            error = switched["problems"].get(uuid)
            decided[uuid] = verdict = verdicts.settled(self._move(item), switched_over, reached, error, answers[uuid])
            if verdict.ignored_error:
                warn_of_leftovers(self.action, item["destination"], {uuid: errors.from_dict(verdict.ignored_error)})
        return decided

    def _by_source(self, uuids: t.Sequence[str]) -> dict[str, list[str]]:
        items, by_source = self.items(), t.cast("dict[str, list[str]]", {})
        for uuid in uuids:
            by_source.setdefault(items[uuid]["source"], []).append(uuid)
        return by_source

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        begun, items = self.result("begin"), self.items()
        endings = {} if self.action.check_mode else self._endings()
        failed = {u: end.error for u, end in endings.items() if end.error is not None}
        if endings:
            results = {u: cold_life.Result(*end) for u, end in endings.items()}
            failed = self.action.open_ledger().transact(cold_life.finish, self.operation, results)
        return_result = {} if self.action.check_mode else self.result("back")
        stays = {u: verdict["stays"] for u, verdict in return_result.get("results", {}).items()}
        shown = []
        for uuid, item in items.items():
            on_destination = stays.get(uuid, not self.reverts)
            ending, problem = endings.get(uuid, Ending()), failed.get(uuid)
            shown.append(
                {
                    **{n: item[n] for n in ("name", "uuid", "source", "destination")},
                    "host": item["destination"] if on_destination else item["source"],
                    "vm_state": verdicts.vm_state(
                        states.ACTIVE if item["runs"] else states.STOPPED, on_destination, ending
                    ),
                    "power_state": ending.power_state,
                    **{n: item[n] for n in ("disk_changes", "flavor_change")},
                    "error": None if problem is None else problem.as_dict(),
                }
            )
        if self.action.check_mode and self.options["follow_file"]:  # what applies the file prints the plan
            return {"changed": not all(i["error"] for i in shown), "instances": shown}
        more = [line_of(i, self._reason(i)) for i in begun.get("unchanged", [])]
        before = {uuid: item["vm_state"] for uuid, item in items.items()}
        return report(self, shown, begun.get("not_placed", []), _note, more, to_source=self.reverts, before=before)

    def _endings(self) -> dict[str, Ending]:
        """Return what came of each instance."""
        return_result, answers = self.result("back"), self.answers("return")
        starts, restores = ({u for uuids in return_result[n].values() for u in uuids} for n in ("start", "undone"))
        return {
            u: verdicts.ending(Verdict(**verdict), answers[u], u in starts, u in restores)
            for u, verdict in return_result["results"].items()
        }

    def _reason(self, unchanged: Item) -> str:
        """Return why nothing is done with an instance."""
        if not self.reverts:
            return "waits to be confirmed or reverted"
        if unchanged["vm_state"] != states.ACTIVE or unchanged["power_state"] == states.RUNNING:
            return "nothing to do"
        # Its module was killed between the start and the first step of its CPUs; it may also be paused by hand.
        return "is back: unpause it" if unchanged["power_state"] == states.POWER_PAUSED else "is back: start it"


_NOT_SWITCHED: Result = {
    "changed": False,
    "switched": [],
    "lost": [],
    "to_settle": [],
    "problems": {},
    "compute": [],
    "storage": [],
}


def _note(item: Item) -> str:
    return "; ".join(filter(None, (item["flavor_change"], *item["disk_changes"])))
