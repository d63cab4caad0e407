# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.attach_volume."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.volumes import CROSS_AZ_ATTACH
from ..module_utils.flows.attachments.life import Connectors
from ..module_utils.flows.instances import attach
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage.attachments import Connector
from ..plugin_utils.volumes import attached_volumes
from ..plugin_utils.volumes.volume_changes import VolumeChange

STAGES = ("clean", "begin", "undo", "finish")
# What a host has is known from its last report.
REPORT = " Then run bootflow.compute.heartbeat, so that the host reports it."


class ActionModule(VolumeChange):
    ARGUMENTS = {**VolumeChange.ARGUMENTS, **CROSS_AZ_ATTACH.options()}
    OPERATION = attach.ATTACH
    VERB, DONE = "attach", "Attached"
    UNCHANGED = "the volumes are attached as requested"
    INCOMPLETE = errors.AttachFailed

    def begin(self, tx: Transaction, connector_of: Connectors, reach: attach.Reach) -> attach.Begun:
        def checked(host: str, facts: t.Mapping[str, t.Any]) -> Connector:
            connector = connector_of(host, facts)
            try:
                attached_volumes.check_host(host, connector.kind, facts)
            except errors.HostLacksHardware as e:
                e.remedy += REPORT
                raise
            return connector

        options = self.options
        return attach.begin_attach(
            tx, options["attachments"], options["project"], checked, options["cross_az_attach"], reach
        )
