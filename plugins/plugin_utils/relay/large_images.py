# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which images go from host to host, and the files of the run by which a boot knows of them."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ...module_utils.core.disks.image_urls import host_of
from ...module_utils.core.model import Image
from ...module_utils.flows.boot.builds import Build
from ..run.ledger_action import LedgerAction
from ..settings.image_upload import SMALL

COMING = "coming"  # file of a host: ids of the images that come to it


def folder_of(action: LedgerAction) -> Path:
    """Return the folder with the files of the round."""
    return action.ports.folder() / "images"


def lacking_file(action: LedgerAction) -> Path:
    """Return the path of the file that is there once a host of the round lacks an image: playbooks/image_round.yml looks for it."""
    return folder_of(action) / "lacking"


def image_data(build: Build) -> dict[str, t.Any] | None:
    """The image that a disk of the build's own is made from, as the ledger has it; None: there is none."""
    return dict(build.row.spec["image"]) if any(d["kind"] == "image" for d in build.disks) else None


def is_large(image: Image) -> bool:
    """Whether an image is distributed: a large file of the controller that is there, a file of a web server that a checksum tells, or one of any size
    of a store of a host, which comes to other hosts in no other way.
    """
    if host_of(image.url):
        return True
    if image.path:
        with contextlib.suppress(OSError):
            return os.path.getsize(os.path.expanduser(image.path)) > SMALL
        return False
    web = image.url.lower().startswith(("http://", "https://"))
    return web and bool(image.checksum) and (image.size is None or image.size > SMALL)


def is_of_use(image: Image, hosts: t.Collection[str]) -> bool:
    """Whether a round is of use for an image that these hosts need: hosts share it, it would go to the home of the user that logs in, or it is in a
    store of another host.
    """
    store_host = host_of(image.url)
    if store_host:
        return any(host != store_host for host in hosts)
    return bool(image.path) or len(hosts) > 1
