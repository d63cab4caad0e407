# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a connector on the current host: the module that connects its volumes. Each connector is an object in its own file; ``registry``
lists the connectors.
"""

from __future__ import annotations

import typing as t

from ....module_utils.core.volumes.connectors.connector_type import ConnectorType
from ....module_utils.core.volumes.names import ChapCredentials
from ....module_utils.ledger.storage.attachments import Attachment
from ....module_utils.ledger.storage.volumes import VolumeRow
from ...run.ledger_action import LedgerAction
from ..volume_secrets import chap_of

Outcomes = t.Dict[str, t.Any]  # of a module, by the keys of the attachments


class AttachedVolume(t.Protocol):
    """A live attachment."""

    @property
    def row(self) -> Attachment: ...

    @property
    def id(self) -> str: ...

    @property
    def volume_id(self) -> str: ...

    @property
    def volume(self) -> VolumeRow | None: ...

    @property
    def secret(self) -> str:
        """The name of its secret in libvirt."""


class HostConnector(t.Protocol):
    """Connects volumes of one type of connector to the current host. ``kind``: this type."""

    @property
    def kind(self) -> ConnectorType: ...

    def key(self, attached: AttachedVolume) -> str:
        """Return the key of an attachment in the outcomes."""

    def connect(
        self, action: LedgerAction, attachments: t.Sequence[AttachedVolume], served: t.Collection[str]
    ) -> Outcomes:
        """Connect the host to these volumes.

        :arg served: attachments whose host already has a session for another guest, whose CHAP secret is no longer known.
        """

    def disconnect(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        """Disconnect the host from these volumes."""


class HostLogin(HostConnector, t.Protocol):
    """A connector with which the host itself logs in, and has the volumes as devices."""

    def rescan(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        """Update the sizes of these volumes on the host. QEMU reads the size by itself when the guest's disk is resized."""


def chap(attached: AttachedVolume) -> ChapCredentials:
    """Return the credentials of the attachment's initiator."""
    return chap_of(attached.volume_id, str(attached.row.initiator))
