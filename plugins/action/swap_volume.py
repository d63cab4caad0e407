# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.swap_volume."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.volumes import CROSS_AZ_ATTACH, VOLUME_SWAP
from ..module_utils.flows.attachments import swaps
from ..module_utils.flows.attachments.life import Connectors
from ..module_utils.flows.instances import attach, swap
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage.attachments import Attachment
from ..plugin_utils.volumes.volume_changes import VolumeChange

STAGES = ("clean", "begin", "undo", "finish")


class ActionModule(VolumeChange):
    ARGUMENTS = {**VolumeChange.SHARED_ARGUMENTS, **VOLUME_SWAP.options(), **CROSS_AZ_ATTACH.options()}
    OPERATION = attach.SWAP
    ENTRIES, VOLUMES = "volume_swaps", swap.FIELDS[1:]
    NOUN, VERB, DONE = "swap", "swap in", "Swapped in"
    UNCHANGED = "the instances have the new volumes"
    INCOMPLETE = errors.SwapFailed

    def adopt(self, tx: Transaction, words: t.Collection[str]) -> list[Attachment]:
        """Take over the swaps of dead runs, too: the compute hosts settle them."""
        pairs = swaps.adopt_of_dead_runs(tx)
        return [*super().adopt(tx, words), *(p.new for p in pairs)]

    def begin(self, tx: Transaction, connector_of: Connectors, reach: attach.Reach) -> attach.Begun:
        options = self.options
        return swap.begin_swap(
            tx, options["volume_swaps"], options["project"], connector_of, options["cross_az_attach"], reach
        )
