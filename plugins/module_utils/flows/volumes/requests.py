# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common part of requests for volumes, snapshots and extensions: settings, entries, and quotas."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.model import Image
from ...core.reading.problems import Problems
from ...core.volumes import quotas
from ...core.volumes.catalogue import VolumeTypes
from ...core.volumes.create_request import CreateOptions
from ...core.volumes.request_values import check_length, check_text
from ...ledger.compute import runs
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.storage import volumes
from . import dead_uploads


@dataclass(frozen=True)
class VolumeSettings:
    """Inventory and settings. ``quotas``: bootflow_quotas; ``image`` finds an image by id or name."""

    types: VolumeTypes
    image: t.Callable[[str], Image]
    options: CreateOptions = field(default_factory=CreateOptions)
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)
    project: str = "default"
    max_attempts: int = 3
    no_snapshot_gb_quota: bool = False

    @property
    def limits(self) -> dict[str, int]:
        """:raises InvalidInput: an invalid quota."""
        return quotas.limits_of(self.quotas, self.project, self.types)

    def usage(self, tx: Transaction) -> dict[str, int]:
        """Return the project's use of the limits."""
        return volumes.usage(tx, self.project, self.no_snapshot_gb_quota)


def open_project(tx: Transaction, settings: VolumeSettings) -> None:
    """Renew the run's lease and wait for the project's turn: names and quotas are per project. Images of dead runs end."""
    runs.renew(tx)
    take_turns(tx, "project", [settings.project])
    dead_uploads.end_dead(tx)


def read_entries(
    entries: t.Sequence[t.Any],
    kind: str,
    fields_of: t.Callable[[t.Mapping[str, t.Any]], dict[str, t.Any]],
    refusals: Problems,
) -> t.Iterator[tuple[str, str, dict[str, t.Any]]]:
    """Yield (path, name, fields) of each entry with a unique name; errors go to ``refusals``.

    :arg kind: volume or snapshot. :arg fields_of: the entry's fields under canonical names; rejects unknown ones.
    """
    names: set[str] = set()
    for index, entry in enumerate(entries):
        path = "%ss[%d]" % (kind, index)
        name = ""
        with refusals.collect(path):
            if not isinstance(entry, t.Mapping):
                raise errors.InvalidInput(reason="a %s must be a mapping" % kind, remedy="Give its fields, name first.")
            fields = fields_of(entry)
            with refusals.collect(path + ".name"):
                name = _unique_name(fields.get("name"), names)
        if name:
            yield path, name, fields


def _unique_name(value: t.Any, names: set[str]) -> str:
    name = check_length(check_text(value, "name"), "name", minimum=1)
    if name in names:
        raise errors.InvalidInput(
            reason="the name %s is requested twice" % name, remedy="Give each entry a different name."
        )
    names.add(name)
    return name


def check_quota(
    wanted: t.Iterable[quotas.Amounts],
    limits: t.Mapping[str, int],
    used: t.Callable[[], t.Mapping[str, int]],
    resource: str = quotas.VOLUMES,
) -> None:
    """Check the quota for the whole request. :raises QuotaError: the exceeded quota, gigabytes before numbers."""
    amounts = quotas.total(wanted)
    if amounts:
        quotas.check_reserve(amounts, used(), limits, resource)


def check_not_busy(tx: Transaction, row: volumes.Named, busy: t.Collection[str], live_runs: t.Collection[str]) -> None:
    """:raises VolumeLocked: a live run works on this volume or snapshot. :arg busy: the statuses of such work."""
    if row.status in busy and row.run_id in live_runs:
        raise volumes.locked_error(tx, row)
