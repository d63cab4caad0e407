# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program for a host: what Ansible's own connection plugin would run."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.transport.remote_programs import program

LINE = "exec python3 -c 'import sys'"


def of(**variables: t.Any) -> list[str]:
    return program("kvm1", {"inventory_hostname": "kvm1", **variables}, LINE)


def options(argv: list[str]) -> dict[str, str]:
    """Those given with -o; the first value counts, as for ssh."""
    found: dict[str, str] = {}
    for before, word in zip(argv, argv[1:]):
        if before == "-o":
            name, _equals, value = word.partition("=")
            found.setdefault(name.lower(), value)
    return found


def test_ssh_gets_what_the_inventory_says() -> None:
    argv = of(
        ansible_host="192.0.2.1",
        ansible_user="ops",
        ansible_port=2222,
        ansible_ssh_private_key_file="/keys/a key",
        ansible_ssh_common_args="-o ProxyJump=gate -o ControlMaster=auto",
        ansible_ssh_executable="/opt/ssh",
    )
    assert argv[0] == "/opt/ssh" and argv[-2:] == ["192.0.2.1", LINE]
    found = options(argv)
    assert (found["user"], found["port"], found["proxyjump"]) == ('"ops"', "2222", "gate")
    assert found["identityfile"] == '"/keys/a key"'
    assert (found["controlmaster"], found["controlpath"], found["batchmode"]) == ("no", "none", "yes")


def test_a_host_without_an_address_is_reached_by_its_name() -> None:
    assert of()[-2:] == ["kvm1", LINE]


def test_the_controller_itself() -> None:
    assert of(ansible_connection="local") == ["/bin/sh", "-c", LINE]
    assert of(ansible_connection="ansible.builtin.local") == ["/bin/sh", "-c", LINE]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"ansible_connection": "community.docker.docker"}, "not community.docker.docker"),
        ({"ansible_password": "secret"}, "an SSH key"),
    ],
)
def test_connections_that_cannot_be_kept_open(variables: dict[str, str], reason: str) -> None:
    with pytest.raises(errors.HostUnreachable, match=reason) as found:
        of(**variables)
    assert "secret" not in found.value.paragraph
