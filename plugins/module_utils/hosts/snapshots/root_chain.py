# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The backing chain of the disks of a guest that is off, in its definition, while its root disk is exchanged.

A definition names the chain, and QEMU opens the files that it names: with the chain of the former disk, the guest would see the former base image below the
new disk, whatever the header of that has. Without a chain in the definition, libvirt reads the headers at each start, which is right for either disk.
"""

from __future__ import annotations

import typing as t

from ...core.disks.local import DISK, local_disks
from ...core.guest.domain.element import parse, to_text
from ..images.backing import name_chains
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.running import hidden_logins
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
    with libvirt_errors():  # with passwords, which libvirt shows only on request
        text = str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
    root = parse(text)
    before = to_text(root)
    change(root)
    if to_text(root) == before:
        return
    progress.mark_changed()
    with hidden_logins(lambda: text), libvirt_errors():
        connection.defineXMLFlags(to_text(root), 0)
