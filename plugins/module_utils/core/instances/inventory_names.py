# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that an instance may have as a host of an inventory.

An instance's name is chosen at its boot. A play that means another machine must not reach that instance.
"""

from __future__ import annotations

import re
import typing as t
import unicodedata

# What a controller resolves to itself or to its router, what Ansible has in every inventory, and the groups of this collection.
RESERVED = frozenset(
    """
    localhost localhost4 localhost6 ip6_localhost ip6_loopback loopback broadcasthost _gateway _outbound
    all ungrouped bootflow_compute bootflow_storage
    compute_hosts_up compute_hosts_down compute_hosts_disabled storage_hosts_up storage_hosts_down
    """.split()
)

_WORD = re.compile(r"\w[\w.-]*")
_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
_ADDRESS = re.compile(r"%s(?:\.%s){0,3}" % (_NUMBER, _NUMBER))


def fold(name: str) -> str:
    """Return the form in which names are compared: without case, width and the difference of "-" and "_"."""
    return unicodedata.normalize("NFKC", name).casefold().replace("-", "_")


def objection(name: str, domains: t.Sequence[str] = (), labels: str | None = None) -> str | None:
    """Say why a name cannot be a host of an inventory. None: it can, unless another host or group has it.

    :arg name: the name as the inventory would have it.
    :arg domains: domains in which names with dots are allowed.
    :arg labels: the part of the name that an owner of an instance chooses, where that is not the whole name.
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    if not _WORD.fullmatch(plain):
        return "has characters that Ansible reads as a pattern, an address or an option"
    if _ADDRESS.fullmatch(plain):
        return "can be read as an IP address"
    chosen = plain if labels is None else unicodedata.normalize("NFKC", labels).casefold()
    if "." in chosen and not any(chosen.endswith("." + domain.casefold().strip(".")) for domain in domains):
        return "may be the domain name of another machine"
    return None
