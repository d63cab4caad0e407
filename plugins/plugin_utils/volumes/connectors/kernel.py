# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of hosts whose kernel logs in, by the module iscsi_initiator."""

from __future__ import annotations

import typing as t

from ....module_utils.core.volumes.connectors.kernel import Kernel
from ...run import host_settings
from ...run.ledger_action import LedgerAction
from .host_connector import AttachedVolume, Outcomes, chap


class KernelConnector:
    """The iSCSI initiator of the host."""

    kind = Kernel()

    def key(self, attached: AttachedVolume) -> str:
        return attached.volume_id

    def connect(
        self, action: LedgerAction, attachments: t.Sequence[AttachedVolume], served: t.Collection[str]
    ) -> Outcomes:
        return _run(action, "connected", attachments, served)

    def disconnect(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        return _run(action, "disconnected", attachments)

    def rescan(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        return _run(action, "rescanned", attachments)


def _run(
    action: LedgerAction, state: str, attachments: t.Sequence[AttachedVolume], served: t.Collection[str] = ()
) -> Outcomes:
    connections = {}
    for attachment in attachments:  # one for each volume: several instances share its session
        row = attachment.row
        connections[attachment.volume_id] = {
            "volume_id": attachment.volume_id,
            "state": state,
            "iqn": row.iqn,
            "lun": row.lun,
            "portals": list(row.portals or ()),
        }
        if attachment.id in served:
            connections[attachment.volume_id]["shared"] = True
        elif state == "connected":
            login = chap(attachment)
            connections[attachment.volume_id].update(chap_user=login.user, chap_secret=login.secret)
    workers = host_settings.workers(action, len(connections))
    result = action.run_module("iscsi_initiator", {"connections": list(connections.values()), "workers": workers})
    return t.cast(Outcomes, result["outcomes"])
