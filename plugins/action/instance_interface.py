# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_interface."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.interfaces.entries import named_interfaces, wanted_interfaces
from ..module_utils.core.networks import dhcp
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.request.catalogue import parse_catalogue
from ..module_utils.core.settings.request import CATALOGUE, QUOTA, REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import INTERFACES
from ..module_utils.flows.boot import builds
from ..module_utils.flows.boot.builds import Build
from ..module_utils.flows.instances import interfaces
from ..module_utils.ledger.compute import instances, ports
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.builds import build_parts, domain_builder
from ..plugin_utils.builds.dhcp import restore
from ..plugin_utils.run import host_settings, host_variables, tables
from ..plugin_utils.run.inventory_hosts import refuse_left_out
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, item_errors, outcome
from ..plugin_utils.volumes import attached_volumes
from ..plugin_utils.volumes.attached_volumes import Attached

CONTROLLER = "localhost"
BEGUN, WORKED = "bootflow_interfaces_begun", "bootflow_interfaces_worked"
Items = t.List[t.Dict[str, t.Any]]
Failed = t.Dict[str, errors.BootflowError]  # by the port's id

# Of a detach that did not come to its end: what the guest has is not known.
AGAIN = "Run the same command again: it continues with this interface, which keeps the addresses until then."


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **INTERFACES.options(),
        **CATALOGUE.options("networks"),
        **QUOTA.options("project"),
        **REQUEST.options("quotas"),
        "operation": {"type": "str", "choices": ["attach_interface", "detach_interface"], "required": True},
        "phase": {"type": "str", "choices": ["begin", "work", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.attaches = self.options["operation"] == interfaces.ATTACH.name
        self.operation = interfaces.ATTACH if self.attaches else interfaces.DETACH
        return {"begin": self._begin, "work": self._work, "finish": self._finish}[self.options["phase"]]()

    # --- begin: on the controller -------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, t.Any]:
        o = self.options
        host_settings.check_common(self)
        catalogue = parse_catalogue(None, None, o["networks"], None)
        known_hosts = frozenset(self.compute_hosts())
        problems = Problems()
        begin: t.Callable[[Transaction], interfaces.Begun]
        if self.attaches:
            wanted = wanted_interfaces(o["interfaces"], catalogue, o["project"] or "", problems)
            by_id = {network.id: network for network in catalogue.networks.values()}

            def begin(tx: Transaction) -> interfaces.Begun:
                return interfaces.begin_attach(tx, wanted, by_id, o["project"], known_hosts, o["quotas"])

        else:
            named = named_interfaces(o["interfaces"], problems)
            names = {word for network in catalogue.networks.values() for word in (network.id, network.name)}

            def begin(tx: Transaction) -> interfaces.Begun:
                return interfaces.begin_detach(tx, named, names, o["project"], known_hosts)

        problems.raise_if_any()

        def within_limit(tx: Transaction) -> interfaces.Begun:
            begun = begin(tx)
            hosts = {str(each.row.host) for each in begun.found}
            refuse_left_out(hosts, self.within_limit(sorted(hosts)))
            return begun

        begun = self.write(within_limit)
        work: dict[str, Items] = {}
        for each in begun.found:
            work.setdefault(str(each.row.host), []).append(_item(each, each.port.id in begun.new))
        changing = [i for its in work.values() for i in its if i["new"]]
        lines = sorted("%s\n" % _words(i) for i in changing)
        if o["print_table"] and (self.check_mode or not work):
            tables.show(self._display, self._plan(changing, begun.unchanged))
        return {
            "changed": bool(changing),
            "work": work,
            "unchanged": begun.unchanged,
            "refused": [_refused(r) for r in begun.refused],
            "hosts": [] if self.check_mode else sorted(work),
            "diff": diff(
                "interfaces", "" if self.attaches else "".join(lines), "".join(lines) if self.attaches else ""
            ),
        }

    def _plan(self, changing: Items, unchanged: t.Sequence[str]) -> list[str]:
        if not changing:
            why = "no interface is requested"
            if self.options["interfaces"]:
                why = "the interfaces are attached" if self.attaches else "the interfaces are detached"
            return ["Nothing to do: %s." % why]
        verb = "attach" if self.attaches else "detach"
        return ["Would %s %s" % (verb, _words(item)) for item in changing]

    # --- work: on each host, for all of its instances -----------------------------------------------------------------

    def _work(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        items: Items = self._begun().get("work", {}).get(host, [])
        failed: Failed = {}
        changed: set[str] = set()
        try:
            with lease_kept(self):
                if items and self.attaches:
                    changed, failed = self._attach(host, items)
                elif items:
                    changed, failed = self._detach(host, items)
        except errors.BootflowError as e:
            failed = {i["port_id"]: e for i in items}
        except Exception as e:  # the interfaces fail, never the play
            failed = dict.fromkeys((i["port_id"] for i in items), self.unexpected(e))
        return {
            "changed": bool(changed),
            "operation": self.operation.name,
            "done": sorted(changed),
            "problems": {key: e.as_dict() for key, e in failed.items()},
        }

    def _attach(self, host: str, items: Items) -> tuple[set[str], Failed]:
        ledger = self.open_ledger()
        uuids = sorted({i["uuid"] for i in items})
        of_instances: dict[str, Build] = {b.uuid: b for b in ledger.inspect(_builds, uuids, host)}
        volumes: dict[str, list[Attached]] = ledger.inspect(attached_volumes.load, uuids)
        failed: Failed = {}
        settings = host_settings.of(self)
        wanted: Items = []
        of_ports = {i["port_id"]: i for i in items}
        networks = {}
        for port_id, item in of_ports.items():
            build = of_instances.get(item["uuid"])
            found = next(((p, n) for p, n in build.ports if p.id == port_id), None) if build is not None else None
            if build is None or found is None:
                failed[port_id] = _moved(item, host)
                continue
            port, network = found
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
        lacking = self._make_networks(networks)
        for each in wanted:
            network = of_ports[each["id"]]["network"]
            if network in lacking:
                failed[each["id"]] = lacking[network]
        changed, problems = self._interfaces([w for w in wanted if w["id"] not in failed])
        failed.update(problems)
        late = self._take_back([of_ports[w["id"]] for w in wanted])
        undone = [of_ports[key] for key in failed if of_ports[key]["new"] and key not in late]
        if undone:
            self._undo(host, undone, failed)
        return changed - set(late), {**failed, **late}

    def _take_back(self, items: Items) -> Failed:
        """Guests lose again what another run detached from them before they had it: its addresses may be another guest's."""
        if not items:
            return {}
        lost = self.open_ledger().inspect(interfaces.lost, [i["port_id"] for i in items])
        late = {i["port_id"]: i for i in items if i["port_id"] in lost}
        _changed, kept = self._interfaces([_absent(i) for i in late.values()])
        return {key: _detached_meanwhile(item, kept.get(key)) for key, item in late.items()}

    def _make_networks(self, networks: t.Mapping[str, t.Any]) -> Failed:
        """Returns why the host lacks networks, by their names."""
        if not networks:
            return {}
        arguments = build_parts.network_arguments(self, networks.values())
        try:
            result = self.run_module("virtual_network", arguments)
        except errors.BootflowError as e:
            return dict.fromkeys(networks, e)
        restore(self, networks, result)
        return item_errors(result, networks)

    def _undo(self, host: str, items: Items, failed: Failed) -> None:
        """Take back what the guests did not get. What cannot be taken back stays theirs in the ledger, and its error says so."""
        ledger = self.open_ledger()
        keys = [i["port_id"] for i in items]
        taken = ledger.transact(interfaces.to_detach, keys, host)
        _changed, kept = self._interfaces([_absent(i) for i in items if i["port_id"] in taken])
        gone = ledger.transact(interfaces.gone, sorted(taken - set(kept)), host)
        back = sorted(taken - gone)
        if back:
            ledger.transact(interfaces.kept, back)
        failed.update({key: _kept(failed[key]) for key in set(keys) - gone})

    def _detach(self, host: str, items: Items) -> tuple[set[str], Failed]:
        ledger = self.open_ledger()
        of_ports = {i["port_id"]: i for i in items}
        changed, failed = self._interfaces([_absent(i) for i in items])
        stubborn = sorted(key for key, e in failed.items() if isinstance(e, errors.DeviceDetachFailed))
        if stubborn:
            ledger.transact(interfaces.kept, stubborn)
        gone = ledger.transact(interfaces.gone, sorted(set(of_ports) - set(failed)), host)
        failed.update({key: _moved(of_ports[key], host) for key in set(of_ports) - set(failed) - gone})
        for key in set(failed) - set(stubborn):
            failed[key].remedy = AGAIN
        return gone, failed

    def _interfaces(self, wanted: Items) -> tuple[set[str], Failed]:
        """(those that changed, why others failed)"""
        if not wanted:
            return set(), {}
        settings = host_settings.of(self)
        keys = [w["id"] for w in wanted]
        arguments = {
            **host_settings.libvirt_arguments(self),
            "interfaces": wanted,
            "workers": host_settings.workers(self, len(wanted)),
            "vif_plugging_timeout": settings.vif_plugging_timeout,
            "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
        }
        try:
            result = self.run_module("domain_interface", arguments)
        except errors.BootflowError as e:
            return set(), dict.fromkeys(keys, e)
        failed = item_errors(result, keys)
        return {key for key in keys if key not in failed and result["outcomes"][key].get("changed")}, failed

    # --- finish: on the controller ------------------------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        begun = self._begun()
        work: dict[str, Items] = begun.get("work") or {}
        incomplete = errors.AttachInterfaceFailed if self.attaches else errors.DetachInterfaceFailed
        refused = list(begun.get("refused") or [])
        total = sum(map(len, work.values())) + len(refused)
        if self.check_mode:
            return outcome(incomplete(refused, total), changed=False, skipped=True)
        answers = host_variables.results(self.task_vars["hostvars"], list(work), WORKED)
        failed: Failed = {}
        items: Items = []
        of_instances: dict[str, list[errors.BootflowError]] = {}
        for host, its in work.items():
            answer = answers.get(host) or {}
            silent = answer.get("operation") != self.operation.name
            for item in its:
                items.append({**item, "host": host})
                of_instances.setdefault(item["uuid"], [])
                problem = answer.get("problems", {}).get(item["port_id"])
                if silent or problem:
                    error = (
                        errors.RemoteError(reason="%s returned no result" % host)
                        if silent
                        else errors.from_dict(problem)
                    )
                    failed[item["port_id"]] = error
                    of_instances[item["uuid"]].append(error)
        if items:
            self.open_ledger().transact(interfaces.finish, self.operation, of_instances)
        done = {key for answer in answers.values() for key in answer.get("done") or ()} - set(failed)
        if self.options["print_table"] and items:
            tables.show(self._display, self._lines(items, done, failed))
        listed = refused + [
            errors.failed_item(_words(i), i["uuid"], failed[i["port_id"]].as_dict(), host=i["host"])
            for i in items
            if i["port_id"] in failed
        ]
        shown = [
            {k: i[k] for k in ("port_id", "mac_address", "network", "fixed_ips", "host")}
            | {"instance": i["name"], "uuid": i["uuid"]}
            for i in items
            if i["port_id"] not in failed
        ]
        return outcome(incomplete(listed, total), changed=bool(done), interfaces=shown)

    def _lines(self, items: Items, done: t.Collection[str], failed: Failed) -> list[str]:
        rows = [
            (
                i["name"],
                i["host"],
                i["network"],
                i["mac_address"],
                ", ".join(i["fixed_ips"]),
                i["port_id"],
                failed[i["port_id"]].code
                if i["port_id"] in failed
                else ""
                if i["port_id"] in done
                else "nothing to do",
            )
            for i in items
        ]
        head = ("INSTANCE", "HOST", "NETWORK", "MAC_ADDRESS", "ADDRESSES", "PORT_ID", "NOTE")
        return ["%s:" % self.operation.called, *tables.table(head, rows)]

    def _begun(self) -> t.Mapping[str, t.Any]:
        found = host_variables.results(self.task_vars["hostvars"], [CONTROLLER], BEGUN)
        return t.cast("t.Mapping[str, t.Any]", found.get(CONTROLLER) or {})


def _item(found: interfaces.Interface, new: bool) -> dict[str, t.Any]:
    return {
        "port_id": found.port.id,
        "uuid": found.row.uuid,
        "name": found.row.display_name,
        "mac_address": found.port.mac_address,
        "network": found.network.name,
        "source": found.network.source if found.network.is_managed else "",
        "fixed_ips": [fixed["ip_address"] for fixed in found.port.fixed_ips],
        "new": new,
    }


def _words(item: t.Mapping[str, t.Any]) -> str:
    addresses = ", ".join(item["fixed_ips"]) or item["mac_address"]
    return "interface %s of network %s, instance %s" % (addresses, item["network"], item["name"])


def _refused(refused: interfaces.Refused) -> dict[str, t.Any]:
    entry = refused.entry
    return errors.failed_item("%s (%s)" % (entry.path, refused.name), entry.instance, refused.error.as_dict())


def _absent(item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """An element of the option ``interfaces`` of the module domain_interface."""
    return {
        "id": item["port_id"],
        "uuid": item["uuid"],
        "mac": item["mac_address"],
        "state": "detached",
        "network": item["source"],
    }


def _kept(error: errors.BootflowError) -> errors.BootflowError:
    """``error``, which others may have too, for an interface that the instance keeps in the ledger."""
    found = errors.from_dict(error.as_dict())
    found.remedy = "The ledger has the interface: run the same command again, or detach it. %s" % error.remedy
    return found


def _moved(item: t.Mapping[str, t.Any], host: str) -> errors.BootflowError:
    return errors.Conflict(
        message="instance %s left host %s, or a run began to work on it" % (item["name"], host),
        remedy=AGAIN,
    )


def _detached_meanwhile(item: t.Mapping[str, t.Any], kept: errors.BootflowError | None) -> errors.BootflowError:
    """:arg kept: why the guest has it still"""
    if kept is None:
        return errors.Conflict(
            message="another run detached the %s meanwhile" % _words(item),
            remedy="Run the same command again to attach another one.",
        )
    return errors.Conflict(
        message="another run detached the %s meanwhile, and its guest does not let go of it: %s"
        % (_words(item), kept.message),
        remedy="Reboot the instance with bootflow_reboot_type: HARD, which defines the guest as the ledger has it.",
    )


def _builds(tx: Transaction, uuids: t.Sequence[str], host: str) -> list[Build]:
    """Those of these instances that are on ``host``."""
    rows = [r for r in instances.select_live(tx, uuids=uuids) if instances.is_placed(r) and r.host == host]
    return builds.load(tx, rows, ports.ports_of(tx, [r.uuid for r in rows]))
