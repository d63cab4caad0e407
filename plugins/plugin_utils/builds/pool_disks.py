# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Local disks of guests in a pool of Ceph: what the current host needs before it starts these guests, by the module instance_disks_access."""

from __future__ import annotations

import typing as t
from types import MappingProxyType

from ...module_utils.core import errors
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors

OPEN, ARRIVING, FENCED = "open", "arriving", "fenced"


def open_disks(
    action: LedgerAction,
    uuids: t.Collection[str],
    state: str = OPEN,
    rolls_back: t.Mapping[str, str] = MappingProxyType({}),
) -> dict[str, errors.BootflowError]:
    """Have the current host reach its pool, and check that no other client has the disks of these instances open. Returns uuid -> why that failed.

    :arg state: ``fenced`` of instances whose host is lost: the host is to write to their disks no more; ``arriving`` of instances
        whose guests come running, and have their disks open on another host
    :arg rolls_back: uuid -> mark of the move that failed or is reverted: the disks become what they were before it
    """
    if not uuids or action.check_mode:
        return {}
    try:
        pool = host_settings.disk_pool(host_settings.read_current_host(action))
        if pool is None:
            return {}
        arguments = {
            **host_settings.libvirt_arguments(action),
            "disk_pool": pool,
            "instances": [
                {"uuid": uuid, "state": state, "rolls_back": rolls_back.get(uuid, "")} for uuid in sorted(uuids)
            ],
        }
        return item_errors(action.run_module("instance_disks_access", arguments), uuids)
    except errors.BootflowError as e:
        return dict.fromkeys(uuids, e)
