# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checkpoints of libvirt that belong to backups of this collection: each has a bitmap of what the guest has written since its backup."""

from __future__ import annotations

import contextlib
import typing as t

from ...core.backups.backup import is_own
from ...core.guest.domain.element import parse, to_text
from ..libvirt.connection import is_code, libvirt, libvirt_errors
from ..os.batch import progress


def own_names(domain: t.Any) -> list[str]:
    """Return the names of the checkpoints of backups of this collection."""
    with libvirt_errors():
        names = [checkpoint.getName() for checkpoint in domain.listAllCheckpoints(0)]
    return sorted(name for name in names if is_own(name))


def delete(domain: t.Any, name: str) -> bool:
    """Delete a checkpoint, with its bitmap where that is possible. Returns whether it was there.

    A guest that is off keeps the bitmap in its disk, and so does one whose bitmap is broken: no later one has its name.
    """
    try:
        checkpoint = domain.checkpointLookupByName(name, 0)
    except libvirt.libvirtError as error:
        if is_code(error, "VIR_ERR_NO_DOMAIN_CHECKPOINT"):
            return False
        with libvirt_errors():
            raise
    progress.mark_changed()
    try:
        checkpoint.delete(0)
    except libvirt.libvirtError:
        with libvirt_errors():
            checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
    return True


def delete_others(domain: t.Any, wanted: t.Collection[str]) -> None:
    """Delete the checkpoints of backups of this collection but for these: of backups that failed, or that a later one has replaced."""
    for name in own_names(domain):
        if name not in wanted:
            delete(domain, name)


def has(domain: t.Any, name: str, xml: str) -> bool:
    """Return whether libvirt has a checkpoint, also after it is made known again: a move, or a new definition, takes libvirt's list and leaves the bitmap.

    :arg xml: as libvirt gave it when the checkpoint was made; "": it is not known
    """
    if name in own_names(domain):
        return True
    if not xml:
        return False
    element = parse(xml)
    for parent in element.findall("parent"):  # the one before is deleted by now
        element.remove(parent)
    flags = libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE
    with contextlib.suppress(libvirt.libvirtError):
        domain.checkpointCreateXML(to_text(element), flags)
        progress.mark_changed()
        return True
    return False


def describe(domain: t.Any, name: str) -> str:
    """Return libvirt's definition of a checkpoint, by which it is made known again."""
    with libvirt_errors():
        return str(domain.checkpointLookupByName(name, 0).getXMLDesc(0))
