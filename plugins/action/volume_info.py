# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_info."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.volumes import VOLUME_SELECTION
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import volume_history, volume_views
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import item_lines
from ..plugin_utils.settings import variable_names
from ..plugin_utils.volumes import volume_texts


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **VOLUME_SELECTION.options(),
        "events": {"type": "bool", "default": False},
        "print_table": {"type": "bool", "default": False},
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        options = self.options
        try:
            ledger = self.open_reader()
        except errors.LedgerMissing as e:
            if options["print_table"]:
                tables.show(self._display, ["No volumes. %s." % e.message])
            return {"changed": False, "volumes": [], "snapshots": [], "backends": []}

        def read(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]], list[dict[str, t.Any]]]:
            views = volume_views.volumes(
                tx, ids=options["volume_ids"], names=options["volume_names"], project=options["project"]
            )
            ids = {v["id"] for v in views}
            if options["events"]:
                journals = volume_history.events_of(tx, ids)
                for volume in views:
                    volume["events"] = journals[volume["id"]]
            snapshots = [s for s in volume_views.snapshots(tx, project=options["project"]) if s["volume_id"] in ids]
            return views, snapshots, volume_views.backends(tx)

        volumes, snapshots, backends = ledger.inspect(read)
        if options["print_table"]:
            lines = volume_texts.volume_table(volumes) if volumes else []
            if not volumes and options["volume_names"] != []:  # an empty list asks for the backends alone
                lines = ["No volumes in the ledger %s." % options["ledger_url"]]
            known_words = {v["name"] for v in volumes} | {v["id"] for v in volumes}
            unknown = sorted({*(options["volume_names"] or ()), *(options["volume_ids"] or ())} - known_words)
            if unknown:
                lines.append("There is no volume with this name: %s" % ", ".join(unknown))
            if snapshots:
                lines += ["", *volume_texts.snapshot_table(snapshots)]
            faulty = [v for v in (*volumes, *snapshots) if v["fault"]]
            if faulty:
                lines += ["", "Faults:", *item_lines(volume_texts.failed_item(v) for v in faulty)]
            if backends:
                lines += [*([""] if lines else []), *volume_texts.backend_table(backends)]
            tables.show(self._display, lines)
        return {"changed": False, "volumes": volumes, "snapshots": snapshots, "backends": backends}
