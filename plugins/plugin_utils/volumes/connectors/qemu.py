# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of hosts where QEMU logs in: libvirt has their secrets, by the module iscsi_secret."""

from __future__ import annotations

import typing as t

from ....module_utils.core.volumes.connectors.qemu import Qemu
from ...run import host_settings
from ...run.ledger_action import LedgerAction
from .host_connector import AttachedVolume, Outcomes, chap


class QemuConnector:
    """The iSCSI initiator of QEMU."""

    kind = Qemu()

    def key(self, attached: AttachedVolume) -> str:
        return attached.secret

    def connect(
        self, action: LedgerAction, attachments: t.Sequence[AttachedVolume], served: t.Collection[str]
    ) -> Outcomes:
        return _run(action, {a.secret: {"state": "present", "value": chap(a).secret} for a in attachments})

    def disconnect(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        return _run(action, {a.secret: {"state": "absent"} for a in attachments})


def _run(action: LedgerAction, desired: t.Mapping[str, t.Mapping[str, str]]) -> Outcomes:
    secrets = [{"iqn": iqn, **fields} for iqn, fields in desired.items()]
    result = action.run_module("iscsi_secret", {**host_settings.libvirt_arguments(action), "secrets": secrets})
    return t.cast(Outcomes, result["outcomes"])
