# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.detach_volume."""

from __future__ import annotations

from ..module_utils.core import errors
from ..module_utils.flows.attachments.life import Connectors
from ..module_utils.flows.instances import attach
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.volumes.volume_changes import VolumeChange

STAGES = ("begin", "undo", "finish")


class ActionModule(VolumeChange):
    OPERATION = attach.DETACH
    VERB, DONE = "detach", "Detached"
    UNCHANGED = "no requested volume is attached"
    INCOMPLETE = errors.DetachFailed

    def begin(self, tx: Transaction, connector_of: Connectors, reach: attach.Reach) -> attach.Begun:
        return attach.begin_detach(tx, self.options["attachments"], self.options["project"], reach)
