# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_schedule."""

from __future__ import annotations

import functools
import itertools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import explain
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet, load_numpy
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.apply import FOLLOW
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, failure, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import schedule as volume_scheduling
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, instances, nodes, ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.instances import Instance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.database import Ledger
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments, backends, volumes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.volumes import VolumeRow
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    attached_volumes,
    boot_request,
    boot_volume_settings,
    guest_of_build,
    handover,
    host_reports,
    host_settings,
    scheduler_settings,
    storage_reports,
    storage_settings,
    tables,
    volume_settings,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import outcome

EXPLAINED_OF_AN_ENTRY = 3
HOSTS_SHOWN = 50  # of those that passed, and of those that were rejected
REMEDY = "The plan lists why each host was rejected. Request less, or fix the cause."


@dataclass(frozen=True)
class _Rehearsed:
    """What a boot would do, as the transaction that was rolled back had it; mappings are by the instance's uuid."""

    result: schedule.Scheduled
    rows: list[Instance]
    placed: dict[str, builds.Build]
    volumes: dict[str, list[attached_volumes.Attached]]
    backends: dict[str, t.Any]  # by the volume's id: where it would be made
    faults: dict[str, dict[str, t.Any] | None]
    xml: dict[str, str]  # of the domains


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **FOLLOW.options(),
        "round": {"type": "int", "default": 1},
        "phase": {"type": "str", "choices": ["refresh", "schedule"], "default": "schedule"},
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "refresh":
            return self._refresh()
        if not self.check_mode:
            return self._schedule()
        if self.options["round"] > 1:
            return {"changed": False, "hosts": [], "plan": [], "msg": "The plan was shown in the first round."}
        return self._plan()

    def _refresh(self) -> dict[str, t.Any]:
        """Write what hosts ended, give back what they did not, and name the hosts that should report before the next round.

        Hosts that were silent in this run are not asked again.
        """
        left: list[str] = []
        compute: list[str] = []
        storage: list[str] = []
        unfinished = False
        if not self.check_mode:
            ledger, run = self.open_ledger(), self.context().run.id
            to_clean = handover.collect(self)
            left = ledger.transact(builds.give_back, untaken=handover.untaken(self))
            unfinished = ledger.inspect(instances.has_builds, run)
            age = host_settings.facts_age(self.options)
            if ledger.inspect(instances.waits_for_host, run):
                compute = ledger.inspect(nodes.stale_hosts, self.hosts_to_use(), age, silent=False)
            compute += [h for h in self._reachable(to_clean) if h not in compute]
            if ledger.inspect(volumes.waits_for_backend, run):
                hosts = self.within_limit(storage_settings.storage_hosts(self))
                storage = ledger.inspect(backends.stale_hosts, hosts, age, silent=False)
        return {
            "changed": bool(left),
            "given_back": left,
            "unfinished": unfinished,
            "stale_hosts": compute,
            "stale_storage_hosts": storage,
        }

    def _schedule(self) -> dict[str, t.Any]:
        context = self.context()
        ledger = self.open_ledger()
        # Most boots come to the first round because something waits.
        if self.options["round"] > 1 and not ledger.inspect(instances.waits_for_host, context.run.id):
            self._place_volumes(ledger, ledger.inspect(attachments.instances_to_bind))
            return {
                "changed": False,
                "hosts": self._hand_over(ledger, ledger.inspect(instances.hosts_of_run, context.run.id)),
                "placed": [],
                "not_placed": [],
                "explanations": {},
            }
        configurations = scheduler_settings.configurations(self)
        options = replace(scheduler_settings.scheduler_options(self, context.now), explain_failures=True)
        read = self._fleet_reader()

        def write(tx: Transaction, compare: bool) -> tuple[schedule.Scheduled, dict[str, tuple[str, str]]]:
            read_fleet = functools.partial(read, configurations=configurations) if compare else read
            result = schedule.schedule(tx, read_fleet, options, log_claims=self._display.verbosity > 0)
            if compare and not result.names and nodes.differing(tx, configurations):  # nothing waits: no host was read
                raise fleet.SettingsDiffer
            return result, attachments.instances_to_bind(tx) if result.with_attachments else {}

        load_numpy()
        try:
            result, to_bind = ledger.transact(write, compare=True)
        except fleet.SettingsDiffer:
            ledger.transact(nodes.configure, configurations)  # apart: it locks nodes, scheduling locks instances first
            result, to_bind = ledger.transact(write, compare=False)
        names = result.names
        self._place_volumes(ledger, to_bind)
        for line in result.log:
            self._display.v(line)
        for line in result.warnings:
            self._display.warning(line)
        for uuid in result.failed:
            self._display.warning("%s was not placed; the report says why." % names.get(uuid, uuid))
        return {
            "changed": bool(names),
            "hosts": self._hand_over(ledger, result.hosts),
            "placed": [
                {"name": names.get(u, u), "uuid": u, "host": s.host, "node": s.nodename}
                for u, s in result.placed.items()
            ],
            "not_placed": sorted(result.failed),
            "explanations": {u: explain.summary(decision) for u, decision in result.explanations.items()},
        }

    def _hand_over(self, ledger: Ledger, hosts: t.Sequence[str]) -> list[str]:
        """Begin the builds on these hosts, and hand them to the hosts' tasks. Returns the hosts that plays can reach."""
        reachable = self._reachable(hosts)
        begun, waiting = ledger.transact(builds.begin_each, reachable) if reachable else ({}, ())
        # After the first round a task writes at once, and removes at once what was deleted meanwhile: no report follows.
        handover.give(self, begun, waiting, later=self.options["round"] == 1)
        return reachable

    def _place_volumes(self, ledger: Ledger, to_bind: t.Mapping[str, tuple[str, str]]) -> None:
        """For whom volumes are exported is known with the instance's host. :arg to_bind: see attachments.instances_to_bind()"""
        if to_bind:
            ledger.transact(life.bind_waiting, self._connectors({host for host, _node in to_bind.values()}))

    def _connectors(self, hosts: t.Iterable[str]) -> life.Connectors:
        return attached_volumes.connectors_of(self.task_vars["hostvars"], hosts)

    def _reachable(self, hosts: t.Sequence[str]) -> list[str]:
        inventory = set(self.task_vars.get("groups", {}).get("all", []))
        return self.within_limit([h for h in hosts if h in inventory])

    # --- the fleet ----------------------------------------------------------------------------------------------------

    def _fleet_reader(self) -> t.Callable[..., Fleet]:
        """fleet.read() of a transaction, for the scheduler's needs, of the inventory's hosts."""
        hosts = self.hosts_to_use()
        aggregates, host_vars = scheduler_settings.aggregates_of(self), scheduler_settings.vars_for_filters(self)

        def read(
            tx: Transaction,
            needs: fleet.Needs,
            configurations: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
        ) -> Fleet:
            return fleet.read(tx, hosts, aggregates, host_vars, needs, configurations)

        return read

    # --- check mode ---------------------------------------------------------------------------------------------------

    def _plan(self) -> dict[str, t.Any]:
        """The whole boot up to the domain XML, in a transaction that is rolled back."""
        request = boot_request.BootRequest(self.options, scheduler_settings.reading_of(self))
        options = boot_volume_settings.accept_options(self, request)
        configurations = scheduler_settings.configurations(self)
        read_fleet = self._fleet_reader()
        ledger = self.rehearsal_ledger()
        reports = host_reports.of_this_run(self)
        makes_volumes = boot_volume_settings.makes_volumes(request.requests)
        stored = volume_settings.configurations(self) if makes_volumes else {}
        from_storage = storage_reports.of_this_run(self) if makes_volumes else []
        uses_volumes = boot_volume_settings.uses_volumes(request.requests)
        connectors = self._connectors(self.compute_hosts() if uses_volumes else ())
        with ledger.rehearse() as tx:
            if makes_volumes:
                backends.configure(tx, stored)
                storage_reports.rehearse(tx, from_storage)
            host_reports.rehearse(tx, reports, configurations)
            if self.options["follow_file"]:
                self._rehearse_apply(tx, request, read_fleet)
            accepted = accept.accept(tx, request.requests, options)
            if not accepted.builds:
                return {"changed": False, "hosts": [], "plan": [], "msg": "Nothing has to be built."}
            found = self._rehearse(tx, accepted, read_fleet, connectors, makes_volumes)
        plan = self._plans(found)
        diffs = _diffs([p for p in plan if p["xml"]])
        lines = _text(plan)
        follows = self.options[
            "follow_file"
        ]  # then what applies the file prints the plan, and fails where it does not fit
        if self.options["print_table"] and not follows:
            tables.show(self._display, ["Plan (nothing is touched):", *lines])
        answer: dict[str, t.Any] = {
            "changed": True,
            "hosts": [],
            "plan": plan,
            "diff": [] if follows else diffs,
        }
        if follows:
            return answer
        items = [errors.failed_item(p["name"], p["uuid"], {**p["error"], "remedy": ""}) for p in plan if p["error"]]
        message = "%d of %d instances fit on no host." % (len(items), len(plan))
        return outcome(errors.BootFailed(items, len(plan), message=message, remedy=REMEDY), **answer)

    def _rehearse_apply(
        self,
        tx: Transaction,
        request: boot_request.BootRequest,
        read_fleet: t.Callable[[Transaction, fleet.Needs], Fleet],
    ) -> None:
        from ansible_collections.bootflow.compute.plugins.plugin_utils import (
            apply_plan,
        )  # with all that moves instances

        apply_plan.rehearse_resizes(self, tx, request.catalogue, read_fleet)
        apply_plan.rehearse_deletions(self, tx)

    def _rehearse(
        self,
        tx: Transaction,
        accepted: accept.Accepted,
        read_fleet: t.Callable[[Transaction, fleet.Needs], Fleet],
        connectors: life.Connectors,
        makes_volumes: bool,
    ) -> _Rehearsed:
        """Round after round as in a boot: a build that its host cannot run goes to another one."""
        uuids = sorted({*accepted.created, *accepted.resumed})
        options = replace(
            scheduler_settings.scheduler_options(self, tx.now, explain=True), explain_most=EXPLAINED_OF_AN_ENTRY
        )
        result = schedule.Scheduled()
        while True:
            if instances.waits_for_host(tx, tx.run.id):
                result.add(schedule.schedule(tx, read_fleet, options))
                life.bind_waiting(tx, connectors)
            placed_on: dict[str, t.Any] = {}
            if makes_volumes:
                hosts = storage_settings.storage_hosts(self)
                settings = volume_settings.scheduler_options(self.options, tx.now, hosts=hosts)
                placed_on = {c["volume_id"]: c for c in volume_scheduling.plan(tx, settings)}
            rows = instances.select_live(tx, uuids=uuids)
            on_hosts = [r for r in rows if instances.is_placed(r)]
            have = ports.ports_of(tx, [r.uuid for r in on_hosts])
            failed, _allocated = failure.allocate_missing_ports(tx, on_hosts, have)
            placed = {b.uuid: b for b in builds.load(tx, on_hosts)}
            volumes = attached_volumes.load(tx, [u for u, b in placed.items() if guest_of_build.has_volumes(b)])
            xml: dict[str, str] = {}
            for uuid, build in placed.items():
                try:
                    xml[uuid] = self._xml(build, volumes.get(uuid, []))
                except errors.BootflowError as e:
                    failed.setdefault(uuid, failure.Failed(e))
            if not failed:
                return _Rehearsed(result, rows, placed, volumes, placed_on, schedule.faults(tx, result.failed), xml)
            for host in sorted({placed[u].row.host for u in failed}):
                its = {u: how for u, how in failed.items() if placed[u].row.host == host}
                outcomes = failure.fail_builds(tx, host, builds.SPAWNING.name, its)
                result.failed += [u for u, outcome in outcomes.items() if outcome == "error"]
            for uuid in failed:
                result.placed.pop(uuid, None)

    def _xml(self, build: builds.Build, volumes: t.Sequence[attached_volumes.Attached]) -> str:
        """:raises BootflowError: the host cannot run the build, see HostLacksHardware; or no host can."""
        host = build.row.host
        for volume in volumes:
            attached_volumes.check_host(host, volume.row.connector, build.facts)
        return guest_of_build.domain_xml(build, HOST.of(self.task_vars["hostvars"][host]), volumes)

    def _plans(self, found: _Rehearsed) -> list[dict[str, t.Any]]:
        """The plan of each instance, with its ``lines``, and ``entry``, ``flavor`` for those that print them."""
        # The hosts of an entry are much the same for each of its instances: they are explained for the first few.
        explained: dict[int, list[str]] = {}
        refused: dict[tuple[int, str], list[str]] = {}
        plans = []
        for row in found.rows:
            plan = self._plan_of(row, found, explained)
            plan["volumes"] = [
                _volume_plan(a, found.backends.get(a.volume_id)) for a in found.volumes.get(row.uuid, [])
            ]
            plan["lines"] += [_volume_line(v) for v in plan["volumes"]]
            if plan["error"] is not None:
                plan["lines"] = refused.setdefault((row.request_spec_id, plan["error"]["message"]), plan["lines"])
            plans.append(plan)
        return plans

    def _plan_of(self, row: Instance, found: _Rehearsed, explained: dict[int, list[str]]) -> dict[str, t.Any]:
        """:arg explained: entry -> the instances with whose plans its hosts are; their number is limited."""
        build, fault, selection = (
            found.placed.get(row.uuid),
            found.faults.get(row.uuid),
            found.result.placed.get(row.uuid),
        )
        decision = selection.decision if selection is not None else found.result.explanations.get(row.uuid)
        uuids = explained.setdefault(row.request_spec_id, [])
        decided = decision is not None or selection is not None
        if decision is not None and len(uuids) < EXPLAINED_OF_AN_ENTRY:
            uuids.append(row.uuid)
        else:
            decision = None
        return {
            "name": row.display_name,
            "uuid": row.uuid,
            "host": build.row.host if build is not None else None,
            "alternates": [a.host for a in selection.alternates] if selection is not None else [],
            "decision": None if decision is None else explain.condensed(decision, HOSTS_SHOWN),
            "explained_by": uuids[-1] if decided and uuids else None,
            "error": fault,
            "xml": found.xml.get(row.uuid),
            "entry": row.request_spec_id,
            "flavor": row.spec["flavor"]["name"],
            "lines": _plan_lines(row, build, selection, fault, decision, decided),
        }


def _text(plans: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """The plans for people: once for neighbours of an entry with the same one."""
    texts = [(p.pop("entry"), p.pop("flavor"), p.pop("lines")) for p in plans]
    lines: list[str] = []
    for (_entry, flavor, its), alike in itertools.groupby(zip(texts, plans), key=lambda pair: pair[0]):
        lines += ["", "%s (flavor %s)" % (", ".join(plan["name"] for _text, plan in alike), flavor), *its]
    return lines


def _plan_lines(
    row: Instance,
    build: builds.Build | None,
    selection: Selection | None,
    fault: dict[str, t.Any] | None,
    decision: t.Any,
    decided: bool,
) -> list[str]:
    """:arg decision: None where those of its neighbours serve for it too. :arg decided: whether there was one."""
    lines = []
    if build is not None:
        addresses = [f["ip_address"] for p, _n in build.ports for f in p.fixed_ips]
        lines.append("  host: %s, addresses: %s" % (build.row.host, ", ".join(addresses) or "none"))
        if selection is None:
            lines.append("  goes on where an earlier run stopped")
        if row.retry and row.retry.get("exc"):
            lines.append("  rescheduled: %s" % row.retry["exc"])
    if selection is not None:
        lines.append("  alternates: %s" % (", ".join(a.host for a in selection.alternates) or "none"))
    if fault is not None:
        lines.append("  %s: %s" % (fault["code"], fault["message"]))
    if decision is not None:
        # Its first line and that of the alternates stand above, in words of our own.
        text = explain.explanation_text(decision, HOSTS_SHOWN)[1:]
        lines += [line for line in text if not line.startswith("  alternates:")]
    elif decided:
        lines.append("  hosts: as above")
    return lines


def _diffs(plans: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, str]]:
    """The domain XML of the first instance of each entry, and what is different in that of the others."""
    first: dict[int, tuple[str, str]] = {}
    found = []
    for plan in plans:
        header = "%s on %s" % (plan["name"], plan["host"])
        of, before = first.setdefault(plan["entry"], (header, plan["xml"]))
        if of == header:
            of, before = plan["name"], ""
        found.append({"before": before, "after": plan["xml"], "before_header": of, "after_header": header})
    return found


def _volume_plan(attached: attached_volumes.Attached, chosen: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    volume = t.cast(VolumeRow, attached.volume)
    return {
        "id": attached.volume_id,
        "name": volume.name,
        "size": volume.size,
        "device": attached.row.mountpoint,
        "pool_host": chosen["host"] if chosen is not None else volume.pool_host,
        "new": chosen is not None,
        "error": chosen["error"] if chosen is not None else None,
    }


def _volume_line(volume: t.Mapping[str, t.Any]) -> str:
    where = volume["pool_host"] or "no backend: %s" % ((volume["error"] or {}).get("message") or "not asked yet")
    what = "new volume" if volume["new"] else "volume"
    return "  %s: %s %s, %d GiB, on %s" % (
        volume["device"],
        what,
        volume["name"] or volume["id"],
        volume["size"],
        where,
    )
