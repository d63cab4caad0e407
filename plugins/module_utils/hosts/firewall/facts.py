# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether this host can filter the ports of its guests."""

from __future__ import annotations

from ...core.errors import BootflowError, CommandFailed
from ...core.firewall.driver import FIREWALL_DRIVER, NFTABLES, NOT_FILTERING
from ..os.command import program, run

_TIMEOUT = 10.0  # seconds
_MOST = 255  # characters of a reason

#: What the filters of ports need of the kernel: a table of bridges, and connections that it tracks there.
_PROBE = "table bridge bootflow-probe { chain probe { type filter hook prerouting priority 0; ct state established accept; }; }"


def filtering_facts() -> dict[str, str]:
    """Return the driver, or why this host cannot filter. Nothing is changed."""
    try:
        run([program("nft", "nftables"), "--check", "--file", "-"], timeout=_TIMEOUT, stdin=_PROBE)
    except CommandFailed as error:
        return {NOT_FILTERING: _short(str(error.details.get("stderr") or error))}
    except BootflowError as error:
        return {NOT_FILTERING: _short(error.message)}
    return {FIREWALL_DRIVER: NFTABLES}


def _short(reason: str) -> str:
    return " ".join(reason.split())[:_MOST]
