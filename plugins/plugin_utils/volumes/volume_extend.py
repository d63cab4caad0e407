# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes get larger: begun in the ledger, for the hosts that extend them."""

from __future__ import annotations

import re
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.volumes.create_request import fields_of
from ...module_utils.flows.volumes import extend
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import volumes
from ...module_utils.ledger.storage.volumes import VolumeRow
from ..run import inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff
from ..run.stage_results import StageResults
from ..settings import volume_settings
from . import storage_reports

NO_ROOM = (
    "The backend must have space for the difference: volume_list shows its FREE_GB. Delete volumes there, or add devices to"
    " its volume group."
)


def extend_volumes(action: LedgerAction) -> dict[str, t.Any]:
    """Run the stage that the task is for: select the hosts to ask, or begin. Returns the result of the task."""
    option_values = action.options
    problems = Problems()
    requested = _entries(option_values["volumes"], problems)
    settings = volume_settings.read_options(option_values)
    context = action.context()
    if option_values["phase"] == "select":

        def growing(tx: Transaction) -> list[VolumeRow]:
            rows_by_word = volumes.find(tx, (w["volume"] for w in requested), option_values["project"])
            sizes = {w["volume"]: str(w["size"]) for w in requested}
            return [row for word, row in rows_by_word.items() if sizes[word] != str(row.size)]

        stale = storage_reports.stale_hosts_of(action, growing)
        return {"changed": False, "ask": stale}
    StageResults(action, "compute_attachments").clear()  # of an earlier playbook
    options = volume_settings.scheduler_options(option_values, context.now)
    reports = storage_reports.of_this_run(action) if action.check_mode else ()

    def begin(tx: Transaction) -> extend.VolumeExtending:
        storage_reports.rehearse(tx, reports)
        try:
            extension = extend.begin(tx, requested, settings, options)
        except errors.InvalidRequest as e:
            problems.extend(_refusals(e, requested))
            extension = extend.VolumeExtending()
        problems.raise_if_any()
        inventory_hosts.in_inventory(action, [*extension.hosts, *extension.compute_hosts])
        return extension

    with volume_settings.told_in_order():
        extension = action.write(begin)
    sizes = {w["volume"]: w["size"] for w in requested}
    named = [
        {
            "name": r.name or "",
            "id": r.id,
            "pool_host": r.pool_host,
            "size": r.size,
            "new_size": sizes.get(r.name, sizes.get(r.id)),
        }
        for r in extension.rows
    ]
    if option_values["print_table"] and (action.check_mode or not named):
        lines = ["%s %s: %s GiB -> %s GiB" % (n["name"], n["id"], n["size"], n["new_size"]) for n in named]
        tables.show(
            action.ports.display,
            ["Would extend:", *lines] if named else [_nothing(requested, extension.compute_hosts, action.check_mode)],
        )
    return {
        "changed": bool(named) or (action.check_mode and bool(extension.compute_hosts)),
        "volumes": named,
        "unchanged": list(extension.unchanged),
        "volume_ids": [r.id for r in extension.rows] + list(extension.unchanged),
        "storage": [] if action.check_mode else extension.hosts,
        "compute": [] if action.check_mode else extension.compute_hosts,
        "diff": diff(
            "volumes",
            "".join("%s %s GiB\n" % (n["name"] or n["id"], n["size"]) for n in named),
            "".join("%s %s GiB\n" % (n["name"] or n["id"], n["new_size"]) for n in named),
        ),
    }


def _nothing(requested: t.Sequence[t.Any], compute_hosts: t.Sequence[str], check_mode: bool) -> str:
    """:arg compute_hosts: those with guests that an earlier extension did not reach"""
    if not requested:
        return "Nothing to do: no volume is requested."
    if compute_hosts:
        hosts, get = ", ".join(compute_hosts), "would get" if check_mode else "get"
        return "Every volume already has the requested size; guests on %s %s it now." % (hosts, get)
    return "Nothing to do: every volume already has the requested size."


def _entries(entries: t.Sequence[t.Any], problems: Problems) -> list[dict[str, t.Any]]:
    """Return the volume, size and number of each entry. Errors in the form of entries are added to ``problems``.

    An entry may be that of volume_create with a larger size, and may have an id instead of its name.
    """
    requested: list[dict[str, t.Any]] = []
    for number, entry in enumerate(entries):
        with problems.collect("volumes[%d]" % number):
            if not isinstance(entry, t.Mapping):
                raise errors.InvalidInput(message="must be a mapping", remedy="Write name: and size: below it.")
            asked = fields_of({key: value for key, value in entry.items() if key != "id"})
            volume = str(entry.get("id") or asked.get("name") or "")
            if not volume:
                raise errors.InvalidInput(message="name is missing", remedy="Name the volume, or give its id.")
            if asked.get("size") is None:
                raise errors.InvalidInput(message="size is missing", remedy="Give the size of the volume in GiB.")
            if any(w["volume"] == volume for w in requested):
                raise errors.InvalidInput(message="%s is named twice" % volume, remedy="Name it once.")
            requested.append({"volume": volume, "size": asked["size"], "number": number})
    return requested


def _refusals(error: errors.InvalidRequest, requested: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the refusals of the ledger with the numbers of the entries in the request, and with advice for volumes that cannot move."""
    refusals = []
    for entry in error.errors:
        refusal = dict(entry)
        place = re.match(r"volumes\[([0-9]+)\](.*)", refusal["path"])
        if place:
            refusal["path"] = "volumes[%d]%s" % (requested[int(place.group(1))]["number"], place.group(2))
        if refusal["code"] == "NoValidBackend":
            refusal["remedy"] = refusal["remedy"].replace(errors.NoValidBackend.remedy, NO_ROOM)
        refusals.append(refusal)
    return refusals
