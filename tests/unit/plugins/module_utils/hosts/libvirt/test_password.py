# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Passwords set by a guest's agent, with a libvirt of our own: what it is asked, and what its refusals are called."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, password, running
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.password import PasswordSpec, set_password

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
SECRET = "s3cret-s3cret"
CODES = {
    "INTERNAL_ERROR": 1, "NO_SUPPORT": 3, "NO_CONNECT": 5, "INVALID_CONN": 6, "SYSTEM_ERROR": 38, "RPC": 39, "NO_DOMAIN": 42,
    "NO_NETWORK": 43, "OPERATION_INVALID": 55, "ARGUMENT_UNSUPPORTED": 74, "OPERATION_UNSUPPORTED": 84,
    "AGENT_UNRESPONSIVE": 86, "AGENT_UNSYNCED": 94, "AGENT_COMMAND_TIMEOUT": 111,
}  # fmt: skip


class Error(Exception):
    def __init__(self, code: str, message: str = "no"):
        super().__init__(message)
        self.code = CODES[code]

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return str(self)


class Guest:
    def __init__(self) -> None:
        self.calls: list[t.Any] = []
        self.power = 1
        self.fails: Error | None = None

    def lookupByUUIDString(self, uuid: str) -> Guest:
        if uuid != UUID:
            raise Error("NO_DOMAIN")
        return self

    def state(self) -> list[int]:
        return [self.power, 0]

    def agentSetResponseTimeout(self, seconds: int, _flags: int) -> None:
        self.calls.append(seconds)

    def setUserPassword(self, user: str, secret: str, _flags: int) -> None:
        self.calls.append((user, secret))
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Guest:
    fake = types.SimpleNamespace(
        libvirtError=Error,
        VIR_FROM_REMOTE=200,
        VIR_FROM_RPC=201,
        VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK=-2,
        **{"VIR_ERR_" + name: code for name, code in CODES.items()},
    )
    for module in (password, domains, running, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    return Guest()


def spec(uuid: str = UUID) -> PasswordSpec:
    return PasswordSpec(uuid, "root", SECRET)


def test_an_agent_has_some_time_to_answer(guest: Guest) -> None:
    assert set_password(guest, spec()) == {"changed": True, "power_state": 1}
    assert guest.calls == [30, ("root", SECRET), -2]
    assert SECRET not in repr(spec())


def test_check_mode_asks_nobody(guest: Guest) -> None:
    assert set_password(guest, spec(), check_mode=True)["changed"] and guest.calls == []


@pytest.mark.parametrize(
    ("code", "message", "named"),
    [
        ("AGENT_UNRESPONSIVE", "Guest agent is not responding", "GuestAgentUnresponsive"),
        ("AGENT_COMMAND_TIMEOUT", "Guest agent not responding: timeout", "GuestAgentUnresponsive"),
        ("OPERATION_UNSUPPORTED", "not supported", "SetAdminPasswdNotSupported"),
        ("INTERNAL_ERROR", "The command guest-set-user-password has been disabled", "SetAdminPasswdNotSupported"),
        ("INTERNAL_ERROR", "child process has failed to set user password", "InstancePasswordSetFailed"),
        ("RPC", "gone", "HypervisorUnavailable"),
    ],
)
def test_what_goes_wrong(guest: Guest, code: str, message: str, named: str) -> None:
    guest.fails = Error(code, message)
    with pytest.raises(BootflowError) as raised:
        set_password(guest, spec())
    assert raised.value.code == named and (raised.value.remedy or named == "HypervisorUnavailable")
    assert guest.calls[-1] == -2, "others wait for the agent as before"
    if named == "InstancePasswordSetFailed":
        assert message in raised.value.message


def test_an_error_that_repeats_the_password(guest: Guest) -> None:
    guest.fails = Error("INTERNAL_ERROR", "chpasswd: root:%s" % SECRET)
    with pytest.raises(BootflowError) as raised:
        set_password(guest, spec())
    assert SECRET not in str(raised.value.as_dict()) and "error setting admin password" in raised.value.message


def test_a_guest_that_does_not_run_and_one_that_is_gone(guest: Guest) -> None:
    guest.power = 5
    with pytest.raises(BootflowError, match="is not running"):
        set_password(guest, spec())
    with pytest.raises(BootflowError) as raised:
        set_password(guest, spec(UUID.replace("2f", "3f", 1)))
    assert raised.value.code == "InstanceNotFound" and guest.calls == []
