# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PostgreSQL that fails over (tests/lab/patroni_cluster.py) serves all tests; scripts/test failover runs what is here."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database

for folder in ("lab", "integration_py"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from patroni_cluster import Cluster  # noqa: E402


@pytest.fixture(scope="session")
def whole_cluster() -> t.Iterator[Cluster]:
    with Cluster() as cluster:
        ledger = database.open_ledger(cluster.url(), check_revision=False)
        ledger.migrate()
        ledger.close()
        yield cluster


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Cluster:
    """With both of its servers, whatever the test before did to them."""
    for machine in whole_cluster.machines.values():
        if not machine.processes:
            machine.start()
    whole_cluster.wait_until_whole()
    return whole_cluster
