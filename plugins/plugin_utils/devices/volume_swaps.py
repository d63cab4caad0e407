# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that guests on the current host exchange for others: connected, copied by QEMU, and entered in the ledger as soon as a guest has switched.

What a run leaves that died, or whose host did not answer, is settled by what the guest has.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from ...module_utils.core import errors
from ...module_utils.core.amounts import GIB
from ...module_utils.core.settings.volumes import VOLUME_SWAP_COPY
from ...module_utils.flows.attachments import swaps
from ...module_utils.flows.boot import builds
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import swap
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..builds import domain_builder
from ..run import host_settings
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..volumes import attached_volumes
from ..volumes.attached_volumes import Attached, Problems

RunDisks = t.Callable[[t.Sequence[t.Mapping[str, t.Any]]], "tuple[dict[str, t.Any], Problems]"]
SWAPPED, SETTLED = "swapped", "settled"


@dataclass(frozen=True)
class Swap:
    """An exchange of volumes on the current host."""

    new: Attached
    old: Attached
    build: Build
    others: t.Sequence[Attached]  # more volumes of the guest

    @property
    def id(self) -> str:
        return self.new.id


class VolumeSwapsOfHost:
    """The exchanges that the ledger has for the current host. ``swapped``: ids of new volumes that guests have now. ``volume_ids``: by
    attachment."""

    def __init__(self, action: LedgerAction, ledger: Ledger, run_disks: RunDisks):
        self.action = action
        self.ledger = ledger
        self.host: str = action.task_vars["inventory_hostname"]
        self.run_disks = run_disks
        self.swapped: list[str] = []
        self.volume_ids: dict[str, str] = {}

    def work_on_host(self) -> Problems:
        """Returns why some failed, by the id of the new attachment."""
        to_copy, to_settle = self.ledger.inspect(_work_of, self.host)
        if not to_copy and not to_settle:
            return {}
        self.volume_ids = {s.id: s.new.volume_id for s in [*to_copy, *to_settle]}
        with lease_kept(self.action):
            problems = self._settle_swaps(to_settle, {}) if to_settle else {}
            if to_copy:
                problems.update(self._copy(to_copy))
        return problems

    def _copy(self, to_copy: t.Sequence[Swap]) -> Problems:
        problems: Problems = {}
        for node in sorted({s.build.row.node for s in to_copy}):
            group = [s for s in to_copy if s.build.row.node == node]
            facts = group[0].build.facts
            problems.update(attached_volumes.connect(self.action, self.ledger, [s.new for s in group], facts))
        if problems:
            self.ledger.transact(swap.failed, problems)
        connected = self._reread([s for s in to_copy if s.id not in problems])
        copy_problems = self._run(connected, SWAPPED)
        # An error leaves it open which volume the guest has: QEMU may have switched.
        unclear = [s for s in connected if s.id in copy_problems]
        return {**problems, **(self._settle_swaps(unclear, copy_problems) if unclear else {})}

    def _settle_swaps(self, to_settle: t.Sequence[Swap], causes: t.Mapping[str, errors.BootflowError]) -> Problems:
        """Have the host say what the guests have. :arg causes: why their copies failed"""
        begun = [s for s in to_settle if swaps.Pair(s.new.row, s.old.row).may_have_begun]
        problems = self._run(begun, SETTLED, causes)
        untouched = [s.id for s in to_settle if s not in begun]
        if untouched:
            self.ledger.transact(swaps.undone, untouched)
        return problems

    def _run(
        self, group: t.Sequence[Swap], state: str, causes: t.Mapping[str, errors.BootflowError] | None = None
    ) -> Problems:
        """Run the exchanges, and enter what the guests have then. Returns why some failed."""
        problems: Problems = {}
        disks = []
        for one in group:
            try:
                disks.append(self._disk(one, state))
            except errors.BootflowError as e:
                problems[one.id] = e
            except Exception as e:  # the exchange fails, never the play
                problems[one.id] = self.action.unexpected(e)
        outcomes, failed = self.run_disks(disks)
        problems.update(failed)
        answers = {i: o.get("swapped") for i, o in outcomes.items() if i not in problems}
        unclear = errors.RemoteError(reason="the host does not tell which volume the guest has")
        problems.update({i: unclear for i, answer in answers.items() if answer is None})
        has_new = [i for i, answer in answers.items() if answer is True]
        has_old = [i for i, answer in answers.items() if answer is False]
        if has_new:
            self.ledger.transact(swaps.completed, has_new)
            self.swapped += [self.volume_ids[i] for i in has_new]
        causes = causes or {}
        died = errors.LibvirtError(reason="the guest kept its volume, as the run that swapped it died")
        undone = {i: causes.get(i, died) for i in has_old}
        if undone:
            self.ledger.transact(swap.failed, undone)
        if state == SETTLED and problems:
            self.ledger.transact(swap.undecided, {i: causes.get(i, p) for i, p in problems.items()})
        return {**problems, **{i: p for i, p in undone.items() if i in causes}}

    def _disk(self, one: Swap, state: str) -> dict[str, t.Any]:
        settings = host_settings.read_current_host(self.action)
        size_gb = one.new.size_gb
        disks = [
            swaps.disk_of_new_volume(disk, one.new.volume_id, size_gb)
            if disk["device_name"] == one.old.row.mountpoint
            else disk
            for disk in one.build.disks
        ]
        build = dataclasses.replace(one.build, disks=disks)
        copies = host_settings.values(self.action, VOLUME_SWAP_COPY)
        return {
            "id": one.id,
            "uuid": one.build.uuid,
            "serial": one.old.volume_id,
            "source": attached_volumes.source_of(one.old.row),
            "state": state,
            "xml": domain_builder.volume_xml(build, settings, [*one.others, one.new], one.new),
            "size": size_gb * GIB,
            **(
                {"bandwidth": copies.volume_swap_bandwidth, "copy_timeout": copies.volume_swap_timeout}
                if state == SWAPPED
                else {}
            ),
        }

    def _reread(self, group: t.Sequence[Swap]) -> list[Swap]:
        """Return these with their new attachments as connecting wrote them."""
        rows = self.ledger.inspect(_reread_rows, [s.id for s in group])
        return [dataclasses.replace(s, new=rows[s.id]) for s in group if s.id in rows]


def _reread_rows(tx: Transaction, ids: t.Sequence[str]) -> dict[str, Attached]:
    return {a.id: a for a in attached_volumes.of_rows(tx, attachments.select(tx, ids=ids))}


def _work_of(tx: Transaction, host: str) -> tuple[list[Swap], list[Swap]]:
    """Return the exchanges to make on the host, and those to settle there."""
    to_copy, to_settle = swap.to_swap(tx, host)
    uuids = sorted({p.old.instance_uuid for p in [*to_copy, *to_settle]})
    if not uuids:
        return [], []
    rows = t.cast("list[instances.PlacedInstance]", instances.select_live(tx, uuids=uuids))
    by_uuid = {b.uuid: b for b in builds.load(tx, rows)}
    volumes = attached_volumes.load(tx, uuids)

    def of_pairs(pairs: t.Sequence[swaps.Pair]) -> list[Swap]:
        exchanges = []
        for pair in pairs:
            new, old = attached_volumes.of_rows(tx, pair)
            others = [a for a in volumes.get(old.row.instance_uuid, ()) if a.id not in (new.id, old.id)]
            exchanges.append(Swap(new, old, by_uuid[old.row.instance_uuid], others))
        return exchanges

    return of_pairs(to_copy), of_pairs(to_settle)
