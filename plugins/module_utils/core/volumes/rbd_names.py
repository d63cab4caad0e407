# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and addresses of RBD: pools, images, snapshots, monitors, users, keys, and the secret of a cluster's user in libvirt.

source: Cinder's RBD driver (names); Ceph's formats of keys and addresses
"""

from __future__ import annotations

import base64
import binascii
import re
import typing as t
import uuid as uuid_module

from ..errors import BootflowError, InvalidInput
from .names import split_portal, volume_name

MONITOR_PORT = 6789
#: Ceph accepts more, such as blanks and slashes, which the commands of rbd take for other parts of a name.
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_SNAPSHOT = re.compile(r"snapshot-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")
_FSID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_NAMESPACE = uuid_module.UUID("8f0a6c52-0d6e-5c55-9c1d-0c8f8f6b7d42")
_KEY_BYTES = 28  # type, seconds, nanoseconds, length, and 16 bytes of AES

#: An image that is being made has this prefix; it gets its name when it is complete.
INCOMPLETE = "incomplete."
#: A deleted volume from which others are cloned. source: Cinder
DELETED = ".deleted"
CLONE_SNAPSHOT = ".clone_snap"
#: An image whose place a new one is about to take.
FORMER = ".former"
#: Images of the catalogue, from which local disks are cloned, and their snapshot. source: Nova (the snapshot)
BASE, BASE_SNAPSHOT = "bootflow-image.", "snap"


def checked_pool(value: t.Any) -> str:
    """Check the name of a pool. :raises InvalidInput: it has other characters than letters, digits and ``_ . -``."""
    if not isinstance(value, str) or not _POOL.match(value):
        raise InvalidInput(reason="%s is not a valid name of a Ceph pool" % ascii(value))
    return value


def checked_user(value: t.Any) -> str:
    """Check the name of a user, without ``client.``. :raises InvalidInput: it is not one."""
    if not isinstance(value, str) or not _USER.match(value) or value.startswith("client."):
        raise InvalidInput(reason="%s is not a valid name of a Ceph user (without client.)" % ascii(value))
    return value


def checked_key(value: t.Any) -> str:
    """Check the key of a user. The message never has the key. :raises InvalidInput: it has another form."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != _KEY_BYTES or decoded[:2] != b"\x01\x00":
        raise InvalidInput(
            reason="the key of a Ceph user is not valid",
            remedy="Give what `ceph auth print-key client.USER` prints.",
        )
    return text


def monitor(value: t.Any) -> str:
    """Return the address of a monitor as ``address:port``; the port is 6789 by default. :raises InvalidInput: it has another form."""
    text = str(value)
    try:
        host, port = split_portal(text)
    except BootflowError:
        host, port = split_portal("[%s]:%d" % (text, MONITOR_PORT) if ":" in text else "%s:%d" % (text, MONITOR_PORT))
    return "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)


# --- images and snapshots ---------------------------------------------------------------------------------------------


def snapshot_name(snapshot_id: str) -> str:
    """snapshot-<uuid>. :raises InvalidUUID: another text."""
    return "snapshot-" + volume_name(snapshot_id)[len("volume-") :]


def snapshot_id_of(name: str) -> str | None:
    """Return the uuid of snapshot-<uuid>; None for any other name."""
    match = _SNAPSHOT.match(name)
    return match.group(1) if match else None


def clone_snapshot(volume_id: str) -> str:
    """Return the snapshot of a volume from which the volume with this id is cloned."""
    return volume_name(volume_id) + CLONE_SNAPSHOT


def base_image(file: str) -> str:
    """Return the name of an image of the catalogue in a pool. :arg file: of the image in the cache of a host, see core.disks.local.base_file()"""
    name = file[: -len(".raw")] if file.endswith(".raw") else file
    return BASE + name


# --- as QEMU and libvirt have it --------------------------------------------------------------------------------------


def secret_usage(fsid: str, user: str) -> str:
    """Return the usage of the secret of a cluster's user in libvirt, by which others find it."""
    return "client.%s of %s" % (checked_user(user), checked_fsid(fsid))


def checked_fsid(value: t.Any) -> str:
    """Check the id of a cluster. :raises InvalidInput: it is not a UUID in small letters."""
    if not isinstance(value, str) or not _FSID.match(value):
        raise InvalidInput(reason="%s is not the id (fsid) of a Ceph cluster" % ascii(value))
    return value


def secret_uuid(fsid: str, user: str) -> str:
    """Return the UUID of this secret: the same on every host, so that a guest's XML can be planned before the secret exists."""
    return str(uuid_module.uuid5(_NAMESPACE, secret_usage(fsid, user)))


def rbd_connection(name: str, monitors: t.Sequence[str], fsid: str, user: str) -> dict[str, t.Any]:
    """Return the ``connection`` of a planned disk with ``source='network'``: core.guest.devices makes its XML.

    :arg name: POOL/IMAGE. :arg monitors: all of the cluster's, as monitor() gives them: QEMU asks the next one when one is dead.
    :raises InvalidInput: there is no monitor, or a name has another form.
    """
    pool, _slash, image = name.partition("/")
    if not monitors or not image:
        raise InvalidInput(reason="%s cannot be reached without monitors and an image" % ascii(name))
    hosts = [split_portal(address) for address in monitors]
    return {
        "protocol": "rbd",
        "name": "%s/%s" % (checked_pool(pool), image),
        "hosts": [{"name": address, "port": str(port)} for address, port in hosts],
        "discard": True,  # as Cinder's driver says of its volumes
        "auth": {"username": user, "secret_type": "ceph", "secret_uuid": secret_uuid(fsid, user)},
    }
