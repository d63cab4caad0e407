# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a boot in check mode: the whole boot up to the domain XML, in a transaction that is rolled back."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, replace

from ...module_utils.core import errors
from ...module_utils.core.networks.network import Network
from ...module_utils.core.networks.types.registry import DEFAULT, NETWORK_TYPES
from ...module_utils.core.plans.plan_states import BOOT
from ...module_utils.core.scheduler import explain
from ...module_utils.core.scheduler.columns import Fleet
from ...module_utils.core.scheduler.placement import Selection
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.flows.attachments import life
from ...module_utils.flows.boot import accept, builds, failure, schedule
from ...module_utils.flows.instances.operation import some
from ...module_utils.flows.plans import held
from ...module_utils.flows.volumes import schedule as volume_scheduling
from ...module_utils.ledger.compute import fleet, instances, ports
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.this_run import Context
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.plans import plans
from ...module_utils.ledger.storage import backends
from ...module_utils.ledger.storage.volumes import VolumeRow
from ..plans import boot_plans, chosen, set_plans
from ..run import host_settings, host_variables, tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..run.results import outcome, unfit
from ..settings import (
    apply_plan,
    boot_request,
    boot_volume_settings,
    host_reports,
    ledger_images,
    scheduler_settings,
    storage_settings,
    volume_settings,
)
from ..volumes import attached_volumes, storage_reports
from . import domain_builder

EXPLAINED_OF_AN_ENTRY = 3
HOSTS_SHOWN = 50  # of accepted hosts, and of rejected ones
REMEDY = "The plan says why. Request less, or fix the cause."

FleetReader = t.Callable[[Transaction, fleet.Needs], Fleet]


@dataclass(frozen=True)
class _Rehearsed:
    """Results that a boot would have, as the transaction that was rolled back had them; mappings are by the instance's uuid."""

    result: schedule.Scheduled
    rows: list[Instance]
    placed: dict[str, builds.Build]
    volumes: dict[str, list[attached_volumes.Attached]]
    backends: dict[str, t.Any]  # by the volume's id: where it would be made
    faults: dict[str, dict[str, t.Any] | None]
    xml: dict[str, str]  # of the domains


def plan_of_boot(action: LedgerAction, read_fleet: FleetReader) -> dict[str, t.Any]:
    """The result of boot_schedule in check mode.

    :arg read_fleet: fleet.read() of a transaction, for the scheduler's needs.
    """
    request = boot_request.BootRequest(
        action.options,
        scheduler_settings.reading_of(action),
        user=action.context().actor,
        ledger_images=ledger_images.images_of(action),
        filters_ports=port_filters.are_filtered(action),
    )
    options = boot_volume_settings.accept_options(action, request)
    configurations = scheduler_settings.configurations(action)
    ledger = action.rehearsal_ledger()
    reports = host_reports.of_this_run(action)
    makes_volumes = boot_volume_settings.makes_volumes(request.requests)
    stored = volume_settings.configurations(action) if makes_volumes else {}
    from_storage = storage_reports.of_this_run(action) if makes_volumes else []
    uses_volumes = boot_volume_settings.uses_volumes(request.requests)
    connectors = attached_volumes.connectors_of(
        action.task_vars["hostvars"], action.compute_hosts() if uses_volumes else ()
    )
    writing = _writing(action, uses_volumes)
    has_plan = set_plans.is_set(action) and not action.options["follow_file"]
    used = chosen.of_run(action, ledger, BOOT) if has_plan else None

    def rehearse(tx: Transaction) -> _Rehearsed | None:
        if makes_volumes:
            backends.configure(tx, stored)
            storage_reports.rehearse(tx, from_storage)
        if writing is None:
            host_reports.rehearse(tx, reports, configurations)
        if plans.any_expired(tx):
            held.expire(tx)
        if action.options["follow_file"]:
            apply_plan.take_planned(action, tx)
            apply_plan.rehearse_resizes(action, tx, request.catalogue, read_fleet)
            apply_plan.rehearse_deletions(action, tx)
        if used is not None:
            accepted = held.use(tx, used.plan, used.file, request.requests, options)
        else:
            accepted = accept.accept(tx, request.requests, options)
        if not accepted.builds:
            return None
        rehearsal = _rehearse(action, tx, accepted, read_fleet, connectors, makes_volumes)
        if writing is not None:
            if any(row.uuid not in rehearsal.placed for row in rehearsal.rows):
                raise _Unfit(rehearsal)
            writing.hold(tx, request.requests, accepted, list(rehearsal.placed.values()), ledger.id)
        return rehearsal

    rehearsal = (
        _written(ledger, reports, configurations, rehearse) if writing is not None else ledger.rehearsal(rehearse)
    )
    if rehearsal is None:
        return {"changed": False, "compute": [], "plan": [], "msg": "Nothing has to be built."}
    plan_file = writing.write(ledger) if writing is not None and writing.plan is not None else None
    host_reports.warn_of_placements(action, rehearsal.result.emulated)
    plan = _plans(rehearsal)
    diffs = _diffs([p for p in plan if p["xml"]])
    lines = [*_text(plan), *_unconnected(rehearsal.placed.values()), *_joined(rehearsal.placed.values())]
    # What applies a file prints the plan itself, and fails where it does not fit.
    follows = action.options["follow_file"]
    if action.options["print_table"] and not follows:
        tables.show(action._display, [_title(writing, used), *lines])
    answer: dict[str, t.Any] = {
        "changed": True,
        "compute": [],
        "plan": plan,
        "diff": [] if follows else diffs,
    }
    if follows:
        apply_plan.leave_boots(action, plan)
        return answer
    if plan_file is not None:
        answer["plan_file"] = plan_file
    items = [errors.failed_item(p["name"], p["uuid"], {**p["error"], "remedy": ""}) for p in plan if p["error"]]
    message = unfit(len(items), len(plan), [p for p in plan if p["error"]])
    failed = errors.BootFailed(items, len(plan), message=message, remedy=REMEDY)
    return outcome(failed, reasons=not action.options["print_table"], **answer)


class _Unfit(errors.BootflowError):
    """The instances of a plan do not fit: the transaction is rolled back."""

    def __init__(self, rehearsal: _Rehearsed):
        super().__init__(message="it does not fit")
        self.rehearsal = rehearsal


def _writing(action: LedgerAction, uses_volumes: bool) -> boot_plans.Writing | None:
    """Return the plan that is to be written; None: none is. :raises PlanNotPossible: the request has volumes"""
    path = host_settings.values(action, PLANS).plan_out
    if path is None or action.options["follow_file"]:  # apply has written it
        return None
    return boot_plans.Writing(action, path, uses_volumes)


def _written(
    ledger: Ledger,
    reports: t.Mapping[str, t.Mapping[str, t.Any]],
    configurations: t.Mapping[str, t.Mapping[str, t.Any]],
    rehearse: t.Callable[[Transaction], _Rehearsed | None],
) -> _Rehearsed | None:
    """Write the reports of hosts, then what the plan holds. Where it does not fit, it holds nothing."""
    ledger.transact(host_reports.rehearse, reports, configurations)
    quiet = ledger.for_run(replace(t.cast(Context, ledger.context), count_failed_builds=False))
    try:
        return quiet.transact(rehearse, collisions=3)
    except _Unfit as e:
        return e.rehearsal


def _title(writing: boot_plans.Writing | None, used: chosen.Chosen | None) -> str:
    if writing is not None and writing.plan is not None:
        return writing.line()
    if used is not None:
        return "The plan %s would still do:" % used.plan["id"]
    return "Plan (nothing is touched):"


def _rehearse(
    action: LedgerAction,
    tx: Transaction,
    accepted: accept.Accepted,
    read_fleet: FleetReader,
    connectors: life.Connectors,
    makes_volumes: bool,
) -> _Rehearsed:
    """Round after round as in a boot: a build that its host cannot run goes to another one."""
    uuids = sorted({*accepted.created, *accepted.resumed})
    options = replace(
        scheduler_settings.scheduler_options(action, tx.now, explain=True), explain_most=EXPLAINED_OF_AN_ENTRY
    )
    result = schedule.Scheduled()
    while True:
        if instances.waits_for_host(tx, tx.run.id):
            result.add(schedule.schedule(tx, read_fleet, options))
            life.bind_waiting(tx, connectors)
        placed_on: dict[str, t.Any] = {}
        if makes_volumes:
            hosts = action.within_limit(storage_settings.storage_hosts(action))
            settings = volume_settings.scheduler_options(action.options, tx.now, hosts=hosts)
            placed_on = {c["volume_id"]: c for c in volume_scheduling.plan(tx, settings)}
        rows = instances.select_live(tx, uuids=uuids)
        on_hosts = [r for r in rows if instances.is_placed(r)]
        have = ports.ports_of(tx, [r.uuid for r in on_hosts])
        failed, _allocated = failure.allocate_missing_ports(tx, on_hosts, have)
        placed = {b.uuid: b for b in builds.load(tx, on_hosts)}
        volumes = attached_volumes.load(tx, [u for u, b in placed.items() if domain_builder.has_volumes(b)])
        xml: dict[str, str] = {}
        for uuid, build in placed.items():
            try:
                xml[uuid] = _xml(action, build, volumes.get(uuid, []))
            except errors.BootflowError as e:
                failed.setdefault(uuid, failure.Failed(e))
        if not failed:
            return _Rehearsed(result, rows, placed, volumes, placed_on, schedule.faults(tx, result.failed), xml)
        for host in sorted({placed[u].row.host for u in failed}):
            failures = {u: how for u, how in failed.items() if placed[u].row.host == host}
            outcomes = failure.fail_builds(tx, host, builds.SPAWNING.name, failures)
            result.failed += [u for u, outcome in outcomes.items() if outcome == "error"]
        for uuid in failed:
            result.placed.pop(uuid, None)


def _xml(action: LedgerAction, build: builds.Build, volumes: t.Sequence[attached_volumes.Attached]) -> str:
    """:raises BootflowError: the host cannot run the build, see HostLacksHardware; or no host can."""
    host = build.row.host
    for volume in volumes:
        attached_volumes.check_host(host, volume.row.connector, build.facts)
    return domain_builder.domain_xml(
        build, HOST.read(host_variables.of_host(action.task_vars["hostvars"], host)), volumes
    )


def _plans(rehearsal: _Rehearsed) -> list[dict[str, t.Any]]:
    """Return the plan of each instance, with its ``lines``, and ``entry``, ``flavor`` if its lines print them."""
    # The hosts of an entry are much the same for each of its instances: they are explained for the first few.
    explained: dict[int, list[str]] = {}
    refused: dict[tuple[int, str], list[str]] = {}
    plans = []
    for row in rehearsal.rows:
        plan = _plan_of(row, rehearsal, explained)
        plan["volumes"] = [
            _volume_plan(a, rehearsal.backends.get(a.volume_id)) for a in rehearsal.volumes.get(row.uuid, [])
        ]
        plan["lines"] += [_volume_line(v) for v in plan["volumes"]]
        if plan["error"] is not None:
            plan["lines"] = refused.setdefault((row.request_spec_id, plan["error"]["message"]), plan["lines"])
        else:
            plan["error"] = next((v["error"] for v in plan["volumes"] if v["error"]), None)
        plans.append(plan)
    return plans


def _plan_of(row: Instance, rehearsal: _Rehearsed, explained: dict[int, list[str]]) -> dict[str, t.Any]:
    """:arg explained: entry -> the instances with whose plans its hosts are; their number is limited."""
    build, fault, selection = (
        rehearsal.placed.get(row.uuid),
        rehearsal.faults.get(row.uuid),
        rehearsal.result.placed.get(row.uuid),
    )
    decision = selection.decision if selection is not None else rehearsal.result.explanations.get(row.uuid)
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
        "xml": rehearsal.xml.get(row.uuid),
        "entry": row.request_spec_id,
        "flavor": row.spec["flavor"]["name"],
        "lines": _plan_lines(row, build, selection, fault, decision, decided),
    }


def _unconnected(placed: t.Iterable[builds.Build]) -> list[str]:
    """Return a line for each managed network that has guests of this plan on several hosts: each host has its own network."""
    hosts: dict[str, set[str]] = {}
    for build in placed:
        for _port, network in build.ports:
            if network.is_managed and build.row.host:
                hosts.setdefault(network.name, set()).add(build.row.host)
    return [
        "Network %s is managed: each host has a separate one, and its guests on different hosts (here %s) do not reach each other in it."
        " Use a bridge of the hosts (type: bridge), a VLAN (type: vlan) or a VXLAN network (type: vxlan) for that."
        % (name, _named(sorted(host_names)))
        for name, host_names in sorted(hosts.items())
        if len(host_names) > 1
    ]


def _joined(placed: t.Iterable[builds.Build]) -> list[str]:
    """Return a line for each VXLAN, VLAN or macvtap network that hosts of this plan did not have when they reported: the boot makes it there."""
    lacking: dict[str, set[str]] = {}
    for build in placed:
        facts = build.facts
        made = [*(facts.get("vxlan_networks") or ()), *(facts.get("vlan_networks") or ())]
        made += (facts.get("networks") or {}).get(DEFAULT.name) or ()
        present = {network["name"] for network in made}
        for _port, network in build.ports:
            if network.joins_hosts and network.source not in present and build.row.host:
                lacking.setdefault(_made_words(network), set()).add(build.row.host)
    return [
        "%s %s made on %s." % (words, "are" if " and " in words else "is", _named(sorted(hosts)))
        for words, hosts in sorted(lacking.items())
    ]


def _made_words(network: Network) -> str:
    if not NETWORK_TYPES[network.type].vif(network.source)["bridge"]:
        return "Network %s: libvirt network %s on %s" % (network.name, network.source, network.physical_network)
    if network.vni is not None:
        device = "a VXLAN device with VNI %d and MTU %s" % (network.vni, network.mtu)
    else:
        device = "a VLAN device with VLAN %s of %s" % (network.vlan, network.physical_network)
    return "Network %s: bridge %s and %s" % (network.name, network.source, device)


def _named(hosts: t.Sequence[str]) -> str:
    return ", ".join(hosts[:5]) + (" and %d more" % (len(hosts) - 5) if len(hosts) > 5 else "")


def _text(plans: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """The plans for people: once for neighbours of an entry with the same one."""
    texts = [(p.pop("entry"), p.pop("flavor"), p.pop("lines")) for p in plans]
    lines: list[str] = []
    for (_entry, flavor, entry_lines), alike in itertools.groupby(zip(texts, plans), key=lambda pair: pair[0]):
        lines += ["", "%s (flavor %s)" % (some([plan["name"] for _text, plan in alike]), flavor), *entry_lines]
    return lines


def _plan_lines(
    row: Instance,
    build: builds.Build | None,
    selection: Selection | None,
    fault: dict[str, t.Any] | None,
    decision: t.Any,
    decided: bool,
) -> list[str]:
    """:arg decision: None where the lines of its neighbours serve for it too. :arg decided: whether there was one."""
    lines = []
    if build is not None:
        addresses = [f["ip_address"] for p, _n in build.ports for f in p.fixed_ips]
        lines.append("  host: %s, addresses: %s" % (build.row.host, ", ".join(addresses) or "none"))
        if selection is None:
            lines.append("  continues where an earlier run stopped")
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
    diffs = []
    for plan in plans:
        header = "%s on %s" % (plan["name"], plan["host"])
        before_header, before = first.setdefault(plan["entry"], (header, plan["xml"]))
        if before_header == header:
            before_header, before = plan["name"], ""
        diffs.append({"before": before, "after": plan["xml"], "before_header": before_header, "after_header": header})
    return diffs


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
