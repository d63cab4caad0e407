# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CHAP secrets in libvirt, for disks of ``type='network'``: the XML of a guest refers to a secret by its UUID, without its value.

source: issue: attach by QEMU's own initiator; Nova's create_secret, libvirt's secret format
"""

from __future__ import annotations

import typing as t

from ...core.errors import InvalidInput, LibvirtError
from ...core.guest.domain.element import parse, to_text
from ...core.guest.domain.secret import SecretConfig
from ...core.volumes.names import check_iqn
from ...core.volumes.qemu_connection import secret_uuid
from ..os.batch import progress
from .connection import libvirt, libvirt_errors, tolerating


def secret_config(iqn: str, ephemeral: bool = True) -> SecretConfig:
    """Return the definition of a target's secret: private, so that libvirt passes its value only to QEMU."""
    return SecretConfig(
        ephemeral=ephemeral, private=True, uuid=secret_uuid(iqn), usage_type="iscsi", usage_target=check_iqn(iqn)
    )


def find_secret(connection: t.Any, iqn: str) -> t.Any:
    """Return the secret of a target, whoever created it; None without one."""
    usage = (libvirt.VIR_SECRET_USAGE_TYPE_ISCSI, check_iqn(iqn))
    return tolerating(lambda: connection.secretLookupByUsage(*usage), "VIR_ERR_NO_SECRET")


def secrets_there(connection: t.Any) -> list[str]:
    """Return the targets whose secret we defined in libvirt; secrets of others have other UUIDs."""
    # A libvirt without secrets has none of ours.
    all_secrets = tolerating(lambda: connection.listAllSecrets(0), "VIR_ERR_NO_SUPPORT")
    with libvirt_errors():
        iscsi = [secret for secret in all_secrets or () if secret.usageType() == libvirt.VIR_SECRET_USAGE_TYPE_ISCSI]
        names = [(secret.usageID(), secret.UUIDString()) for secret in iscsi]
    return sorted(iqn for iqn, uuid in names if _is_ours(iqn, uuid))


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
    secret = find_secret(connection, iqn)
    return define_secret(connection, secret, secret_config(iqn, ephemeral), value.encode("utf-8"), check_mode)


def define_secret(
    connection: t.Any, secret: t.Any, desired: SecretConfig, value: bytes, check_mode: bool = False
) -> dict[str, t.Any]:
    """Define a secret of any usage, and set its value. :arg secret: the one that is there; None: there is none

    :returns: uuid and changed, which only reports whether the definition changed.
    :raises LibvirtError: libvirt failed. The value is never in the message.
    """
    with libvirt_errors():
        same = secret is not None and SecretConfig.from_xml(parse(secret.XMLDesc(0))) == desired
        if check_mode:
            return {"uuid": desired.uuid, "changed": not same}
        if not same:
            progress.mark_changed()
            if secret is not None:
                secret.undefine()  # libvirt changes neither uuid nor ephemeral of an existing secret
            secret = connection.secretDefineXML(to_text(desired.to_xml()), 0)
        try:
            secret.setValue(value, 0)
        except libvirt.libvirtError:
            if not same:
                secret.undefine()
            reason = "the value of the secret of %s could not be set" % (desired.usage_target or desired.usage_name)
            raise LibvirtError(reason=reason) from None
    return {"uuid": desired.uuid, "changed": not same}


def remove_secret(connection: t.Any, iqn: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Remove the secret of a target, if there is one.

    :returns: changed.
    """
    secret = find_secret(connection, iqn)
    if secret is None:
        return {"changed": False}
    if not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            secret.undefine()
    return {"changed": True}
