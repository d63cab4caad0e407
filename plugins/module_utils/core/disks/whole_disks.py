# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole disks: physical disks that are each given to a single guest.

Guests do not share I/O, and a failed disk affects one guest.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput

if t.TYPE_CHECKING:
    from ..model import Flavor

COUNT, MIN_GB, MEDIUM = "bootflow:whole_disks", "bootflow:whole_disk_min_gb", "bootflow:whole_disk_medium"
#: The media that hosts report; an nvme disk is not reported as "ssd".
MEDIA = ("hdd", "ssd", "nvme")
#: How the disk of a deleted guest is cleared.
ZERO, NONE = "zero", "none"
CLEARS = (ZERO, NONE)

Disk = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class WholeDiskRequest:
    """``count`` disks of at least ``min_gb`` GiB, of that medium ("": any)."""

    min_gb: int = 0
    medium: str = ""
    count: int = 1

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data, for the ledger."""
        return {"min_gb": self.min_gb, "medium": self.medium, "count": self.count}

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> WholeDiskRequest:
        return cls(
            min_gb=int(data.get("min_gb") or 0),
            medium=str(data.get("medium") or ""),
            count=int(data.get("count", 1)),
        )

    def accepts(self, disk: Disk) -> bool:
        """Whether a disk ({path, size_gb, medium}) satisfies the request."""
        return int(disk.get("size_gb") or 0) >= self.min_gb and self.medium in ("", disk.get("medium"))

    def __str__(self) -> str:
        words = ["%d" % self.count, self.medium, "disk" if self.count == 1 else "disks"]
        return " ".join(word for word in words if word) + (" of %d GiB" % self.min_gb if self.min_gb else "")


def whole_disk_requests(flavor: Flavor) -> tuple[WholeDiskRequest, ...]:
    """The requests in the flavor's extra specs ``bootflow:whole_disks`` (a count), ``..._min_gb`` and ``..._medium``.

    :raises InvalidInput: not a number, an unknown medium, or a property of disks without their count.
    """
    specs = flavor.extra_specs
    given = [name for name in (MIN_GB, MEDIUM) if specs.get(name) not in (None, "")]
    if specs.get(COUNT) in (None, ""):
        if given:
            raise InvalidInput(
                reason="flavor %s has %s, but no number of disks" % (flavor.name, given[0]),
                remedy="Set %s to a number." % COUNT,
            )
        return ()
    count = _number(flavor, COUNT)
    min_gb = _number(flavor, MIN_GB) if MIN_GB in given else 0
    medium = str(specs[MEDIUM]).strip().lower() if MEDIUM in given else ""
    if medium and medium not in MEDIA:
        raise InvalidInput(
            reason="%s of flavor %s is %r" % (MEDIUM, flavor.name, specs[MEDIUM]),
            remedy="Use one of %s." % ", ".join(MEDIA),
        )
    return (WholeDiskRequest(min_gb, medium, count),) if count else ()


def _number(flavor: Flavor, name: str) -> int:
    text = str(flavor.extra_specs[name]).strip()
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            reason="%s of flavor %s is %r" % (name, flavor.name, flavor.extra_specs[name]),
            remedy="Use a whole number, 0 or more.",
        )
    return int(text)


def choose_disks(free: t.Iterable[Disk], requests: t.Sequence[WholeDiskRequest]) -> list[dict[str, t.Any]] | None:
    """A separate disk for each requested disk, in the order of the requests; None if there are too few.

    Each gets the smallest one that suffices (of equals the first by path), so that large ones stay free for requests that
    need them. The same input always gives the same disks.
    """
    free_by_path = {str(disk["path"]): dict(disk) for disk in free}
    ordered = sorted(free_by_path.values(), key=lambda disk: (int(disk.get("size_gb") or 0), str(disk["path"])))
    # The most demanding first: a medium, then the largest size. So no request takes a disk that only another can use.
    turn = sorted(range(len(requests)), key=lambda i: (not requests[i].medium, -requests[i].min_gb))
    chosen: dict[int, list[dict[str, t.Any]]] = {}
    for position in turn:
        request = requests[position]
        picked = [disk for disk in ordered if request.accepts(disk)][: request.count]
        if len(picked) < request.count:
            return None
        chosen[position] = picked
        ordered = [disk for disk in ordered if not any(disk is picked_disk for picked_disk in picked)]
    return [disk for position in range(len(requests)) for disk in chosen[position]]
