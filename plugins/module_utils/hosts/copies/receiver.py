# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of instances that come to this host, fetched from where they were: each is complete and compared, or missing.

What the other host says of them is input: the ledger says which disks an instance has, and how large they may be.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...core.errors import BootflowError, Conflict, DiskCopyFailed, InvalidDiskInfo
from ...core.guest.arriving_disks import checked_disks, unknown_bytes
from ..disks.arrivals.arrival import Arrival, Write
from ..disks.arrivals.registry import arrivals_of
from ..disks.stores.disk_spec import DiskSpec
from ..disks.stores.group import NO_GROUP, Group
from ..disks.stores.removal import remove_volumes
from ..os.batch import progress
from ..os.locks import host_lock
from ..os.module_errors import as_bootflow_error
from ..os.ownership import mark_folder, mark_made_for
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from ..os.room import check_room
from .server import Place, connected
from .stream import Garbled, Stream, read_line, receive_file, send_line


def fetch_instance(
    instances_path: str,
    ledger_id: str,
    uuid: str,
    place: Place,
    token: str,
    files: t.Sequence[t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
    local: Group = NO_GROUP,
    made: t.Sequence[DiskSpec] = (),
    made_for: str = "",
    refuse: t.Callable[[str], None] = lambda folder: None,
    pool_disks: t.Sequence[DiskSpec] = (),
    *,
    limits: t.Mapping[str, int],
) -> dict[str, t.Any]:
    """Fetch the disks of an instance, and let them grow to ``sizes``: {changed, disks: [{name, size, sha256}]}.

    :arg made: disks that are made here, before the instance counts as arrived
    :arg files: as sender.prepare() described them; none: nothing is fetched. :arg sizes: of disks, in bytes, where they are to be larger
    :arg limits: bytes that each disk may have now, by name; 0: the ledger does not know. The instance has no others
    :arg local: where the logical volumes are made
    :arg pool_disks: disks that a pool may have still, of an instance whose former host is lost: they are recorded here
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
        group = Group(local.vg, ledger_id, pool=local.pool)
        arrivals = arrivals_of(folder, group, files, sizes, [spec.checked() for spec in made])
        _check_room(instances_path, arrivals, limits)
        progress.mark_changed()
        try:
            mark_made_for(folder, made_for)
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            for arrival in arrivals:
                arrival.require_group()
            for arrival in arrivals:
                arrival.prepare()
            done = _fetch(arrivals, place, token, files) if files else []
            if not files:
                _finish(arrivals)
            if pool_disks:
                from ..disks.stores.rbd import adopt_images

                adopt_images(folder, [spec.checked() for spec in pool_disks], local.pool, ledger_id)
            return {"changed": True, "disks": done}
        except (OSError, Garbled) as e:
            _remove(folder, local)
            if isinstance(e, OSError) and e.filename:
                raise as_bootflow_error(e, e.filename) from None
            raise DiskCopyFailed(instance_uuid=uuid, source=place.address, reason=str(e)) from None
        except BaseException:
            _remove(folder, local)
            raise


def _remove(folder: str, local: Group) -> None:
    """Remove the files. The cleanup of the instance removes later whatever fails here."""
    with contextlib.suppress(BootflowError, OSError):
        remove_volumes(folder, os.path.basename(folder), local)
        shutil.rmtree(folder, ignore_errors=True)


def _check_room(instances_path: str, arrivals: t.Sequence[Arrival], limits: t.Mapping[str, int]) -> None:
    path = checked_instances_path(instances_path)
    make_dirs(path)
    disks_in_folders = [disk for arrival in arrivals if not arrival.in_group for disk in arrival.disks]
    check_room(path, max(sum(int(f["allocated"]) for f in disks_in_folders), unknown_bytes(disks_in_folders, limits)))


def _finish(arrivals: t.Sequence[Arrival]) -> None:
    """Create the disks that are new: all others have arrived, and were compared."""
    for arrival in arrivals:
        arrival.create()
    for arrival in arrivals:
        arrival.finish()


def _fetch(
    arrivals: t.Sequence[Arrival], place: Place, token: str, files: t.Sequence[t.Mapping[str, t.Any]]
) -> list[dict[str, t.Any]]:
    arrival_of = {disk["name"]: arrival for arrival in arrivals for disk in arrival.disks}
    done = []
    with connected(place) as stream:
        for file in [file for file in files if "size" in file]:  # the others are in a pool
            name = checked_disk_name(file["name"])
            send_line(stream, {"token": token, "file": name})
            if read_line(stream).get("size") != file["size"]:
                raise Garbled("disk %s has another size" % name)
            size, sha256 = arrival_of[name].receive(name, file, _writer(stream, int(file["size"])))
            done.append({"name": name, "size": size, "sha256": sha256})
        _finish(arrivals)
        send_line(stream, {"token": token, "done": True})
        with contextlib.suppress(Garbled, OSError):  # all has arrived: the server ends by itself too
            read_line(stream)
    return done


def _writer(stream: Stream, size: int) -> Write:
    def write(fd: int, *limits: t.Any) -> str:
        return receive_file(stream, fd, size, *limits)

    return write
