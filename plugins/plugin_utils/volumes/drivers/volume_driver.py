# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a volume driver on the current storage host: the modules that work on its backends. Each driver is an object in its own file;
``registry`` lists the drivers.
"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.volumes.drivers.driver_type import DriverType
from ....module_utils.flows.attachments.exports import Export
from ....module_utils.flows.volumes.work import BackendWork, WorkResult
from ...run.ledger_action import LedgerAction

Ended = t.Dict[str, t.Optional[errors.BootflowError]]  # attachment id -> None, or why its export could not be ended
Made = t.Dict[str, t.Union[t.Mapping[str, t.Any], errors.BootflowError]]


class VolumeDriver(t.Protocol):
    """Works on the backends of one type. ``kind``: this type."""

    @property
    def kind(self) -> DriverType: ...

    def report(
        self,
        action: LedgerAction,
        configurations: t.Sequence[t.Mapping[str, t.Any]],
        arguments: t.Mapping[str, t.Any],
        targets: t.Collection[tuple[str, str]] = (),
    ) -> dict[str, t.Any]:
        """Return the answer of the current host on these backends: ``backends`` by name, and what else it says.

        :arg arguments: ids that are known, and that of the ledger. :arg targets: (kind, prefix) of targets to look for
        """

    def work(self, action: LedgerAction, work: BackendWork) -> WorkResult:
        """Make, extend and remove volumes and snapshots of a backend. :raises BootflowError: all of it failed."""

    def end_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
        """End these exports. Never raises."""

    def make_exports(self, action: LedgerAction, exports: t.Sequence[Export]) -> Made:
        """Make these exports. Returns attachment id -> {iqn, lun, portals} or {connection_info}, or why there is none. Never raises."""
