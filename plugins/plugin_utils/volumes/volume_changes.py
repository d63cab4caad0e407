# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common parts of the actions attach_volume, detach_volume and swap_volume: begun in the ledger, finished in the ledger, hosts in between."""

from __future__ import annotations

import functools
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.settings.request import QUOTA
from ...module_utils.core.settings.run import RUN
from ...module_utils.core.settings.volumes import VOLUME_WORK
from ...module_utils.core.volumes.attachment import NONE
from ...module_utils.flows.attachments import life
from ...module_utils.flows.instances import attach, attachment_requests
from ...module_utils.flows.instances.hot_plug import Refused
from ...module_utils.flows.instances.operation import Operation
from ...module_utils.flows.volumes import work
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import volumes
from ...module_utils.ledger.storage.attachments import Attachment
from ..run import host_settings, host_variables, inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, outcome
from ..run.stage_results import StageResults, shown
from ..settings import volume_settings
from . import attached_volumes


class VolumeChange(LedgerAction):
    """Base of these actions: a subclass has OPERATION, what its report says, and begin()."""

    SHARED_ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        **QUOTA.options("project"),
        "phase": {"type": "str", "choices": ["clean", "begin", "undo", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }
    ARGUMENTS = {**VOLUME_WORK.options("attachments"), **SHARED_ARGUMENTS}
    ENTRIES: t.ClassVar[str] = "attachments"  # the option with the requests
    VOLUMES: t.ClassVar[t.Sequence[str]] = ("volume",)  # their fields that name volumes
    OPERATION: t.ClassVar[Operation]
    NOUN: t.ClassVar[str] = "attachment"
    VERB: t.ClassVar[str]  # attach
    DONE: t.ClassVar[str]  # Attached
    UNCHANGED: t.ClassVar[str]  # why there is nothing to do
    INCOMPLETE: t.ClassVar[type[errors.Incomplete]]

    def begin(self, tx: Transaction, connector_of: life.Connectors, reach: attach.Reach) -> attach.Begun:
        raise NotImplementedError

    def adopt(self, tx: Transaction, words: t.Collection[str]) -> list[Attachment]:
        """Take over what earlier runs could not end of the volumes that these words name."""
        return attach.adopt_stale_detachments(tx, words)

    def act(self) -> dict[str, t.Any]:
        self.results = StageResults(self, self.OPERATION.name)
        phases = {"clean": self._clean, "begin": self._begin, "undo": self._undo, "finish": self._finish}
        return phases[self.options["phase"]]()

    def _clean(self) -> dict[str, t.Any]:
        """Adopt detachments of these volumes that earlier runs could not end. Names the hosts that have to complete them."""
        entries = self.options[self.ENTRIES]
        ledger = None if self.check_mode else self.open_ledger()
        named = [w.get(field) for w in entries if isinstance(w, t.Mapping) for field in self.VOLUMES]
        words = {word for word in named if isinstance(word, str)}
        rows = ledger.transact(self.adopt, words) if ledger is not None else []
        hosts = {r.attached_host for r in rows if r.attached_host and r.connection != NONE}
        return {
            "changed": bool(rows),
            "compute": inventory_hosts.reachable(self, sorted(hosts)),
            "storage": inventory_hosts.reachable(self, sorted({r.storage_host for r in rows if r.storage_host})),
        }

    def _begin(self) -> dict[str, t.Any]:
        return shown(self.results.begin("begin", self._reserve))

    def _reserve(self) -> dict[str, t.Any]:
        """Write the request to the ledger. Returns the result for later stages."""
        options = self.options
        ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        hostvars = self.task_vars["hostvars"]
        hosts = ledger.inspect(attachment_requests.hosts_named, options[self.ENTRIES], options["project"])
        hosts = [h for h in hosts if h in hostvars]  # any other is named below, when its attachment begins
        problems = Problems()
        host_settings.check({h: host_variables.of_host(hostvars, h) for h in hosts}, hosts, problems)
        problems.raise_if_any()
        connectors = attached_volumes.connectors_of(hostvars, hosts)

        def write(tx: Transaction) -> tuple[attach.Begun, list[str]]:
            begun = self.begin(tx, connectors, functools.partial(inventory_hosts.in_inventory, self))
            return begun, _lines(tx, begun.rows)

        with volume_settings.told_in_order():
            reservation, lines = ledger.rehearsal(write) if self.check_mode else ledger.transact(write)
        if options["print_table"] and not lines:
            why = self.UNCHANGED if options[self.ENTRIES] else "no %s is requested" % self.NOUN
            tables.show(self._display, ["Nothing to do: %s." % why])
        elif options["print_table"] and self.check_mode:
            tables.show(self._display, ["Would %s %s" % (self.VERB, line) for line in lines])
        text = "".join(line + "\n" for line in lines)
        attaching = self.OPERATION is not attach.DETACH
        return {
            "changed": bool(reservation.rows),
            "attachments": [_attachment_data(r) for r in reservation.rows],
            "unchanged": list(reservation.unchanged),
            "refused": [_refused_item(r) for r in reservation.refused],
            "storage": [] if self.check_mode else reservation.storage_hosts,
            "compute": [] if self.check_mode else reservation.hosts,
            "diff": diff("attachments", "" if attaching else text, text if attaching else ""),
        }

    def _undo(self) -> dict[str, t.Any]:
        """Release volumes that could not be attached. Names the storage hosts with exports to remove."""
        if self.check_mode:
            return {"changed": False, "storage": []}
        ledger = self.open_ledger()
        abandoned = ledger.transact(attach.abandon_attach)
        return {
            "changed": bool(abandoned),
            "storage": inventory_hosts.reachable(self, ledger.inspect(work.hosts_with_work)),
        }

    def _finish(self) -> dict[str, t.Any]:
        begun = self.results.begun()
        refused = begun.get("refused") or []
        if self.check_mode:
            total = len(begun.get("attachments") or ()) + len(refused)
            return outcome(self.INCOMPLETE(refused, total), changed=False, skipped=True)
        done, remaining = self.open_ledger().transact(attach.finish, self.OPERATION)
        if self.options["print_table"] and (done or remaining):
            named = ["%s (%s, %s)" % (d["volume"], d["instance"], d["device"]) for d in done]
            tables.show(self._display, ["%s: %s" % (self.DONE, ", ".join(named) or "nothing")])
        state = "hosts did not answer, see the warnings"
        items = [
            errors.failed_item("%s (%s)" % (v["volume"], v["instance"]), v["volume_id"], v["error"], state=state)
            for v in remaining
        ]
        items += refused
        return outcome(self.INCOMPLETE(items, len(done) + len(items)), changed=bool(done), done=done, left=remaining)


def _refused_item(refused: Refused[attachment_requests.AttachmentRequest]) -> dict[str, t.Any]:
    """The item of an Incomplete for what did not begin."""
    volume, guest = refused.request.volume, refused.guest
    name = volume.name or volume.id
    return errors.failed_item(
        name if guest is None else "%s (%s)" % (name, guest.display_name), volume.id, refused.error.as_dict()
    )


def _attachment_data(row: Attachment) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "volume_id": row.volume_id,
        "instance_uuid": row.instance_uuid,
        "device": row.mountpoint,
        "host": row.attached_host,
    }


def _lines(tx: Transaction, rows: t.Sequence[Attachment]) -> list[str]:
    """A line for each attachment, by the names that people know."""
    if not rows:
        return []
    names = {r.id: r.name for r in volumes.select(tx, ids={r.volume_id for r in rows})}
    guests = instances.select_live(tx, uuids=sorted({r.instance_uuid for r in rows}))
    names.update({g.uuid: g.display_name for g in guests})
    return [
        "volume %s (%s, instance %s on %s)"
        % (
            names.get(r.volume_id) or r.volume_id,
            r.mountpoint,
            names.get(r.instance_uuid) or r.instance_uuid,
            r.attached_host or "no host",
        )
        for r in rows
    ]
