# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of volumes on a host: LV, target, device path; portals, and CHAP credentials that both ends of an export accept.

source: Cinder's LVM driver and iSCSI targets, os-brick's connector (Queens)
"""

from __future__ import annotations

import ipaddress
import re
import typing as t
import uuid
from dataclasses import dataclass

from ..errors import InvalidInput, InvalidUUID
from ..reading.identifiers import generate_password

IQN_PREFIX = "iqn.2010-10.org.openstack:"
#: of initiators without their own name
INITIATOR_PREFIX = "iqn.2026-01.compute.bootflow:"
ISCSI_PORT = 3260
#: the LUN of a volume's only disk: tgt keeps 0 for the controller
LUN_OF_TARGET = {"tgt": 1, "lio": 0}
CHAP_USER_LENGTH = 20
CHAP_SECRET_LENGTH = 16
MAX_IQN_BYTES = 223

#: how the data of a deleted volume are cleared
ZERO, SHRED, NONE, DISCARD = "zero", "shred", "none", "discard"
CLEARS = (ZERO, SHRED, NONE, DISCARD)

_VOLUME = re.compile(r"volume-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")
_ATTACHMENT_SECRET = re.compile(r"(.+):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_IQN = re.compile(
    r"iqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[A-Za-z0-9_.:-]+)?\Z",
    re.IGNORECASE | re.ASCII,
)
_EUI = re.compile(r"eui\.[0-9A-Fa-f]{16}\Z", re.IGNORECASE | re.ASCII)
_NAA = re.compile(r"naa\.(?:[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32})\Z", re.IGNORECASE | re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}\Z")

# tgt's files separate words by blanks and lines, # and <> have a meaning, and tgt-admin passes the words to a shell.
_CHAP_WORD = re.compile(r"[A-Za-z0-9._-]+\Z")
#: RFC 3720 (8.2.1) requires 96 bits; some initiators reject more than 16 characters, LIO accepts up to 255.
CHAP_SECRET_LENGTHS = (12, 255)


# --- logical volumes -------------------------------------------------------------------------------------------------


def volume_name(volume_id: str) -> str:
    """volume-<uuid>. :raises InvalidUUID: another text, which must not become a path."""
    return "volume-%s" % _plain_uuid(volume_id)


def volume_id_of(name: t.Any) -> str | None:
    """The uuid of volume-<uuid>; None for any other name."""
    match = _VOLUME.match(name) if isinstance(name, str) else None
    return match.group(1) if match else None


def _text(value: t.Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(reason="%s is not a valid %s" % (ascii(value), what))
    return value


def _plain_uuid(value: t.Any) -> str:
    try:
        plain = str(uuid.UUID(value))
    except (TypeError, ValueError, AttributeError):
        plain = ""
    if not plain or plain != value:
        raise InvalidUUID(uuid=ascii(value))
    return plain


# --- iSCSI names -----------------------------------------------------------------------------------------------------


def normal_name(name: str) -> str:
    """An iSCSI name as names are compared: without regard to case. source: RFC 3722

    LIO and the kernel behind it keep names in this form only. tgt compares the spelling: an initiator is admitted there by the name that
    its host sends.
    """
    return name.lower()


def target_iqn(name: str, prefix: str = IQN_PREFIX) -> str:
    """The target of a volume: prefix and the volume's name, normalised. :raises InvalidInput: the result is not an IQN."""
    return normal_name(check_iqn(_text(prefix, "prefix of targets") + _text(name, "name of a target")))


def ledger_prefix(prefix: str, ledger_id: str) -> str:
    """The prefix of the targets that a ledger makes: several may use one storage host, and each knows its own by their names."""
    return "%sledger-%s." % (prefix, ledger_id[:8])


def volume_id_of_target(iqn: t.Any, prefixes: t.Iterable[str]) -> str | None:
    """The volume of a target with one of our names, a prefix and volume-<uuid>; None for any other name."""
    if not isinstance(iqn, str):
        return None
    iqn = normal_name(iqn)
    volume_ids = [volume_id_of(iqn[len(prefix) :]) for prefix in prefixes if iqn.startswith(normal_name(prefix))]
    return next((volume_id for volume_id in volume_ids if volume_id), None)


def attachment_initiator(attachment_id: str) -> str:
    """An initiator for one attachment: guests of a host that share a volume log in separately.

    With one name a target would treat the logins as one initiator's, for which it has one pair of credentials.
    """
    return check_iqn(INITIATOR_PREFIX + _plain_uuid(attachment_id))


def attachment_secret(iqn: str, attachment_id: str) -> str:
    """The name of the secret of such an attachment: the target's name and the attachment."""
    return check_iqn("%s:%s" % (check_iqn(iqn), _plain_uuid(attachment_id)))


def target_of_secret(name: str) -> str:
    """The target of a secret named after the target or by attachment_secret()."""
    match = _ATTACHMENT_SECRET.match(name)
    return match.group(1) if match else name


def check_iqn(name: t.Any) -> str:
    """A target's name: ``iqn.2010-10.org.openstack:volume-...``. :raises InvalidInput:"""
    # each of its characters is one byte
    if not isinstance(name, str) or not _IQN.match(name) or len(name) > MAX_IQN_BYTES:
        raise InvalidInput(
            reason="%s is not an iSCSI qualified name" % ascii(name),
            remedy="Use iqn.YYYY-MM.domain:name, of letters, digits, dots, hyphens and colons.",
        )
    return name


def check_initiator(name: t.Any) -> str:
    """An initiator's name: an IQN, eui. or naa. :raises InvalidInput:"""
    if isinstance(name, str) and (_EUI.match(name) or _NAA.match(name)):
        return name
    return check_iqn(name)


# --- CHAP ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChapCredentials:
    """Credentials of one attachment. The text form shows no secret."""

    user: str
    secret: str

    def __repr__(self) -> str:
        return "ChapCredentials(user=%r, secret=***)" % self.user


def generate_chap(rng: t.Any) -> ChapCredentials:
    """Credentials of Cinder's lengths. :arg rng: random.SystemRandom(), or a substitute in tests."""
    return ChapCredentials(generate_password(rng, CHAP_USER_LENGTH), generate_password(rng, CHAP_SECRET_LENGTH))


def chap_of(user: str | None, secret: str | None, volume_id: str) -> ChapCredentials | None:
    """The credentials; None when neither is given.

    :raises InvalidInput: one without the other, or characters that a configuration file cannot hold. Shows no secret.
    """
    if not user and not secret:
        return None
    if not user or not secret:
        raise InvalidInput(reason="volume %s has a chap_user or a chap_secret, not both" % volume_id)
    least, most = CHAP_SECRET_LENGTHS
    if not _CHAP_WORD.match(user) or not _CHAP_WORD.match(secret) or not least <= len(secret) <= most:
        raise InvalidInput(
            reason="the CHAP credentials of volume %s cannot be used" % volume_id,
            remedy="Letters, digits, dots, underscores and hyphens; the secret has %d to %d of them." % (least, most),
        )
    return ChapCredentials(user, secret)


# --- portals -----------------------------------------------------------------------------------------------------------


def portal(address: str, port: int = ISCSI_PORT) -> str:
    """``address:port``, an IPv6 address in brackets. :raises InvalidInput: not an IP address, or not a port."""
    address = _text(address, "IP address")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    try:
        parsed = ipaddress.ip_address("" if "%" in bare else bare)  # a scope may be any text
    except ValueError:
        raise InvalidInput(reason="%s is not an IP address" % ascii(address)) from None
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise InvalidInput(reason="%r is not a valid port" % (port,))
    return ("[%s]:%d" if parsed.version == 6 else "%s:%d") % (parsed, port)


def split_portal(text: str) -> tuple[str, int]:
    """(address without brackets, port) of ``address:port``. :raises InvalidInput:"""
    address, colon, port = _text(text, "portal").rpartition(":")
    if not colon or not _PORT.match(port) or (":" in address and not address.startswith("[")):
        raise InvalidInput(
            reason="%s is not a valid portal" % ascii(text), remedy="Write 192.0.2.1:3260 or [2001:db8::1]:3260."
        )
    checked = portal(address, int(port))
    return checked.rpartition(":")[0].strip("[]"), int(port)


# --- device paths ----------------------------------------------------------------------------------------------------


def lun_id(lun: int) -> str:
    """A LUN as in the kernel's path: beyond 255 in hexadecimal. :raises InvalidInput: not a number of 0 or more"""
    if isinstance(lun, bool) or not isinstance(lun, int) or not 0 <= lun <= 0xFFFFFFFF:
        raise InvalidInput(reason="%s is not a valid LUN" % ascii(lun))
    return str(lun) if lun < 256 else "0x%04x%04x00000000" % (lun & 0xFFFF, lun >> 16 & 0xFFFF)


def device_to_come(volume_id: str) -> str:
    """Return the placeholder for the path of a volume's device in a plan, until a host is connected to it."""
    return "/dev/disk/by-path/(volume %s)" % volume_id


def by_path(where: str, iqn: str, lun: int) -> str:
    """/dev/disk/by-path/ip-<portal>-iscsi-<iqn>-lun-<n>; udev writes an IPv6 address without brackets.

    :raises InvalidInput: a portal or iqn that must not become a path.
    """
    address, port = split_portal(where)
    return "/dev/disk/by-path/ip-%s:%d-iscsi-%s-lun-%s" % (address, port, check_iqn(iqn), lun_id(lun))


def by_path_names(where: str, iqn: str, lun: int) -> tuple[str, ...]:
    """Possible paths of the device: by_path(), with brackets around an IPv6 address, and as a glob pattern behind
    a PCI adapter.
    """
    plain = by_path(where, iqn, lun)
    folder, _slash, leaf = plain.rpartition("/")
    address, port = split_portal(where)
    names = [plain]
    if ":" in address:
        names.append("%s/ip-[%s]:%d-iscsi-%s-lun-%s" % (folder, address, port, iqn, lun_id(lun)))
    names.append("%s/*-%s" % (folder, leaf))
    return tuple(names)
