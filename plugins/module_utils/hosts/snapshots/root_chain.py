# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The backing chain of the disks of a guest that is off, in its definition, while its root disk is exchanged.

A definition names the chain, and QEMU opens the files that it names. With the chain of the former disk, the guest would see the former base image
below the new disk, although the header of the new disk names another. Without a chain in the definition, libvirt reads the headers at each start, which
is right for either disk.
"""

from __future__ import annotations

import typing as t

from ...core.disks.local import DISK, local_disks
from ...core.guest.domain.element import parse, to_text
from ..images.backing import name_chains
from ..libvirt.running import define_again, definition_of
from ..os.batch import progress


def forget_chain(connection: t.Any, domain: t.Any, uuid: str) -> None:
    """Remove the backing chain of the root disk from the definition. :raises LibvirtError: libvirt refuses the definition."""

    def change(root: t.Any) -> None:
        for name, disk in local_disks(root, uuid):
            for chain in disk.findall("backingStore") if name == DISK else ():
                disk.remove(chain)

    _redefine(connection, domain, change)


def name_chain(connection: t.Any, domain: t.Any, uuid: str, base_folder: str) -> None:
    """Name the backing chains of the disks as their headers have them now.

    :arg base_folder: the folder of base images. :raises LibvirtError: libvirt refuses the definition.
    """
    _redefine(connection, domain, lambda root: name_chains(root, uuid, base_folder))


def _redefine(connection: t.Any, domain: t.Any, change: t.Callable[[t.Any], object]) -> None:
    former = definition_of(domain)
    root = parse(former)
    before = to_text(root)
    change(root)
    if to_text(root) == before:
        return
    progress.mark_changed()
    define_again(connection, former, to_text(root))
