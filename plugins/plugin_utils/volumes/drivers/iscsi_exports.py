# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exports by iSCSI: targets that are to be there, and targets that are to go.

An export that fails never fails its neighbours; a host that does not answer fails them all, and the play never.
"""

from __future__ import annotations

import json
import typing as t

from ....module_utils.core import errors
from ....module_utils.core.disks.logical_volumes import device_path
from ....module_utils.core.volumes import names
from ....module_utils.flows.attachments.exports import Export
from ...run.ledger_action import LedgerAction
from ...run.results import item_errors
from ..volume_secrets import chap_of
from .volume_driver import Ended, Made


def end_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
    """End them on the current host. Returns attachment id -> None, or why it could not be ended."""
    results = _run(action, exports, _ended)
    return {e.attachment_id: o if isinstance(o, errors.BootflowError) else None for e, o in results}


def make_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Made:
    """Make them on the current host. Returns attachment id -> {iqn, lun, portals}, or why there is no target."""
    results: Made = {}
    for export, outcome in _run(action, exports, _made):
        if isinstance(outcome, errors.BootflowError):
            results[export.attachment_id] = outcome
        elif not export.login and names.normal_name(export.initiator) not in map(
            names.normal_name, outcome["initiators"]
        ):
            results[export.attachment_id] = errors.ISCSITargetNotFoundForVolume(
                volume_id=export.volume_id,
                remedy="The target that another guest of the host uses is gone: detach the volume from that guest first.",
            )
        else:
            portals = outcome.get("portals") or export.configuration["portals"]
            results[export.attachment_id] = {"iqn": outcome["iqn"], "lun": outcome["lun"], "portals": list(portals)}
    return results


def _ended(exports: t.Sequence[Export]) -> dict[str, t.Any]:
    """A target that lets in other attachments stays, without these."""
    if not exports[0].initiators:
        absent = {"volume_id": exports[0].volume_id, "state": "absent"}
        return {**absent, "force": True} if any(e.force for e in exports) else absent
    return _present(exports, [])


def _made(exports: t.Sequence[Export]) -> dict[str, t.Any]:
    logins = {}
    for export in exports:
        if export.login:
            chap = chap_of(export.volume_id, export.initiator)
            login = {"initiator": export.initiator, "chap_user": chap.user, "chap_secret": chap.secret}
            logins[names.normal_name(export.initiator)] = login
    return _present(exports, list(logins.values()))


def _present(exports: t.Sequence[Export], logins: list[dict[str, str]]) -> dict[str, t.Any]:
    """:arg logins: logins with new credentials; other credentials are only known to the run that made them."""
    first = exports[0]
    new = {names.normal_name(login["initiator"]) for login in logins}
    keep = {name for export in exports for name in export.keep if names.normal_name(name) not in new}
    return {
        "volume_id": first.volume_id,
        "state": "present",
        "path": device_path(first.configuration["volume_group"], names.volume_name(first.volume_id)),
        "logins": logins,
        "keep": sorted(keep),
    }


def _settings(action: LedgerAction, export: Export) -> dict[str, t.Any]:
    options = {name: export.configuration.get(name) for name in ("target", "portals")}
    name = names.volume_name(export.volume_id)
    if export.iqn.endswith(name):
        prefix = export.iqn[: -len(name)]
    else:
        prefix = names.ledger_prefix(export.configuration.get("iqn_prefix") or names.IQN_PREFIX, action.ledger_id())
    return {**options, "iqn_prefix": prefix}


def _run(
    action: LedgerAction, exports: t.Sequence[Export], element: t.Callable[[t.Sequence[Export]], dict[str, t.Any]]
) -> t.Iterator[tuple[Export, t.Mapping[str, t.Any] | errors.BootflowError]]:
    """Each export with the module's outcome, or the error; one call for each kind of target."""
    calls: dict[str, dict[str, list[Export]]] = {}
    for export in exports:
        call = calls.setdefault(json.dumps(_settings(action, export), sort_keys=True), {})
        call.setdefault(export.volume_id, []).append(export)
    for _kind, of_volume in sorted(calls.items()):
        outcomes = _call(action, of_volume, element)
        yield from ((export, outcomes[i]) for i, group in of_volume.items() for export in group)


def _call(
    action: LedgerAction,
    of_volume: t.Mapping[str, t.Sequence[Export]],
    element: t.Callable[[t.Sequence[Export]], dict[str, t.Any]],
) -> dict[str, t.Mapping[str, t.Any] | errors.BootflowError]:
    """volume id -> the module's outcome, or the error."""
    first = next(iter(of_volume.values()))[0]
    try:
        if not first.configuration.get("volume_group"):
            raise errors.DriverNotInitialized(
                message="Volume driver not ready. The ledger does not know backend %s" % first.backend,
                remedy="Put the backend back into bootflow_storage_backends of the host.",
            )
        settings = {name: value for name, value in _settings(action, first).items() if value is not None}
        result = action.run_module("iscsi_target", {**settings, "exports": [element(e) for e in of_volume.values()]})
    except errors.BootflowError as e:
        return dict.fromkeys(of_volume, e)
    except Exception as e:  # the exports fail, never the play
        return dict.fromkeys(of_volume, action.unexpected(e))
    problems = item_errors(result, of_volume)
    return {i: problems.get(i) or result["outcomes"][i] for i in of_volume}
