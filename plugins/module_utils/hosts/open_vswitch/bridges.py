# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bridges and interfaces of Open vSwitch on this host. Each command has a time limit: ovs-vsctl waits for ever for a daemon that is away."""

from __future__ import annotations

import shutil
import typing as t

from ...core.errors import CommandFailed
from ..os.command import run

_PLACES = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
TIMEOUT = 5  # seconds


def exists(bridge: str) -> bool:
    """Whether Open vSwitch has the bridge; False without Open vSwitch."""
    return _ask("br-exists", bridge) is not None


def integration_bridge(default: str) -> str:
    """Return the name of the bridge that ovn-controller uses, if it is there and knows a southbound database; "": none."""
    if not (_ask("get", "open_vswitch", ".", "external_ids:ovn-remote") or "").strip():
        return ""
    name = (_ask("--if-exists", "get", "open_vswitch", ".", "external_ids:ovn-bridge") or "").strip().strip('"')
    return (name or default) if exists(name or default) else ""


def is_connected() -> bool:
    """Whether ovn-controller of this host has a connection to the southbound database."""
    path = shutil.which("ovn-appctl", path=_PLACES)
    if path is None:
        return False
    try:
        answer = run([path, "--timeout=%d" % TIMEOUT, "-t", "ovn-controller", "connection-status"], timeout=TIMEOUT * 2)
    except CommandFailed:
        return False
    return answer.stdout.strip() == "connected"


def is_installed(device: str) -> bool:
    """Whether ovn-controller has installed the flows of this interface: Neutron's network-vif-plugged follows the same mark."""
    answer = _ask("--if-exists", "get", "interface", device, "external_ids:ovn-installed")
    return (answer or "").strip().strip('"') == "true"


def _ask(*arguments: str) -> t.Optional[str]:
    """Return what ovs-vsctl prints; None where it is missing, does not answer, or finds nothing."""
    path = shutil.which("ovs-vsctl", path=_PLACES)
    if path is None:
        return None
    try:
        return run([path, "--timeout=%d" % TIMEOUT, *arguments], timeout=TIMEOUT * 2).stdout
    except CommandFailed:
        return None
