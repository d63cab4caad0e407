# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions attach_volume and detach_volume share: begun in the ledger, finished in the ledger, hosts in between."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import QUOTA
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.volumes import VOLUME_WORK
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import NONE
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import changes, life, requests
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volumes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Attachment
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    attached_volumes,
    host_settings,
    tables,
    volume_settings,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import Arguments, LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import error_result
from ansible_collections.bootflow.compute.plugins.plugin_utils.volume_settings import reachable

ARGUMENTS: Arguments = {
    **VOLUME_WORK.options("attachments"),
    **QUOTA.options("project"),
    "phase": {"type": "str", "choices": ["clean", "begin", "undo", "finish"], "default": "begin"},
    **RUN.options("print_table"),
}


def clean(action: LedgerAction) -> dict[str, t.Any]:
    """Adopt detachments of these volumes that earlier runs could not end. Names the hosts that have to complete them."""
    entries = action.options["attachments"]
    ledger = None if action.check_mode else action.open_ledger()
    words = {w["volume"] for w in entries if isinstance(w, t.Mapping) and isinstance(w.get("volume"), str)}
    rows = ledger.transact(changes.adopt_stale_detachments, words) if ledger is not None else []
    return {
        "changed": bool(rows),
        "hosts": reachable(action, sorted({r.attached_host for r in rows if r.attached_host and r.connection != NONE})),
        "storage_hosts": reachable(action, sorted({r.storage_host for r in rows if r.storage_host})),
    }


def begin(action: LedgerAction, step: t.Callable[[Transaction, life.Connectors], changes.Begun]) -> dict[str, t.Any]:
    """Have the ledger begin it, or in check mode tell what would be done."""
    o = action.options
    ledger = action.rehearsal_ledger() if action.check_mode else action.open_ledger()
    hostvars = action.task_vars["hostvars"]
    hosts = ledger.inspect(requests.hosts_named, o["attachments"], o["project"])
    hosts = [h for h in hosts if h in hostvars]  # any other is named below, when its attachment begins
    problems = Problems()
    host_settings.check(hostvars, hosts, problems)
    problems.raise_if_any()
    connectors = attached_volumes.connectors_of(hostvars, hosts)

    def write(tx: Transaction) -> tuple[changes.Begun, list[str]]:
        begun = step(tx, connectors)
        volume_settings.in_inventory(action, [*begun.storage_hosts, *begun.hosts])
        return begun, _lines(tx, begun.rows)

    with volume_settings.told_in_order():
        found, lines = ledger.rehearsal(write) if action.check_mode else ledger.transact(write)
    detaching = action._task.action.endswith("detach_volume")
    if o["print_table"] and not lines:
        tables.show(action._display, [_nothing(o["attachments"], detaching)])
    elif o["print_table"] and action.check_mode:
        tables.show(action._display, ["Would %s %s" % ("detach" if detaching else "attach", line) for line in lines])
    rows = [_attachment_data(r) for r in found.rows]
    text = "".join(line + "\n" for line in lines)
    return {
        "changed": bool(rows),
        "attachments": rows,
        "unchanged": list(found.unchanged),
        "storage_hosts": [] if action.check_mode else found.storage_hosts,
        "hosts": [] if action.check_mode else found.hosts,
        "diff": {
            "before": text if detaching else "",
            "after": "" if detaching else text,
            "before_header": "attachments",
            "after_header": "attachments",
        },
    }


def undo(action: LedgerAction) -> dict[str, t.Any]:
    """Release volumes that could not be attached. Names the storage hosts with exports to remove."""
    if action.check_mode:
        return {"changed": False, "storage_hosts": []}
    ledger = action.open_ledger()
    volumes = ledger.transact(changes.abandon_attach)
    hosts = ledger.inspect(work.hosts_with_work)
    return {"changed": bool(volumes), "storage_hosts": reachable(action, hosts)}


def finish(
    action: LedgerAction,
    step: t.Callable[[Transaction], tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]],
    word: str,
    error_class: type[errors.Incomplete],
) -> dict[str, t.Any]:
    """What became of it. The task fails when something is left."""
    if action.check_mode:
        return {"changed": False, "skipped": True}
    done, left = action.open_ledger().transact(step)
    if action.options["print_table"] and (done or left):
        named = ["%s (%s, %s)" % (d["volume"], d["instance"], d["device"]) for d in done]
        tables.show(action._display, ["%s: %s" % (word, ", ".join(named) or "nothing")])
    result: dict[str, t.Any] = {"changed": bool(done), "done": done, "left": left}
    if left:
        items = [
            errors.failed_item(
                "%s (%s)" % (each["volume"], each["instance"]),
                each["volume_id"],
                each["error"],
                state="hosts did not answer, see the warnings",
            )
            for each in left
        ]
        return error_result(error_class(items, len(done) + len(left)), **result)
    return result


def _attachment_data(row: Attachment) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "volume_id": row.volume_id,
        "instance_uuid": row.instance_uuid,
        "device": row.mountpoint,
        "host": row.attached_host,
    }


def _nothing(entries: t.Sequence[t.Any], detaching: bool) -> str:
    if not entries:
        return "Nothing to do: no attachment is requested."
    return "Nothing to do: %s." % (
        "no requested volume is attached" if detaching else "the volumes are attached as requested"
    )


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
