# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests shut down and started: what there is of them stays defined."""

from __future__ import annotations

import select
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import InstanceNotFound, RemoteError
from ...core.instances.power_states import CRASHED, SHUTDOWN
from ..os.batch import progress
from ..os.paths import checked_uuid
from .connection import libvirt, libvirt_errors, tolerating
from .domains import DomainSpec, ensure_domain, find_domain, power_state

POLL = 0.2  # seconds
ASK_AGAIN = 10.0  # seconds after which a guest is asked again to shut down. source: Nova's _clean_shutdown

OFF = (SHUTDOWN, CRASHED)


@dataclass(frozen=True)
class PowerSpec:
    """The power state that a guest is to have. Times are in seconds."""

    uuid: str
    state: str  # running, shutdown
    shutdown_timeout: float = 60.0  # 0: it is not asked, and loses its power at once
    wait_timeout: float = 60.0
    vif_plugging_timeout: float = 300.0  # 0: the guest runs at once
    vif_plugging_is_fatal: bool = True


def ensure_power(connection: t.Any, spec: PowerSpec, check_mode: bool = False) -> dict[str, t.Any]:
    """Bring a guest into the state of ``spec``, doing only what is missing. Gives {changed, power_state, forced, ...}.

    :raises InstanceNotFound: the host has no such domain.
    :raises LibvirtError, HypervisorUnavailable: libvirt refuses, or is gone; the guest ended at once.
    :raises VirtualInterfaceCreateException, WaitTimeout: see domains.ensure_domain.
    """
    domain = find_domain(connection, checked_uuid(spec.uuid))
    if domain is None:
        raise InstanceNotFound(
            instance_id=spec.uuid,
            remedy="The domain is gone from the host. Define it again there, or delete the instance and boot it again.",
        )
    return _STATES[spec.state](connection, domain, spec, check_mode)


def _shut_down(_connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """The guest is asked until it is off or its time is over, and then loses its power (``forced``)."""
    begin = time.monotonic()
    changed = power_state(domain) not in OFF
    forced = False
    if changed and not check_mode:
        progress.mark_changed()
        if not _ask(domain, begin + spec.shutdown_timeout):
            if _run_is_gone():
                raise RemoteError(
                    reason="guest %s was asked to shut down by a run that is gone; it keeps its power" % spec.uuid
                )
            # None: it was off by itself meanwhile.
            forced = bool(tolerating(lambda: not domain.destroy(), "VIR_ERR_OPERATION_INVALID"))
    return {
        "changed": changed,
        "forced": forced,
        "power_state": power_state(domain),
        "seconds": round(time.monotonic() - begin, 3),
    }


def _ask(domain: t.Any, deadline: float) -> bool:
    """Press the guest's power button, again and again. Returns whether it is off by ``deadline``."""
    asked: float | None = None
    while True:
        now = time.monotonic()
        if power_state(domain) in OFF:
            return True
        if now >= deadline:
            return False
        if asked is None or now - asked >= ASK_AGAIN:
            asked = now
            tolerating(domain.shutdown, "VIR_ERR_OPERATION_INVALID")  # it went off between the two calls
        time.sleep(min(POLL, max(0.0, deadline - now)))


def _run_is_gone() -> bool:
    """Whether the run that started this module is gone: its other end of our output is closed.

    By then another run may have looked at the guest, and found it running.
    """
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))


def _run(connection: t.Any, domain: t.Any, spec: PowerSpec, check_mode: bool) -> dict[str, t.Any]:
    """As a boot starts its guest, by the definition that the host has of it."""
    with libvirt_errors():
        defined = DomainSpec(
            uuid=spec.uuid,
            name=domain.name(),
            xml=domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE),
            wait_timeout=spec.wait_timeout,
            vif_plugging_timeout=spec.vif_plugging_timeout,
            vif_plugging_is_fatal=spec.vif_plugging_is_fatal,
        )
    result = ensure_domain(connection, defined, check_mode)
    return {"forced": False, **{k: result[k] for k in ("changed", "power_state", "vifs_missing", "seconds")}}


_STATES: dict[str, t.Callable[[t.Any, t.Any, PowerSpec, bool], dict[str, t.Any]]] = {
    "running": _run,
    "shutdown": _shut_down,
}
STATES = tuple(_STATES)
