# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of projects, as people request and see them."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.interfaces.port_entries import read_port_changes, read_ports
from ...module_utils.core.reading.setting import canonical
from ...module_utils.core.request.catalogue import Catalogue, parse_catalogue
from ...module_utils.flows.networks import ports as flow
from ...module_utils.flows.networks.ports import PortsWritten
from ...module_utils.ledger.compute import project_ports
from ...module_utils.ledger.db.transaction import Transaction
from ..run import tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..run.results import diff

Views = t.List[t.Dict[str, t.Any]]


def create(action: LedgerAction) -> dict[str, t.Any]:
    """Make the ports of bootflow_ports that are missing; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    catalogue = _catalogue(action)
    entries = read_ports(options["ports"], catalogue, port_filters.are_filtered(action))

    def write(tx: Transaction) -> tuple[PortsWritten, Views]:
        written = flow.create(tx, entries, options["project"], options["quotas"])
        return written, project_ports.views(tx, [*written.created, *written.unchanged])

    written, views = action.write(write, collisions=3)
    views = _with_networks(views, catalogue)
    made = [view for view in views if view["id"] in written.created]
    if action.options["print_table"]:
        planned = ["Would create:", *_lines(made)] if action.check_mode else port_table(made)
        tables.show(action.ports.display, planned if made else ["Nothing to do: %s." % _nothing_to_do(len(views))])
    return {
        "changed": bool(made),
        "created": written.created,
        "unchanged": written.unchanged,
        "ports": [{**v, "id": None} if v in made and action.check_mode else v for v in views],
        "diff": diff("ports", "", "".join(line + "\n" for line in _lines(made))),
    }


def _nothing_to_do(count: int) -> str:
    return "no port is requested" if count == 0 else "the ports exist as requested"


def update(action: LedgerAction) -> dict[str, t.Any]:
    """Change ports as bootflow_ports says; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    catalogue = _catalogue(action)
    changes = read_port_changes(options["ports"], port_filters.are_filtered(action))
    networks = {network.id: network for network in catalogue.networks.values()}

    def write(tx: Transaction) -> tuple[PortsWritten, Views]:
        written = flow.update(tx, changes, networks, options["project"])
        return written, project_ports.views(tx, [*written.changes, *written.unchanged])

    written, views = action.write(write, collisions=3)
    views = _with_networks(views, catalogue)
    names = {view["id"]: view["name"] or view["id"] for view in views}
    before = ["%s %s: %s" % (names[k], f, _text(a)) for k, c in written.changes.items() for f, (a, _b) in c.items()]
    after = ["%s %s: %s" % (names[k], f, _text(b)) for k, c in written.changes.items() for f, (_a, b) in c.items()]
    if options["print_table"]:
        changed = [view for view in views if view["id"] in written.changes]
        planned = ["Would change:", *("  " + line for line in after)] if action.check_mode else port_table(changed)
        tables.show(action.ports.display, planned if changed else ["Nothing to do: the ports are as requested."])
    return {
        "changed": bool(written.changes),
        "updated": list(written.changes),
        "unchanged": written.unchanged,
        "ports": views,
        "diff": diff("ports", "".join(s + "\n" for s in before), "".join(s + "\n" for s in after)),
    }


def _text(value: t.Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def delete(action: LedgerAction) -> dict[str, t.Any]:
    """Delete ports that no instance has; in check mode, roll it back. Returns the result of the task."""
    options = action.options
    words = _words(action)
    if not words:
        raise errors.InvalidInput(
            message="no port is named", remedy="Set bootflow_port_names or bootflow_port_ids; all is never meant."
        )

    def write(tx: Transaction) -> tuple[PortsWritten, Views]:
        views = project_ports.views(tx, words, options["project"])
        return flow.delete(tx, words, options["project"], options["missing_ok"]), views

    written, views = action.write(write)
    deleted = [view for view in _with_networks(views, _catalogue(action)) if view["id"] in written.deleted]
    shown = ["There is no port with this name: %s" % ", ".join(written.not_found)] if written.not_found else []
    verb = "Would delete:" if action.check_mode else "Deleted:"
    shown = [verb, *(_lines(deleted) or ["  nothing"]), *shown]
    if options["print_table"]:
        tables.show(action.ports.display, shown)
    return {
        "changed": bool(deleted),
        "deleted": [{"id": view["id"], "name": view["name"]} for view in deleted],
        "not_found": written.not_found,
        "diff": diff("ports", "".join(line + "\n" for line in _lines(deleted)), ""),
    }


def read(action: LedgerAction) -> dict[str, t.Any]:
    """List ports, or show some whole. Returns the result of the task."""
    options = action.options
    words = _words(action)
    if options["details"] and not words:
        raise errors.InvalidInput(message="no port is named", remedy="Set bootflow_port_names or bootflow_port_ids.")
    named = None if options["port_names"] is None and options["port_ids"] is None else words
    try:
        views = action.open_reader().inspect(project_ports.views, named, options["project"])
    except errors.LedgerMissing as e:
        if options["details"]:
            raise
        if options["print_table"]:
            tables.show(action.ports.display, ["No ports. %s." % e.message])
        return {"changed": False, "ports": []}
    views = _with_networks(views, _catalogue(action))
    known = {view["name"] for view in views} | {view["id"] for view in views}
    unknown = sorted(word for word in set(words) if word not in known and canonical(word) not in known)
    if unknown and options["details"]:
        raise errors.PortNotFound(port_id=", ".join(unknown))
    if options["print_table"]:
        tables.show(action.ports.display, _read_lines(action, views, unknown))
    return {"changed": False, "ports": views}


def _read_lines(action: LedgerAction, views: Views, unknown: t.Sequence[str]) -> list[str]:
    if action.options["details"]:
        return [line for view in views for line in ("", *tables.whole(view))][1:]
    lines = port_table(views) if views else ["No ports in the ledger %s." % action.options["ledger_url"]]
    return [*lines, "There is no port with this name: %s" % ", ".join(unknown)] if unknown else lines


def port_table(views: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return the table of ports."""
    head = ("PORT", "NETWORK", "MAC_ADDRESS", "ADDRESSES", "INSTANCE", "HOST", "PROJECT", "TAGS", "ID")
    rows = [
        (
            v["name"] or "-",
            v["network"] or v["network_id"],
            v["mac_address"],
            _addresses(v),
            v["instance"] or "-",
            v["host"] or "-",
            v["project"],
            ", ".join(v["tags"]) or "-",
            v["id"],
        )
        for v in views
    ]
    return tables.table(head, rows)


def _addresses(view: t.Mapping[str, t.Any]) -> str:
    return ", ".join(fixed["ip_address"] for fixed in view["fixed_ips"]) or "-"


def _lines(views: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    return ["  %s on %s: %s" % (v["name"] or v["id"], v["network"] or v["network_id"], _addresses(v)) for v in views]


def _words(action: LedgerAction) -> list[str]:
    return [*(action.options["port_ids"] or ()), *(action.options["port_names"] or ())]


def _catalogue(action: LedgerAction) -> Catalogue:
    return parse_catalogue(None, None, action.options["networks"], None)


def _with_networks(views: Views, catalogue: Catalogue) -> Views:
    """Return the views with the names of their networks in the inventory; None where it lacks them."""
    names = {network.id: network.name for network in catalogue.networks.values()}
    return [{**view, "network": names.get(view["network_id"])} for view in views]
