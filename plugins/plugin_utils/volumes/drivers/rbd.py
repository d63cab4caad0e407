# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backends of Ceph pools. An export has no target: it is a look at the clients of the volume, and the address of the cluster for the compute host."""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.volumes import names
from ....module_utils.core.volumes.connectors.rbd import Rbd as Connector
from ....module_utils.core.volumes.drivers.rbd import Rbd
from ....module_utils.flows.attachments.exports import Export
from ....module_utils.flows.volumes.work import BackendWork, WorkResult
from ...run.ledger_action import LedgerAction
from ...run.results import item_errors
from ...settings.storage_settings import rbd_arguments
from . import backend_volumes
from .volume_driver import Ended, Made

Outcome = t.Union[t.Mapping[str, t.Any], errors.BootflowError]


class RbdDriver:
    """The modules volume_rbd, rbd_backend_info and rbd_access."""

    kind = Rbd()

    def report(
        self,
        action: LedgerAction,
        configurations: t.Sequence[t.Mapping[str, t.Any]],
        arguments: t.Mapping[str, t.Any],
        targets: t.Collection[tuple[str, str]] = (),
    ) -> dict[str, t.Any]:
        facts: dict[str, t.Any] = {}
        asked = []
        for configuration in configurations:
            try:
                asked.append({"name": configuration["name"], **self._arguments(action, configuration)})
            except errors.BootflowError as e:  # a backend without a key fails alone
                facts[configuration["name"]] = {"error": e.as_dict()}
        if asked:
            facts.update(action.run_module("rbd_backend_info", {"backends": asked, **arguments})["backends"])
        return {"backends": facts}

    def work(self, action: LedgerAction, work: BackendWork) -> WorkResult:
        return backend_volumes.make(action, work, "volume_rbd", self._arguments(action, work.configuration))

    def end_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
        """Check that guests that lost a volume have it open no longer; fence the guests of lost hosts."""
        given = [export for export in exports if export.exported or export.force]
        wanted = {
            export.volume_id: {"id": export.volume_id, "state": "absent", "users": export.users, "force": export.force}
            for export in sorted(given, key=lambda export: export.force)
        }
        outcomes = self._access(action, given, wanted)
        ended: Ended = {export.attachment_id: None for export in exports}
        return {**ended, **{i: o if isinstance(o, errors.BootflowError) else None for i, o in outcomes.items()}}

    def make_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Made:
        """Check the clients of each volume, and return the addresses of its cluster."""
        wanted = {
            export.volume_id: {"id": export.volume_id, "users": export.users}
            for export in sorted(exports, key=lambda export: export.users)
        }
        made: Made = {}
        by_id = {export.attachment_id: export for export in exports}
        for attachment_id, outcome in self._access(action, exports, wanted).items():
            export = by_id[attachment_id]
            change = export.configuration
            made[attachment_id] = (
                outcome
                if isinstance(outcome, errors.BootflowError)
                else {
                    "connection_info": {
                        "connector": Connector.name,
                        "name": "%s/%s" % (change["rbd_pool"], names.volume_name(export.volume_id)),
                        "monitors": list(change["rbd_monitors"]),
                        "user": change["rbd_user"],
                        "fsid": outcome["fsid"],
                    }
                }
            )
        return made

    def _arguments(self, action: LedgerAction, configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return rbd_arguments(action, action.task_vars["inventory_hostname"], configuration)

    def _access(
        self, action: LedgerAction, exports: t.Sequence[Export], wanted: t.Mapping[str, t.Mapping[str, t.Any]]
    ) -> dict[str, Outcome]:
        """Return attachment id -> the outcome of its volume, with the cluster's fsid, or the error. One call for each backend."""
        results: dict[str, Outcome] = {}
        for pool_host in sorted({export.pool_host for export in exports}):
            group = [export for export in exports if export.pool_host == pool_host]
            volume_ids = sorted({export.volume_id for export in group})
            by_volume: dict[str, Outcome] = {}
            try:
                arguments = self._arguments(action, group[0].configuration)
                result = action.run_module("rbd_access", {**arguments, "volumes": [wanted[i] for i in volume_ids]})
                problems = item_errors(result, volume_ids)
                by_volume = {
                    i: problems.get(i) or {**result["outcomes"][i], "fsid": result["fsid"]} for i in volume_ids
                }
            except errors.BootflowError as e:
                by_volume = dict.fromkeys(volume_ids, e)
            except Exception as e:  # the exports fail, never the play
                by_volume = dict.fromkeys(volume_ids, action.unexpected(e))
            results.update({export.attachment_id: by_volume[export.volume_id] for export in group})
        return results
