# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to attach or detach volumes, with the instances and volumes they name, locked.

source: Nova's compute API (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.disks.block_devices import PlannedDisk
from ...core.reading.formats import to_boolean
from ...core.reading.nearest import field_suggestion
from ...core.reading.problems import Problems
from ...core.reading.setting import canonical, is_text
from ...core.volumes import attach_rules
from ...ledger.compute import instances
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volumes
from ...ledger.storage.volumes import VolumeRow
from ..volumes import dead_uploads
from . import operation

FIELDS = ("instance", "volume", "device", "mode", "delete_on_termination", "disk_bus", "tag")


@dataclass
class AttachmentRequest:
    """One entry of bootflow_attachments."""

    path: str
    volume: VolumeRow
    guest: Instance | None  # None: a detach without an instance
    mode: str = "rw"
    delete_on_termination: bool = False
    device: str | None = None
    disk_bus: str | None = None
    tag: str | None = None
    disk: PlannedDisk | None = None

    @property
    def instance(self) -> Instance:
        """The guest that a volume is attached to: every such request names it."""
        return t.cast(Instance, self.guest)


def read(
    tx: Transaction,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    attaching: bool,
    refusals: Problems,
) -> list[AttachmentRequest]:
    """The requests with the rows of their instances and volumes, locked: instances by uuid, then volumes by id."""
    sound: list[tuple[str, t.Mapping[str, t.Any]]] = []
    for index, entry in enumerate(entries):
        path = "attachments[%d]" % index
        with refusals.collect(path):
            _check_form(entry, attaching)
            sound.append((path, _canonical(entry)))
    guests = operation.by_words(tx, [str(w["instance"]) for _p, w in sound if w.get("instance")], project)
    dead_uploads.end_dead(tx)
    volume_rows = volumes.find(tx, (str(w["volume"]) for _p, w in sound), project, lock=True)
    result: list[AttachmentRequest] = []
    seen: set[tuple[str, str]] = set()
    for path, entry in sound:
        guest, volume = None, None
        with refusals.collect(path + ".instance"):
            guest = operation.meant(tx, guests, entry["instance"], project) if entry.get("instance") else None
        with refusals.collect(path + ".volume"):
            volume = volume_named(volume_rows, str(entry["volume"]))
        if volume is None or (guest is None and entry.get("instance")):
            continue
        key = (volume.id, "" if guest is None or not volume.multiattach else guest.uuid)
        if key in seen:
            again = errors.InvalidInput(reason="volume %s is named twice" % entry["volume"], remedy="Name it once.")
            refusals.add(path + ".volume", again)
            continue
        seen.add(key)
        result.append(
            AttachmentRequest(
                path=path,
                volume=volume,
                guest=guest,
                mode=str(entry.get("mode") or "rw"),
                delete_on_termination=to_boolean(entry.get("delete_on_termination") or False),
                device=entry.get("device"),
                disk_bus=entry.get("disk_bus"),
                tag=entry.get("tag"),
            )
        )
    return result


def hosts_named(tx: Transaction, entries: t.Sequence[t.Any], project: str | None) -> list[str]:
    """Return the compute hosts of the instances that the entries name, and of the instances that have the named volumes."""
    named = [_canonical(e) for e in entries if isinstance(e, t.Mapping)]
    words = sorted({str(e["instance"]) for e in named if e.get("instance")})
    rows = instances.select_live(tx, names=words, project=project) if words else []
    rows += instances.select_live(tx, uuids=words, project=project) if words else []
    volume_rows = volumes.find(tx, (str(e["volume"]) for e in named if e.get("volume")), project)
    having = attachments.select(tx, volume_ids=[v.id for v in volume_rows.values()]) if volume_rows else []
    return sorted({r.host for r in rows if r.host} | {a.attached_host for a in having if a.attached_host})


def volume_named(rows: t.Mapping[str, VolumeRow], word: str) -> VolumeRow:
    """Return the volume that an entry names. :arg rows: that volumes.find() has found. :raises VolumeNotFound: there is none."""
    if word not in rows:
        raise errors.VolumeNotFound(volume_id=word, remedy="volume_list shows the volumes of the project.")
    return rows[word]


def check_texts(
    entry: t.Any,
    fields: t.Sequence[str],
    required: t.Sequence[str],
    noun: str,
    texts: t.Sequence[str] | None = None,
) -> None:
    """Check the fields of an entry that are texts. :arg texts: which are; None: all

    :raises InvalidInput: the entry must be a mapping of known fields, with all required ones, whose values are texts.
    """
    if not isinstance(entry, t.Mapping):
        raise errors.InvalidInput(
            reason="%s must be a mapping" % noun, remedy="Give %s." % " and ".join(required or fields)
        )
    unknown = sorted(set(entry) - set(fields), key=str)
    if unknown:
        raise errors.InvalidInput(
            reason="unknown field %s of %s" % (", ".join(map(ascii, unknown)), noun),
            remedy=field_suggestion(str(unknown[0]), fields, "docs/volumes.md"),
        )
    for name in required:
        if not entry.get(name):
            raise errors.InvalidInput(reason="%s is missing" % name, remedy="Give its name or UUID.")
    for name in fields if texts is None else texts:
        if entry.get(name) is not None and not isinstance(entry[name], str):
            raise errors.InvalidInput(reason="%s must be a text" % name, remedy="Write it in quotation marks.")
        if not is_text(entry.get(name) or ""):
            raise errors.InvalidInput(reason="%s contains a NUL or an unpaired surrogate" % name, remedy="Remove it.")


def _check_form(entry: t.Any, attaching: bool) -> None:
    required = ("instance", "volume") if attaching else ("volume",)
    texts = ("instance", "volume", "device", "mode", "disk_bus", "tag")
    check_texts(entry, FIELDS, required, "an attachment", texts)
    mode = entry.get("mode") or "rw"
    if mode not in attach_rules.MODES:
        raise errors.InvalidVolumeAttachMode(mode=mode, volume_id=entry["volume"], remedy="Use rw or ro.")
    try:
        to_boolean(entry.get("delete_on_termination") or False)
    except ValueError as e:
        raise errors.InvalidInput(reason="delete_on_termination %s" % e, remedy="Use true or false.") from None


def _canonical(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return with_uuids(entry, ("instance", "volume"))


def with_uuids(entry: t.Mapping[str, t.Any], names: t.Sequence[str]) -> dict[str, t.Any]:
    """The entry, with UUIDs as the ledger has them. :arg names: of the fields that may be one"""
    return {**entry, **{n: canonical(entry[n]) for n in names if isinstance(entry.get(n), str)}}
