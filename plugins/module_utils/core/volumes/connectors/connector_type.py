# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a type of connector, by which the guests of a host get volumes. Each type is an object in its own file; ``registry`` lists the
types.
"""

from __future__ import annotations

import typing as t


class Connected(t.Protocol):
    """The columns of an attachment in the ledger that say where its volume is."""

    @property
    def volume_id(self) -> str: ...

    @property
    def iqn(self) -> str | None: ...

    @property
    def lun(self) -> int | None: ...

    @property
    def portals(self) -> t.Sequence[str] | None: ...

    @property
    def initiator(self) -> str | None: ...

    @property
    def connection_info(self) -> t.Mapping[str, t.Any] | None: ...

    @property
    def device_path(self) -> str | None: ...


class ConnectorType(t.Protocol):
    """Type of a host's access to volumes.

    ``name``: the word of bootflow_volume_attach and of the ledger. ``host_logs_in``: the host logs in, once for all of its guests, and has a block
    device of each volume. Otherwise each guest has its own login, which ends with its domain. ``is_watched``: only a look at the clients of a volume
    keeps two guests from it, so the storage host looks before a guest starts.
    """

    name: str
    host_logs_in: bool
    is_watched: bool

    def check_host(self, host: str, facts: t.Mapping[str, t.Any]) -> None:
        """Check the report of a host. :raises HostLacksHardware: the host cannot use this connector; another host may."""

    def source_of(self, row: Connected) -> str:
        """Return where the guest's host has the volume; "" if that is not known."""

    def disk(self, row: Connected, user: t.Callable[[], str], secret: str) -> dict[str, t.Any]:
        """Return the arguments of PlannedDisk.placed() for a guest's disk: its place on the host, or what is known of that before the export.

        :arg user: gives the name of the CHAP account. :arg secret: the name of the secret in libvirt.
        """
