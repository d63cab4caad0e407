# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits for guests: what counts as an answer, and what a wait that ends in vain names. tests/integration_py has real guests."""

from __future__ import annotations

import base64
import json
import socket
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    CloudInitFailed,
    InvalidInput,
    WaitTimeout,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domain_waits
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_waits import (
    CLOUD_INIT_FINISHED,
    AddressWait,
    CloudInitWait,
    ConsoleWait,
)

MAC = "fa:16:3e:00:00:01"


class NoAnswer(Exception):
    pass


class Agent:
    """The agent of a guest: each question takes the next of ``answers``, an exception or what the agent sends."""

    def __init__(self, *answers: t.Any):
        self.answers = list(answers)
        self.asked: list[str] = []

    def qemuAgentCommand(self, domain: t.Any, text: str, seconds: int, _flags: int) -> str:
        self.asked.append(json.loads(text)["execute"])
        answer = self.answers.pop(0) if self.answers else NoAnswer()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else json.dumps({"return": answer})


def result(content: t.Any) -> tuple[t.Any, ...]:
    """What the agent answers where the result of cloud-init is there: a handle, the content, the end."""
    return 7, {"count": 1, "eof": True, "buf-b64": base64.b64encode(json.dumps(content).encode()).decode()}, {}


@pytest.fixture
def wait_by_agent(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., Agent]:
    def wait(*answers: t.Any, timeout: float = 5.0, console: ConsoleWait | None = None) -> Agent:
        agent = Agent(*answers)
        monkeypatch.setattr(domain_waits, "libvirt_qemu", agent)
        monkeypatch.setattr(domain_waits, "libvirt", types.SimpleNamespace(libvirtError=NoAnswer))
        monkeypatch.setattr(domain_waits, "POLL", 0.0)
        domain_waits.wait_for_cloud_init(object(), CloudInitWait(timeout, True, console), None, lambda: None)
        return agent

    return wait


FINISHED = result({"v1": {"datasource": "DataSourceConfigDrive", "errors": []}})


def test_the_result_of_cloud_init_ends_the_wait(wait_by_agent: t.Callable[..., Agent]) -> None:
    agent = wait_by_agent(NoAnswer("no agent yet"), NoAnswer("no such file"), *FINISHED)
    assert agent.asked == ["guest-file-open"] * 3 + ["guest-file-read", "guest-file-close"]


@pytest.mark.parametrize(
    "answers",
    [
        ("no JSON",),
        ("[" * 100_000,),
        ('{"error": {}}',),
        ('{"return": null}', '{"return": null}', {}),
        (7, {"buf-b64": "e30"}, {}),
        (7, {"buf-b64": base64.b64encode(b'{"v1":').decode()}, {}),
    ],
)
def test_an_agent_that_answers_nonsense_is_asked_again(wait_by_agent: t.Callable[..., Agent], answers: t.Any) -> None:
    assert not wait_by_agent(*answers, *FINISHED).answers


def test_errors_of_cloud_init_are_those_of_the_build(wait_by_agent: t.Callable[..., Agent]) -> None:
    with pytest.raises(CloudInitFailed, match=r"ended with errors: \('runcmd', .*\); second"):
        wait_by_agent(*result({"v1": {"errors": ["('runcmd', ProcessExecutionError())", "second"]}}))


def test_the_console_decides_where_the_agent_refuses_to_read_files(
    wait_by_agent: t.Callable[..., Agent], tmp_path: Path
) -> None:
    """As the agents of Fedora, Rocky and their like do by default."""
    refusal = NoAnswer("Command guest-file-open has been disabled: the command is not allowed")
    log = tmp_path / "console.log"
    log.write_text("Cloud-init v. 24.4 finished at Mon, 30 Nov 2026 12:00:00 +0000.\n")
    agent = wait_by_agent(refusal, console=ConsoleWait(CLOUD_INIT_FINISHED, str(log)))
    assert agent.asked == ["guest-file-open"]
    with pytest.raises(WaitTimeout, match="on the console"):
        wait_by_agent(refusal, console=ConsoleWait(CLOUD_INIT_FINISHED, str(tmp_path / "none")), timeout=0.01)
    with pytest.raises(InvalidInput, match="refuses to read files"):
        wait_by_agent(refusal)


def test_a_wait_in_vain_names_the_result(wait_by_agent: t.Callable[..., Agent]) -> None:
    with pytest.raises(WaitTimeout, match=r"end of cloud-init \(/run/cloud-init/result.json in the guest"):
        wait_by_agent(timeout=0.01)


@pytest.mark.parametrize(
    ("line", "finished"),
    [
        (
            "[   12.3] cloud-init[512]: Cloud-init v. 25.1.4 finished at Sun, 30 Nov 2025 12:00:00 +0000. Datasource ...",
            True,
        ),
        (
            "Cloud-init v. 22.4.2 finished at Sun, 30 Nov 2025 12:00:00 +0000. Datasource DataSourceNone.  Up 9.1 seconds",
            True,
        ),
        ("Cloud-init v. 25.1.4 running 'modules:final' at Sun, 30 Nov 2025 12:00:00 +0000. Up 8.2 seconds.", False),
    ],
)
def test_the_last_line_of_cloud_init(tmp_path: Path, line: str, finished: bool) -> None:
    log = tmp_path / "console.log"
    log.write_text(line + "\r\n")
    wait = CloudInitWait(0.0, console=ConsoleWait(CLOUD_INIT_FINISHED, str(log), 0.0))
    if finished:
        domain_waits.wait_for_cloud_init(None, wait, None, lambda: None)
    else:
        with pytest.raises(WaitTimeout, match="on the console"):
            domain_waits.wait_for_cloud_init(None, wait, None, lambda: None)


def test_a_port_answers_or_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        domain_waits.wait_for_address(AddressWait("127.0.0.1", 1.0, port), lambda: None)
    with pytest.raises(WaitTimeout, match="connection to port %d of 127.0.0.1 did not happen" % port):
        domain_waits.wait_for_address(AddressWait("127.0.0.1", 0.0, port), lambda: None)


@pytest.mark.parametrize(
    ("neighbours", "there"),
    [
        ([{"dst": "198.51.100.7", "dev": "br0", "lladdr": MAC, "state": ["REACHABLE"]}], True),
        ([{"dst": "198.51.100.7", "dev": "br0", "lladdr": MAC, "state": ["STALE"]}], False),
        ([{"dst": "198.51.100.7", "dev": "br0", "lladdr": "fa:16:3e:00:00:02", "state": ["REACHABLE"]}], False),
        ([{"dst": "198.51.100.7", "dev": "br0", "state": ["FAILED"]}], False),
        ([], False),
        (None, False),
    ],
)
def test_a_guest_that_drops_pings_answers_by_its_hardware_address(
    monkeypatch: pytest.MonkeyPatch, neighbours: t.Any, there: bool
) -> None:
    def run(argv: t.Sequence[str], **_options: t.Any) -> types.SimpleNamespace:
        if "neighbour" in argv:
            return types.SimpleNamespace(rc=0, stdout="" if neighbours is None else json.dumps(neighbours))
        return types.SimpleNamespace(rc=1, stdout="")

    monkeypatch.setattr(domain_waits, "run", run)
    monkeypatch.setattr(domain_waits, "program", lambda name, _package: name)
    wait = AddressWait("198.51.100.7", 0.0, mac_address=MAC.upper())
    if there:
        domain_waits.wait_for_address(wait, lambda: None)
    else:
        with pytest.raises(WaitTimeout, match=r"response of 198\.51\.100\.7"):
            domain_waits.wait_for_address(wait, lambda: None)
