# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that say that they are others, with real frames on a bridge. Connections need the kernel of tests/confined_py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.nftables import render

LAB = Path(__file__).resolve().parents[1] / "lab"
sys.path.insert(0, str(LAB))

from filter_documents import documents  # noqa: E402

#: What a guest may say. Each other frame is an attack.
ALLOWED = {
    *("own IPv4", "own ARP", "probe for own address", "own IPv6", "DHCP client", "announcement of QEMU"),
    *("neighbour with own address", "is the own address free"),
}


def heard(path):
    """{what: whether it came through}, in namespaces of its own."""
    script = 'mount -t tmpfs none /run && mkdir -p /run/netns && exec "$@"'
    argv = [
        "unshare",
        "-n",
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        str(LAB / "filtered_guests.py"),
        "sources",
        path,
    ]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_guest_cannot_be_another(tmp_path):
    # This machine's kernel tracks no connections on bridges. None of the frames is of one.
    text = re.sub(r"(?m)^ *ct .*\n", "", render(read_filters(documents()[0])))
    path = tmp_path / "filters.nft"
    path.write_text(text)
    answers = heard(str(path))
    assert {what for what, came in answers.items() if came} == ALLOWED


@pytest.mark.long
def test_the_frames_come_through_without_filters():
    unheard = {what for what, came in heard("").items() if not came}
    # Bridges drop the first by themselves, and have no use for the others.
    assert unheard <= {"MAC of all", *("frame to the address of %s" % of for of in ("spanning tree", "a bridge"))}
