# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading from a replica: listings do not load the server that boots write to, and go on while a failover lasts."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ..core import errors
from .database import Ledger, open_ledger
from .db.address import LedgerAddress, is_server_url, normalise_url, shown
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction

VARIABLE = "bootflow_ledger_read_url"
MOST_BEHIND = 60.0  # seconds that a replica that is read may be behind the ledger
CATCHES_UP = 1.0  # seconds in which one that follows shows what was written just now


def check(address: LedgerAddress, url: str) -> None:
    """Raise InvalidInput where ``url`` cannot be a replica's of the ledger at ``address``."""
    if not is_server_url(url):
        raise errors.InvalidInput(
            reason="%s is not a PostgreSQL URL" % VARIABLE,
            remedy="Write it as postgresql://user@replica/database, or leave it out.",
        )
    if not is_server_url(normalise_url(address.url)):
        raise errors.InvalidInput(
            reason="%s is set, and the ledger %s, an sqlite file, has no replica" % (VARIABLE, address),
            remedy="Leave it out, or set bootflow_ledger_url to the PostgreSQL server that it is a replica of.",
        )


def open_reader(address: LedgerAddress, url: str, tell: t.Callable[[str], None]) -> Ledger:
    """Open the replica at ``url``, with the settings of ``address``, or the ledger itself where the replica does not serve.

    The ledger is asked once for its id and how far it is. While it does not answer, the replica is read without this.

    :arg tell: is given a sentence for a person where one of the two cannot be used.
    :raises LedgerError: ``url`` is of another ledger, which is never read in place of this one.
    :raises InvalidInput: the URLs do not go together, or invalid settings of the connection.
    """
    check(address, url)
    try:
        replica = open_ledger(dataclasses.replace(address, url=url), patient=False, tell=tell)
        replica_id = replica.id
    except errors.LedgerError as e:
        tell("%s: %s. The ledger itself is read." % (VARIABLE, e.message.rstrip(".")))
        return open_ledger(address, tell=tell)
    try:
        ledger = open_ledger(dataclasses.replace(address, retry_timeout=0), check_revision=False)
        expected, written = ledger.id, ledger.inspect(_written)
        ledger.close()
    except errors.LedgerError as e:
        tell("%s. Read is its replica %s, which may be behind." % (e.message.rstrip("."), shown(url)))
        return replica
    if replica_id != expected:
        replica.close()
        raise errors.LedgerError(
            url=shown(url),
            reason="it is ledger %s, and no replica of %s, which is ledger %s" % (replica_id, address, expected),
            remedy="Correct %s, or leave it out." % VARIABLE,
        )
    if written is not None and _is_behind(replica, written):
        replica.close()
        tell(
            "%s: %s is more than %d s behind the ledger: look why it does not follow. The ledger itself is read."
            % (VARIABLE, shown(url), MOST_BEHIND)
        )
        return open_ledger(address, tell=tell)
    return replica


def _written(tx: Transaction) -> str | None:
    """Return how far the server has written; None: it is a standby itself."""
    query = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_flush_lsn()::text END"
    return t.cast("str | None", tx.execute(sa.text(query)).scalar_one())


def _lacks(tx: Transaction, written: str) -> bool:
    """Return whether a standby lacks what was ``written``, and the last that it shows is too old."""
    query = (
        "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() < CAST(:written AS pg_lsn)"
        " AND COALESCE(clock_timestamp() - pg_last_xact_replay_timestamp() > make_interval(secs => :most), TRUE)"
    )
    return bool(tx.execute(sa.text(query), {"written": written, "most": MOST_BEHIND}).scalar_one())


def _is_behind(replica: Ledger, written: str) -> bool:
    """Whether the replica is behind. Where nothing was written for long, what was written just now is on its way."""
    until = time.monotonic() + CATCHES_UP
    while replica.inspect(_lacks, written):
        if time.monotonic() > until:
            return True
        time.sleep(CATCHES_UP / 10)
    return False
