# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Passwords set by the agents of real guests: QEMU's own agent, in a guest whose chpasswd shows what it was told."""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

import flow as flow_module
import pytest
from flow import Flow, entry, image_file
from test_operations import READY, operate, states_of, virsh, wait_ready

# Debian's busybox has no chpasswd, which the agent calls.
TELLING = "#!/bin/sh\nprintf '#!/bin/sh\\ncat >>/run/chpasswd\\n' > /bin/chpasswd\nchmod 755 /bin/chpasswd\n"
SECRET = "a-Secret-4-debian"


@pytest.fixture
def agents(lab, tmp_path: Path) -> t.Iterator[Flow]:
    """The flow's image has an agent and says so; the image deaf says so too, and its guests have none."""
    flow = Flow(lab, tmp_path, flow_module.build_guest_image("--ssh"))
    (image,) = flow.variables["bootflow_images"]
    properties = {"hw_qemu_guest_agent": "yes", "os_admin_user": "debian"}
    flow.variables["bootflow_images"] = [
        {**image, "properties": properties},
        {**image, **image_file(flow_module.build_guest_image()), "name": "deaf", "properties": properties},
        {**image, "name": "plain"},
    ]
    yield flow
    flow.delete(*flow.instances())


def told(flow: Flow, name: str) -> list[str]:
    """What the guest's chpasswd was told, read by the agent too."""
    row = flow.instances()[name]

    def agent(command: str, **arguments: t.Any) -> t.Any:
        text = json.dumps({"execute": command, "arguments": arguments})
        argv = ("virsh", "-c", "qemu:///system", "qemu-agent-command", row["uuid"], text)
        return json.loads(flow.lab.host(row["host"]).run(*argv).stdout)["return"]

    handle = agent("guest-file-open", path="/run/chpasswd", mode="r")
    text = base64.b64decode(agent("guest-file-read", handle=handle)["buf-b64"]).decode()
    agent("guest-file-close", handle=handle)
    return text.split()


@pytest.mark.long
def test_agents_set_passwords(agents: Flow) -> None:
    flow = agents
    flow.boot(entry("web", user_data=TELLING), entry("deaf", image="deaf"), entry("plain", image="plain"), **READY)
    wait_ready(flow, "web", "BOOTFLOW-GUEST-AGENT")
    assert "would be lost" in operate(flow, "set_admin_password", "web", expect=2)
    refused = operate(flow, "set_admin_password", "web", "plain", expect=2, bootflow_admin_password=SECRET)
    assert "QemuGuestAgentNotEnabled" in refused and states_of(flow) == {("active", None)}

    done = operate(flow, "set_admin_password", "web", options=("-vvv",), bootflow_admin_password=SECRET)
    assert SECRET not in done and told(flow, "web") == ["debian:" + SECRET]
    folder = flow.folder / "passwords"
    mixed = operate(flow, "set_admin_password", "web", "deaf", expect=2, bootflow_admin_password_dir=str(folder))
    assert "GuestAgentUnresponsive" in mixed and states_of(flow) == {("active", None)}
    (left,) = folder.iterdir()
    password = left.read_text().strip()
    assert left.name == flow.instances()["web"]["uuid"] and told(flow, "web") == [
        "debian:" + SECRET,
        "debian:" + password,
    ]
    assert password not in mixed
    for secret in (SECRET, password):
        assert secret.encode() not in flow.ledger_path.read_bytes()
    actions = flow.query("SELECT message FROM instance_actions WHERE action = 'changePassword'")
    assert sorted(str(a["message"]) for a in actions) == ["Error", "None", "None"]
    virsh(flow, "web", "suspend")
    assert "InstancePasswordSetFailed" in operate(
        flow, "set_admin_password", "web", expect=2, bootflow_admin_password=SECRET
    )
    virsh(flow, "web", "resume")
