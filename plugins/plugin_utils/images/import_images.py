# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of image_import on the controller: records are made before any byte is written, and the result is reported."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.image_imports import ImageImport, read_imports
from ...module_utils.core.settings.request import CATALOGUE
from ...module_utils.flows.images import imports
from ...module_utils.flows.images.imports import ImportsBegun
from ...module_utils.ledger.db.transaction import Transaction
from ..run import inventory_hosts, tables
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import diff, outcome
from ..run.stage_results import CONTROLLER
from ..settings.ledger_images import stores_of
from . import store_stage
from .image_texts import failed_image, image_table

CHUNK = 1024**2  # bytes


def begin(action: LedgerAction) -> dict[str, t.Any]:
    """Check the entries and make the records; in check mode, roll them back. Returns the result of the task."""
    return store_stage.hand_over(action, lambda: _begin(action))


def _begin(action: LedgerAction) -> dict[str, t.Any]:
    stores = stores_of(action)
    entries = read_imports(action.options["image_imports"], stores)
    by_name = {entry.name: entry for entry in entries}
    digests = {e.name: _sha256(e) for e in entries if e.image.path and not e.image.checksum}
    created: list[ImageImport] = []

    def write(tx: Transaction) -> tuple[ImportsBegun, store_stage.Works]:
        begun = imports.begin(
            tx, entries, action.options["project"], action.options["non_inheritable_image_properties"], digests
        )
        names = imports.names_of(tx, begun.created)
        created[:] = [by_name[name] for name in names]
        _check_files(created)
        inventory_hosts.in_inventory(action, _others(begun.hosts))
        return begun, store_stage.works_of(tx, begun.hosts, stores)

    begun, works = action.write(write, collisions=3)
    changes = ["%(name)s %(field)s: " % c for c in begun.changes]
    before = "".join("%s%s\n" % (line, c["from"]) for line, c in zip(changes, begun.changes))
    after = "".join("%s%s\n" % (line, c["to"]) for line, c in zip(changes, begun.changes))
    _warn_of_names(action, [entry.name for entry in created])
    new = ["%s (%s) into the store %s" % (e.name, e.image.disk_format, e.store.name) for e in created]
    _show(action, begun, new, after.splitlines())
    return {
        "changed": bool(begun.created or begun.changes),
        "created": begun.created,
        "unchanged": begun.unchanged,
        "changes": begun.changes,
        "storage": [] if action.check_mode else _others(begun.hosts),
        "works": works,
        "diff": diff("images", before, after + "".join(line + "\n" for line in new)),
    }


def finish(action: LedgerAction) -> dict[str, t.Any]:
    """Report the images that this run imported. Images whose bytes did not arrive fail the task."""
    if action.check_mode:
        return {"changed": False, "skipped": True}
    created, stores = store_stage.handed_over(action).get("created") or [], stores_of(action)

    def write(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
        store_stage.write_outcomes(tx, action, stores)
        return imports.finish(tx, created)

    active, killed = action.open_ledger().transact(write)
    if action.options["print_table"] and active + killed:
        tables.show(action.ports.display, image_table(active + killed))
    error = errors.ImageImportFailed([failed_image(view) for view in killed], len(active) + len(killed))
    return outcome(error, changed=bool(active), images=active, failed_images=killed)


def _others(hosts: t.Iterable[str]) -> list[str]:
    """The hosts of the inventory: the controller has its own task in any case."""
    return [host for host in hosts if host != CONTROLLER]


def _show(action: LedgerAction, begun: ImportsBegun, new: t.Sequence[str], changed: t.Sequence[str]) -> None:
    if not action.options["print_table"]:
        return
    lines = ["%s %s" % ("Would import" if action.check_mode else "Importing", line) for line in new]
    lines += ["%s %s" % ("Would change" if action.check_mode else "Changed", line) for line in changed]
    if not lines and begun.unchanged:
        lines = ["Nothing to do: the images match the request."]
    tables.show(action.ports.display, lines or ["Nothing to do: no image is requested."])


def _warn_of_names(action: LedgerAction, names: t.Collection[str]) -> None:
    """Warn of names that the inventory has for images, too: requests must name such an image by its id."""
    if not names:
        return
    inventory = parse_images(read_settings(CATALOGUE.options("images"), {}, action.variable)["images"])
    both = sorted({image.name for image in inventory.values()}.intersection(names))
    if both:
        text = "bootflow_images, or the images of the collection, have this name too: %s. Name the image by its id, or give it another name."
        action.ports.display.warning(text % ", ".join(both))


def _check_files(entries: t.Iterable[ImageImport]) -> None:
    """:raises InvalidRequest: files that are not on the controller."""
    problems = Problems()
    for entry in entries:
        if entry.image.path and not os.path.isfile(os.path.expanduser(entry.image.path)):
            problems.add(entry.field_path, _missing(entry))
    problems.raise_if_any()


def _missing(entry: ImageImport) -> errors.BootflowError:
    return errors.ImageUnacceptable(
        image_id=entry.name,
        reason="the file %s is not on the controller" % os.path.expanduser(entry.image.path),
        remedy="Correct its path in bootflow_image_imports.",
    )


def _sha256(entry: ImageImport) -> str:
    """The digest of a file of the controller. :raises ImageUnacceptable: it cannot be read"""
    path = os.path.expanduser(entry.image.path)
    if not os.path.isfile(path):  # a device or a pipe may have no end
        raise _missing(entry)
    try:
        return sha256_of(path)
    except OSError:
        raise _missing(entry) from None


def sha256_of(path: str) -> str:
    """The digest of a file, which is read in pieces. :raises OSError:"""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
