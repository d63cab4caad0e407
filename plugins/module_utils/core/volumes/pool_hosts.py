# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The location of a volume: ``host@backend#pool`` and its parts. source: Cinder's volume utils (Queens)"""

from __future__ import annotations

from ..errors import InvalidInput, InvalidVolume

DEFAULT_POOL_NAME = "_pool0"


def extract_host(host: str | None, level: str = "backend", default_pool_name: bool = False) -> str:
    """The part of host@backend#pool that ``level`` names: host, backend (host@backend) or pool.

    Without a pool: ``_pool0`` with ``default_pool_name``, else "" (Cinder: None).
    :raises InvalidVolume: no host. :raises InvalidInput: not a text, or an unknown level.
    """
    if not host:
        raise InvalidVolume(reason="volume is not assigned to a host")
    if not isinstance(host, str):
        raise InvalidInput(reason="%s is not of the form host@backend#pool" % ascii(host))
    backend, _hash, pool = host.partition("#")
    if level == "host":
        return backend.partition("@")[0]
    if level == "backend":
        return backend
    if level == "pool":
        return pool or (DEFAULT_POOL_NAME if default_pool_name else "")
    raise InvalidInput(reason="unknown level %s" % ascii(level), remedy="Use host, backend or pool.")


def append_host(host: str, pool: str) -> str:
    """host@backend and a pool's name as one."""
    return "%s#%s" % (host, pool) if host and pool else host


def same_backend(wanted: str, host: str) -> bool:
    """Whether ``host`` is on the wanted backend, in any pool if ``wanted`` names none."""
    return host == wanted or ("#" not in wanted and extract_host(host) == wanted)
