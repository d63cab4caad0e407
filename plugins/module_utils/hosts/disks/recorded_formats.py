# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The formats of an instance's disks in the definition of its domain, as disk.info records them."""

from __future__ import annotations

from ...core.disks.local import QCOW2, RAW, local_disks
from ...core.guest.domain.element import parse, to_text
from ..images.backing import name_chains
from ..os.paths import base_dir, instance_dir
from .stores.disk_info import records_of


def as_recorded(instances_path: str, uuid: str, xml: str) -> str:
    """``xml`` with the formats that disk.info has of the files in the instance's folder, and with their backing chains.

    A disk that is opened in another format is lost; and as qcow2 a guest could give its host's files to itself, by what it writes to a raw one (CVE-2016-2140).

    :raises InvalidInput: the UUID. source: Nova's Image.resolve_driver_format
    """
    records = records_of(instance_dir(instances_path, uuid))
    root, changed = parse(xml), False
    for name, disk in local_disks(root, uuid):
        driver, form = disk.find("driver"), (records.get(name) or {}).get("format")
        if disk.get("type") == "file" and driver is not None and form in (QCOW2, RAW) and driver.get("type") != form:
            driver.set("type", form)
            changed = True
    changed = name_chains(root, uuid, base_dir(instances_path)) or changed
    return to_text(root) if changed else xml
