# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_info."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.reading.nearest import suggestion
from ..module_utils.core.settings.selection import HOSTS, LISTING, SELECTION
from ..module_utils.ledger.compute import history, instances, nodes, views
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.playbooks import readers
from ..plugin_utils.run.results import STATISTICS, error_result
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SELECTION.options(),
        "host": HOSTS.named("host").but(required=False),
        **LISTING.options(),
        "details": {"type": "bool", "default": False},
        "history": {"type": "bool", "default": False},
        "refresh": {"type": "bool", "default": False},
        "print_table": {"type": "bool", "default": False},
        **READS,
        **RUN_LIMIT,
        **STATISTICS,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        options = self.options
        chosen = any(options[name] is not None for name in ("names", "uuids", "reservation_ids"))
        if (options["details"] or options["history"]) and not chosen:
            raise errors.InvalidInput(
                reason="no instance is selected", remedy="Name it in bootflow_names or bootflow_uuids; list shows all."
            )
        try:
            ledger = self.open_ledger() if options["refresh"] else self.open_reader()
        except errors.LedgerMissing as e:
            if options["details"] or options["history"]:
                raise
            if options["print_table"]:
                tables.show(self._display, ["No instances. %s." % e.message])
            return {"changed": False, **readers.fields([], options["set_stats"])}

        def read(tx: Transaction) -> tuple[list[dict[str, t.Any]], errors.BootflowError | None]:
            rows = instances.select_live(
                tx,
                names=options["names"],
                uuids=options["uuids"],
                reservations=options["reservation_ids"],
                project=options["project"],
                hosts=options["host"],
            )
            if options["details"]:
                return views.details(tx, rows), self._unknown(tx, rows)
            if options["history"]:
                all_rows = [*rows, *self._deleted(tx, rows)]
                return views.histories(tx, all_rows), self._unknown(tx, all_rows)
            shown = views.instance_views(tx, rows)
            if options["events"]:
                for view in shown:
                    view["events"] = history.events_of(tx, view["uuid"])
            return shown, None

        shown, unknown = ledger.inspect(read)
        if options["print_table"] and (shown or unknown is None):
            silent = ledger.inspect(nodes.silent_hosts, {v["host"] for v in shown if v["host"]})
            lines = tables.instance_lines(shown, silent, options)
            is_list = not (options["details"] or options["history"])  # else the error says what is not there
            if is_list and options["project"] is not None and not shown:
                where = "The list of projects with instances"
                lines.append(suggestion(options["project"], ledger.inspect(instances.projects), where))
            elif is_list and set(options["names"] or ()) - {v["name"] for v in shown}:
                living = ledger.inspect(instances.names, options["project"])
                strange = [name for name in options["names"] if name not in living | {v["name"] for v in shown}]
                lines += [suggestion(strange[0], living, "The list of instances")] if strange else []
            tables.show(self._display, lines)
        if unknown is not None:
            return error_result(unknown, instances=shown)
        return {"changed": False, **readers.fields(shown, options["set_stats"])}

    def _unknown(self, tx: Transaction, rows: t.Sequence[instances.InstanceRow]) -> errors.BootflowError | None:
        """Return the error for a named instance that does not exist, as Nova's client reports it; None for a list without it."""
        from ..module_utils.flows.instances import operation

        options = self.options
        chosen = operation.Selection(
            options["names"], options["uuids"], options["reservation_ids"], options["host"], options["project"]
        )
        try:
            operation.refuse_unknown(tx, rows, chosen, self.compute_hosts())
        except errors.BootflowError as e:
            return e
        return None

    def _deleted(self, tx: Transaction, living: t.Sequence[instances.Instance]) -> list[instances.InstanceRow]:
        """The deleted ones of the instances that are named: by UUID, or the last of a name that none has now."""
        options = self.options
        uuids = [uuid for uuid in dict.fromkeys(options["uuids"] or ()) if uuid not in {r.uuid for r in living}]
        candidates = [instances.any_of(tx, uuid) for uuid in uuids]
        if options["uuids"] is None and options["reservation_ids"] is None and options["host"] is None:
            living_names = {r.display_name for r in living}
            candidates += instances.last_deleted(
                tx, [n for n in options["names"] or () if n not in living_names], options["project"]
            )
        return [
            r
            for r in candidates
            if r is not None and r.deleted != instances.LIVE and options["project"] in (None, r.project)
        ]
