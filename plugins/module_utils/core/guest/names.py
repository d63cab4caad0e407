# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of domains and of CPU features."""

from __future__ import annotations

import re
import uuid as uuid_module

from ..errors import InvalidInput

# libvirt uses it in file names (<name>_VARS.fd, <name>.log...), whose limit is 255 bytes.
LONGEST_DOMAIN_NAME = 200
# Of new domains. libvirt's rules for AppArmor let QEMU open the sockets of a live migration by an ending with the domain's name, and the
# path of a socket has at most 107 bytes: see hosts.live.channels.
DOMAIN_NAME_LENGTH = 60


def domain_name(display_name: str, uuid: str) -> str:
    """Return the libvirt name of an instance: the safe characters of its display name, then its UUID.

    The beginning is recognisable in ``virsh list``; the UUID makes the name unique under any display names.
    Letters, digits, ``.``, ``_`` and ``-`` only, a letter or digit first, at most 60 characters.

    :raises InvalidInput: ``uuid`` is not a UUID.
    """
    tail = "-" + checked_uuid(uuid)
    return _safe(display_name, DOMAIN_NAME_LENGTH - len(tail)) + tail


def _safe(display_name: str, length: int) -> str:
    """The safe characters of a name, at most ``length``; never empty."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", display_name).lstrip("-._")
    return safe[:length].rstrip("-._") or "instance"


def short_domain_names(display_name: str, uuid: str) -> list[str]:
    """The names that such a domain takes: the first one that no other domain of its host has. The last one is always free.

    The safe characters of the display name; with the first digits of the UUID; domain_name(). A name of digits only gets a word
    before it, because virsh takes a number for the id of a running domain.
    """
    tail, word = "-" + uuid[:8], "instance-"
    name = _safe(display_name, DOMAIN_NAME_LENGTH - len(tail))
    if name.isdigit():
        name = word + name[: DOMAIN_NAME_LENGTH - len(tail) - len(word)]
    return [name, name + tail, domain_name(display_name, uuid)]


def checked_uuid(uuid: str) -> str:
    """The UUID in canonical form: lower case, with hyphens.

    :raises InvalidInput: not a UUID.
    """
    try:
        return str(uuid_module.UUID(uuid))
    except (ValueError, AttributeError, TypeError):
        raise InvalidInput(reason="%r is not a UUID" % (uuid,)) from None


def cpu_flag_name(flag: str) -> str:
    """The CPU feature that a flag such as ``+PCID`` or ``-vmx`` adds or takes away."""
    return flag.strip().lower().lstrip("+-")
