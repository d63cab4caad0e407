# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Database errors, sorted by their remedy, and as text without secrets."""

from __future__ import annotations

import enum
import json
import typing as t

from ...core import errors
from .address import LedgerAddress, normalise_url, scrubbed, shown, url_is_sqlite
from .limited_connection import NO_ANSWER
from .sqlalchemy_import import sa
from .sqlite_file import FOLDER_REMEDY
from .transaction import READ_ONLY_SERVER


class Kind(enum.Enum):
    CONFLICT = "conflict"  # nothing was written; a repetition succeeds
    COLLISION = "collision"  # a row with these unique columns exists
    LOST = "lost"  # the connection broke; a COMMIT may have been done or not
    AWAY = "away"  # no connection: the server is starting, stopping or not running
    OTHER = "other"


CONFLICTS = ("40001", "40P01", "55P03")  # serialisation, deadlock, lock timeout
LOST = ("57P01", "57P02", "57P05", "25P03")  # shutdown, crash of another, idle too long
AWAY_STATES = ("57P03", "53300")  # starting or stopping; no free connection
STATEMENT_POOLING = "not allowed in statement pooling mode"  # says PgBouncer of a BEGIN
# libpq has no code for a failed connection, only text
AWAY_WORDS = (
    "Connection refused", "Connection timed out", "Connection reset", "connection timeout", "timeout expired",
    "No such file or directory", "is starting up", "is shutting down", "not yet accepting", "in recovery mode",
    "server closed the connection", "unexpected EOF", "EOF detected", "too many clients", "connection slots are reserved",
    "No route to host", "Network is unreachable", "Broken pipe", "terminating connection", "could not receive data",
    "another command is already in progress", "connection is closed", "connection is lost",
)  # fmt: skip
# libpq of servers that are not what target_session_attrs asks for: until a failover is over, none is
NO_PRIMARY = ("session is read-only", "server is in hot standby mode")
NO_STANDBY = ("session is not read-only", "server is not in hot standby mode")


def kind_of(error: sa.exc.DBAPIError) -> Kind:
    """:arg error: a sqlalchemy.exc.DBAPIError."""
    orig, state = error.orig, getattr(error.orig, "sqlstate", None)
    text = str(orig)
    if state in CONFLICTS:
        return Kind.CONFLICT
    if state == "23505":
        return Kind.COLLISION
    if state in AWAY_STATES:
        return Kind.AWAY
    if STATEMENT_POOLING in text:  # the state is that of a lost connection
        return Kind.OTHER
    if state in LOST or str(state).startswith("08"):
        return Kind.LOST
    if state == READ_ONLY_SERVER and error.connection_invalidated:  # a standby: the next connection finds the primary
        return Kind.AWAY
    if state is not None:
        return Kind.OTHER
    if type(orig).__module__.partition(".")[0] == "sqlite3":
        if "locked" in text or "busy" in text:
            return Kind.CONFLICT
        return Kind.COLLISION if "UNIQUE" in text else Kind.OTHER
    if error.connection_invalidated:
        return Kind.LOST
    return Kind.AWAY if any(w in text for w in (*AWAY_WORDS, *NO_PRIMARY, *NO_STANDBY)) else Kind.OTHER


def is_failing_over(error: BaseException | None) -> bool:
    """Whether a server answered, and is a standby: the URL is right, and a primary may follow."""
    return any(w in str(error) for w in NO_PRIMARY)


def is_frozen(error: sa.exc.DBAPIError) -> bool:
    """Whether the connection was cut because no answer came."""
    return NO_ANSWER in str(error.orig)


def waiting(address: LedgerAddress, error: sa.exc.DBAPIError, secrets: t.Iterable[str | None] = ()) -> str:
    """Return the message for a person while a server that went away is waited for."""
    return "The ledger %s does not answer: %s. The run waits for it, up to %g s (bootflow_ledger_retry_timeout)." % (
        shown(address.url),
        scrubbed(_first_line(error.orig), secrets),
        address.retry_timeout,
    )


def in_words(
    address: LedgerAddress, error: sa.exc.DBAPIError, secrets: t.Iterable[str | None] = ()
) -> errors.LedgerError:
    """The LedgerError for a DBAPIError; ``retryable`` if a repetition may succeed."""
    kind = kind_of(error)
    url = shown(address.url)
    ledger_error = errors.LedgerError(
        url=url,
        reason=scrubbed(_first_line(error.orig), secrets),
        remedy=_remedy(address, kind, error.orig),
    )
    ledger_error.retryable = kind in (Kind.CONFLICT, Kind.COLLISION, Kind.LOST, Kind.AWAY)
    return ledger_error


def outcome_unknown(address: LedgerAddress) -> errors.LedgerError:
    """The error if the connection broke during a commit and the server did not come back to be asked."""
    return errors.LedgerError(
        url=shown(address.url),
        reason="the connection broke while a change was committed, and the server did not come back within"
        " %g s to tell whether it was" % address.retry_timeout,
        remedy="When the server runs again, check with bootflow.compute.list and run again: existing instances are kept.",
    )


# What reading a damaged file can raise instead of an error of the database.
DAMAGED = (UnicodeDecodeError, json.JSONDecodeError)


def damaged(address: LedgerAddress, error: Exception) -> errors.LedgerError:
    """Return the error for content that is not text, or not JSON."""
    return errors.LedgerError(
        url=shown(address.url),
        reason="the content is damaged (%s)" % type(error).__name__,
        remedy="Restore a backup; nothing was changed.",
    )


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _remedy(address: LedgerAddress, kind: Kind, error: BaseException | None) -> str:
    sqlite = url_is_sqlite(normalise_url(address.url))
    text, state = str(error), str(getattr(error, "sqlstate", None) or "")
    for applies, remedy in (
        (kind is Kind.COLLISION, "Another run wrote the same at the same moment; run again. Nothing was changed."),
        (
            kind is Kind.CONFLICT and (sqlite or state == "55P03"),
            "Another run held the ledger for more than %g s (bootflow_ledger_lock_timeout); run again."
            % address.lock_timeout,
        ),
        (kind is Kind.CONFLICT, "Another run wrote the same at the same moment; run again. Nothing was changed."),
        (
            state == "57014",
            "A statement took more than %g s: raise bootflow_ledger_statement_timeout. Nothing was changed."
            % address.statement_timeout,
        ),
        (
            NO_ANSWER in text,
            (
                "The server, its machine or a pooler before it is frozen: when it answers again, check with bootflow.compute.list"
                " and run again (bootflow_ledger_answer_timeout)."
            ),
        ),
        (
            any(w in text for w in NO_PRIMARY),
            (
                "None of the servers in bootflow_ledger_url is a primary: a failover that found none in time, or only standbys are named."
                " See docs/failover.md; then run again."
            ),
        ),
        (
            any(w in text for w in NO_STANDBY),
            "None of the servers in the URL is a standby: prefer-standby as target_session_attrs takes the primary then.",
        ),
        (
            state == READ_ONLY_SERVER,
            (
                "The server is read-only (a standby?): name the primary, or add target_session_attrs=read-write to the URL;"
                " or default_transaction_read_only is on for this server, database, user or URL."
            ),
        ),
        (
            STATEMENT_POOLING in text,
            "Set PgBouncer's pool_mode to session or transaction for this database.",
        ),
        (
            # From 1.20 on PgBouncer reads the options, and names the first that it does not know.
            "unsupported startup parameter: options" in text or "unsupported startup parameter in options" in text,
            (
                "Leave options out of bootflow_ledger_url, which PgBouncer does not pass on, or add it to"
                " ignore_startup_parameters there: nothing of the collection's needs it."
            ),
        ),
        (state == "42501", "Make the ledger's user the owner of the database (docs/ledger.md)."),
        (state == "42883", "The ledger needs PostgreSQL 13 or newer."),
        (state in ("42P01", "42703"), "The ledger is incomplete: restore a backup, or name another database."),
        (
            state == "53100" or ("full" in text and sqlite),
            (
                "Free space on the disk of the ledger, then run again; nothing was changed. Delete can make the room once, from the reserve"
                " of an sqlite ledger; otherwise remove other files there, or move the ledger (docs/ledger.md, A full disk)."
            ),
        ),
        (state == "53300" or "too many clients" in text, "Raise the server's max_connections, or lower the forks."),
        (
            sqlite and any(w in text for w in ("readonly", "read-only", "unable to open")),
            FOLDER_REMEDY,
        ),
        (
            sqlite and ("not a database" in text or "malformed" in text),
            "The file is not a ledger or is damaged: restore a backup, or set another file.",
        ),
        (
            sqlite and "I/O" in text,
            "Check whether the disk of the ledger is full (df) or fails (the kernel's log); nothing was changed. See docs/ledger.md, A full disk.",
        ),
        (
            not sqlite and any(w in text for w in ("authentication failed", "no password supplied")),
            (
                "Correct the user in bootflow_ledger_url, or the password: bootflow_ledger_password,"
                " bootflow_ledger_password_file or ~/.pgpass."
            ),
        ),
        (
            not sqlite and ("certificate" in text or "SSL" in text),
            "Correct bootflow_ledger_sslmode, bootflow_ledger_sslrootcert and the server's certificate (docs/ledger.md).",
        ),
        (
            not sqlite and "does not exist" in text and not state,
            "Create it (docs/ledger.md), or correct bootflow_ledger_url.",
        ),
        (
            not sqlite and kind in (Kind.AWAY, Kind.LOST) or (not sqlite and not state),
            "Check that the server runs and that host, port and database of bootflow_ledger_url are right; then run again.",
        ),
    ):
        if applies:
            return remedy
    return "Check the reason; nothing was changed."
