# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sessions, records of iscsiadm and secrets of libvirt that a compute host has for unknown targets of volumes."""

from __future__ import annotations

import typing as t

from ...core.errors import MissingLibrary
from ...core.volumes.names import normal_name, target_of_secret, volume_id_of_target
from ..libvirt.secrets import secrets_there
from ..os.module_errors import as_bootflow_error
from .initiator import Initiator


def sessions_there(initiator: Initiator, prefixes: t.Sequence[str], known: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return the targets with one of the prefixes that this host is logged in to or has a record of: iqn, volume_id, session
    (whether it is logged in), luns, portals, and in_use (why its disks cannot be removed).

    :arg known: known targets are skipped, because finding the users of a disk is expensive.
    """
    try:
        sessions = initiator.every_session()
    except MissingLibrary:  # without iscsiadm there is no session, but its records may remain
        sessions = []
    targets = []
    for iqn in sorted({s.iqn for s in sessions} | initiator.records.targets()):
        volume_id = volume_id_of_target(iqn, prefixes)
        if not volume_id or normal_name(iqn) in {normal_name(known_iqn) for known_iqn in known}:
            continue
        target_sessions = [s for s in sessions if s.iqn == iqn]
        portals = initiator.records.portals(iqn, sorted({s.portal for s in target_sessions}))
        if not portals:
            continue  # an empty directory
        disks = [name for s in target_sessions for name in initiator.devices.disks_of_session(s.number)]
        targets.append(
            {
                "iqn": iqn,
                "volume_id": volume_id,
                "session": bool(target_sessions),
                "luns": sorted({lun for s in target_sessions for lun in initiator.devices.luns_of_session(s.number)}),
                "portals": portals,
                "in_use": initiator.devices.users(disks, held=False) if disks else [],
            }
        )
    return targets


def iscsi_ends(
    connection: t.Any, prefixes: t.Sequence[str], known: t.Collection[str] = (), initiator: Initiator | None = None
) -> dict[str, t.Any]:
    """Return {sessions, secrets, error}: see sessions_there(); a secret has iqn and volume_id.

    A failure does not fail the host: ``error`` has the reason.
    """
    ends: dict[str, t.Any] = {"sessions": [], "secrets": [], "error": None}
    try:
        ends["sessions"] = sessions_there(initiator or Initiator(), prefixes, known)
        others = {normal_name(iqn) for iqn in known}
        targets = {name: target_of_secret(name) for name in secrets_there(connection)}
        named = {n: volume_id_of_target(iqn, prefixes) for n, iqn in targets.items() if normal_name(iqn) not in others}
        ends["secrets"] = [{"iqn": name, "volume_id": volume_id} for name, volume_id in named.items() if volume_id]
    except Exception as error:  # for any error: the other facts of the host are still reported
        ends["error"] = as_bootflow_error(error).as_dict()
    return ends
