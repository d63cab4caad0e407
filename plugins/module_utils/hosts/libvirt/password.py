# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The password of a user of a running guest, set by the guest's agent. source: Nova's set_admin_password"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.errors import (
    GuestAgentUnresponsive,
    InstanceNotFound,
    InstancePasswordSetFailed,
    SetAdminPasswdNotSupported,
)
from ...core.instances.power_states import RUNNING
from ..os.batch import progress
from ..os.paths import checked_uuid
from .connection import is_code, libvirt, translate
from .running import find_domain, power_state

ANSWER = 30  # seconds that an agent has: by default libvirt waits for ever
_NOT_SUPPORTED = ("VIR_ERR_NO_SUPPORT", "VIR_ERR_OPERATION_UNSUPPORTED", "VIR_ERR_ARGUMENT_UNSUPPORTED")
_NO_ANSWER = ("VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED", "VIR_ERR_AGENT_COMMAND_TIMEOUT")
_UNKNOWN = ("has not been found", "has been disabled", "is not allowed")  # how agents refuse a command


@dataclass(frozen=True)
class PasswordSpec:
    uuid: str
    user: str
    password: str = field(repr=False)


def set_password(connection: t.Any, spec: PasswordSpec, check_mode: bool = False) -> dict[str, t.Any]:
    """Set the password, each time again. Returns {changed, power_state}.

    :raises InstanceNotFound: the host has no such domain.
    :raises InstancePasswordSetFailed: the guest does not run, or its agent fails. :raises GuestAgentUnresponsive: it does not answer.
    :raises SetAdminPasswdNotSupported: it does not know the command, or may not do it.
    :raises HypervisorUnavailable: libvirt is gone.
    """
    domain = find_domain(connection, checked_uuid(spec.uuid))
    if domain is None:
        raise InstanceNotFound(
            instance_id=spec.uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again.",
        )
    state = power_state(domain)
    if state != RUNNING:
        raise InstancePasswordSetFailed(
            instance=spec.uuid,
            reason="instance %s is not running" % spec.uuid,
            remedy="The ledger does not know that: run bootflow.compute.power_sync.",
        )
    if not check_mode:
        progress.mark_changed()
        try:
            with limited(domain):
                domain.setUserPassword(spec.user, spec.password, 0)
        except libvirt.libvirtError as error:
            raise _explained(error, spec) from None
    return {"changed": True, "power_state": state}


@contextlib.contextmanager
def limited(domain: t.Any) -> t.Iterator[None]:
    """Limit the time of a command: a guest's agent may accept it and never answer."""
    with contextlib.suppress(libvirt.libvirtError):
        domain.agentSetResponseTimeout(ANSWER, 0)
    try:
        yield
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            domain.agentSetResponseTimeout(libvirt.VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK, 0)


def _explained(error: t.Any, spec: PasswordSpec) -> Exception:
    """Return libvirt's error as one of ours, without the password."""
    text = str(error.get_error_message() or error).strip()
    if is_code(error, *_NO_ANSWER):
        return GuestAgentUnresponsive()
    if is_code(error, *_NOT_SUPPORTED) or any(words in text for words in _UNKNOWN):
        return SetAdminPasswdNotSupported()
    if is_code(error, "VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC", "VIR_ERR_NO_DOMAIN"):
        return translate(error)
    reason = "error setting admin password"  # Nova says no more, lest the password is disclosed
    if spec.password not in text:
        reason += " of user %s: %s" % (spec.user, text)
    return InstancePasswordSetFailed(instance=spec.uuid, reason=reason)
