# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger of its own for each test: a sqlite file, and a database of a PostgreSQL server that this session starts."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import LedgerServer, migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres() -> t.Iterator[LedgerServer]:
    with LedgerServer() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("template") / "ledger.db")
    migrate(path)
    return path


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    return t.cast(str, request.param)


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, kind: str, tmp_path: pathlib.Path) -> t.Iterator[str]:
    """A place for a ledger that is not there yet, on either database."""
    if kind == "sqlite":
        yield "sqlite:///%s" % (tmp_path / "ledger.db")
        return
    server: LedgerServer = request.getfixturevalue("postgres")
    name = server.create()
    try:
        yield server.url(name)
    finally:
        server.drop(name)


@pytest.fixture
def world(request: pytest.FixtureRequest, kind: str, tmp_path: pathlib.Path) -> t.Iterator[World]:
    """A migrated ledger without hosts and instances, on either database. The laws are checked at the end."""
    yield from _checked(World(_url(request, kind, tmp_path)))


@pytest.fixture
def vworld(request: pytest.FixtureRequest, kind: str, tmp_path: pathlib.Path) -> t.Iterator[VolumeWorld]:
    """The same, with words for volumes."""
    yield from _checked(VolumeWorld(_url(request, kind, tmp_path)))


@pytest.fixture
def bworld(request: pytest.FixtureRequest, kind: str, tmp_path: pathlib.Path) -> t.Iterator[BootWorld]:
    """The same, with words for boots from volumes."""
    yield from _checked(BootWorld(_url(request, kind, tmp_path)))


def _url(request: pytest.FixtureRequest, kind: str, tmp_path: pathlib.Path) -> str:
    if kind == "sqlite":
        return "sqlite:///%s" % shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
    return str(request.getfixturevalue("postgres").emptied())


def _checked(world: World) -> t.Iterator[t.Any]:
    yield world
    with world.ledger.read() as tx:
        world.check(tx)
    world.close()
