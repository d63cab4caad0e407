# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of instances that come to this host, fetched from where they were: each is complete and compared, or missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...core.errors import Conflict, DiskCopyFailed, DiskFull
from ..disks.file_disks import grow, records_of, write_records
from ..images.images import check_image_file
from ..os.batch import progress
from ..os.files import fsync
from ..os.locks import host_lock
from ..os.module_errors import as_bootflow_error
from ..os.ownership import mark_folder
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from .server import Place, connected
from .stream import Garbled, read_line, receive_file, send_line

_PART = ".part"


def fetch_instance(
    instances_path: str,
    ledger_id: str,
    uuid: str,
    place: Place,
    token: str,
    files: t.Sequence[t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
) -> dict[str, t.Any]:
    """Fetch the disks of an instance, and let them grow to ``sizes``: {changed, disks: [{name, size, sha256}]}.

    :arg files: as sender.prepare() described them. :arg sizes: of disks, in bytes, where they are to be larger
    :raises Conflict: the host has something of the instance already. :raises DiskFull: there is not enough room.
    :raises DiskCopyFailed: they could not be fetched, or arrived with another checksum. What arrived is removed.
    :raises ImageUnacceptable: a disk refers to other files.
    """
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        if os.path.lexists(folder):
            raise Conflict(
                message="folder %s exists on %s" % (folder, os.uname().nodename),
                remedy="bootflow.compute.audit removes what is left of an earlier move.",
            )
        _check_room(instances_path, files)
        progress.mark_changed()
        try:
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            return {"changed": True, "disks": _fetch(folder, uuid, place, token, files, sizes)}
        except (OSError, Garbled) as e:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(e, OSError) and e.filename:
                raise as_bootflow_error(e, e.filename) from None
            raise DiskCopyFailed(instance_uuid=uuid, source=place.address, reason=str(e)) from None
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _check_room(instances_path: str, files: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    path = checked_instances_path(instances_path)
    make_dirs(path)
    needed, free = sum(int(f["allocated"]) for f in files), shutil.disk_usage(path).free
    if needed > free:
        raise DiskFull(
            host=os.uname().nodename,
            path=path,
            reason="the disks have %d MiB, %d are free" % (needed >> 20, free >> 20),
        )


def _fetch(
    folder: str,
    uuid: str,
    place: Place,
    token: str,
    files: t.Sequence[t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
) -> list[dict[str, t.Any]]:
    done = []
    with connected(place) as stream:
        for file in files:
            name = checked_disk_name(file["name"])
            part = os.path.join(folder, name + _PART)
            send_line(stream, {"token": token, "file": name})
            if read_line(stream).get("size") != file["size"]:
                raise Garbled("disk %s has another size" % name)
            fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                sha256 = receive_file(stream, fd, int(file["size"]))
            finally:
                os.close(fd)
            if file["record"] is not None and file["record"]["format"] == "qcow2":
                check_image_file(
                    part, "qcow2", name
                )  # a host that was taken over could name a file of this one as its base
            size = _grow(part, file["record"], sizes.get(name, 0))
            if file["record"] is not None:
                write_records(folder, {**records_of(folder), name: {**file["record"], "virtual_size": size}})
            os.rename(part, os.path.join(folder, name))
            fsync(folder)
            done.append({"name": name, "size": size, "sha256": sha256})
        send_line(stream, {"token": token, "done": True})
        with contextlib.suppress(Garbled, OSError):  # all has arrived: the server ends by itself too
            read_line(stream)
    return done


def _grow(path: str, record: t.Mapping[str, t.Any] | None, size: int) -> int:
    """The virtual size of the disk, which grows to ``size`` bytes where it is smaller."""
    if record is None:
        return os.path.getsize(path)
    has = grow(path, record, size)
    fsync(path)
    return has
