# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning of attaching and detaching volumes and interfaces: a request that cannot begin now is refused, and does not stop the others."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.reading.problems import Problems
from ...ledger.compute import runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from . import operation
from .operation import Operation


class Request(t.Protocol):
    """An entry of the variable that has the requests."""

    @property
    def path(self) -> str: ...


RequestT = t.TypeVar("RequestT", bound=Request)


@dataclass(frozen=True)
class Refused(t.Generic[RequestT]):
    """A request that cannot begin now. ``guest`` is None for a volume that is to be detached from whatever has it."""

    request: RequestT
    guest: Instance | None
    error: errors.BootflowError


class Beginning(t.Generic[RequestT]):
    """The beginning of one operation for many requests. :arg known_hosts: the inventory's; None: any"""

    def __init__(self, tx: Transaction, plug: Operation, known_hosts: t.Collection[str] | None = None):
        runs.renew(tx)
        self.tx = tx
        self.plug = plug
        self.known_hosts = known_hosts
        self.problems = Problems()
        self.refused: list[Refused[RequestT]] = []
        self._dead: set[str] = set()

    def read_runs(self, guests: t.Iterable[Instance]) -> None:
        """Read which runs are dead that work on these instances."""
        self._dead = operation.dead_runs(self.tx, guests)

    def check(self, guest: Instance) -> None:
        """Check whether the operation may begin with an instance. :raises BootflowError: see operation.check()"""
        operation.check(self.tx, self.plug, guest, self._dead, self.known_hosts)

    @contextlib.contextmanager
    def refusing(self, guest: Instance | None, *requests: RequestT) -> t.Iterator[None]:
        """Refuse these requests, and no others, for an error of the block."""
        try:
            yield
        except errors.BootflowError as e:
            for request in requests:
                self.refuse(guest, request, e)

    def refuse(self, guest: Instance | None, request: RequestT, error: errors.BootflowError) -> None:
        with self.problems.collect(request.path):
            self.refused.append(Refused(request, guest, error))
            raise error

    def raise_if_none(self, begun: bool) -> None:
        """:raises InvalidRequest: nothing can begin."""
        if not begun:
            self.problems.raise_if_any()
