# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CHAP secrets in libvirt, for disks of ``type='network'``: the XML of a guest refers to a secret by its UUID, without its value.

source: issue: attach by QEMU's own initiator; Nova's create_secret, libvirt's secret format
"""

from __future__ import annotations

import typing as t
import uuid as uuid_module

from ...core.errors import InvalidInput, LibvirtError
from ...core.guest.domain.element import parse, to_text
from ...core.guest.domain.secret import SecretConfig
from ...core.volumes.names import check_iqn
from ..os.batch import progress
from .connection import is_code, libvirt, libvirt_errors

_NAMESPACE = uuid_module.UUID("5d3e1c1e-52a1-5b50-9c0f-5b2f5b0f7a11")


def secret_uuid(iqn: str) -> str:
    """The UUID of a target's secret: the same on every host, so that the XML of a guest can be planned before the secret exists."""
    return str(uuid_module.uuid5(_NAMESPACE, check_iqn(iqn)))


def secret_config(iqn: str, ephemeral: bool = True) -> SecretConfig:
    """The definition of a target's secret: private, so that libvirt passes its value only to QEMU."""
    return SecretConfig(
        ephemeral=ephemeral, private=True, uuid=secret_uuid(iqn), usage_type="iscsi", usage_target=check_iqn(iqn)
    )


def find_secret(connection: t.Any, iqn: str) -> t.Any:
    """The secret of a target, whoever created it; None without one."""
    with libvirt_errors():
        try:
            return connection.secretLookupByUsage(libvirt.VIR_SECRET_USAGE_TYPE_ISCSI, check_iqn(iqn))
        except libvirt.libvirtError as error:
            if is_code(error, "VIR_ERR_NO_SECRET"):
                return None
            raise


def secrets_there(connection: t.Any) -> list[str]:
    """The targets whose secret we defined in libvirt; secrets of others have other UUIDs."""
    with libvirt_errors():
        try:
            there = connection.listAllSecrets(0)
        except libvirt.libvirtError as error:
            if is_code(error, "VIR_ERR_NO_SUPPORT"):  # a libvirt without secrets has none of ours
                return []
            raise
        iscsi = [each for each in there if each.usageType() == libvirt.VIR_SECRET_USAGE_TYPE_ISCSI]
        found = [(each.usageID(), each.UUIDString()) for each in iscsi]
    return sorted(iqn for iqn, uuid in found if _is_ours(iqn, uuid))


def _is_ours(iqn: str, uuid: str) -> bool:
    try:
        return secret_uuid(iqn) == uuid
    except InvalidInput:
        return False


def set_secret(
    connection: t.Any, iqn: str, value: str, ephemeral: bool = True, check_mode: bool = False
) -> dict[str, t.Any]:
    """Define the secret of a target and set its value.

    libvirt does not return private values, so the value is set each time: ``changed`` only reports whether the definition changed.

    :returns: uuid and changed.
    :raises InvalidInput: the value is empty, or the name is not valid.
    :raises LibvirtError: libvirt failed. The value is never in the message.
    """
    if not value:
        raise InvalidInput(reason="the CHAP secret of %s is empty" % iqn)
    desired = secret_config(iqn, ephemeral)
    there = find_secret(connection, iqn)
    with libvirt_errors():
        same = there is not None and SecretConfig.from_xml(parse(there.XMLDesc(0))) == desired
        if check_mode:
            return {"uuid": desired.uuid, "changed": not same}
        if not same:
            progress.mark_changed()
            if there is not None:
                there.undefine()  # libvirt changes neither uuid nor ephemeral of an existing secret
            there = connection.secretDefineXML(to_text(desired.to_xml()), 0)
        try:
            there.setValue(value.encode("utf-8"), 0)
        except libvirt.libvirtError:
            if not same:
                there.undefine()
            raise LibvirtError(reason="the value of secret %s could not be set" % iqn) from None
    return {"uuid": desired.uuid, "changed": not same}


def remove_secret(connection: t.Any, iqn: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Remove the secret of a target, if there is one.

    :returns: changed.
    """
    there = find_secret(connection, iqn)
    if there is None:
        return {"changed": False}
    if not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            there.undefine()
    return {"changed": True}


def iscsi_connection(
    iqn: str, lun: int, portals: t.Sequence[tuple[str, int]], user: str = "", initiator: str = "", secret: str = ""
) -> dict[str, t.Any]:
    """The ``connection`` of a planned disk with ``source='network'``; core.guest.devices renders its XML.

    libvirt accepts one portal for iSCSI: the first.

    :arg portals: (address, port) pairs of core.volumes.names.split_portal().
    :arg secret: name of the secret in libvirt, by default that of the target.
    :raises InvalidInput: there is no portal.
    """
    if not portals:
        raise InvalidInput(reason="target %s has no portal" % iqn)
    address, port = portals[0]
    found: dict[str, t.Any] = {
        "protocol": "iscsi",
        "name": "%s/%d" % (check_iqn(iqn), lun),
        "hosts": [{"name": address, "port": str(port)}],
    }
    if initiator:
        found["initiator"] = initiator
    if user:
        found["auth"] = {"username": user, "secret_type": "iscsi", "secret_uuid": secret_uuid(secret or iqn)}
    return found
