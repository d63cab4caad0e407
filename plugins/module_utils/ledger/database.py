# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Opening the ledger: sqlite or PostgreSQL behind one door, every failure in words.

sqlite: WAL, synchronous=FULL (a claim that was answered survives a power cut), a busy timeout on every connection and
BEGIN IMMEDIATE for each writing transaction: a lock upgrade in the middle fails at once and ignores the timeout.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t

from ..core import errors
from . import migrations_runner
from .libraries import need_libraries, sa

BUSY_SECONDS = 60


class Ledger:
    """An open ledger. ``with ledger.write() as conn`` is one transaction or nothing; ``read()`` never locks writers."""

    def __init__(self, url: str, engine: t.Any):
        self.url = url
        self.engine = engine

    @contextlib.contextmanager
    def write(self) -> t.Iterator[t.Any]:
        with self._errors(), self.engine.begin() as conn:
            yield conn

    @contextlib.contextmanager
    def read(self) -> t.Iterator[t.Any]:
        with self._errors(), self.engine.connect() as plain:
            options: dict[str, t.Any] = {"bootflow_read_only": True}
            if self.engine.dialect.name == "postgresql":
                options.update(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )  # one moment for all, as on sqlite
            conn = plain.execution_options(**options)
            with conn.begin():
                yield conn

    @contextlib.contextmanager
    def rehearse(self) -> t.Iterator[t.Any]:
        """A writing transaction that is always rolled back: what check mode runs."""
        with self._errors(), self.engine.connect() as conn:
            transaction = conn.begin()
            try:
                yield conn
            finally:
                transaction.rollback()

    @contextlib.contextmanager
    def _errors(self) -> t.Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as e:
            error = errors.LedgerError(
                url=shown(self.url), reason=_first_line(e.orig), remedy=_remedy(self.url, e.orig)
            )
            error.retryable = _collided(e.orig)
            raise error from e

    def close(self) -> None:
        self.engine.dispose()


def normalise_url(url: str) -> str:
    """A path or a database URL to SQLAlchemy's form; raise LedgerError for anything that is neither sqlite nor PostgreSQL."""
    if url.startswith(("/", "~")):
        return "sqlite:///" + os.path.expanduser(url)
    if url.startswith("sqlite:///"):
        return url
    match = re.match(r"^(postgres|postgresql|postgresql\+psycopg)://", url)
    if match:
        return "postgresql+psycopg://" + url[match.end() :]
    raise errors.LedgerError(
        url=shown(url),
        reason="it is neither a path nor a sqlite:/// or postgresql:// URL",
        remedy="Set bootflow_ledger_url, for example sqlite:////var/lib/bootflow/ledger.db.",
    )


def shown(url: str) -> str:
    """The URL without its password, also one that holds an @ or is written as an option."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url))


def sqlite_path(url: str) -> str | None:
    """The file of a sqlite URL; None for anything else (also an in-memory ledger)."""
    if url.startswith("sqlite:///") and url != "sqlite://":
        return url[len("sqlite:///") :]
    return None


def open_ledger(url: str, create: bool = False, check_revision: bool = True) -> Ledger:
    """Open the ledger at ``url``.

    :arg create: make the sqlite file (0600) and its folder where they are missing.
    :arg check_revision: refuse a ledger that is newer (LedgerTooNew) or older (LedgerTooOld) than this code.
    :raises LedgerError: it cannot be opened, with the reason and the remedy.
    """
    url = normalise_url(url)
    need_libraries(url)
    path = sqlite_path(url)
    if path is not None:
        _prepare_file(url, path, create)
    try:
        ledger = Ledger(url, _engine(url))
    except (sa.exc.ArgumentError, ValueError):
        raise errors.LedgerError(
            url=shown(url),
            reason="it is no database URL",
            remedy="Write it as postgresql://user@host:5432/database; special characters of a password as %40, %2F...",
        ) from None
    if check_revision:
        try:
            with ledger.read() as conn:
                migrations_runner.check_revision(conn, shown(url))
        except errors.BootflowError:
            ledger.close()
            raise
    return ledger


def memory_ledger() -> Ledger:
    """An empty, migrated ledger that nobody else sees: check mode before the first boot."""
    need_libraries("sqlite://")
    ledger = Ledger("sqlite://", _engine("sqlite://"))
    with ledger.write() as conn:
        migrations_runner.upgrade(conn)
    return ledger


def _prepare_file(url: str, path: str, create: bool) -> None:
    if not os.path.isabs(path):
        raise errors.LedgerError(
            url=shown(url),
            reason="the path is relative",
            remedy="Give an absolute path: sqlite:////folder/ledger.db has four slashes.",
        )
    if os.path.isdir(path):
        raise errors.LedgerError(
            url=shown(url), reason="it is a folder", remedy="Name a file in it: %s." % os.path.join(path, "ledger.db")
        )
    folder = os.path.dirname(path)
    try:
        if create and not os.path.exists(path):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif not os.path.exists(path):
            raise errors.LedgerMissing(url=shown(url))
    except OSError as e:
        raise errors.LedgerError(
            url=shown(url),
            reason="%s: %s" % (e.strerror, e.filename),
            remedy="Put bootflow_ledger_url on a folder that this user may write, or correct its permissions.",
        ) from e
    if not (_writable(path) and _writable(folder)):
        raise errors.LedgerError(
            url=shown(url),
            reason="%s or its folder is read-only" % path,
            remedy="Put bootflow_ledger_url on a folder that this user may write, or correct its permissions.",
        )


def _writable(path: str) -> bool:
    # os.access answers for root by permission bits alone; a read-only mount shows in statvfs.
    return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY


def _engine(url: str) -> t.Any:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    options: dict[str, t.Any] = {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}
    if url == "sqlite://":
        options["poolclass"] = sa.pool.StaticPool
    engine = sa.create_engine(url, **options)

    @sa.event.listens_for(engine, "connect")
    def on_connect(dbapi_connection: t.Any, _record: t.Any) -> None:
        dbapi_connection.isolation_level = None  # the transaction is begun below, not by the driver
        cursor = dbapi_connection.cursor()
        cursor.execute("PRAGMA busy_timeout=%d" % (BUSY_SECONDS * 1000))
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(conn: t.Any) -> None:
        read_only = conn.get_execution_options().get("bootflow_read_only")
        conn.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _collided(error: t.Any) -> bool:
    """Whether another run was in the way: the same transaction goes through the next time."""
    if getattr(error, "sqlstate", None) is not None:
        return error.sqlstate in (
            "40001",
            "40P01",
            "55P03",
            "23505",
        )  # serialisation, deadlock, lock timeout, unique row
    return "locked" in str(error) or "UNIQUE" in str(error)


def _first_line(error: t.Any) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _remedy(url: str, error: t.Any) -> str:
    text = str(error)
    if _collided(error) and "locked" not in text:
        return "Another run wrote the same at the same moment; run again. Nothing was changed."
    if "readonly" in text or "read-only" in text or "unable to open" in text:
        return "Put bootflow_ledger_url on a folder that this user may write, or correct its permissions."
    if "locked" in text:
        return "Another run held the ledger for more than %d s; run again." % BUSY_SECONDS
    if "disk" in text and "full" in text:
        return "Free space where the ledger lies, then run again; nothing was changed."
    if "not a database" in text or "malformed" in text:
        return "The file is no ledger or is damaged: restore a backup, or name another file."
    if not url.startswith("sqlite"):
        return "Check that the server runs and that host, user and password of bootflow_ledger_url are right."
    return "Look at the reason; nothing was changed."
