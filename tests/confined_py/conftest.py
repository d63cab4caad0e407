# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compute hosts that confine their guests are emulated machines, on the network of a lab; scripts/test confined runs what is here."""

from __future__ import annotations

import contextlib
import os
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("lab", "integration_py", "storage_py"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import kernel_way  # noqa: E402
import storage_vm  # noqa: E402
from confined_flow import BRIDGE  # noqa: E402
from kernel_way import ComputeHost  # noqa: E402

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))


@pytest.fixture(scope="session")
def lab() -> t.Iterator[lab_module.Lab]:
    """A lab.Lab whose network the machines are on; gone at the end."""
    made = lab_module.Lab(str(CACHE / "confined-lab"))
    made.up(1)
    yield made
    made.down()


@contextlib.contextmanager
def confining_host(lab: t.Any, number: int) -> t.Iterator[ComputeHost]:
    """A host with a bridge."""
    image = storage_vm.build_image(CACHE / "storage")
    vm = storage_vm.StorageVM(
        str(CACHE / ("confined%d" % number)), image, lab=lab, disks={}, number=number, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        # With systemd the module is loaded by who opens its device first.
        host.sh("modprobe tun && ip link add %s type bridge && ip link set %s up" % (BRIDGE, BRIDGE))
        yield host


@pytest.fixture(scope="module")
def compute(lab: t.Any) -> t.Iterator[ComputeHost]:
    with confining_host(lab, 3) as host:
        yield host


@pytest.fixture(scope="module")
def second(lab: t.Any) -> t.Iterator[ComputeHost]:
    with confining_host(lab, 4) as host:
        yield host
