# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All targets of volumes on this host, known or not, without secrets."""

from __future__ import annotations

import typing as t

from ...core.volumes.names import ledger_prefix, volume_id_of_target
from ..os.module_errors import as_bootflow_error
from .target import ABSENT, Export, Target
from .target_lio import LioTarget
from .target_tgt import TgtTarget

KINDS: t.Mapping[str, t.Callable[[], Target]] = {LioTarget.name: LioTarget, TgtTarget.name: TgtTarget}


def targets_there(target: Target, prefix: str, ledger_id: str = "") -> list[dict[str, t.Any]]:
    """Return the targets of volumes with this prefix, of the ledger or of none: iqn, volume_id, path, sessions, running, ours.

    ``running``: initiators find it; otherwise it exists only in a saved configuration or is incomplete. ``ours``: this
    collection created it; Cinder uses the same names.
    """
    prefixes = [prefix, *([ledger_prefix(prefix, ledger_id)] if ledger_id else [])]
    named = {iqn: volume_id_of_target(iqn, prefixes) for iqn in target.iqns()}
    exports = [Export(volume_id, iqn, state=ABSENT) for iqn, volume_id in sorted(named.items()) if volume_id]
    target_states = target.read(exports) if exports else {}
    return [
        {
            "iqn": e.iqn,
            "volume_id": e.volume_id,
            "path": str(target_states[e.iqn].aspects.get("path") or ""),
            "sessions": sorted(target_states[e.iqn].sessions),
            "running": bool(target_states[e.iqn].aspects),
            "ours": target_states[e.iqn].ours,
        }
        for e in exports
        if e.iqn in target_states
    ]


def targets_facts(
    asked: t.Sequence[t.Mapping[str, t.Any]],
    ledger_id: str = "",
    kinds: t.Mapping[str, t.Callable[[], Target]] | None = None,
) -> list[dict[str, t.Any]]:
    """Return for each of ``asked`` (target, iqn_prefix) the same with ``exports`` of targets_there(), and ``error``.

    The failure of one does not affect the others.
    """
    answers = []
    for args in asked:
        answer: dict[str, t.Any] = {"target": args["target"], "iqn_prefix": args["iqn_prefix"]}
        try:
            exports = targets_there((kinds or KINDS)[args["target"]](), args["iqn_prefix"], ledger_id)
            answer.update(exports=exports, error=None)
        except Exception as error:  # rtslib has one class for all errors, and does not wrap OSErrors of configfs
            answer.update(exports=[], error=as_bootflow_error(error).as_dict())
        answers.append(answer)
    return answers
