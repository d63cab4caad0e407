# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A live migration: the stages of the controller. live_hosts has the stages of hosts.

If it is unknown whether a guest has left its source, nothing is written and nothing is removed: the reports of both hosts settle it when this run is
over.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.core.instances.verdicts import live as verdicts
from ...module_utils.core.instances.verdicts.ending import Ending
from ...module_utils.core.instances.verdicts.live import Tries
from ...module_utils.core.legible import legible
from ...module_utils.flows.attachments import life, moving
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import live, live_life, live_pins
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..plans.set_plans import is_set, places_of_plan
from ..run import tables
from ..run.inventory_hosts import reachable, refuse_left_out
from ..run.results import diff
from ..run.stages import Item, Result
from ..scheduling.candidates import Candidates, hosts_to_ask
from ..settings import scheduler_settings
from . import live_settings
from .live_hosts import LiveHosts
from .report import item_of, not_placed, report

Endings = t.Mapping[str, Ending]
Problems = t.Mapping[str, errors.BootflowError]
Tried = t.Mapping[str, t.List[t.Dict[str, t.Any]]]  # uuid -> the errors of the hosts that refused the guest


class LiveMigration(LiveHosts):
    """All stages."""

    replaces = {"again": "begin"}
    starts = {"begin": "destinations", "again": "destinations"}

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {
            "check": self._check,
            "begin": self._begin,
            "again": self._retry,
            "switch": self._switch,
            "finish": self._finish,
        }

    # --- check, begin and again -----------------------------------------------------------------------------------------

    def _wanted(self) -> live.Wanted:
        wanted = live_settings.wanted(self.action, Selection.from_options(self.options), self.options["to_host"])
        places = places_of_plan(self.action) if is_set(self.action) else None
        return replace(wanted, to_hosts=places or self._to_hosts(), planned=tuple(places or ()))

    def _to_hosts(self) -> dict[str, str]:
        """Return UUID -> the host that an instance is to go to. :raises InvalidInput: a host is not a text."""
        hosts = self.options["to_hosts"] or {}
        wrong = sorted(str(u) for u, host in hosts.items() if not isinstance(host, str) or not host)
        if wrong:
            raise errors.InvalidInput(
                reason="bootflow_live_migrate_hosts names no host for %s" % ", ".join(wrong),
                remedy="Give the name of a compute host for each UUID.",
            )
        return {str(uuid): str(host) for uuid, host in hosts.items()}

    def _check(self) -> Result:
        """Fail before any host is contacted. Returns the hosts that should report before others are chosen."""
        action = self.action
        scheduler_settings.check(action)
        ledger = action.rehearsal_ledger() if action.check_mode else action.open_ledger()
        ledger.inspect(live.check, self._wanted())
        return {"changed": False, "ask": hosts_to_ask(action, ledger)}

    def _begin(self) -> Result:
        wanted = self._wanted()
        candidates = Candidates(self.action)
        connectors = live_settings.connectors(self.action, wanted.known_hosts)
        begun, result = self._start(
            candidates, lambda tx: live.begin(tx, wanted, candidates.read, candidates.options, connectors)
        )
        failed = not_placed(begun.rows, begun.failed)
        return {**result, "changed": bool(begun.moving or failed), "not_placed": failed, "attempt": 1}

    def _start(self, candidates: Candidates, work: t.Callable[[Transaction], live.Begun]) -> tuple[live.Begun, Result]:
        """Begin migrations by ``work``. Returns them, and the part of the result that the next stages and the diff need."""
        action = self.action

        def begin(tx: Transaction) -> tuple[live.Begun, dict[str, str], dict[str, dict[str, t.Any]], list[str]]:
            candidates.rehearse(tx)
            begun = work(tx)
            sources = {m.move.source_compute for m in begun.moving}
            asked = sources.union(reachable(action, life.storage_hosts_of(tx, begun.with_volumes)))
            refuse_left_out(asked, action.within_limit(sorted(asked)))
            addresses = {r.host: r.host_ip for r in nodes.rows(tx, ("host", "node", "host_ip"))}
            storage_hosts = reachable(action, moving.storage_hosts(tx)) if begun.with_volumes else []
            return begun, addresses, live_pins.pins_on_destination(tx, begun.moving), storage_hosts

        begun, addresses, pins, storage_hosts = action.write(begin)
        items = [
            {
                **item_of(m),
                "address": live_settings.address_of(action, m.move.dest_compute, addresses.get(m.move.dest_compute)),
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
            "sources": [] if action.check_mode else sorted({i["source"] for i in items}),
            "destinations": [] if action.check_mode else sorted({i["destination"] for i in items}),
            "storage": [] if action.check_mode else storage_hosts,
            "diff": diff("instances", before, after),
        }

    def _retry(self) -> Result:
        """End the migrations of the last round. A guest that its destination refused gets another one, claimed in the same transaction."""
        last, items, wanted = self.result("begin"), self.items(), self._wanted()
        endings, unknown = self._endings()
        refused: dict[str, live.Refusal] = {}
        tried: dict[str, list[dict[str, t.Any]]] = {}
        for uuid in self.result("switch")["refused"]:
            item, end = items[uuid], endings[uuid]
            if end.error is not None and verdicts.may_try_again(end, item["volumes"]):
                tried[uuid] = [*item.get("tried", ()), {"host": item["destination"], **end.error.as_dict()}]
                hosts = {str(refusal["host"]) for refusal in tried[uuid]}
                refused[uuid] = live.Refusal(live_life.Result(*end), hosts)
        others = {u: live_life.Result(*end) for u, end in endings.items() if u not in refused}
        candidates = Candidates(self.action)
        connectors = live_settings.connectors(self.action, wanted.known_hosts)
        failed: dict[str, errors.BootflowError] = {}

        def retry(tx: Transaction) -> live.Begun:
            failed.update(live_life.finish(tx, others))
            return live.retry_elsewhere(tx, wanted, refused, candidates.read, candidates.options, connectors)

        begun, result = self._start(candidates, retry)
        for uuid, error in begun.failed.items():
            failed[uuid] = errors.from_dict(tried[uuid][-1]) if isinstance(error, errors.NoValidHost) else error
        for item in result["instances"]:
            item["tried"] = tried.pop(item["uuid"])
        done = set(items).difference(m.uuid for m in begun.moving)
        self._show_next_hosts(result["instances"])
        ended = {u: items[u] for u in items if u in done}
        return {
            **result,
            "changed": True,
            "not_placed": last.get("not_placed", []),
            "attempt": self.attempt() + 1,
            "shown": [*last.get("shown", ()), *self._shown(ended, endings, {**unknown, **failed}, tried)],
        }

    def _show_next_hosts(self, items: t.Sequence[Item]) -> None:
        """Print which host refused each guest, and which host is tried next."""
        for item in items if self.options["print_table"] else ():
            refusal = item["tried"][-1]
            line = (item["name"], refusal["host"], refusal["code"], item["destination"])
            text = legible("live_migrate: %s: host %s refused the guest (%s). Trying %s." % line)
            tables.say(self.action.ports.display, text)

    # --- switch ---------------------------------------------------------------------------------------------------------

    def _switch(self) -> Result:
        """Relocate the instances whose guests have arrived."""
        items = self.items()
        if self.action.check_mode or not items:
            return _NOT_SWITCHED
        looked, prepared, migrated = (self.answers(stage) for stage in ("look", "prepare", "migrate"))
        asked = self._wanted()
        wanted = {u: asked.host_for(u) is not None for u in items}
        tries = {u: Tries(wanted[u], self.attempt(), self.options["max_attempts"]) for u in items}
        passages = {u: verdicts.passage(looked[u], prepared[u], migrated[u], tries[u]) for u in items}
        problems = {u: passage.error for u, passage in passages.items() if passage.error}
        unknown = [u for u, passage in passages.items() if passage.unknown]
        arrived = [u for u, passage in passages.items() if passage.arrived]
        reached = [u for u, passage in passages.items() if passage.reached]
        stay = sorted(set(problems) - set(unknown))
        ledger = self.action.open_ledger()
        over = {m.uuid for m in ledger.transact(live_life.switch, arrived, stay)} if arrived or stay else set()
        having = [i["uuid"] for i in items.values() if i["volumes"]]
        storage_hosts = reachable(self.action, ledger.inspect(attachments.storage_hosts, having)) if having else []
        of_guest = ("seconds", "downtime", "transferred", "power_state")
        return {
            "changed": bool(over),
            "over": sorted(over),
            "unknown": unknown,
            "problems": problems,
            "stats": {u: {n: migrated[u].get(n) for n in of_guest} for u in arrived},
            "reached": sorted(set(reached) - set(unknown)),
            "refused": [u for u, passage in passages.items() if passage.refused],
            "again": any(passage.refused for passage in passages.values()),
            "attempt": self.attempt(),
            "sources": sorted({items[u]["source"] for u in items if u not in unknown}),
            "destinations": sorted({items[u]["destination"] for u in reached}),
            "storage": storage_hosts,
        }

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _endings(self) -> tuple[dict[str, Ending], dict[str, errors.BootflowError]]:
        """Return the outcomes of the instances, and the errors of instances whose outcome is unknown."""
        switched, settled, cleaned = self.result("switch"), self.answers("settle"), self.answers("clean")
        endings, unknown = {}, {}
        for uuid, item in self.items().items():
            error = switched["problems"].get(uuid)
            if uuid in switched["unknown"]:
                unknown[uuid] = _unknown(item, error)
                continue
            over, reached = uuid in switched["over"], uuid in switched["reached"]
            power_state = switched["stats"][uuid]["power_state"] if over else states.NOSTATE
            endings[uuid] = verdicts.ending(over, reached, error, power_state, settled[uuid], cleaned[uuid])
        return endings, unknown

    def _finish(self) -> Result:
        begun, items = self.result("begin"), self.items()
        endings: dict[str, Ending] = {}
        failed: dict[str, errors.BootflowError] = {}
        if items and not self.action.check_mode:
            endings, failed = self._endings()
            results = {u: live_life.Result(*end) for u, end in endings.items()}
            failed.update(self.action.open_ledger().transact(live_life.finish, results))
        shown = [*begun.get("shown", ()), *self._shown(items, endings, failed, {})]
        return report(self, shown, begun.get("not_placed", []), _note)

    def _shown(self, items: t.Mapping[str, Item], endings: Endings, failed: Problems, tried: Tried) -> list[Item]:
        """Return instances as the last stage returns them. :arg tried: of instances without another host, else as ``items`` have it"""
        switched = self.result("switch")
        shown = []
        for uuid, item in items.items():
            over = self.action.check_mode or uuid in switched.get("over", ())
            ending, problem = endings.get(uuid, Ending()), failed.get(uuid)
            stats = switched.get("stats", {}).get(uuid, {})
            shown.append(
                {
                    **{n: item[n] for n in ("name", "uuid", "source", "destination")},
                    "vm_state": verdicts.vm_state(item["vm_state"], problem is not None, ending),
                    "host": item["destination"] if over else item["source"],
                    "power_state": ending.power_state,
                    **{n: stats.get(n) for n in ("seconds", "downtime", "transferred")},
                    "error": None if problem is None else _with_all(problem, item, tried.get(uuid)),
                }
            )
        return shown


_NOT_SWITCHED: Result = {
    "changed": False,
    "over": [],
    "unknown": [],
    "problems": {},
    "stats": {},
    "reached": [],
    "refused": [],
    "sources": [],
    "destinations": [],
    "storage": [],
}


def _unknown(item: Item, error: t.Mapping[str, t.Any]) -> errors.BootflowError:
    problem = errors.from_dict(error)
    problem.remedy = (
        "The guest is on %(source)s or on %(destination)s, or still on the way: when both hosts answer, run bootflow.compute.audit."
        % item
    )
    return problem


def _with_all(
    problem: errors.BootflowError, item: Item, tried: t.Sequence[t.Mapping[str, t.Any]] | None
) -> dict[str, t.Any]:
    """Return the data of ``problem``, with the errors of all hosts where another host was tried.

    :arg tried: None: the errors that ``item`` has, and ``problem``, which is the error of its last host
    """
    error = problem.as_dict()
    if tried is None:
        tried = [*item.get("tried", ()), {"host": item["destination"], **error}]
    others = len(tried) > 1 or tried[0] != {"host": item["destination"], **error}
    return {**error, "tried": list(tried)} if others else error


def _note(item: Item) -> str:
    """Return the line that is printed for a guest that was migrated."""
    if item["seconds"] is None:
        return ""
    return "%.1f s, stood still for %.2f s, %d MiB" % (item["seconds"], item["downtime"], item["transferred"] >> 20)
