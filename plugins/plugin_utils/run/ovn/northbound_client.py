# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of ovn-nbctl on the controller. Each has a time limit, and none waits for chassis: one host that is off would hold it for ever."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t

from ....module_utils.core.errors import MissingLibrary, NorthboundError
from ....module_utils.core.legible import legible
from ....module_utils.core.ovn.rows import TABLES, FoundRow, listing, read_rows
from ....module_utils.core.reading.setting import Values

GRACE = 5  # seconds that ovn-nbctl has to say that its time is over
_CERTIFICATES = (
    ("--private-key", "ovn_private_key"),
    ("--certificate", "ovn_certificate"),
    ("--ca-cert", "ovn_ca_certificate"),
)


class NorthboundConflict(NorthboundError):
    """Another run wrote the database meanwhile, and the transaction fits no longer."""

    msg_fmt = "The northbound database of OVN was changed meanwhile: %(reason)s"
    retryable = True


class NorthboundClient:
    """The northbound database, by the settings OVN of core.settings.run."""

    def __init__(self, settings: Values):
        self.settings = settings

    def read(self) -> list[FoundRow]:
        """Return the rows of the tables that the ledger writes. :raises NorthboundError: the database does not answer"""
        words = [word for table in TABLES.values() for word in ("--", *listing(table))][1:]
        return read_rows(self._run(["--format=json", "--data=json", *words]))

    def check(self) -> None:
        """:raises NorthboundError: the database does not answer"""
        self._run(["--columns=_uuid", "list", "NB_Global"])

    def write(self, arguments: t.Sequence[str]) -> None:
        """Run commands in one transaction. :raises NorthboundConflict: rows are not as they were. :raises NorthboundError: it failed"""
        self._run(["--", *arguments])

    def _run(self, words: t.Sequence[str]) -> str:
        seconds = int(self.settings.ovn_timeout)
        argv = [_program(), "--no-syslog", "--db=" + str(self.settings.ovn_northbound), "--timeout=%d" % seconds]
        argv += ["%s=%s" % (o, getattr(self.settings, n)) for o, n in _CERTIFICATES if getattr(self.settings, n)]
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("OVN_NB_DAEMON", "OVN_NB_DB", "OVN_NBCTL_OPTIONS")
        }
        try:
            done = subprocess.run(
                [*argv, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds + GRACE,
                check=False,
                env={**environment, "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            raise NorthboundError(
                reason="%s does not answer in %d s" % (self.settings.ovn_northbound, seconds)
            ) from None
        except OSError as error:
            raise NorthboundError(reason="ovn-nbctl does not run: %s" % error) from error
        if done.returncode:
            raise self._failed(
                legible(" ".join(done.stderr.decode("utf-8", "replace").split()))[-500:], done.returncode
            )
        return done.stdout.decode("utf-8", "replace")

    def _failed(self, reason: str, code: int) -> NorthboundError:
        if code in (-14, 142) or "Alarm clock" in reason:  # its own time limit ends it by SIGALRM
            return NorthboundError(
                reason="%s does not answer in %d s" % (self.settings.ovn_northbound, self.settings.ovn_timeout)
            )
        changed = ("constraint violation", "referential integrity", "no row", "aborted")
        kind = NorthboundConflict if any(words in reason for words in changed) else NorthboundError
        return kind(reason=reason or "ovn-nbctl ended with %d" % code)


def _program() -> str:
    path = shutil.which("ovn-nbctl") or shutil.which("ovn-nbctl", path="/usr/bin:/usr/sbin:/usr/local/bin")
    if path is None:
        raise MissingLibrary(name="ovn-nbctl", package="ovn-common", where="controller")
    return path
