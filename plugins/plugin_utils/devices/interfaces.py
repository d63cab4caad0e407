# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of attaching and detaching interfaces: begin on the controller, work on each host, finish on the controller."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.verdicts.answer import Answer, error_of, is_silence
from ...module_utils.core.interfaces import interface_outcomes
from ...module_utils.core.interfaces.entries import named_interfaces, wanted_interfaces
from ...module_utils.core.interfaces.interface_outcomes import Failed, Items, words
from ...module_utils.core.networks import dhcp
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.request.catalogue import parse_catalogue
from ...module_utils.flows.boot import builds
from ...module_utils.flows.instances import interfaces
from ...module_utils.flows.instances.hot_plug import Refused
from ...module_utils.flows.instances.operation import Operation
from ...module_utils.ledger.compute import instances, ports, runs
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, domain_builder
from ..builds.dhcp import restore
from ..operations import guest_handover
from ..operations.guest_handover import Guests
from ..run import host_settings, tables
from ..run.inventory_hosts import refuse_left_out
from ..run.ledger_action import LedgerAction
from ..run.ovn import northbound
from ..run.results import diff, item_errors, outcome
from ..run.stage_results import CONTROLLER
from ..run.stages import Item, Result, Stages
from ..settings.scheduler_settings import check_underlay
from ..volumes import attached_volumes

FAMILY = "instance_interface"  # the action


class InterfaceOperation(Stages):
    """The interfaces of a run that are attached or detached. Each has an item. :arg operation: ATTACH or DETACH"""

    answered_by = {"work": "host", "clear": "host"}
    returns = ("finish", "report")

    def __init__(self, action: LedgerAction, operation: Operation):
        super().__init__(action, FAMILY)
        self.operation = operation
        self.called, self.event = operation.called, ""
        self.attaches = operation is interfaces.ATTACH
        self.starts = {self.begins: "compute"} if self.attaches else {}

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish, "report": self._report}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work, "clear": self._clear}

    def items(self) -> dict[str, Item]:
        """Return the interfaces of the first stage by the UUIDs of their ports."""
        return {i["port_id"]: i for i in self.result(self.begins).get("interfaces") or []}

    # --- begin: on the controller -------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, t.Any]:
        action = self.action
        host_settings.check_common(action)
        begin = self._read_request()

        begun_at = action.context().now

        def within_limit(tx: Transaction) -> tuple[interfaces.Begun, Guests | None]:
            begun = begin(tx)
            hosts = {str(interface.row.host) for interface in begun.interfaces}
            refuse_left_out(hosts, action.within_limit(sorted(hosts)))
            return begun, _guests(tx, begun) if self.attaches and not action.check_mode else None

        begun, given = action.write(within_limit)
        if given is not None:
            guest_handover.give(action, {b.uuid: b.row.host for b in given.builds}, given, begun_at)
        items = [item_of(interface, interface.port.id in begun.new) for interface in begun.interfaces]
        changing = [i for i in items if i["new"]]
        lines = "".join(sorted("%s\n" % words(i) for i in changing))
        if self.options["print_table"] and (action.check_mode or not items):
            tables.show(action._display, self._plan(changing))
        return {
            "changed": bool(changing),
            "begun_at": begun_at,
            "interfaces": items,
            "unchanged": begun.unchanged,
            "refused": [_refused(r) for r in begun.refused],
            "compute": [] if action.check_mode else sorted({i["host"] for i in items}),
            "diff": diff("interfaces", "" if self.attaches else lines, lines if self.attaches else ""),
        }

    def _read_request(self) -> t.Callable[[Transaction], interfaces.Begun]:
        """Return the function that begins what is requested. :raises InvalidRequest: the request is wrong"""
        options = self.options
        catalogue = parse_catalogue(None, None, options["networks"], None)
        known_hosts = frozenset(self.action.compute_hosts())
        problems = Problems()
        begin: t.Callable[[Transaction], interfaces.Begun]
        if self.attaches:
            wanted = wanted_interfaces(options["interfaces"], catalogue, options["project"] or "", problems)
            by_id = {network.id: network for network in catalogue.networks.values()}

            def begin(tx: Transaction) -> interfaces.Begun:
                return interfaces.begin_attach(tx, wanted, by_id, options["project"], known_hosts, options["quotas"])

        else:
            named = named_interfaces(options["interfaces"], problems)
            names = {word for network in catalogue.networks.values() for word in (network.id, network.name)}

            def begin(tx: Transaction) -> interfaces.Begun:
                return interfaces.begin_detach(tx, named, names, options["project"], known_hosts)

        problems.raise_if_any()
        if self.attaches and any(network.vni is not None for network in catalogue.networks.values()):
            check_underlay(self.action)
        if self.attaches:
            asked = {interface.request.network for interface in wanted}
            northbound.check(self.action, [n for n in catalogue.networks.values() if n.id in asked])
        return begin

    def _plan(self, changing: Items) -> list[str]:
        if not changing:
            why = "no interface is requested"
            if self.options["interfaces"]:
                why = "the interfaces are attached" if self.attaches else "the interfaces are detached"
            return ["Nothing to do: %s." % why]
        verb = "attach" if self.attaches else "detach"
        return ["Would %s %s" % (verb, words(item)) for item in changing]

    # --- work: on each host, for all of its instances -----------------------------------------------------------------

    def _work(self, host: str) -> Result:
        items = self.items_on(host, "host")
        work = self._attach if self.attaches else self._detach

        def answers() -> tuple[dict[str, dict[str, t.Any]], Failed]:
            changed, failed = work(host, items)
            return {i["port_id"]: {"changed": i["port_id"] in changed, "error": None} for i in items}, failed

        outcomes = self.guarded([i["port_id"] for i in items], answers)
        return {"changed": any(answer.get("changed") for answer in outcomes.values()), "outcomes": outcomes}

    def _attach(self, host: str, items: Items) -> tuple[set[str], Failed]:
        of_ports = {i["port_id"]: i for i in items}
        wanted, networks, failed = self._definitions(host, of_ports)
        lacking = self._make_networks(networks)
        for definition in wanted:
            network = of_ports[definition["id"]]["network"]
            if network in lacking:
                failed[definition["id"]] = lacking[network]
        changed, problems = self._interfaces([w for w in wanted if w["id"] not in failed])
        failed.update(problems)
        undone = [of_ports[key] for key in failed if of_ports[key]["new"]]
        if undone:
            self._undo(host, undone, failed)
        return changed, failed

    def _definitions(
        self, host: str, of_ports: t.Mapping[str, t.Mapping[str, t.Any]]
    ) -> tuple[list[dict[str, t.Any]], dict[str, t.Any], Failed]:
        """Return the interfaces for the module domain_interface, their networks by name, and why others have no definition."""
        uuids = sorted({i["uuid"] for i in of_ports.values()})
        given = guest_handover.find(self.action, uuids, FAMILY)
        builds, volumes = given or self.action.open_ledger().inspect(_load, uuids)
        of_instances = {b.uuid: b for b in builds if b.row.host == host}
        settings = host_settings.read_current_host(self.action)
        wanted: list[dict[str, t.Any]] = []
        networks: dict[str, t.Any] = {}
        failed: Failed = {}
        for port_id, item in of_ports.items():
            build = of_instances.get(item["uuid"])
            port_and_network = (
                next(((p, n) for p, n in build.ports if p.id == port_id), None) if build is not None else None
            )
            if build is None or port_and_network is None:
                failed[port_id] = interface_outcomes.left_host(item, host)
                continue
            port, network = port_and_network
            try:
                xml = domain_builder.interface_xml(build, settings, volumes.get(build.uuid, ()), port.mac_address)
            except errors.BootflowError as e:
                failed[port_id] = e
                continue
            networks[network.name] = network
            reserved = dhcp.reservations(port.mac_address, port.fixed_ips, network, build.row.hostname)
            wanted.append(
                {"id": port_id, "uuid": build.uuid, "mac": port.mac_address, "xml": xml, "reservations": reserved}
            )
        return wanted, networks, failed

    def _clear(self, host: str) -> Result:
        """Detach interfaces again that another run detached before their guests had them: their addresses may be another guest's."""
        late = [i for i in self.items_on(host, "host") if i["port_id"] in self.result("late")["port_ids"]]

        def answers() -> tuple[dict[str, dict[str, t.Any]], Failed]:
            _changed, problems = self._interfaces([interface_outcomes.detach_of(i) for i in late])
            return {}, problems

        return {"changed": True, "outcomes": self.guarded([i["port_id"] for i in late], answers)}

    def _make_networks(self, networks: t.Mapping[str, t.Any]) -> Failed:
        """Make networks on the current host. Returns why it lacks some, by their names."""
        if not networks:
            return {}
        arguments = build_parts.network_arguments(self.action, networks.values())
        try:
            result = self.action.run_module("virtual_network", arguments)
        except errors.BootflowError as e:
            return dict.fromkeys(networks, e)
        restore(self.action, networks, result)
        return item_errors(result, networks)

    def _undo(self, host: str, items: Items, failed: Failed) -> None:
        """Take back interfaces that guests did not get. One that cannot be taken back stays in the ledger, and its error says so."""
        ledger = self.action.open_ledger()
        keys = [i["port_id"] for i in items]
        owned_ids = ledger.transact(interfaces.to_detach, keys, host)
        owned = [i for i in items if i["port_id"] in owned_ids]
        _changed, problems = self._interfaces([interface_outcomes.detach_of(i) for i in owned])
        removed_ids = ledger.transact(interfaces.free_addresses, sorted(owned_ids - set(problems)), host)
        attached_ids = sorted(owned_ids - removed_ids)
        if attached_ids:
            ledger.transact(interfaces.keep_attached, attached_ids)
        failed.update({key: interface_outcomes.stays_in_ledger(failed[key]) for key in set(keys) - removed_ids})

    def _detach(self, host: str, items: Items) -> tuple[set[str], Failed]:
        """Detach. The controller's task frees the addresses, and keeps what guests do not release."""
        _changed, failed = self._interfaces([interface_outcomes.detach_of(i) for i in items])
        return {i["port_id"] for i in items} - set(failed), failed

    def _interfaces(self, wanted: t.Sequence[dict[str, t.Any]]) -> tuple[set[str], Failed]:
        """Run the module domain_interface. Returns the interfaces that changed, and why others failed."""
        if not wanted:
            return set(), {}
        settings = host_settings.read_current_host(self.action)
        keys = [w["id"] for w in wanted]
        arguments = {
            **host_settings.libvirt_arguments(self.action),
            "interfaces": wanted,
            "workers": host_settings.workers(self.action, len(wanted)),
            "vif_plugging_timeout": settings.vif_plugging_timeout,
            "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
        }
        try:
            result = self.action.run_module("domain_interface", arguments)
        except errors.BootflowError as e:
            return set(), dict.fromkeys(keys, e)
        failed = item_errors(result, keys)
        return {key for key in keys if key not in failed and result["outcomes"][key].get("changed")}, failed

    # --- finish: on the controller ------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        items = self.items()
        incomplete = errors.AttachInterfaceFailed if self.attaches else errors.DetachInterfaceFailed
        refused = list(self.result(self.begins).get("refused") or [])
        total = len(items) + len(refused)
        if self.action.check_mode:
            return outcome(incomplete(refused, total), changed=False, skipped=True)
        answers = self.answers("work")
        late: set[str] = set()
        if answers:
            settle_answers = self._settle_attached if self.attaches else self._settle_detached

            def finish(tx: Transaction) -> tuple[dict[str, Answer], set[str]]:
                runs.renew(tx)
                instances.select_live(tx, uuids=sorted({item["uuid"] for item in items.values()}), lock=True)
                settled, detached = settle_answers(tx, items, answers)
                results = interface_outcomes.results_of(items.values(), settled)
                interfaces.finish(tx, self.operation, results.of_instances)
                return settled, detached

            answers, late = self.action.open_ledger().transact(finish)
        if late:
            self.results.leave("late", CONTROLLER, {"port_ids": sorted(late), "answers": answers})
            changed = any(answer.get("changed") for answer in answers.values())
            return {"changed": changed, "clearing": sorted({items[key]["host"] for key in late})}
        return self._result(items, answers)

    def _report(self) -> Result:
        """Return the result where another run detached interfaces before their guests had them."""
        items, late = self.items(), self.result("late")
        answers = dict(late["answers"])
        cleared = self.answers("clear", {key: items[key] for key in late["port_ids"]})
        for key, answer in cleared.items():
            error = interface_outcomes.detached_meanwhile(items[key], error_of(answer))
            answers[key] = {"changed": False, "error": error.as_dict()}
        return self._result(items, answers)

    @staticmethod
    def _settle_attached(
        tx: Transaction, items: t.Mapping[str, Item], answers: t.Mapping[str, Answer]
    ) -> tuple[dict[str, Answer], set[str]]:
        """Return the answers, and the ports that another run detached before their guests had them."""
        answered = [key for key, answer in answers.items() if not is_silence(answer)]
        late = interfaces.find_detached(tx, answered)
        conflicts = {key: interface_outcomes.detached_meanwhile(items[key], None).as_dict() for key in late}
        return {**answers, **{key: {"changed": False, "error": error} for key, error in conflicts.items()}}, late

    @staticmethod
    def _settle_detached(
        tx: Transaction, items: t.Mapping[str, Item], answers: t.Mapping[str, Answer]
    ) -> tuple[dict[str, Answer], set[str]]:
        """Free the addresses of interfaces that guests have no more, and keep interfaces that guests do not release. Returns the answers."""
        failed = {key: error for key, answer in answers.items() if (error := error_of(answer)) is not None}
        stubborn = interface_outcomes.refused_by_guests(failed)
        if stubborn:
            interfaces.keep_attached(tx, stubborn)
        settled = dict(answers)
        for host in sorted({str(item["host"]) for item in items.values()}):
            released_ids = [key for key, item in items.items() if item["host"] == host and key not in failed]
            removed_ids = interfaces.free_addresses(tx, sorted(released_ids), host)
            failed.update(
                {key: interface_outcomes.left_host(items[key], host) for key in set(released_ids) - removed_ids}
            )
        for key, error in failed.items():
            if key not in stubborn and not is_silence(answers[key]):
                error.remedy = interface_outcomes.AGAIN
            settled[key] = {**answers[key], "changed": False, "error": error.as_dict()}
        return settled, set()

    def _result(self, items: t.Mapping[str, Item], answers: t.Mapping[str, Answer]) -> Result:
        incomplete = errors.AttachInterfaceFailed if self.attaches else errors.DetachInterfaceFailed
        refused = list(self.result(self.begins).get("refused") or [])
        results = interface_outcomes.results_of(items.values(), answers)
        if results.items and self.options["print_table"]:
            tables.show(self.action._display, self._lines(results))
        error = incomplete(refused + results.failed_items, len(items) + len(refused))
        return outcome(error, changed=bool(results.done), interfaces=results.good)

    def _lines(self, results: interface_outcomes.Results) -> list[str]:
        rows = [
            (
                i["name"],
                i["host"],
                i["network"],
                i["mac_address"],
                ", ".join(i["fixed_ips"]),
                i["port_id"],
                results.note_of(i),
            )
            for i in results.items
        ]
        head = ("INSTANCE", "HOST", "NETWORK", "MAC_ADDRESS", "ADDRESSES", "PORT_ID", "NOTE")
        return ["%s:" % self.operation.called, *tables.table(head, rows)]


def item_of(interface: interfaces.Interface, new: bool) -> dict[str, t.Any]:
    """Return the item of an interface, by which later stages know it."""
    return {
        "port_id": interface.port.id,
        "uuid": interface.row.uuid,
        "name": interface.row.display_name,
        "host": str(interface.row.host),
        "mac_address": interface.port.mac_address,
        "network": interface.network.name,
        "source": interface.network.source if interface.network.is_managed else "",
        "fixed_ips": [fixed["ip_address"] for fixed in interface.port.fixed_ips],
        "new": new,
    }


def _refused(refused: Refused[t.Any]) -> dict[str, t.Any]:
    entry, guest = refused.request, t.cast(Instance, refused.guest)
    return errors.failed_item("%s (%s)" % (entry.path, guest.display_name), entry.instance, refused.error.as_dict())


def _guests(tx: Transaction, begun: interfaces.Begun) -> Guests | None:
    """Read the instances that get interfaces for the tasks of their hosts; None: none does."""
    uuids = sorted({interface.row.uuid for interface in begun.interfaces})
    return _load(tx, uuids) if uuids else None


def _load(tx: Transaction, uuids: t.Sequence[str]) -> Guests:
    rows = [r for r in instances.select_live(tx, uuids=uuids) if instances.is_placed(r)]
    loaded = builds.load(tx, rows, ports.ports_of(tx, [r.uuid for r in rows]))
    return Guests(loaded, attached_volumes.load(tx, uuids))
