# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of connectors, by the word that the ledger has for each, and bootflow_volume_attach for the types that a host chooses."""

from __future__ import annotations

import typing as t

from .connector_type import ConnectorType
from .kernel import Kernel
from .qemu import Qemu
from .rbd import Rbd

DEFAULT: ConnectorType = Kernel()
CONNECTOR_TYPES: t.Mapping[str, ConnectorType] = {connector.name: connector for connector in (DEFAULT, Qemu(), Rbd())}

#: The types that a host may choose; another one is of the volumes.
CHOICES = tuple(name for name in CONNECTOR_TYPES if name != Rbd.name)


def connector_type(name: str | None) -> ConnectorType:
    """Return the connector of an attachment; the default for one that no host is bound to, which is unknown to all connectors."""
    return DEFAULT if name is None else CONNECTOR_TYPES[name]
