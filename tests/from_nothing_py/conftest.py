# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""scripts/test from_nothing runs what is here: machines as an installer leaves them."""

from __future__ import annotations

import os
import socket
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("release", "lab", "integration_py", "storage_py", "confined_py", "from_nothing_py"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import machine as machine_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[machine_module.Machine]:
    """A freshly installed server that runs. Each file of tests has its own."""
    image = machine_module.build_image(CACHE / "full")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = machine_module.Machine(image, tmp_path_factory.mktemp("machine"), port)
    try:
        made.start()
        yield made
    finally:
        made.remove()
