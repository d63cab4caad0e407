# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import random
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
import traceback
import typing as t

import pytest
import sqlalchemy as sa
from postgres import PASSWORD, PostgresServer

from ansible_collections.bootflow.compute.plugins.action import ledger as ledger_action
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import address, sqlite_file
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress, password_in
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import Ports
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, at, request


def refused(url: str | LedgerAddress, **how: t.Any) -> errors.LedgerError:
    address = url if isinstance(url, LedgerAddress) else LedgerAddress(url=url, retry_timeout=0.2)
    with pytest.raises(errors.LedgerError) as caught:
        ledger = database.open_ledger(address, **how)
        with ledger.write() as tx:
            tx.execute(sa.select(tables.runs))
    assert caught.value.remedy, caught.value.message
    return caught.value


# --- one transaction or nothing ------------------------------------------------------------------------------------


def test_all_or_nothing(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.ledger.write() as tx:
        runs.renew(at(tx, 1.0, world.context().run))
        raise ZeroDivisionError
    assert world.rows(tables.runs) == []


def test_a_rehearsal_leaves_nothing(world: World) -> None:
    with world.ledger.rehearse() as tx:
        runs.renew(at(tx, 1.0, world.context().run))
        assert tx.execute(sa.select(tables.runs)).first() is not None
    assert world.rows(tables.runs) == []


def test_reading_sees_one_moment_and_does_not_lock(world: World) -> None:
    query = sa.select(sa.func.count()).select_from(tables.instances)
    with world.ledger.read() as tx:
        assert tx.execute(query).scalar() == 0
        world.accept(request("web"))
        assert tx.execute(query).scalar() == 0
    with world.ledger.read() as tx:
        assert tx.execute(query).scalar() == 1


def test_what_another_run_wrote_at_the_same_moment_is_told_in_words(world: World) -> None:
    world.accept(request("web"))
    (row,) = world.rows(tables.instances)
    with pytest.raises(errors.LedgerError) as caught, world.ledger.write() as tx:
        tx.execute(tables.instances.insert().values(**{**row._mapping, "uuid": "other"}))
    assert caught.value.retryable and "run again" in caught.value.remedy
    with pytest.raises(errors.LedgerError) as caught, world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(reservation_id="r-none"))
    assert not caught.value.retryable


# --- sqlite --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_file_is_its_owners(tmp_path: pathlib.Path, mask: int) -> None:
    path = tmp_path / "parent" / "new" / "ledger.db"
    old = os.umask(mask)
    try:
        migrate(str(path))
        ledger = database.open_ledger(str(path))
        with ledger.write() as tx:
            tx.execute(sa.text("DELETE FROM runs"))
            files = sorted(path.parent.iterdir())
            assert [f.name for f in files] == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
            assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
        ledger.close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o711, "QEMU passes through it where the instances are below"
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o755, "S12: of a parent, too, whatever the umask"


def test_a_commit_lasts(tmp_path: pathlib.Path) -> None:
    migrate(str(tmp_path / "ledger.db"))
    ledger = database.open_ledger(str(tmp_path / "ledger.db"))
    with ledger.read() as tx:
        found = [
            tx.connection.exec_driver_sql("PRAGMA " + p).scalar()
            for p in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "cache_size", "wal_autocheckpoint")
        ]
    assert found == ["wal", 2, 1, 60000, -65536, 4096]
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
        ("postgresql://user:my-secret@localhost:port/x", "not a database URL"),
        ("postgresql://user:my-secret@[::1/x", "not a database URL"),
    ],
)
def test_no_ledger_url(url: str, word: str) -> None:
    error = refused(url, create=True)
    assert word in error.message
    assert "my-secret" not in "".join(traceback.format_exception(error))


def test_a_folder_in_its_place(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    assert "the path is a folder" in refused(str(tmp_path / "ledger.db")).message


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


def test_damaged_anywhere(tmp_path: pathlib.Path) -> None:
    """Wherever a file is damaged, opening it either works or is an error of the ledger."""
    migrate(str(tmp_path / "good.db"))
    with contextlib.closing(sqlite3.connect(tmp_path / "good.db")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    content = (tmp_path / "good.db").read_bytes()
    rng = random.Random(5)
    refusals = 0
    for number in range(60):
        damaged = bytearray(content)
        start = rng.randrange(len(content))
        damaged[start : start + 4096] = rng.randbytes(len(damaged[start : start + 4096]))
        path = tmp_path / ("%d.db" % number)
        path.write_bytes(damaged)
        try:
            ledger = database.open_ledger(str(path))
            with ledger.write() as tx:
                tx.execute(sa.text("DELETE FROM runs"))
            ledger.close()
        except errors.LedgerError as error:
            assert error.remedy
            refusals += 1
    assert refusals


@pytest.mark.parametrize("way", ["transact", "inspect", "read"])
def test_content_that_is_no_text_is_damaged(world: World, way: str) -> None:
    """What is no UTF-8 or no JSON is found by Python, not by the database."""

    def read(_tx: t.Any) -> None:
        b"\xff".decode()

    with pytest.raises(errors.LedgerError) as caught:
        if way == "read":
            with world.ledger.read() as tx:
                read(tx)
        else:
            getattr(world.ledger, way)(read)
    assert "is damaged" in caught.value.message and "Restore a backup" in caught.value.remedy


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


def test_a_lock_that_is_not_given_back(tmp_path: pathlib.Path) -> None:
    migrate(str(tmp_path / "ledger.db"))
    address = LedgerAddress(url=str(tmp_path / "ledger.db"), lock_timeout=0.01)
    one, two = (database.open_ledger(address) for _each in range(2))
    with one.write() as tx:
        tx.execute(sa.text("DELETE FROM runs"))
        with pytest.raises(errors.LedgerError) as caught, two.write():
            pass
        with two.read() as reading:  # readers never wait
            assert reading.execute(sa.select(tables.runs)).all() == []
    assert caught.value.retryable and "run again" in caught.value.remedy
    one.close()
    two.close()


@pytest.fixture
def small_disk(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[pathlib.Path]:
    """A disk of its own, of 2 MB or of the parameter."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "size=%s,mode=700" % getattr(request, "param", "2m"),
            "ledger-test",
            str(folder),
        ],
        check=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk: pathlib.Path) -> None:
    path = small_disk / "ledger.db"
    migrate(str(path))
    world = World(str(path))
    world.boot("first", until="accepted")
    before = world.everything()
    (small_disk / "filler").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    with pytest.raises(errors.LedgerError) as caught:
        world.accept(request("web", 40))
    assert "full" in caught.value.message and "Free space" in caught.value.remedy
    assert "Delete can make the room once" in caught.value.remedy, "S14"
    assert world.everything() == before
    error = refused(str(small_disk / "other.db"), create=True)
    assert "full" in error.message and "Free space" in error.remedy
    (small_disk / "filler").unlink()
    world.boot("second", until="accepted")
    assert world.count(tables.instances) == 2
    with world.ledger.read() as tx:
        assert tx.connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    world.ledger.close()


@pytest.mark.parametrize("small_disk", ["80m"], indirect=True)
def test_a_delete_on_a_full_disk_has_the_reserve(small_disk: pathlib.Path) -> None:
    """Nothing could be given back."""
    path = small_disk / "ledger.db"
    migrate(str(path))
    world = World(str(path))
    world.report("h1")
    uuid = world.boot("web")
    world.ledger.close()

    def opened(**options: bool) -> tuple[dict[str, t.Any], list[str]]:
        ports = WorldPorts(world, "a")
        ports.open_ledger = Ports.open_ledger.__get__(ports)  # type: ignore[method-assign]
        return action_of(ledger_action, ports, {}, **options).act(), ports.warnings

    assert opened() and (small_disk / "ledger.db-reserve").stat().st_blocks * 512 == sqlite_file.RESERVE
    fill(small_disk)
    with pytest.raises(errors.LedgerError):
        opened()
    assert (small_disk / "ledger.db-reserve").exists(), "what is no delete leaves it"
    _result, warnings = opened(use_reserve=True)
    assert "16 MiB" in warnings[0] and not (small_disk / "ledger.db-reserve").exists()
    again = World(str(path))
    again.delete(uuids=[uuid])
    again.removed("h1", [uuid])
    assert again.finish()[0] == ["web"]
    again.ledger.close()
    (small_disk / "filler").unlink()
    assert opened()[1] == [] and (small_disk / "ledger.db-reserve").exists()


def fill(folder: pathlib.Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o660])
def test_a_file_that_was_open_to_others_is_closed(tmp_path: pathlib.Path, suffix: str, mode: int) -> None:
    path = tmp_path / "ledger.db"
    migrate(str(path))
    first = database.open_ledger(str(path))
    assert first.warnings == []
    with first.read() as tx:
        tx.execute(sa.select(tables.runs))
        wide = tmp_path / ("ledger.db" + suffix)
        wide.chmod(mode)
        second = database.open_ledger(str(path))
        assert stat.S_IMODE(wide.stat().st_mode) == 0o600
        (warning,) = second.warnings
        assert str(wide) in warning and "%04o" % mode in warning
    first.close()
    second.close()


def test_a_file_of_somebody_else_that_is_open_is_refused() -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ledger-other-"))
    try:
        path = folder / "ledger.db"
        migrate(str(path))
        path.chmod(0o666)
        folder.chmod(0o777)
        answer = _as_nobody(lambda: refused(str(path)))
        assert "belongs to root (mode 0666)" in answer and "PostgreSQL" in answer
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("what", ["file", "link", "dangling link", "pipe"])
def test_root_takes_nothing_that_somebody_else_put_there(tmp_path: pathlib.Path, suffix: str, what: str) -> None:
    """Neither a file nor, through a link, the mode of another file; and nothing is changed."""
    path, other = tmp_path / "ledger.db", tmp_path / "other"
    migrate(str(path))
    planted = pathlib.Path(str(path) + suffix)
    planted.unlink(missing_ok=True)
    if what == "file":
        planted.write_bytes(b"")
        os.chown(planted, 12345, 12345)
        planted.chmod(0o644)
    elif what == "pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(other)
        if what == "link":
            other.write_bytes(b"")
            other.chmod(0o644)
    before = {f.name: (f.lstat().st_mode, f.lstat().st_uid, f.lstat().st_mtime_ns) for f in tmp_path.iterdir()}
    error = refused(str(path), create=True)
    words = {"file": "belongs to uid 12345 (mode 0644)", "pipe": "is not a regular file"}
    assert "%s %s" % (planted, words.get(what, "is a symbolic link")) in error.message
    assert {f.name: (f.lstat().st_mode, f.lstat().st_uid, f.lstat().st_mtime_ns) for f in tmp_path.iterdir()} == before


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [
        (0o777, 0, "others may write to its folder"),
        (0o1777, 0, "others may write to its folder"),
        (0o770, 0, "others may write to its folder"),
        (0o700, 12345, "belongs to uid 12345"),
    ],
)
def test_a_folder_where_others_can_exchange_the_file(
    tmp_path: pathlib.Path, exists: bool, mode: int, owner: int, words: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if exists:
        migrate(str(folder / "ledger.db"))
        (folder / "ledger.db").chmod(0o644)
    os.chown(folder, owner, 12345)
    folder.chmod(mode)
    error = refused(str(folder / "ledger.db"), create=True)
    assert words in error.message and "folder of this user's own" in error.remedy
    assert [stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()] == ([0o644] if exists else [])


@pytest.mark.parametrize(
    ("kind", "network"),
    [("nfs", True), ("nfs4", True), ("cifs", True), ("smb3", True), ("9p", True), ("fuse.sshfs", True), ("ceph", True),
     ("virtiofs", True), ("ext4", False), ("xfs", False), ("tmpfs", False), ("overlay", False), ("fuse.ntfs-3g", False)],
)  # fmt: skip
def test_network_file_systems_are_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str, network: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 22 0:35 / %s rw,relatime shared:2 master:1 - autofs systemd-1 rw\n"
        "41 22 0:36 / %s rw,relatime - %s server:/export rw,vers=4.2\n"
        "42 41 0:37 / %s-beside rw - nfs server:/beside rw\n" % ((tmp_path / "a b",) * 2 + (kind, tmp_path / "a b"))
    )
    mounts.write_text(mounts.read_text().replace("a b", "a\\040b"))
    monkeypatch.setattr(sqlite_file, "MOUNTINFO", str(mounts))
    path = tmp_path / "a b" / "deeper" / "ledger.db"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a b")
    for url in (str(path), str(link / "deeper" / "ledger.db")):
        if network:
            error = refused(url, create=True)
            assert kind in error.message and "network file system" in error.message and "PostgreSQL" in error.remedy
            assert not path.parent.exists()
        else:
            database.open_ledger(url, create=True, check_revision=False).close()
    database.open_ledger(str(tmp_path / "elsewhere.db"), create=True, check_revision=False).close()


def test_this_machine_tells_its_mounts(tmp_path: pathlib.Path) -> None:
    found = sqlite_file.file_system(str(tmp_path / "ledger.db"))
    assert found is not None and str(tmp_path).startswith(found[1])
    assert sqlite_file.file_system("/proc/x") == ("proc", "/proc")
    assert sqlite_file.file_system(str(tmp_path), "/nowhere") is None


def test_a_device_in_its_place() -> None:
    assert "not a regular file" in refused("/dev/null").message


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


def test_unreachable(tmp_path: pathlib.Path) -> None:
    for url in ("postgresql://user:my-secret@127.0.0.1:9/x", "postgresql://user:my-secret@/x?host=%s" % tmp_path):
        error = refused(url)
        text = "".join(traceback.format_exception(error)) + error.remedy
        assert "my-secret" not in text and "***" in error.message
        assert "Check that the server runs" in error.remedy


def everything_shown(error: BaseException, ledger: t.Any = None) -> str:
    """All that an error, what it came from, and their objects would print."""
    texts = []
    seen: BaseException | None = error
    while seen is not None:
        texts += [str(seen), repr(seen), repr(seen.args), repr(vars(seen)), repr(getattr(seen, "orig", None))]
        seen = seen.__cause__ or seen.__context__
    texts += traceback.format_exception(error)
    texts.append(repr(error.as_dict()) if isinstance(error, errors.BootflowError) else "")
    if ledger is not None:
        texts += [repr(ledger.engine), repr(ledger.engine.url), str(ledger.engine.url), repr(ledger.address)]
    return "\n".join(texts)


@pytest.mark.parametrize("where", ["checked:wrong-secret@", "checked:wrong@secret@", "checked@", "checked@:setting"])
def test_a_wrong_password(postgres: PostgresServer, where: str) -> None:
    url = "postgresql://%s/postgres?host=%s" % (where.partition(":setting")[0], postgres.folder)
    address = LedgerAddress(url=url, retry_timeout=30)
    if where == "checked@":
        address = LedgerAddress(url=url + "&password=wrong-secret", retry_timeout=30)
    if where == "checked@:setting":
        address = LedgerAddress(url=url, password="wrong-secret", retry_timeout=30)
    begun = time.monotonic()
    error = refused(address)
    assert time.monotonic() - begun < 10  # it does not get better by waiting
    assert "password authentication failed" in error.message
    ledger = database.open_ledger(address, check_revision=False)
    text = everything_shown(error, ledger) + error.remedy.replace("bootflow_ledger_password", "")
    assert [line for line in text.splitlines() if "wrong" in line or "secret" in line] == []
    assert "bootflow_ledger_password_file" in error.remedy
    ledger.close()


def test_a_password_that_a_message_repeats_is_taken_out(postgres: PostgresServer) -> None:
    url = "postgresql://checked@/s3cret-w%%2Ford?host=%s" % postgres.folder
    error = refused(LedgerAddress(url=url, password=PASSWORD))
    assert "s3cret" in error.message  # a database of that name
    error = refused(LedgerAddress(url=url.replace("s3cret-w%2Ford", PASSWORD), password=PASSWORD))
    assert "does not exist" in error.message and PASSWORD not in error.message.replace("/" + PASSWORD, "")


def checked_url(postgres: PostgresServer) -> str:
    return "postgresql://checked@/postgres?host=%s" % postgres.folder


def is_let_in(address: LedgerAddress) -> None:
    with pytest.raises(errors.LedgerTooOld) as caught:
        database.open_ledger(address)
    assert PASSWORD not in everything_shown(caught.value)


def test_the_password_comes_from_many_places(
    postgres: PostgresServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = checked_url(postgres)
    for name in ("BOOTFLOW_LEDGER_PASSWORD", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE"):
        monkeypatch.delenv(name, raising=False)
    is_let_in(LedgerAddress(url=url, password=PASSWORD))
    is_let_in(LedgerAddress(url=url.replace("checked@", "checked:%s@" % PASSWORD)))
    is_let_in(LedgerAddress(url=url + "&password=" + PASSWORD))
    is_let_in(LedgerAddress(url=url.replace("checked@", "checked:wrong@"), password=PASSWORD))
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    file.chmod(0o600)
    is_let_in(LedgerAddress(url=url, password_file=str(file)))
    for name in ("BOOTFLOW_LEDGER_PASSWORD", "PGPASSWORD"):
        assert "password" in refused(url).message
        monkeypatch.setenv(name, PASSWORD)
        is_let_in(LedgerAddress(url=url))
        monkeypatch.delenv(name)
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:checked:%s\n" % PASSWORD)
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    is_let_in(LedgerAddress(url=url))
    monkeypatch.delenv("PGPASSFILE")
    services = tmp_path / "services"
    services.write_text("[ledger]\nhost=%s\nuser=checked\ndbname=postgres\npassword=%s\n" % (postgres.folder, PASSWORD))
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    is_let_in(LedgerAddress(url="postgresql://?service=ledger"))


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("s3cret\n", 0o640, "read or written by others (mode 0640)"),
        ("s3cret\n", 0o604, "read or written by others (mode 0604)"),
        ("s3cret\n", 0o620, "read or written by others (mode 0620)"),
        ("", 0o600, "one line with the password"),
        ("\n", 0o600, "one line with the password"),
        ("s3cret\nmore\n", 0o600, "one line with the password"),
        ("s3\0cret\n", 0o600, "one line with the password"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_password_file_that_cannot_be(tmp_path: pathlib.Path, content: str | None, mode: int, words: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(errors.InvalidInput) as caught:
        database.open_ledger(LedgerAddress(url="postgresql://h/d", password_file=str(file)))
    assert words in caught.value.message and "bootflow_ledger_password_file" in caught.value.message
    assert "chmod 600" in caught.value.remedy and "s3cret" not in everything_shown(caught.value)


def test_a_password_file_of_somebody_else(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    with pytest.raises(errors.InvalidInput) as caught:
        database.open_ledger(LedgerAddress(url="postgresql://h/d", password_file=str(file)))
    assert "belongs to uid 12345" in caught.value.message
    assert "is not a regular file" in _refused_file("/dev/null")
    assert "cannot be read" in _refused_file(str(tmp_path))


def _refused_file(path: str) -> str:
    with pytest.raises(errors.InvalidInput) as caught:
        database.open_ledger(LedgerAddress(url="postgresql://h/d", password_file=path))
    return caught.value.message


@pytest.fixture(scope="module")
def tls_server() -> t.Iterator[tuple[PostgresServer, int]]:
    server = PostgresServer()
    try:
        port = server.use_tls()
        server.start()
        yield server, port
    finally:
        server.stop()


def test_tls(tls_server: tuple[PostgresServer, int], tmp_path: pathlib.Path) -> None:
    server, port = tls_server
    ca = os.path.join(server.folder, "ca.pem")
    good = LedgerAddress(
        url="postgresql://checked@localhost:%d/postgres?hostaddr=127.0.0.1" % port,
        password=PASSWORD,
        sslmode="verify-full",
        sslrootcert=ca,
        retry_timeout=0,
    )
    is_let_in(good)
    ledger = database.open_ledger(good, check_revision=False)
    with ledger.read() as tx:
        assert tx.execute(sa.text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")).scalar() is True
    ledger.close()
    by_url = good.url + "&sslmode=verify-full&sslrootcert=" + ca
    is_let_in(LedgerAddress(url=by_url, password=PASSWORD))
    # the certificate is for another name
    other = dataclasses.replace(good, url=good.url.replace("localhost", "db.example.org"))
    error = refused(other)
    assert "does not match host name" in error.message and "bootflow_ledger_sslrootcert" in error.remedy
    is_let_in(dataclasses.replace(other, sslmode="verify-ca"))
    # nobody signed it
    wrong = tmp_path / "wrong.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=wrong", "-keyout",
         str(tmp_path / "wrong.key"), "-out", str(wrong)],
        check=True, capture_output=True,
    )  # fmt: skip
    error = refused(dataclasses.replace(good, sslrootcert=str(wrong)))
    assert "certificate verify failed" in error.message and "bootflow_ledger_sslmode" in error.remedy
    # the setting wins over the URL, and this server takes nobody without TLS
    assert "no encryption" in refused(LedgerAddress(url=by_url, password=PASSWORD, sslmode="disable")).message


def test_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    assert "does not exist" in refused(postgres.url("nowhere")).message


def test_no_right_to_write(postgres: PostgresServer) -> None:
    url = "postgresql://checked:%s@/postgres?host=%s" % (PASSWORD, postgres.folder)
    with pytest.raises(errors.LedgerError) as caught:
        migrate(url)
    assert "permission denied" in caught.value.message and "owner of the database" in caught.value.remedy


def test_a_server_that_only_reads(postgres: PostgresServer) -> None:
    url = postgres.url("postgres") + "&options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(errors.LedgerError) as caught:
        migrate(url)
    assert "target_session_attrs=read-write" in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/d", "p"),
        ("postgresql://u:p%40%2F@h/d", "p@/"),
        ("postgresql://u:a+b@h/d", "a+b"),
        ("postgresql://u:p@q:r@h:5432/d", "p@q:r"),
        ("postgresql://u@h/d", None),
        ("postgresql://u:@h/d", None),
        ("postgresql://u@h/d?password=p%26q&x=1", "p&q"),
        ("postgresql://u@h:5432/d?sslmode=require", None),
        ("postgresql:///d?service=ledger", None),
        ("postgresql://u@h:5432/d?application_name=a@b", None),
        ("postgresql://u:p@h:5432/d?application_name=a:x@b", "p"),
        ("postgresql://h:5432/d?application_name=a@b", None),
    ],
)
def test_the_password_of_a_url(url: str, expected: str | None) -> None:
    assert password_in(url) == expected
    assert "u:" not in repr(LedgerAddress(url=url, password="s3cret")) and "s3cret" not in repr(
        LedgerAddress(url=url, password="s3cret")
    )


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
    assert address.shown(url) == expected


def test_urls_are_understood() -> None:
    home = os.path.expanduser("~")
    assert address.normalise_url("~/l.db") == "sqlite:///%s/l.db" % home
    assert address.normalise_url("/l.db") == "sqlite:////l.db"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert address.normalise_url(scheme + "://h/d") == "postgresql+psycopg://h/d"
