# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the integration tests stand on: three namespace hosts for each worker, and the small guest, made once per run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import copies  # noqa: E402
import flow as flow_module  # noqa: E402
import tiny_guest  # noqa: E402
from empty_hosts import empty  # noqa: E402
from postgres import PASSWORD, PostgresServer  # noqa: E402
from postgres_flow import PostgresFlow  # noqa: E402

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """The small guest, made once."""
    return flow_module.build_guest_image()


@pytest.fixture(scope="session")
def still_image(tmp_path_factory) -> Path:
    """A guest of one sector that only waits: it costs no CPU, for tests of what happens around guests."""
    return tiny_guest.image(tmp_path_factory.mktemp("still"))


@pytest.fixture(scope="session")
def key_image(tmp_path_factory) -> Path:
    """The same, but it powers itself off when a key is pressed."""
    return tiny_guest.image(tmp_path_factory.mktemp("key"), key=True)


@pytest.fixture(scope="session")
def lab(worker_id):
    """A lab.Lab with compute1..compute3 up, of this worker alone; gone at the end."""
    lab = lab_module.Lab(str(CACHE / ("lab-tests-%s" % worker_id)))
    lab.up(3)
    empty(lab)  # a host's first view of /var/lib is this machine's, which may have instances of its own
    yield lab
    lab.down()


@pytest.fixture
def flow(lab, guest_image, tmp_path):
    """The playbooks against the lab with a ledger of its own; every host is whole again and empty at the end.

    Whatever a test does: no instance of its ledger ever had two running guests.
    """
    yield from _watched(lab, flow_module.Flow(lab, tmp_path, guest_image))


@pytest.fixture
def postgres_flow(lab, still_image, tmp_path):
    """The same with a ledger in a PostgreSQL server of its own; the flow's image "guest" is the still one."""
    with PostgresServer() as server:
        name = server.create()
        with server.connect() as conn:
            conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
        made = PostgresFlow(lab, tmp_path, still_image)
        made.server = server
        made.use(name)
        password = tmp_path / "ledger.password"
        password.write_text(PASSWORD + "\n")
        password.chmod(0o600)
        made.variables["bootflow_ledger_password_file"] = str(password)
        yield from _watched(lab, made)


def _watched(lab, made):
    with copies.Watch() as watch:
        yield made
        mine = {row["uuid"] for row in made.query("SELECT uuid FROM instances")}
    empty(lab)
    assert not watch.twice & mine, "guests that ran twice"


@pytest.fixture
def still_guests(flow, still_image) -> None:
    """The flow's image "guest" is the still one; "linux" is the one that boots."""
    linux = flow.variables["bootflow_images"][0]
    flow.variables["bootflow_images"] = [
        {**linux, **flow_module.image_file(still_image)},
        {**linux, "name": "linux"},
    ]
