# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_snapshot."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME, VOLUME_WORK
from ..module_utils.core.volumes import states
from ..module_utils.flows.volumes import snapshots
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import snapshots as snapshot_rows
from ..module_utils.ledger.storage import volume_views, volumes
from ..module_utils.ledger.storage.volumes import VolumeRow
from ..plugin_utils.run import inventory_hosts, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, outcome
from ..plugin_utils.settings import volume_settings
from ..plugin_utils.volumes import storage_reports, volume_texts

STAGES = ("select", "begin", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **VOLUME_WORK.options("snapshots"),
        **VOLUME.options(),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("facts_max_age"),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "select":
            stale = storage_reports.stale_hosts_of(self, self._of_new_ones)
            return {"changed": False, "ask": stale}
        return self._begin() if self.options["phase"] == "begin" else self._finish()

    def _of_new_ones(self, tx: Transaction) -> list[VolumeRow]:
        """The volumes that snapshots are to be made of."""
        project = self.options["project"]
        wanted = {}
        for entry in self.options["snapshots"]:
            if isinstance(entry, t.Mapping) and entry.get("volume") and entry.get("state", "present") == "present":
                wanted[str(entry.get("name"))] = str(entry["volume"])
        existing_rows = snapshot_rows.find(tx, list(wanted), project)
        words = [
            w
            for name, w in wanted.items()
            if name not in existing_rows or existing_rows[name].status != states.AVAILABLE
        ]
        return list(volumes.find(tx, words, project).values())

    def _begin(self) -> dict[str, t.Any]:
        options = self.options
        settings = volume_settings.read_options(options)
        reports = storage_reports.of_this_run(self) if self.check_mode else ()

        def begin(tx: Transaction) -> tuple[snapshots.SnapshotsBegun, dict[str, str]]:
            storage_reports.rehearse(tx, reports)
            begun = snapshots.begin(tx, options["snapshots"], settings)
            inventory_hosts.in_inventory(self, begun.hosts)
            ids = [*begun.created, *begun.resumed, *begun.deleting]
            return begun, {v["id"]: _line(v) for v in (volume_views.snapshots(tx, ids=ids) if ids else ())}

        with volume_settings.told_in_order():
            begun, lines = self.write(begin, collisions=3)
        changed = bool(lines)
        if options["print_table"] and not changed:
            words = "the snapshots match the request" if options["snapshots"] else "no snapshot is requested"
            tables.show(self._display, ["Nothing to do: %s." % words])
        elif options["print_table"] and self.check_mode:
            planned = (("make", begun.created + begun.resumed), ("delete", begun.deleting))
            tables.show(self._display, ["Would %s %s" % (word, lines[i]) for word, ids in planned for i in ids])
        return {
            "changed": changed,
            "created": begun.created,
            "resumed": begun.resumed,
            "deleting": begun.deleting,
            "unchanged": begun.unchanged,
            "storage": [] if self.check_mode else begun.hosts,
            "diff": diff(
                "snapshots",
                "".join(lines[i] + "\n" for i in begun.deleting),
                "".join(lines[i] + "\n" for i in begun.created + begun.resumed),
            ),
        }

    def _finish(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        ended = self.open_ledger().transact(snapshots.finish)
        if self.options["print_table"] and (ended["done"] or ended["left"]):
            tables.show(self._display, volume_texts.snapshot_table(ended["done"] + ended["left"]))
        done, remaining = ended["done"], ended["left"]
        error = errors.SnapshotFailed([volume_texts.failed_item(v) for v in remaining], len(done) + len(remaining))
        return outcome(error, changed=bool(done), snapshots=done, left=remaining)


def _line(view: t.Mapping[str, t.Any]) -> str:
    return "%s %s of volume %s, %s GiB" % (
        view["name"],
        view["id"],
        view["volume_name"] or view["volume_id"],
        view["size"],
    )
