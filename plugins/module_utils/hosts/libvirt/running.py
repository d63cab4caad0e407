# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains found, started, and waited for: what a boot and an operation on guests that are defined share.

An operation loads this on every host. It reads no XML but that of interfaces, and not with lxml, which takes longer to load than the rest.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
import typing as t

from ...core.errors import BootflowError, LibvirtError, RemoteError, WaitTimeout
from ...core.guest.domain.element import parse
from ...core.instances.power_states import CRASHED, NOSTATE, POWER_PAUSED, RUNNING, SHUTDOWN, power_state_of
from ..bridges.made_bridges import restore_bridges
from ..bridges.tunnels import Tunnel
from ..bridges.vlans import Vlan
from ..os.batch import progress
from .connection import is_code, libvirt, libvirt_errors, tolerating
from .vifs import wait_plugged

POLL = 0.1  # seconds
LOOK = 0.2  # seconds between two looks at whether a guest has shut down
ASK_AGAIN = 10.0  # seconds after which a guest is asked again to shut down. source: Nova's _clean_shutdown
OFF = (SHUTDOWN, CRASHED)
_LOGIN_USER = re.compile(r"<auth\s[^>]*?username=[\"']([^\"'>]+)")


def power_state(domain: t.Any) -> int:
    """Return Nova's number of libvirt's state. Raises one of our errors if the domain is gone."""
    with libvirt_errors():
        return power_state_of(domain.state()[0])


def find_domain(connection: t.Any, uuid: str) -> t.Any | None:
    """Return the domain with this UUID; None without one."""
    return tolerating(lambda: connection.lookupByUUIDString(uuid), "VIR_ERR_NO_DOMAIN")


def was_paused(domain: t.Any) -> bool:
    """Return whether a user paused the domain: domains also show as paused while they start, are saved or migrate."""
    with libvirt_errors():
        state, reason = domain.state()[:2]
    by_hand = (libvirt.VIR_DOMAIN_PAUSED_UNKNOWN, libvirt.VIR_DOMAIN_PAUSED_USER)
    return power_state_of(state) == POWER_PAUSED and reason in by_hand


def is_restored(domain: t.Any) -> bool:
    """Return whether the domain has its saved memory, and did not go on with it: who started it was killed, or found an interface missing.

    One that comes from another host looks alike: this is asked of suspended instances, which never do.
    """
    with libvirt_errors():
        state, reason = domain.state()[:2]
    return (state, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)


def known_power_state(connection: t.Any, uuid: str) -> dict[str, int]:
    """Return {power_state} of a guest whose restart failed: NOSTATE where the host has no domain of it. Empty where libvirt does not tell."""
    with contextlib.suppress(BootflowError):
        domain = find_domain(connection, uuid)
        return {"power_state": NOSTATE if domain is None else power_state(domain)}
    return {}


def is_active(domain: t.Any) -> bool:
    with libvirt_errors():
        return bool(domain.isActive())


def login_users(*texts: t.Any) -> set[str]:
    """Return the users with whom QEMU logs in to volumes, in definitions of domains or disks: no output has them."""
    return {user for text in texts for user in _LOGIN_USER.findall(text or "")}


@contextlib.contextmanager
def hidden_logins(xml: t.Callable[[], str]) -> t.Iterator[None]:
    """Hide the users in the definition that ``xml`` gives from libvirt's message of a failure in the block."""
    try:
        yield
    except LibvirtError as error:
        for user in login_users(xml()):
            error.message = error.message.replace(user, "********")
        raise


def definition_of(domain: t.Any) -> str:
    """Return the definition for the next start, with its passwords, which libvirt shows only on request."""
    with libvirt_errors():
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))


def define_again(connection: t.Any, former: str, xml: str) -> None:
    """Define a guest that is defined with another definition. :arg former: the definition until now, whose logins no error shows

    :raises LibvirtError: libvirt refuses the definition.
    """
    with hidden_logins(lambda: former), libvirt_errors():
        connection.defineXMLFlags(xml, 0)


def _bridges_of(definition: str) -> list[str]:
    return [str(source.get("bridge")) for source in parse(definition).iterfind("devices/interface/source[@bridge]")]


def start(domain: t.Any, paused: bool) -> None:
    """Start a guest from its definition or its saved memory; ``paused``: its CPUs stand still.

    :raises NetworkError: the host had a VXLAN or VLAN network of the guest before it restarted, and cannot make it again.
    """
    for made in (Tunnel, Vlan):
        restore_bridges(made, lambda: _bridges_of(definition_of(domain)))
    with libvirt_errors():
        try:
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
        except libvirt.libvirtError as error:
            # Another process was faster: the domain is started, and may need a moment to run.
            if not (is_code(error, "VIR_ERR_OPERATION_INVALID") and _becomes_active(domain)):
                raise


def shut_down(domain: t.Any, uuid: str, seconds: float) -> bool:
    """Ask a running guest to shut down, and take its power when it has not after that time. Returns whether it lost its power.

    :raises RemoteError: the run that started this module is gone by then; the guest keeps its power.
    """
    progress.mark_changed()
    if ask(domain, seconds, lambda: power_state(domain) in OFF):
        return False
    if run_is_gone():
        raise RemoteError(reason="guest %s was asked to shut down by a run that is gone; it keeps its power" % uuid)
    # None: it was off by itself meanwhile.
    return bool(tolerating(lambda: not domain.destroy(), "VIR_ERR_OPERATION_INVALID"))


def ask(domain: t.Any, seconds: float, hears: t.Callable[[], bool]) -> bool:
    """Press the guest's power button, again and again. Returns whether it has heard within ``seconds``, and while the run is there."""
    asked: float | None = None
    deadline = time.monotonic() + seconds
    while True:
        now = time.monotonic()
        if hears():
            return True
        if now >= deadline or run_is_gone():
            return False
        if asked is None or now - asked >= ASK_AGAIN:
            asked = now
            tolerating(domain.shutdown, "VIR_ERR_OPERATION_INVALID")  # it went off between the two calls
        time.sleep(min(LOOK, max(0.0, deadline - now)))


def run_is_gone() -> bool:
    """Return whether the run that started this module is gone: its other end of our output is closed.

    By then another run may have looked at the guest, and found it running.
    """
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))


def refuse_gone(uuid: str) -> None:
    """Check the run. :raises RemoteError: the run that started this module is gone: another one has the guest, which is left as it is."""
    if run_is_gone():
        raise RemoteError(reason="guest %s is left as it is: the run that asked for this is gone" % uuid)


def go_on(domain: t.Any, vif_plugging_timeout: float, vif_plugging_is_fatal: bool) -> list[str]:
    """Let the CPUs of a guest run once its interfaces are plugged in. Returns the missing interfaces.

    :raises VirtualInterfaceCreateException: see vifs.wait_plugged.
    """
    progress.mark_changed()
    missing = wait_plugged(domain, vif_plugging_timeout, vif_plugging_is_fatal)
    tolerating(domain.resume, "VIR_ERR_OPERATION_INVALID")  # another process was quicker
    return missing


def _becomes_active(domain: t.Any, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not domain.isActive():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def wait_for_state(domain: t.Any, wanted: int, name: str, seconds: float) -> None:
    """Wait until the power state of the guest ``name`` is ``wanted``.

    :raises LibvirtError: the guest ended instead.
    :raises WaitTimeout: neither happened within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        state = power_state(domain)
        if state == wanted or (wanted == POWER_PAUSED and state == RUNNING):
            return
        if state in (SHUTDOWN, CRASHED):
            raise ended(name)
        if time.monotonic() >= deadline:
            raise WaitTimeout(what="power state RUNNING of %s" % name, seconds=int(seconds), host=socket.gethostname())
        time.sleep(POLL)


def ended(name: str) -> LibvirtError:
    """Return the error of the guest ``name``, which did not stay on."""
    return LibvirtError(
        reason="guest %s ended right after its start" % name,
        remedy="See /var/log/libvirt/qemu/%s.log on the host." % name,
    )
