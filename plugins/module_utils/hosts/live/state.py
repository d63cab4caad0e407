# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find out from libvirt whether a guest is on its way between two hosts, after a run that died."""

from __future__ import annotations

import typing as t

from ...core.instances.moves import COMES, ENDED_HERE, FAILED_HERE, LEAVES, LEFT
from ..libvirt.connection import libvirt


def moving_of(domain: t.Any) -> str:
    """Return one of MOVING; "" for a guest that is here and stays, or is off, and libvirt does not know why. :raises libvirtError: the domain is gone."""
    state, reason = domain.state()[:2]
    if state == libvirt.VIR_DOMAIN_SHUTOFF:
        return {
            libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED: LEFT,
            libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: ENDED_HERE,
            libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: ENDED_HERE,
            libvirt.VIR_DOMAIN_SHUTOFF_SAVED: ENDED_HERE,
            libvirt.VIR_DOMAIN_SHUTOFF_FAILED: FAILED_HERE,
        }.get(reason, "")
    job = domain.jobInfo()[0]
    operation = domain.jobStats(0).get("operation") if job != libvirt.VIR_DOMAIN_JOB_NONE else None
    if operation == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT:
        return LEAVES
    comes = operation == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN
    comes = comes or (state, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
    return (
        COMES if comes or (state, reason) == (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY) else ""
    )
