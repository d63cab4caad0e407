# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions attach_volume and detach_volume share: begun in the ledger, finished in the ledger, hosts in between."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import attachment_hosts, volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.volume_tables import NOTHING
from ansible_collections.bootflow.compute.plugins.plugin_utils import request_inputs, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.volume_inputs import reachable

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "attachments": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "variable": "bootflow_attachments",
        "no_log": False,
    },
    "project": {"type": "str", "variable": "bootflow_project", "fallback_default": "default"},
    "phase": {"type": "str", "choices": ["clean", "begin", "undo", "finish"], "default": "begin"},
    "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
}


def clean(action: LedgerAction) -> dict[str, t.Any]:
    """What an earlier run could not end of these volumes is this run's. Names the hosts that have to be rid of it."""
    wishes = action.options["attachments"]
    ledger = None if action.check_mode else action.open_ledger()
    words = {w["volume"] for w in wishes if isinstance(w.get("volume"), str)}
    rows = ledger.transact(attachment_hosts.take_leftovers, words, action.context()) if ledger is not None else []
    return {
        "changed": bool(rows),
        "hosts": reachable(action, sorted({r.attached_host for r in rows if r.connection != NOTHING})),
        "storage_hosts": reachable(action, sorted({r.storage_host for r in rows if r.storage_host})),
    }


def begin(action: LedgerAction, step: t.Callable[..., t.Any], *arguments: t.Any) -> dict[str, t.Any]:
    """Have the ledger begin it, or in check mode tell what would be done."""
    o = action.options
    if action.check_mode:
        found = request_inputs.rehearsal_ledger(o["ledger_url"]).rehearsal(step, *arguments, action.context())
    else:
        found = action.open_ledger().transact(step, *arguments, action.context())
    lines = [_line(r) for r in found.rows]
    if action.check_mode and o["print_table"]:
        tables.show(action._display, ["Would change:", *(lines or ["  nothing"])])
    rows = [_told(r) for r in found.rows]
    text = "".join(line.strip() + "\n" for line in lines)
    detaching = action._task.action.endswith("detach_volume")
    return {
        "changed": bool(rows),
        "attachments": rows,
        "unchanged": list(found.unchanged),
        "storage_hosts": [] if action.check_mode else reachable(action, found.storage_hosts),
        "hosts": [] if action.check_mode else reachable(action, found.hosts),
        "diff": {
            "before": text if detaching else "",
            "after": "" if detaching else text,
            "before_header": "attachments",
            "after_header": "attachments",
        },
    }


def undo(action: LedgerAction) -> dict[str, t.Any]:
    """What could not be attached is given back. Names the storage hosts that have exports to end."""
    if action.check_mode:
        return {"changed": False, "storage_hosts": []}
    ledger, context = action.open_ledger(), action.context()
    volumes = ledger.transact(attachment_hosts.give_back, context)
    hosts = ledger.inspect(volume_work.hosts_with_work, context)
    return {"changed": bool(volumes), "storage_hosts": reachable(action, hosts)}


def finish(action: LedgerAction, step: t.Callable[..., t.Any], word: str, code: str) -> dict[str, t.Any]:
    """What became of it. The task fails when something is left."""
    if action.check_mode:
        return {"changed": False, "skipped": True}
    done, left = action.open_ledger().transact(step, action.context())
    if action.options["print_table"]:
        named = ["%s (%s, %s)" % (d["volume"], d["instance"], d["device"]) for d in done]
        tables.show(action._display, ["%s: %s" % (word, ", ".join(named) or "nothing")])
    result: dict[str, t.Any] = {"changed": bool(done), "done": done, "left": left}
    if left:
        lines = ["%s: %d volume(s) could not be %s." % (code, len(left), word.lower())]
        remedies: dict[str, None] = {}
        for each in left:
            error = each.get("error") or {}
            lines.append(
                "  %s (%s): %s: %s"
                % (
                    each["volume"],
                    each["instance"],
                    error.get("code", "?"),
                    error.get("message", "its host was not asked"),
                )
            )
            if error.get("remedy"):
                remedies[error["remedy"]] = None
        remedy = " ".join(remedies) or "Mend the causes and run the same again."
        lines.append("Remedy: " + remedy)
        result.update(failed=True, msg="\n".join(lines), error_code=code, status=503, retryable=True, remedy=remedy)
    return result


def _told(row: t.Any) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "volume_id": row.volume_id,
        "instance_uuid": row.instance_uuid,
        "device": row.mountpoint,
        "host": row.attached_host,
    }


def _line(row: t.Any) -> str:
    return "  volume %s of instance %s on %s as %s" % (
        row.volume_id,
        row.instance_uuid,
        row.attached_host or "no host",
        row.mountpoint,
    )
