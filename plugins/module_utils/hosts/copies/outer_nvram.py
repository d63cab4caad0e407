# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVRAM of a guest that an earlier version defined: outside of the folder of its instance, at a place that libvirt chose.

What leaves a host, or is copied on it, is the folder. So the NVRAM comes into it when the guest is off, and the domain names it there.
"""

from __future__ import annotations

import os
import typing as t

from ...core.guest.domain.element import parse, to_text
from ...core.guest.nvram import NVRAM, nvram_path
from ..images.nvram import copy_nvram, is_copyable
from ..libvirt.running import define_again, definition_of
from ..os.batch import progress
from ..os.files import remove_files


def check_outer_nvram(domain: t.Any, folder: str) -> None:
    """Check that the NVRAM of a guest can come into the folder. Writes nothing.

    :arg folder: of the instance
    :raises InvalidDiskInfo: something else is there.
    """
    path = _outer_path(parse(definition_of(domain)), folder)
    if path:
        is_copyable(path)


def take_outer_nvram(connection: t.Any, domain: t.Any, folder: str) -> None:
    """Bring the NVRAM of a guest that is off into the folder of its instance. Where this ends in between, the guest has it where it was.

    :arg folder: of the instance
    :raises InvalidDiskInfo: something else is there. :raises LibvirtError: libvirt refuses the definition.
    """
    text = definition_of(domain)
    root = parse(text)
    path = _outer_path(root, folder)
    if not path or not is_copyable(path):
        return
    progress.mark_changed()
    copy_nvram(path, folder)
    _name_nvram(root, os.path.join(folder, NVRAM))
    define_again(connection, text, to_text(root))
    remove_files(path)


def _outer_path(root: t.Any, folder: str) -> str:
    """Return where the NVRAM is; "" where there is none, or it is in the folder."""
    path = nvram_path(root)
    return "" if os.path.dirname(path) == folder else path


def _name_nvram(root: t.Any, path: str) -> None:
    if root.find("os/nvram") is None:
        root.find("os").append(parse("<nvram/>"))
    nvram = root.find("os/nvram")
    for source in nvram.findall("source"):
        nvram.remove(source)
    nvram.attrib.pop("type", None)
    nvram.text = path
