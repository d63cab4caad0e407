# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connectors of hosts, by the word that bootflow_volume_attach and the ledger have for each."""

from __future__ import annotations

import typing as t

from .host_connector import HostConnector, HostLogin
from .kernel import KernelConnector
from .qemu import QemuConnector
from .rbd import RbdConnector

_LOGINS: tuple[HostLogin, ...] = (KernelConnector(),)
_RBD: HostConnector = RbdConnector()
_CONNECTORS: tuple[HostConnector, ...] = (*_LOGINS, QemuConnector(), _RBD)

#: The connectors with which the host itself logs in.
HOST_LOGINS: t.Mapping[str, HostLogin] = {connector.kind.name: connector for connector in _LOGINS}
HOST_CONNECTORS: t.Mapping[str, HostConnector] = {connector.kind.name: connector for connector in _CONNECTORS}
#: The connectors that are asked again before a guest starts.
RECONNECTED: t.Mapping[str, HostConnector] = {connector.kind.name: connector for connector in (*_LOGINS, _RBD)}
