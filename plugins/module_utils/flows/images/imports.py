# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Importing images: their records, and what became of their bytes. store_work.py has the part of the stores' hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.resolve import only
from ...core.images.snapshot_properties import Inherited, inherited
from ...core.reading.problems import Problems
from ...core.reading.setting import canonical
from ...core.request.image_imports import ImageImport, unknown_instance
from ...ledger.compute import instances, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.images import image_views, images
from ...ledger.images.images import ImageRow
from .busy import check_not_busy


@dataclass
class ImportsBegun:
    """The work of an import, by id of the image, each in one of the lists."""

    created: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    changes: list[dict[str, t.Any]] = field(default_factory=list)  # of fields: id, name, field, from, to
    hosts: list[str] = field(default_factory=list)  # of stores, with work


def begin(
    tx: Transaction,
    entries: t.Sequence[ImageImport],
    project: str,
    non_inheritable: t.Sequence[str],
    digests: t.Mapping[str, str],
) -> ImportsBegun:
    """Make a record for each entry whose image is not there, and change what differs in others.

    An image of the name whose bytes did not arrive, or that a dead run has left, is replaced.

    :arg digests: name -> sha256 of the controller's file, of entries without a checksum.
    :raises InvalidRequest: all refusals (ImageExists, ImageAmbiguous, ImageInUse, an unknown instance). Nothing is written then.
    """
    runs.renew(tx)
    images.lock_names(tx, project, [entry.name for entry in entries])
    problems = Problems()
    begun = ImportsBegun()
    names = [entry.name for entry in entries]
    rows = [r for r in images.select(tx, words=names, lock=True) if r.project == project and r.name in names]
    stored = {image.id: image for image in images.stored(tx, rows)}
    replaced: list[str] = []
    made: list[tuple[ImageImport, StoredImage]] = []
    for entry in entries:
        with problems.collect(entry.field_path):
            of_name = [row for row in rows if row.name == entry.name]
            active = _active(tx, entry.name, of_name, stored)
            if active is None:
                made.append((entry, _wanted(tx, entry, project, non_inheritable)))
                replaced += [row.id for row in of_name]
            else:
                entry.check_same(active, digests.get(entry.name, ""))
                _change(tx, entry, active, begun)
    problems.raise_if_any()
    for image_id in replaced:
        images.apply(tx, image_id, life.DELETE)
    images.create(tx, [wanted for _entry, wanted in made])
    for entry, wanted in made:
        images.apply(tx, wanted.id, life.UPLOAD_BEGUN, store=entry.store.name)
    begun.created = [wanted.id for _entry, wanted in made]
    begun.hosts = sorted({entry.store.host for entry, _wanted in made})
    return begun


def _active(
    tx: Transaction, name: str, of_name: t.Sequence[ImageRow], stored: t.Mapping[str, StoredImage]
) -> StoredImage | None:
    """Return the active image of the name; None: there is none.

    :raises ImageInUse: a live run writes one. :raises ImageAmbiguous: several are active.
    """
    for row in of_name:
        check_not_busy(tx, row)
    active = [stored[row.id] for row in of_name if row.status == life.ACTIVE]
    return only(name, active) if active else None


def _change(tx: Transaction, entry: ImageImport, active: StoredImage, begun: ImportsBegun) -> None:
    """Write the fields of an active image that differ from the entry."""
    changes = entry.changes(active)
    if not changes:
        begun.unchanged.append(active.id)
        return
    images.update(tx, active.id, **{name: after for name, (_before, after) in changes.items()})
    begun.changes += [
        {"id": active.id, "name": active.name, "field": name, "from": before, "to": after}
        for name, (before, after) in changes.items()
    ]


def _wanted(tx: Transaction, entry: ImageImport, project: str, non_inheritable: t.Sequence[str]) -> StoredImage:
    """Return the image that the entry describes. :raises InvalidInput: its instance is unknown"""
    instance = _instance(tx, entry.instance, project) if entry.instance else None
    of_instance: Inherited | None = None
    if instance is not None:
        own = instance.spec["image"]
        of_instance = inherited(own, int(instance.spec["flavor"]["root_gb"]), non_inheritable)
    uuid = None if instance is None else instance.uuid
    return entry.as_stored(tx.new_id(), project, tx.actor, uuid, of_instance)


def _instance(tx: Transaction, word: str, project: str) -> Instance:
    """:raises InvalidInput: the project has no instance of this UUID or name."""
    rows = instances.select_live(tx, uuids=[canonical(word)], project=project)
    rows = rows or instances.select_live(tx, names=[word], project=project)
    if len(rows) != 1:
        raise unknown_instance(word)
    return rows[0]


def names_of(tx: Transaction, ids: t.Sequence[str]) -> list[str]:
    """Return the names of images, in the order of their ids."""
    names = {row.id: row.name for row in images.select(tx, ids=ids)} if ids else {}
    return [names[image_id] for image_id in ids]


def finish(
    tx: Transaction, ids: t.Collection[str] | None = None
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """End imports of this run: images whose bytes did not arrive are killed. Returns the views of active images, and the views of killed ones.

    :arg ids: of the images; None: all of the run
    """
    rows = images.select(tx, ids=ids, run_id=tx.run.id, lock=True)
    for row in rows:
        if row.status in life.BUSY:
            images.apply(tx, row.id, life.UPLOAD_FAILED, fault="The host of the store gave no answer.")
    views = image_views.image_views(tx, [row.id for row in rows], None, None) if rows else []
    active = [view for view in views if view["status"] == life.ACTIVE]
    return active, [view for view in views if view["status"] != life.ACTIVE]
