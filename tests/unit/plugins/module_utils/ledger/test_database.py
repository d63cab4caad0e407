# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import tempfile
import traceback
import typing as t

import pytest
import sqlalchemy as sa
from postgres import PASSWORD, PostgresServer

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, runs, tables

from .conftest import migrate
from .world import World, request


def refused(url: str, **how: t.Any) -> errors.LedgerError:
    with pytest.raises(errors.LedgerError) as caught:
        ledger = database.open_ledger(url, **how)
        with ledger.write() as conn:
            conn.execute(sa.select(tables.runs))
    assert caught.value.remedy, caught.value.message
    return caught.value


# --- one transaction or nothing ------------------------------------------------------------------------------------


def test_all_or_nothing(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.ledger.write() as conn:
        runs.renew(conn, world.context().run, 1.0)
        raise ZeroDivisionError
    assert world.rows(tables.runs) == []


def test_a_rehearsal_leaves_nothing(world: World) -> None:
    with world.ledger.rehearse() as conn:
        runs.renew(conn, world.context().run, 1.0)
        assert conn.execute(sa.select(tables.runs)).first() is not None
    assert world.rows(tables.runs) == []


def test_reading_sees_one_moment_and_does_not_lock(world: World) -> None:
    query = sa.select(sa.func.count()).select_from(tables.instances)
    with world.ledger.read() as conn:
        assert conn.execute(query).scalar() == 0
        world.accept(request("web"))
        assert conn.execute(query).scalar() == 0
    with world.ledger.read() as conn:
        assert conn.execute(query).scalar() == 1


def test_what_another_run_wrote_at_the_same_moment_is_told_in_words(world: World) -> None:
    world.accept(request("web"))
    (row,) = world.rows(tables.instances)
    with pytest.raises(errors.LedgerError) as caught, world.ledger.write() as conn:
        conn.execute(tables.instances.insert().values(**{**row._mapping, "uuid": "other"}))
    assert caught.value.retryable and "run again" in caught.value.remedy
    with pytest.raises(errors.LedgerError) as caught, world.ledger.write() as conn:
        conn.execute(tables.instances.update().values(reservation_id="r-none"))
    assert not caught.value.retryable


# --- sqlite --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_the_file_is_its_owners(tmp_path: pathlib.Path, mask: int) -> None:
    path = tmp_path / "new" / "ledger.db"
    old = os.umask(mask)
    try:
        migrate(str(path))
        ledger = database.open_ledger(str(path))
        with ledger.write() as conn:
            conn.execute(sa.text("DELETE FROM runs"))
            files = sorted(path.parent.iterdir())
            assert [f.name for f in files] == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
            assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
        ledger.close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_commit_lasts(tmp_path: pathlib.Path) -> None:
    migrate(str(tmp_path / "ledger.db"))
    ledger = database.open_ledger(str(tmp_path / "ledger.db"))
    with ledger.read() as conn:
        found = [
            conn.exec_driver_sql("PRAGMA " + p).scalar()
            for p in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 60000]
    ledger.close()


def test_missing(tmp_path: pathlib.Path) -> None:
    error = refused(str(tmp_path / "none" / "ledger.db"))
    assert error.code == "LedgerMissing" and error.status == 404
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("sqlite:///relative.db", "relative"),
        ("sqlite:///:memory:", "relative"),
        ("relative.db", "neither"),
        ("", "neither"),
        ("mysql://root:my-secret@localhost/x", "neither"),
        ("postgresql://user:my-secret@localhost:port/x", "no database URL"),
        ("postgresql://user:my-secret@[::1/x", "no database URL"),
    ],
)
def test_no_ledger_url(url: str, word: str) -> None:
    error = refused(url, create=True)
    assert word in error.message
    assert "my-secret" not in "".join(traceback.format_exception(error))


def test_a_folder_in_its_place(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    assert "it is a folder" in refused(str(tmp_path / "ledger.db")).message


def test_below_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refused(str(tmp_path / "file" / "sub" / "ledger.db"), create=True).code == "LedgerError"


def test_damaged(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this was never a database\n" * 400)
    error = refused(str(path))
    assert "not a database" in error.message and "restore a backup" in error.remedy
    migrate(str(tmp_path / "good.db"))
    content = bytearray((tmp_path / "good.db").read_bytes())
    content[4096:] = b"\x77" * (len(content) - 4096)
    path.write_bytes(content)
    assert "malformed" in refused(str(path)).message


def test_read_only(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ledger-ro-"))
    try:
        path = folder / "ledger.db"
        migrate(str(path))
        path.chmod(0o444)
        folder.chmod(0o555)
        answer = _as_nobody(lambda: refused(str(path)))
        assert "read-only" in answer and "may write" in answer
        answer = _as_nobody(lambda: refused(str(folder / "sub" / "new.db"), create=True))
        assert "Permission denied" in answer and "may write" in answer
        folder.chmod(0o755)
        path.chmod(0o666)
        assert "read-only" in _as_nobody(lambda: refused(str(path)))  # its journal has no place
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def _as_nobody(work: t.Callable[[], errors.LedgerError]) -> str:
    """What a process without root's rights is told."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            error = work()
            os.write(writer, ("%s %s" % (error.message, error.remedy)).encode())
        except BaseException as e:
            os.write(writer, repr(e).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        answer = f.read()
    os.waitpid(child, 0)
    return answer


def test_a_lock_that_is_not_given_back(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0)
    migrate(str(tmp_path / "ledger.db"))
    one, two = (database.open_ledger(str(tmp_path / "ledger.db")) for _each in range(2))
    with one.write() as conn:
        conn.execute(sa.text("DELETE FROM runs"))
        with pytest.raises(errors.LedgerError) as caught, two.write():
            pass
        with two.read() as reading:  # readers never wait
            assert reading.execute(sa.select(tables.runs)).all() == []
    assert caught.value.retryable and "run again" in caught.value.remedy
    one.close()
    two.close()


def test_a_full_disk(tmp_path: pathlib.Path) -> None:
    migrate(str(tmp_path / "ledger.db"))
    world = World(str(tmp_path / "ledger.db"))

    @sa.event.listens_for(world.ledger.engine, "connect")
    def limit(connection: t.Any, _record: t.Any) -> None:
        connection.execute("PRAGMA max_page_count=%d" % (connection.execute("PRAGMA page_count").fetchone()[0] + 2))

    world.ledger.engine.dispose()
    with pytest.raises(errors.LedgerError) as caught:
        world.accept(request("web", 50))
    assert "full" in caught.value.message and "Free space" in caught.value.remedy
    assert world.count(tables.instances) == 0
    world.ledger.close()


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


def test_unreachable(tmp_path: pathlib.Path) -> None:
    for url in ("postgresql://user:my-secret@127.0.0.1:9/x", "postgresql://user:my-secret@/x?host=%s" % tmp_path):
        error = refused(url)
        text = "".join(traceback.format_exception(error)) + error.remedy
        assert "my-secret" not in text and "***" in error.message
        assert "Check that the server runs" in error.remedy


@pytest.mark.parametrize("where", ["checked:wrong-secret@", "checked:wrong@secret@", "checked@"])
def test_a_wrong_password(postgres: PostgresServer, where: str) -> None:
    url = "postgresql://%s/postgres?host=%s" % (where, postgres.folder)
    error = refused(url if where != "checked@" else url + "&password=wrong-secret")
    text = "".join(traceback.format_exception(error)) + error.remedy + repr(error.as_dict())
    assert "password authentication failed" in error.message
    assert "wrong" not in text and "secret" not in text
    assert "password of bootflow_ledger_url" in error.remedy


def test_the_right_password(postgres: PostgresServer) -> None:
    url = "postgresql://checked:%s@/postgres?host=%s" % (PASSWORD, postgres.folder)
    with pytest.raises(errors.LedgerTooOld) as caught:
        database.open_ledger(url)
    assert PASSWORD not in caught.value.message


def test_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    assert "does not exist" in refused(postgres.url("nowhere")).message


def test_no_right_to_write(postgres: PostgresServer) -> None:
    url = "postgresql://checked:%s@/postgres?host=%s" % (PASSWORD, postgres.folder)
    with pytest.raises(errors.LedgerError) as caught:
        migrate(url)
    assert "permission denied" in caught.value.message


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@q:r@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:a/b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u@h:5432/d?sslmode=require", "postgresql://u@h:5432/d?sslmode=require"),
        ("postgresql://h/d?user=u&password=p&x=y", "postgresql://h/d?user=u&password=***&x=y"),
        ("sqlite:////var/lib/l.db", "sqlite:////var/lib/l.db"),
    ],
)
def test_urls_are_shown_without_their_password(url: str, expected: str) -> None:
    assert database.shown(url) == expected


def test_urls_are_understood() -> None:
    home = os.path.expanduser("~")
    assert database.normalise_url("~/l.db") == "sqlite:///%s/l.db" % home
    assert database.normalise_url("/l.db") == "sqlite:////l.db"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert database.normalise_url(scheme + "://h/d") == "postgresql+psycopg://h/d"
