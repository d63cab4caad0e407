# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files by which the tasks of a run know of images that go from host to host: in the folder of this ansible-playbook process, removed with it."""

from __future__ import annotations

import fcntl
import json
import shutil
import typing as t
from dataclasses import asdict, dataclass
from pathlib import Path

from ...module_utils.core.image_access import ImageAccess
from ...module_utils.core.model import Image
from ...module_utils.core.relay.plan import BUSY, LACKS, WHOLE, Peer, Plan, plan
from ...module_utils.core.request.catalogue_images import find_image, image_data
from ..run.ledger_action import LedgerAction
from ..run.stage_results import path_of
from .large_images import COMING, folder_of, lacking_file

Offers = t.Dict[str, t.Dict[str, t.Any]]  # what the module image_relay answered, by the image's id


@dataclass(frozen=True)
class Wanted:
    """A host of a round. ``images``: ids of the images that its builds need"""

    name: str
    address: str  # where others reach it
    zone: str
    images: list[str]


class RoundFiles:
    """The files of a round."""

    def __init__(self, action: LedgerAction):
        self.run_folder = action.ports.folder()
        self.folder, self._lacking = folder_of(action), lacking_file(action)

    def begin(self, hosts: t.Sequence[Wanted], images: t.Iterable[Image]) -> None:
        """Begin the round of these hosts; the files of an earlier round are removed. :arg images: that they name"""
        shutil.rmtree(self.folder, ignore_errors=True)
        if hosts:
            self.folder.mkdir(mode=0o700, parents=True)
            self._write(self.folder / "hosts", [asdict(host) for host in hosts])
            for host in hosts:  # a task of a host reads its own files: with the files of all, many hosts would read each other's for minutes
                self._write(path_of(self.folder, host.name, "wanted"), {"images": host.images, "hosts": len(hosts)})
            # How images are fetched may have secrets, which no file of the run has.
            known = {i.id: {"data": image_data(i), "is_restricted": i.access != ImageAccess()} for i in images}
            self._write(self.folder / "images", known)

    def images(self, ids: t.Iterable[str], catalogue: t.Callable[[], t.Iterable[Image]]) -> list[Image]:
        """Return images of the round, in this order. :arg catalogue: returns the images of bootflow_images; called where a URL is not open to all"""
        known = self._read(self.folder / "images") or {}
        entries = [known[i] for i in ids]
        inventory = list(catalogue()) if any(entry["is_restricted"] for entry in entries) else []
        return [find_image(inventory if entry["is_restricted"] else (), entry["data"]) for entry in entries]

    def hosts(self) -> dict[str, Wanted]:
        """The hosts of the round, by their names; none: it has none."""
        hosts = self._read(self.folder / "hosts") or []
        return {host["name"]: Wanted(**host) for host in hosts}

    def wanted_of(self, host: str) -> tuple[list[str], int]:
        """Return the images that a host needs, and the number of hosts of the round; 0: the host is not in the round."""
        wanted = self._read(path_of(self.folder, host, "wanted")) or {"images": [], "hosts": 0}
        return list(wanted["images"]), int(wanted["hosts"])

    def once(self, name: str, work: t.Callable[[], None]) -> None:
        """Do ``work`` in one task of the round. The tasks of other hosts wait for its end, and read the files of the work."""
        done = self.folder / name
        if not done.exists():
            with open(self.folder / (name + "-lock"), "ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not done.exists():
                    work()
                    done.touch()

    def leave(self, host: str, kind: str, data: t.Any) -> None:
        """Leave a file of that kind for the task of ``host``."""
        self._write(path_of(self.folder, host, kind), data)

    def read(self, host: str, kind: str) -> t.Any:
        """Return the data of leave(); None: none."""
        return self._read(path_of(self.folder, host, kind))

    def offered(self, host: str, offers: Offers) -> None:
        self._write(path_of(self.folder, host, "offers"), offers)
        if any(offer["state"] in (LACKS, BUSY) for offer in offers.values()):
            self._lacking.touch()

    def offers_of(self, host: str) -> Offers:
        """Return what the host answered; empty: nothing."""
        return t.cast(Offers, self._read(path_of(self.folder, host, "offers")) or {})

    def connected(self, host: str, images: t.Collection[str]) -> None:
        """Note that images come to the host: its builds have to wait for them."""
        if images:
            self._write(path_of(self.folder, host, COMING), sorted(images))

    def begins_with(self, host: str, roots: t.Mapping[str, str]) -> None:
        """Note that the host is the first one of these images' orders. :arg roots: image id -> root of its pieces; "": unknown to the host"""
        if roots:
            self._write(path_of(self.folder, host, "first"), roots)

    def first_of(self, host: str) -> dict[str, str]:
        """Return the images whose orders the host is the first one of, see begins_with()."""
        return dict(self._read(path_of(self.folder, host, "first")) or {})

    def take_coming(self, host: str) -> list[str]:
        """The images that come to the host, once."""
        path = path_of(self.folder, host, COMING)
        images = self._read(path) or []
        path.unlink(missing_ok=True)
        return list(images)

    def collected(self, host: str, outcomes: t.Mapping[str, t.Any]) -> None:
        self._write(path_of(self.folder, host, "outcomes"), outcomes)

    def outcomes_of(self, host: str) -> dict[str, t.Any]:
        return dict(self._read(path_of(self.folder, host, "outcomes")) or {})

    def all_offers(self) -> dict[str, Offers]:
        """Return what each host answered. Reads a file of each host: one task of a round does so, not each."""
        return {name: self.offers_of(name) for name in self.hosts()}

    @staticmethod
    def _read(path: Path) -> t.Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None

    @staticmethod
    def _write(path: Path, data: t.Any) -> None:
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(data))
        new.rename(path)


def plan_of(image_id: str, hosts: t.Mapping[str, Wanted], offers: t.Mapping[str, Offers]) -> Plan:
    """Return the order in which hosts give an image to each other, by what they answered."""
    peers = []
    for name, host in hosts.items():
        offer = offers.get(name, {}).get(image_id) or {}
        if offer.get("port"):
            peers.append(Peer(name, host.zone, int(offer.get("bytes") or 0), offer["state"] == WHOLE))
    return plan(peers)
