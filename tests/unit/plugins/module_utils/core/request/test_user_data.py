# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data that no program in a guest reads."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import user_data_doubt


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "#cloud-config\nhostname: a\n",
        "#!/bin/sh\ntrue\n",
        "#include\nhttp://example.org/a\n",
        "## template: jinja\n#cloud-config\n",
        "Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n\n--x",
        "MIME-Version: 1.0\nContent-Type: multipart/mixed\n",
        "<powershell>ls</powershell>",
        '{"ignition": {"version": "3.0.0"}}',
    ],
)
def test_what_guests_read_is_not_doubted(text: str | None) -> None:
    assert user_data_doubt(text) == ""


@pytest.mark.parametrize(
    "text, said",
    [
        ("./cloud.yml", "the path of a file"),
        ("files/cloud.yaml\n", "the path of a file"),
        ("/etc/cloud-init", "the path of a file"),
        ("~/user-data.txt", "the path of a file"),
        ("user-data.sh", "the path of a file"),
        ("packages: [nginx]\n", "begins with none of #cloud-config"),
        ("echo hello\n", "begins with none of #cloud-config"),
        ("# cloud-config\npackages: [nginx]\n", "without a space"),
    ],
)
def test_what_they_do_not_read_is_told(text: str, said: str) -> None:
    assert said in user_data_doubt(text)
