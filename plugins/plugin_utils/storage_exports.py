# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a storage host exports: targets that are to be there, and targets that are to go. source: rows C32, C33

An export that fails never fails its neighbours; a host that does not answer fails them all, and the play never.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import names
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import device_path
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.attachment_exports import Export
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import item_errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.volume_secrets import chap_of

Ended = t.Dict[str, t.Optional[errors.BootflowError]]
Made = t.Dict[str, t.Union[t.Mapping[str, t.Any], errors.BootflowError]]


def end_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
    """End them on the current host. Returns attachment id -> None, or why it could not be ended."""
    # A target that lets in other attachments stays: their credentials are theirs, and only known to whoever made it.
    shared = [e for e in exports if e.initiators]
    found: Ended = {e.attachment_id: None for e in shared}
    for call in _calls([e for e in exports if not e.initiators]):
        result = _run(action, call, _ended)
        for export in call:
            outcome = result[export.volume_id]
            found[export.attachment_id] = outcome if isinstance(outcome, errors.BootflowError) else None
    return found


def make_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Made:
    """Make them on the current host. Returns attachment id -> {iqn, lun, portals}, or why there is no target."""
    found: Made = {}
    for call in _calls(exports):
        result = _run(action, call, _made)
        for export in call:
            outcome = result[export.volume_id]
            if isinstance(outcome, errors.BootflowError):
                found[export.attachment_id] = outcome
            else:
                portals = outcome.get("portals") or export.configuration["portals"]
                found[export.attachment_id] = {"iqn": outcome["iqn"], "lun": outcome["lun"], "portals": list(portals)}
    return found


def _ended(export: Export) -> dict[str, t.Any]:
    return {"volume_id": export.volume_id, "state": "absent"}


def _made(export: Export) -> dict[str, t.Any]:
    chap = chap_of(export.attachment_id)
    return {
        "volume_id": export.volume_id,
        "state": "present",
        "path": device_path(export.configuration["volume_group"], names.volume_name(export.volume_id)),
        "initiators": list(export.initiators),
        "chap_user": chap.user,
        "chap_secret": chap.secret,
    }


def _calls(exports: t.Sequence[Export]) -> list[list[Export]]:
    """Those that one call of the module can do: of the same kind of target, each volume once."""
    found: dict[tuple[str, int], list[Export]] = {}
    turns: dict[str, int] = {}
    for export in exports:
        turn = turns[export.volume_id] = turns.get(export.volume_id, -1) + 1
        found.setdefault((json.dumps(_settings(export), sort_keys=True), turn), []).append(export)
    return [found[key] for key in sorted(found, key=lambda k: (k[1], k[0]))]


def _settings(export: Export) -> dict[str, t.Any]:
    return {name: export.configuration.get(name) for name in ("target", "iqn_prefix", "portals")}


def _run(
    action: LedgerAction, call: t.Sequence[Export], element: t.Callable[[Export], dict[str, t.Any]]
) -> dict[str, t.Mapping[str, t.Any] | errors.BootflowError]:
    """volume id -> the module's outcome, or the error."""
    ids = [e.volume_id for e in call]
    try:
        if not call[0].configuration.get("volume_group"):
            raise errors.DriverNotInitialized(
                message="Volume driver not ready. The ledger does not know backend %s" % call[0].backend,
                remedy="Put it back into bootflow_storage_backends of its host.",
            )
        settings = {name: value for name, value in _settings(call[0]).items() if value is not None}
        result = action.run_module("iscsi_target", {**settings, "exports": [element(e) for e in call]})
    except errors.BootflowError as e:
        return dict.fromkeys(ids, e)
    problems = item_errors(result, ids)
    return {i: problems.get(i) or result["outcomes"][i] for i in ids}
