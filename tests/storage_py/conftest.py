# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The storage host of the lab is a virtual machine with real LVM, LIO and tgt; scripts/test storage runs what is here.

One machine serves all tests; it is on the management network of a lab, whose hosts are its initiators.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("lab", "integration_py", "storage_py"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import flow as flow_module  # noqa: E402
import storage_host  # noqa: E402
import storage_vm  # noqa: E402
from volume_flow import GROUPS, VolumeFlow  # noqa: E402

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))
GIB = storage_host.GIB
#: pv1, pv2, pv3: tests of volumes; pv4: of exports; pv5, pv6, pv7: of the role, and empty at first;
#: pv8, pv9: of boots from volume; pv10: of the playbooks of volumes, with pv1.
DISKS = {
    "pv1": 7 * GIB,
    "pv2": 4 * GIB,
    "pv3": GIB,
    "pv4": 4 * GIB,
    "pv5": GIB,
    "pv6": GIB,
    "pv7": GIB,
    "pv8": 3 * GIB,
    "pv9": 3 * GIB,
    "pv10": 40 * GIB,
}


@pytest.fixture(scope="session")
def lab():
    """A lab.Lab with compute1 and compute2 up; gone at the end."""
    made = lab_module.Lab(str(CACHE / "storage-lab"))
    made.up(2)
    yield made
    made.down()


@pytest.fixture(scope="session")
def storage(lab, tmp_path_factory):
    """The storage host, with empty disks but for what tests made; gone at the end."""
    image = storage_vm.build_image(CACHE / "storage")
    vm = storage_vm.StorageVM(str(CACHE / "storage-tests"), image, lab=lab, disks=DISKS)
    try:
        vm.start()
        host = storage_host.StorageHost(vm, tmp_path_factory.mktemp("storage"))
        yield host
        host.close()
    finally:
        vm.remove()


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """The small guest, made once."""
    return flow_module.build_guest_image()


@pytest.fixture(scope="module")
def backends(storage):
    """A volume group and one with a thin pool, on empty disks, for the tests of one file that boot from volumes."""
    thick, thin = GROUPS["thick"], GROUPS["thin"]
    storage.sh(
        "vgcreate -q {0} {2} && vgcreate -q {1} {3} && lvcreate -q -y --type thin-pool -l 90%VG -n {1}-pool {1}".format(
            thick, thin, storage.vm.disk("pv8"), storage.vm.disk("pv9")
        )
    )
    yield storage
    # tgtd does not heed a SIGTERM. A test that failed may have left its exports.
    storage.sh("pkill -KILL tgtd; targetctl clear; vgremove -q -y -f %s %s" % (thick, thin), check=False)


@pytest.fixture
def volumes(lab, backends, guest_image, tmp_path) -> VolumeFlow:
    """A new ledger, the lab's compute hosts, and the storage host with the two backends."""
    return VolumeFlow(lab, tmp_path, guest_image, backends)
