# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of the ledger itself."""

from __future__ import annotations

from .base import BootflowError


class LedgerError(BootflowError):
    """The ledger's database cannot be used."""

    msg_fmt = "The ledger %(url)s cannot be used: %(reason)s"
    status = 503


class LedgerMissing(LedgerError):
    """The ledger does not exist yet."""

    msg_fmt = "There is no ledger yet at %(url)s"
    status = 404
    remedy = "Boot an instance, or run the playbook bootflow.compute.ledger."


class ClocksDiffer(LedgerError):
    """The clock of the controller and that of the ledger's database server differ by more than leases allow."""

    msg_fmt = "The clock of this controller is %(seconds)d s %(which)s that of the server of the ledger %(url)s; leases allow for %(allowed)d s"
    remedy = "Synchronize both clocks (chrony, systemd-timesyncd). Otherwise a controller could take over what another one works on."


class LedgerTooNew(LedgerError):
    """A newer version of the collection wrote the ledger."""

    msg_fmt = (
        "The ledger %(url)s is at revision %(revision)s, which this version does not know (its newest is %(head)s)"
    )
    remedy = "Upgrade bootflow.compute on this controller."


class RequestTooNew(LedgerError):
    """A newer version of the collection accepted the instance's request."""

    msg_fmt = (
        "The request of %(name)s is stored in version %(version)s, which this version of the collection does not know"
        " (its newest is %(newest)s)"
    )
    remedy = "Upgrade bootflow.compute on this controller."


class LedgerTooOld(LedgerError):
    """The ledger needs a migration."""

    msg_fmt = "The ledger %(url)s is at revision %(revision)s, this version needs %(head)s"
    remedy = "Run bootflow.compute.ledger with state: migrated (playbook bootflow.compute.ledger)."


class LedgerBeforeRelease(LedgerError):
    """A version before the first release made the ledger, and no newer one upgraded it."""

    msg_fmt = "The ledger %(url)s is at revision %(revision)s, from before the first release; this version upgrades ledgers from revision %(first)s on"
    remedy = (
        "Nothing was changed. Install commit 51acb29f of bootflow.compute and run its playbook bootflow.compute.ledger, then this version (docs/upgrade.md)."
        " Or name a new file or database in bootflow_ledger_url."
    )
