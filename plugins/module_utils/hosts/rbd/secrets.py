# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The secrets of Ceph users in libvirt, one for each cluster and user on a host: guests' disks refer to them.

A secret in memory only would be gone with libvirtd, and a later start of a guest would fail.

source: Nova's create_secret, libvirt's secret format
"""

from __future__ import annotations

import base64
import contextlib
import typing as t

from ...core.guest.domain.element import parse
from ...core.guest.domain.secret import SecretConfig
from ...core.volumes.rbd_names import checked_key, secret_usage, secret_uuid
from ..libvirt.connection import libvirt, libvirt_errors, tolerating
from ..libvirt.secrets import define_secret
from ..os.batch import progress


def secret_config(fsid: str, user: str) -> SecretConfig:
    """Return the definition of the secret: private, so that libvirt passes its value only to QEMU."""
    return SecretConfig(
        ephemeral=False,
        private=True,
        uuid=secret_uuid(fsid, user),
        usage_type="ceph",
        usage_name=secret_usage(fsid, user),
    )


def find_secret(connection: t.Any, fsid: str, user: str) -> t.Any:
    """Return the secret of the user, whoever created it; None without one."""
    usage = (libvirt.VIR_SECRET_USAGE_TYPE_CEPH, secret_usage(fsid, user))
    return tolerating(lambda: connection.secretLookupByUsage(*usage), "VIR_ERR_NO_SECRET")


def set_secret(connection: t.Any, fsid: str, user: str, key: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Define the secret and set its value, which libvirt does not return: ``changed`` only says whether the definition changed.

    :returns: uuid and changed.
    :raises InvalidInput: the key is not valid.
    :raises LibvirtError: libvirt failed. The key is never in the message.
    """
    value = base64.b64decode(checked_key(key))  # librados wants the bytes, not the text
    secret = find_secret(connection, fsid, user)
    return define_secret(connection, secret, secret_config(fsid, user), value, check_mode)


def remove_secret(connection: t.Any, fsid: str, user: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Remove the secret of the user, unless the disk of a domain refers to it, or it is of another program.

    :returns: changed, and the domains that have such disks.
    """
    secret = find_secret(connection, fsid, user)
    with libvirt_errors():
        if secret is None or secret.UUIDString() != secret_uuid(fsid, user):
            return {"changed": False, "users": []}
    users = domains_with(connection, secret_uuid(fsid, user))
    if users:
        return {"changed": False, "users": users}
    if not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            secret.undefine()
    return {"changed": True, "users": []}


def domains_with(connection: t.Any, uuid: str) -> list[str]:
    """Return the names of the domains with a disk that refers to the secret, now or at their next start."""
    with libvirt_errors():
        domains = connection.listAllDomains(0)
    users = set()
    for domain in domains:
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            with contextlib.suppress(libvirt.libvirtError):  # it went meanwhile, or has no other definition
                root = parse(domain.XMLDesc(flags))
                if any(secret.get("uuid") == uuid for secret in root.iterfind("devices/disk//auth/secret")):
                    users.add(str(domain.name()))
    return sorted(users)
