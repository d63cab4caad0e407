# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backends of logical volumes, which are exported by iSCSI."""

from __future__ import annotations

import typing as t

from ....module_utils.core.volumes.drivers.lvm import Lvm
from ....module_utils.flows.attachments.exports import Export
from ....module_utils.flows.volumes.work import BackendWork, WorkResult
from ...run.ledger_action import LedgerAction
from ...settings.storage_settings import lvm_arguments
from . import backend_volumes, iscsi_exports
from .volume_driver import Ended, Made


class LvmDriver:
    """The modules volume_lvm, storage_backend_info and iscsi_target."""

    kind = Lvm()

    def report(
        self,
        action: LedgerAction,
        configurations: t.Sequence[t.Mapping[str, t.Any]],
        arguments: t.Mapping[str, t.Any],
        targets: t.Collection[tuple[str, str]] = (),
    ) -> dict[str, t.Any]:
        asked = {"backends": [{"name": c["name"], **lvm_arguments(c)} for c in configurations], **arguments}
        if targets:
            asked["targets"] = [{"target": kind, "iqn_prefix": prefix} for kind, prefix in sorted(targets)]
        return action.run_module("storage_backend_info", asked)

    def work(self, action: LedgerAction, work: BackendWork) -> WorkResult:
        change = work.configuration
        arguments = {
            **lvm_arguments(change),
            "image_cache": change["image_cache"],
            # A backend that reported before there were limits has none.
            "image_cache_max_gb": change.get("image_cache_max_gb", 0),
            "image_cache_max_count": change.get("image_cache_max_count", 0),
            "clear": change["volume_clear"],
            "clear_size_mb": change["volume_clear_size_mb"],
        }
        return backend_volumes.make(
            action, work, "volume_lvm", arguments, self.kind.is_thin(change) and change["image_cache"]
        )

    def end_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
        return iscsi_exports.end_exports(action, exports)

    def make_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Made:
        return iscsi_exports.make_exports(action, exports)
