# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of instances that come to this host, fetched from where they were: each is complete and compared, or missing.

What the other host says of them is input: the ledger says which disks an instance has, and how large they may be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import typing as t

from ...core.disks.local import QCOW2, volume_name
from ...core.disks.stores.registry import STORE_TYPES, type_of_record
from ...core.errors import BootflowError, Conflict, DiskCopyFailed, InvalidDiskInfo, InvalidInput
from ...core.guest.arriving_disks import check_virtual_size, checked_disks, unknown_bytes
from ...core.guest.nvram import NVRAM
from ..disks.stores.disk_info import records_of, write_records
from ..disks.stores.disk_spec import DiskSpec
from ..disks.stores.files import ensure_files, grow
from ..disks.stores.instance_volumes import Wanted, begin, finish
from ..disks.stores.mounted import make_holder
from ..disks.stores.removal import NO_GROUP, LocalVolumes, remove_volumes
from ..disks.stores.volumes import ensure_volumes
from ..images.images import check_image_file
from ..images.nvram import check_nvram
from ..lvm import lvm
from ..os.batch import progress
from ..os.files import fsync
from ..os.locks import host_lock
from ..os.module_errors import as_bootflow_error
from ..os.ownership import mark_folder, mark_made_for
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from ..os.room import check_room
from ..volumes.copy import flush, zero
from .server import Place, connected
from .stream import Garbled, Stream, read_line, receive_file, send_line

_PART = ".part"


def fetch_instance(
    instances_path: str,
    ledger_id: str,
    uuid: str,
    place: Place,
    token: str,
    files: t.Sequence[t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
    local: LocalVolumes = NO_GROUP,
    made: t.Sequence[DiskSpec] = (),
    made_for: str = "",
    refuse: t.Callable[[str], None] = lambda folder: None,
    *,
    limits: t.Mapping[str, int],
) -> dict[str, t.Any]:
    """Fetch the disks of an instance, and let them grow to ``sizes``: {changed, disks: [{name, size, sha256}]}.

    :arg made: disks that are made here, before the instance is told to have arrived
    :arg files: as sender.prepare() described them; none: nothing is fetched. :arg sizes: of disks, in bytes, where they are to be larger
    :arg limits: bytes that each disk may have now, by name; 0: the ledger does not know. The instance has no others
    :arg local: where those that are logical volumes come to
    :arg made_for: the mark of the move, see core.instances.move_mark. :arg refuse: see disks.instances.refuse_present()
    :raises Conflict: the host has something of the instance already. :raises DiskFull: there is not enough room.
    :raises InvalidDiskInfo: a disk of ``sizes`` is not among the files; the instance has no such disk, or it is larger than it may be.
    :raises DiskCopyFailed: they could not be fetched, or arrived with another checksum. What arrived is removed.
    :raises ImageUnacceptable: a disk refers to other files.
    """
    folder = instance_dir(instances_path, uuid)
    files = checked_disks(list(files), limits, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        refuse(folder)
        if os.path.lexists(folder):
            raise Conflict(
                message="folder %s exists on %s" % (folder, os.uname().nodename),
                remedy="bootflow.compute.audit removes what is left of an earlier move.",
            )
        missing = sorted(set(sizes) - {f["name"] for f in files})
        if missing:
            raise InvalidDiskInfo(
                reason="%s does not offer %s of instance %s" % (place.address, ", ".join(missing), uuid)
            )
        _check_room(instances_path, files, limits)
        progress.mark_changed()
        try:
            mark_made_for(folder, made_for)
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            arrival = _Arrival(folder, ledger_id, local, sizes, [spec.checked() for spec in made])
            arrival.make(files)
            done = _fetch(arrival, place, token, files) if files else []
            if not files:
                arrival.finish()
            return {"changed": True, "disks": done}
        except (OSError, Garbled) as e:
            _remove(folder, local)
            if isinstance(e, OSError) and e.filename:
                raise as_bootflow_error(e, e.filename) from None
            raise DiskCopyFailed(instance_uuid=uuid, source=place.address, reason=str(e)) from None
        except BaseException:
            _remove(folder, local)
            raise


def _remove(folder: str, local: LocalVolumes) -> None:
    """What cannot be removed, the cleanup of the instance finds."""
    with contextlib.suppress(BootflowError, OSError):
        if local.volume_group:
            remove_volumes(folder, os.path.basename(folder), local)
        shutil.rmtree(folder, ignore_errors=True)


def _check_room(instances_path: str, files: t.Sequence[t.Mapping[str, t.Any]], limits: t.Mapping[str, int]) -> None:
    path = checked_instances_path(instances_path)
    make_dirs(path)
    here = [f for f in files if not f.get("mounted") and not _is_volume(f)]
    check_room(path, max(sum(int(f["allocated"]) for f in here), unknown_bytes(here, limits)))


class _Arrival:
    """The places of the disks of one instance on this host."""

    def __init__(
        self,
        folder: str,
        ledger_id: str,
        local: LocalVolumes,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec] = (),
    ):
        self.folder = folder
        self.made = made
        self.uuid = os.path.basename(folder)
        self.ledger_id = ledger_id
        self.vg = local.volume_group
        self.sizes = sizes
        self.mounted = ""  # the file system of the instance
        self.volumes: dict[str, int] = {}  # disk -> bytes of its logical volume

    def make(self, files: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Make the logical volumes that they need.

        :raises DiskFull: the volume group has no room for them.
        """
        inside = {checked_disk_name(f["name"]): self._bytes(f) for f in files if f.get("mounted")}
        inside.update({spec.name: spec.size for spec in self.made if STORE_TYPES[spec.backend].is_file_system})
        whole = {checked_disk_name(f["name"]): self._bytes(f) for f in files if _is_volume(f)}
        on_lvm = inside or whole or any(STORE_TYPES[spec.backend].is_volume for spec in self.made)
        if on_lvm and not self.vg:
            raise InvalidInput(
                reason="the disks of instance %s are logical volumes, and no volume group is given" % self.uuid
            )
        if inside:
            self.mounted = make_holder(self.vg, self.folder, list(inside.values()))
        if whole:
            group = lvm.read_group(self.vg, self.ledger_id)
            lvm.check_group(group)
            self.volumes = {name: group.rounded(size) for name, size in whole.items()}
            images = {f["name"]: f["record"].get("image_id") for f in files if _is_volume(f)}
            # Before the first of them is created, because a removal finds the volume group here.
            write_records(self.folder, {name: {"volume_group": self.vg} for name in whole})
            wanted = [
                Wanted(volume_name(self.uuid, n), size, "image/%s" % images[n] if images[n] else "")
                for n, size in self.volumes.items()
            ]
            begin(self.vg, self.uuid, wanted, self.ledger_id)

    def _bytes(self, file: t.Mapping[str, t.Any]) -> int:
        has = file["size"] if _is_volume(file) else file["record"]["virtual_size"]
        return max(int(has), self.sizes.get(file["name"], 0))

    def volume(self, name: str) -> str:
        """The path of a disk that is a logical volume, with zeros only."""
        path = lvm.device_path(self.vg, volume_name(self.uuid, name))
        zero(path, self.volumes[name])
        return path

    def finish(self) -> None:
        """All disks have arrived, and were compared. Those that are new are made."""
        if self.made and self.mounted:
            ensure_files(self.mounted, [dataclasses.replace(s, backend=QCOW2) for s in self.made], {}, False)
        elif self.made and STORE_TYPES[self.made[0].backend].is_volume:
            ensure_volumes(self.vg, self.folder, self.made, {}, False)
        elif self.made:
            ensure_files(self.folder, self.made, {}, False)
        if self.volumes:
            for name in self.volumes:
                flush(lvm.device_path(self.vg, volume_name(self.uuid, name)))
            finish(self.vg, [volume_name(self.uuid, name) for name in self.volumes])


def _is_volume(file: t.Mapping[str, t.Any]) -> bool:
    store = type_of_record(file["record"])
    return store is not None and store.is_volume


def _fetch(
    arrival: _Arrival, place: Place, token: str, files: t.Sequence[t.Mapping[str, t.Any]]
) -> list[dict[str, t.Any]]:
    done = []
    with connected(place) as stream:
        for file in files:
            name = checked_disk_name(file["name"])
            send_line(stream, {"token": token, "file": name})
            if read_line(stream).get("size") != file["size"]:
                raise Garbled("disk %s has another size" % name)
            receive = _receive_volume if _is_volume(file) else _receive_file
            size, sha256 = receive(arrival, stream, name, file)
            done.append({"name": name, "size": size, "sha256": sha256})
        arrival.finish()
        send_line(stream, {"token": token, "done": True})
        with contextlib.suppress(Garbled, OSError):  # all has arrived: the server ends by itself too
            read_line(stream)
    return done


def _receive_volume(arrival: _Arrival, stream: Stream, name: str, file: t.Mapping[str, t.Any]) -> tuple[int, str]:
    fd = os.open(arrival.volume(name), os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    try:
        sha256 = receive_file(stream, fd, int(file["size"]))
    finally:
        os.close(fd)
    size = arrival.volumes[name]
    record = {**file["record"], "virtual_size": size, "volume_group": arrival.vg}
    write_records(arrival.folder, {**records_of(arrival.folder), name: record})
    return size, sha256


def _receive_file(arrival: _Arrival, stream: Stream, name: str, file: t.Mapping[str, t.Any]) -> tuple[int, str]:
    folder = arrival.mounted if file.get("mounted") else arrival.folder
    part = os.path.join(folder, name + _PART)
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def check_rest(more: int) -> None:
        check_room(folder, more)

    try:
        sha256 = receive_file(stream, fd, int(file["size"]), int(file["allocated"]), check_rest)
    finally:
        os.close(fd)
    if file["record"] is not None and file["record"]["format"] == QCOW2:
        _driver, virtual_size = check_image_file(part, QCOW2, name)  # it could name a file of this host as its base
        check_virtual_size(name, virtual_size, file["record"]["virtual_size"], arrival.uuid)
    if name == NVRAM:
        check_nvram(part)
    size = _grow(part, file["record"], arrival.sizes.get(name, 0))
    if file["record"] is not None:
        write_records(folder, {**records_of(folder), name: {**file["record"], "virtual_size": size}})
    os.rename(part, os.path.join(folder, name))
    fsync(folder)
    return size, sha256


def _grow(path: str, record: t.Mapping[str, t.Any] | None, size: int) -> int:
    """The virtual size of the disk, which grows to ``size`` bytes where it is smaller."""
    if record is None:
        return os.path.getsize(path)
    has = grow(path, record, size)
    fsync(path)
    return has
