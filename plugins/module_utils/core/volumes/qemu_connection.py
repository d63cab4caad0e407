# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume that QEMU logs in to by itself: the ``connection`` of its disk, and the UUID of its secret in libvirt."""

from __future__ import annotations

import typing as t
import uuid as uuid_module

from ..errors import InvalidInput
from .names import check_iqn, normal_name

_NAMESPACE = uuid_module.UUID("5d3e1c1e-52a1-5b50-9c0f-5b2f5b0f7a11")


def secret_uuid(iqn: str) -> str:
    """The UUID of a target's secret: the same on every host, so that a guest's XML can be planned before the secret exists."""
    return str(uuid_module.uuid5(_NAMESPACE, normal_name(check_iqn(iqn))))


def iscsi_connection(
    iqn: str, lun: int, portals: t.Sequence[tuple[str, int]], user: str = "", initiator: str = "", secret: str = ""
) -> dict[str, t.Any]:
    """``connection`` of a planned disk with ``source='network'``: core.guest.devices makes its XML.

    libvirt accepts one portal for iSCSI: the first.

    :arg portals: (address, port) pairs, as core.volumes.names.split_portal() gives them.
    :arg secret: the secret's name in libvirt; the target's name by default.
    :raises InvalidInput: no portal.
    """
    if not portals:
        raise InvalidInput(reason="target %s has no portal" % iqn)
    address, port = portals[0]
    connection: dict[str, t.Any] = {
        "protocol": "iscsi",
        "name": "%s/%d" % (check_iqn(iqn), lun),
        "hosts": [{"name": address, "port": str(port)}],
    }
    if initiator:
        connection["initiator"] = initiator
    if user:
        connection["auth"] = {"username": user, "secret_type": "iscsi", "secret_uuid": secret_uuid(secret or iqn)}
    return connection
