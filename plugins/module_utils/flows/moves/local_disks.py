# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local disks of moving instances: the disks that a new flavor gives them, and which disks are copied, created or left behind.

The move keeps the lists of both flavors, so that a revert restores the former disks exactly.
source: Nova's libvirt driver (migrate_disk_and_power_off, finish_migration)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.amounts import GIB, MIB
from ...core.disks.block_devices import planned_disk, resized
from ...core.disks.disk_names import CONFIG_DRIVE_NAMES
from ...core.errors import BootflowError
from ...core.guest import constraints
from ...core.guest.nvram import NVRAM
from ...core.model import Flavor
from ...core.request.image_rules import zero_disk_gb
from ...ledger.compute import instances, requests
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction

Disk = t.Mapping[str, t.Any]  # core.disks.block_devices.PlannedDisk as plain data


@dataclass(frozen=True)
class Journey:
    """The local disks of an instance on its move. Swap is created again, as its content dies with the memory of the guest."""

    # Name of each copied disk -> its least size in bytes; 0: it keeps its size.
    sizes: dict[str, int] = field(default_factory=dict)
    made: list[Disk] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    # Name of each copied disk -> its largest size in bytes on the source host, see largest().
    limits: dict[str, int] = field(default_factory=dict)


def local(disks: t.Iterable[Disk]) -> list[Disk]:
    """Select the disks that are on the host itself: all but volumes."""
    return [d for d in disks if d["kind"] != "volume"]


def largest(disks: t.Iterable[Disk], image: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    """Return name -> largest size of each local disk in bytes; 0: not known, as the image alone decides.

    :arg image: of the instance, for the root disk of a flavor with root_gb 0
    """
    by_name = {}
    for disk in local(disks):
        size = int(disk["size_mb"] or 0) * MIB or int(disk["size_gb"] or 0) * GIB
        by_name[disk["name"]] = size or (zero_disk_gb(image) * GIB if disk["kind"] == "image" else 0)
    return by_name


def ephemerals_gb(disks: t.Iterable[Disk]) -> int:
    """Return the total size of the ephemeral disks."""
    return sum(int(d["size_gb"]) for d in disks if d["kind"] == "ephemeral")


def planned_disks(row: Instance, disks: t.Sequence[Disk], flavor: Flavor) -> list[Disk]:
    """Plan the local disks of the instance with its new flavor.

    :raises BootflowError: see core.disks.block_devices.resized().
    """
    properties = (row.spec["image"] or {}).get("properties") or {}
    config_drives = CONFIG_DRIVE_NAMES if row.config_drive else ()
    present = [planned_disk(d) for d in disks]
    return local([d.as_dict() for d in resized(present, row.spec["flavor"], flavor, properties, config_drives)])


def replace_local_disks(tx: Transaction, wanted: t.Mapping[str, t.Sequence[Disk]]) -> None:
    """Replace the local disks of instances in the ledger. Their volumes stay. :arg wanted: uuid -> local disks"""
    present = instances.disks_of(tx, list(wanted))
    instances.exchange_disks(
        tx,
        {
            uuid: sorted([*disks, *(d for d in present[uuid] if d["kind"] == "volume")], key=_is_not_root)
            for uuid, disks in wanted.items()
        },
    )


def _is_not_root(disk: Disk) -> bool:
    return bool(disk["boot_index"] != 0)


def journey(
    disks: t.Sequence[Disk], move: MoveRow, image: t.Mapping[str, t.Any] | None = None, new_nvram: bool = False
) -> Journey:
    """Return the disks that are copied, created and left behind by a move.

    :arg disks: of the instance before its move. :arg image: of the instance
    :arg new_nvram: its UEFI variables are left behind, too
    """
    old = local(disks)
    new = old if move.new_disks is None else move.new_disks
    present = {d["name"] for d in old if d["kind"] != "swap"}
    grows = move.new_disks is not None
    copied = [d for d in new if d["name"] in present and d["kind"] != "swap"]
    sizes = {d["name"]: int(d["size_gb"] or 0) * GIB if grows else 0 for d in copied}
    made = [d for d in new if d["name"] not in sizes]
    limits = {name: size for name, size in largest(old, image).items() if name in sizes}
    left_behind = [d["name"] for d in old if d["name"] not in sizes] + ([NVRAM] if new_nvram else [])
    return Journey(sizes, made, sorted(left_behind), limits)


def journeys(tx: Transaction, moves: t.Iterable[MoveRow]) -> dict[str, Journey]:
    """Return uuid -> local disks of the instance on its move, of instances on their source hosts."""
    moves = list(moves)
    uuids = [m.instance_uuid for m in moves]
    disks = instances.disks_of(tx, uuids)
    images = {r.uuid: r.spec["image"] for r in instances.select_live(tx, uuids=uuids)} if uuids else {}
    new = _with_other_keys(tx, moves)
    return {u: journey(disks[u], m, images.get(u), u in new) for m in moves for u in (m.instance_uuid,)}


def _with_other_keys(tx: Transaction, moves: t.Sequence[MoveRow]) -> set[str]:
    """Return the instances whose new flavor switches secure boot on or off. The keys of the firmware are in its variables, not in the definition."""
    resized = [m for m in moves if m.old_request_spec_id != m.new_request_spec_id]
    ids = {spec_id for m in resized for spec_id in (m.old_request_spec_id, m.new_request_spec_id)}
    secure = {i: _boots_securely(s.spec) for i, s in requests.specs(tx, ids).items()} if ids else {}
    return {m.instance_uuid for m in resized if secure.get(m.old_request_spec_id) != secure.get(m.new_request_spec_id)}


def _boots_securely(spec: t.Mapping[str, t.Any]) -> bool:
    properties = (spec["image"] or {}).get("properties") or {}
    try:
        return constraints.secure_boot(Flavor(**spec["flavor"]), properties)
    except BootflowError:  # flavor and image differ: the guest gets no definition, which is reported elsewhere
        return False


def sizes(disks: t.Iterable[Disk]) -> list[str]:
    """Format disks for a person: "disk.swap 64 MiB"."""
    return ["%s %s" % (name, size) for name, size in _sizes(disks).items()]


def changes(old: t.Iterable[Disk], new: t.Iterable[Disk]) -> list[str]:
    """Format the changes of disks for a person: "disk.eph0 1 GiB -> 2 GiB"."""
    before, after = _sizes(old), _sizes(new)
    return [
        "%s %s" % (name, " -> ".join((before.get(name, "none"), after.get(name, "none"))))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _sizes(disks: t.Iterable[Disk]) -> dict[str, str]:
    return {d["name"]: "%d MiB" % d["size_mb"] if d["size_mb"] else "%d GiB" % (d["size_gb"] or 0) for d in disks}
