# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests shut down and started, rebooted, paused and suspended: what there is of them stays defined.

source: Nova's libvirt driver
"""

from __future__ import annotations

import contextlib
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import (
    BootflowError,
    InstanceNotFound,
    LibvirtError,
    VirtualInterfaceCreateException,
    WaitTimeout,
)
from ...core.instances.power_states import CRASHED, POWER_PAUSED, RUNNING, SHUTDOWN
from ..os.batch import progress
from ..os.locks import guest_lock, take_back
from ..os.paths import checked_uuid
from . import pci_devices
from .backup_job import refuse_running_backup
from .connection import libvirt, libvirt_errors, tolerating
from .running import (
    OFF,
    ask,
    find_domain,
    go_on,
    hidden_logins,
    is_active,
    is_restored,
    power_state,
    refuse_gone,
    shut_down,
    start,
    wait_for_state,
    was_paused,
)


@dataclass(frozen=True)
class PowerSpec:
    """The power state that a guest is to have. Times are in seconds."""

    uuid: str
    state: str  # of STATES
    shutdown_timeout: float = 60.0  # 0: it is not asked, and loses its power at once
    wait_soft_reboot_seconds: float = 120.0
    wait_timeout: float = 60.0
    vif_plugging_timeout: float = 300.0  # 0: the guest runs at once
    vif_plugging_is_fatal: bool = True
    check: t.Callable[[t.Any], None] | None = None  # gets the domain before anything is done with it
    at_rest: t.Callable[[t.Any, t.Any], None] | None = (
        None  # gets the connection and the domain of a guest that was shut down
    )
    restored: bool = False  # one that another program left between its saved memory and its first step goes on


def ensure_power(connection: t.Any, spec: PowerSpec, check_mode: bool = False, begun: bool = False) -> dict[str, t.Any]:
    """Bring a guest into the state of ``spec``, doing only what is missing. Gives {changed, power_state, forced, seconds, ...}.

    It waits for others that define, start or stop the guest, and does nothing where the run is gone that asks for it.

    :arg begun: this is the last part of a work, which is done to its end.
    :raises InstanceNotFound: the host has no such domain.
    :raises LibvirtError, HypervisorUnavailable: libvirt refuses, or is gone; the guest ended at once, or is off and cannot be paused.
    :raises VirtualInterfaceCreateException, WaitTimeout: see running.wait_for_state, locks.guest_lock.
    """
    begin = time.monotonic()
    with contextlib.nullcontext() if check_mode else guest_lock(checked_uuid(spec.uuid)):
        if not begun:
            refuse_gone(spec.uuid)
        outcome = _ensure(connection, spec, check_mode)
    return {**outcome, "seconds": round(time.monotonic() - begin, 3)}


def _ensure(connection: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    domain = find_domain(connection, checked_uuid(spec.uuid))
    if domain is None:
        raise InstanceNotFound(
            instance_id=spec.uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again, or delete it"
            " and boot it again.",
        )
    if spec.check is not None:
        spec.check(domain)
    outcome = _STATES[spec.state](connection, domain, spec, check_mode)
    return {"forced": False, **outcome, "power_state": power_state(domain)}


# --- off ------------------------------------------------------------------------------------------------------------------


def _shut_down(connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Ask the guest to shut down until it is off or its time is over; then cut its power (``forced``). A crashed one hears nothing, and its
    host still has its memory. One that is off and has its memory in a file loses that.
    """
    state = power_state(domain)
    with libvirt_errors():
        saved = bool(domain.hasManagedSaveImage(0))
    changed, forced = state != SHUTDOWN, False
    if saved and not changed:
        # Else its next start would go on where it was, whatever happened to its disks and volumes meanwhile.
        changed = True
        if not check_mode:
            progress.mark_changed()
            with libvirt_errors():
                domain.managedSaveRemove(0)
    elif state == CRASHED and not check_mode:
        _cut_off_crashed(domain)
    elif changed and not check_mode:
        forced = shut_down(domain, spec.uuid, spec.shutdown_timeout)
    if spec.at_rest is not None and not check_mode:
        spec.at_rest(connection, domain)
    return {"changed": changed, "forced": forced}


def _cut_off_crashed(domain: t.Any) -> None:
    progress.mark_changed()
    tolerating(domain.destroy, "VIR_ERR_OPERATION_INVALID")


# --- running --------------------------------------------------------------------------------------------------------------


def _run(_connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Start the guest as a boot does, by the host's definition of it, and from its saved memory if it was suspended."""
    crashed = power_state(domain) == CRASHED
    if crashed and not check_mode:  # to libvirt it is active
        _cut_off_crashed(domain)
    with libvirt_errors():
        saved = bool(domain.hasManagedSaveImage(0))
    begins = not is_active(domain)
    restored = not begins and spec.restored and is_restored(domain)
    resume = restored or (not begins and was_paused(domain))
    missing: list[str] = []
    attached = False
    if not check_mode:
        if begins:
            progress.mark_changed()
            take_back(spec.uuid)
            with hidden_logins(lambda: _definition(domain)):
                start(domain, paused=spec.vif_plugging_timeout > 0)
        if resume or (begins and spec.vif_plugging_timeout > 0):
            missing = go_on(domain, spec.vif_plugging_timeout, spec.vif_plugging_is_fatal)
        wait_for_state(domain, RUNNING, domain.name(), spec.wait_timeout)
        if saved or not begins:  # one that has just begun by its definition has all of them
            attached = pci_devices.attach_missing(domain)
        if restored or (saved and (begins or resume)):
            _set_clock(domain)
    return {"changed": begins or resume or attached or crashed, "vifs_missing": missing}


def _definition(domain: t.Any) -> str:
    with libvirt_errors():
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def _reboot(connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Ask the guest to shut down, and start it afterwards; a guest that restarts by itself is left alone.

    ``restarted`` is false of a guest that did neither in time, was not running, or did not start: it has to be reset.
    """
    runs = power_state(domain) == RUNNING
    if check_mode or not runs:
        return {"changed": runs, "restarted": runs}
    with libvirt_errors():
        before = domain.ID()

    def ended() -> bool:
        now = find_domain(connection, spec.uuid)  # the id of a domain is that of its last look-up
        return now is None or now.ID() != before

    progress.mark_changed()
    try:
        restarted = ask(domain, spec.wait_soft_reboot_seconds, ended)
        if restarted and power_state(domain) in OFF:
            return {**_run(connection, domain, spec, check_mode), "restarted": True}
    except (LibvirtError, VirtualInterfaceCreateException, WaitTimeout):
        restarted = False
    return {"changed": True, "restarted": restarted}


# --- paused and suspended -------------------------------------------------------------------------------------------------


def _pause(_connection: t.Any, domain: t.Any, _spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Stop the guest's CPUs; its memory stays in place."""
    changed = _state_of_living(domain, "paused") != POWER_PAUSED
    if changed and not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            domain.suspend()
    return {"changed": changed}


def _unpause(_connection: t.Any, domain: t.Any, _spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Resume a paused guest."""
    changed = _state_of_living(domain, "unpaused") == POWER_PAUSED
    if changed and not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            domain.resume()
        _set_clock(domain)
    return {"changed": changed}


def _save(_connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Write the guest's memory to a file of libvirt's, from which its next start continues (managed save).

    Its host's PCI devices are taken from it before, and given back by _run().
    """
    with libvirt_errors():
        saved = bool(domain.hasManagedSaveImage(0))
    changed = not (saved and power_state(domain) in OFF)
    if changed:
        _state_of_living(domain, "suspended")
        refuse_running_backup(domain)
    if changed and not check_mode:
        progress.mark_changed()
        pci_devices.detach(domain, spec.wait_timeout)
        try:
            with libvirt_errors():
                domain.managedSave(0)
        except BootflowError:
            with contextlib.suppress(BootflowError):
                pci_devices.attach_missing(domain)
            raise
    return {"changed": changed}


def _interrupt(_connection: t.Any, domain: t.Any, _spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """Send a non-maskable interrupt. The guest decides what follows, as a rule a dump and a restart."""
    _state_of_living(domain, "interrupted")
    if not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            domain.injectNMI(0)
    return {"changed": True}


def _state_of_living(domain: t.Any, verb: str) -> int:
    """Return the power state of a guest that is not off. :raises LibvirtError: it is off."""
    state = power_state(domain)
    if state in OFF:
        raise LibvirtError(
            reason="guest %s is shut down: only one that runs can be %s" % (domain.name(), verb),
            remedy="The ledger does not know of that: reboot the instance with bootflow_reboot_type: HARD; unrescue it where it is rescued, confirm or"
            " revert it where it is resized.",
        )
    return state


def _set_clock(domain: t.Any) -> None:
    """Set the guest's clock, which stood still, with its agent, if there is one. source: Nova's sync_guest_time"""
    with contextlib.suppress(libvirt.libvirtError):
        domain.setTime({"seconds": int(time.time()), "nseconds": 0}, 0)


_STATES: dict[str, t.Callable[[t.Any, t.Any, PowerSpec, bool], dict[str, t.Any]]] = {
    "running": _run,
    "shutdown": _shut_down,
    "rebooted": _reboot,
    "paused": _pause,
    "unpaused": _unpause,
    "suspended": _save,
    "interrupted": _interrupt,
}
STATES = tuple(_STATES)
