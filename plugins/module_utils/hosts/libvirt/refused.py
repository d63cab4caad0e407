# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Definitions that libvirt refused, kept for whoever looks for the cause: the cleanup of a failed build removes everything else.

source: Nova's Guest.create logs them
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ...core.errors import LibvirtError
from ..os.files import remove_files, write_file
from ..os.paths import checked_instances_path, make_dirs
from .domain_waits import host_name
from .domains import DomainSpec, shown_xml

FOLDER = "_refused"
#: files that are kept on a host, the newest ones
MOST = 20


@contextlib.contextmanager
def refused_kept(instances_path: str, spec: DomainSpec) -> t.Iterator[None]:
    """Context in which a definition that libvirt refuses, or cannot start, is kept; the error's remedy says where."""
    try:
        yield
    except LibvirtError as error:
        with contextlib.suppress(OSError):  # a full disk must not hide the error
            path = _keep(os.path.join(checked_instances_path(instances_path), FOLDER), spec)
            error.remedy = " ".join(
                filter(None, (error.remedy, "The definition of the guest is in %s on %s." % (path, host_name())))
            )
        raise


def _keep(folder: str, spec: DomainSpec) -> str:
    make_dirs(folder, 0o700)
    path = os.path.join(folder, spec.uuid + ".xml")
    write_file(path, shown_xml(spec.xml).encode("utf-8"), mode=0o600)
    others = [entry for entry in os.scandir(folder) if entry.path != path]
    others.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    remove_files(*(entry.path for entry in others[MOST - 1 :]))
    return path
