# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup of the root disk of an instance. Of a guest that runs QEMU writes it, as the disk was at the begin of the job; the guest goes on.

An increment has what the guest has written since the checkpoint of the backup before, in a qcow2 file that is made on that backup. libvirt itself would
make the file on the disk of the guest, which changes afterwards.
source: libvirt's backup API (virDomainBackupBegin, VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL)
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from ...core.backups import backup
from ...core.disks.local import QCOW2
from ...core.errors import BackupFailed, DiskFull, InstanceNotFound, LibvirtError
from ...core.images.quiesce import NO
from ...core.times import utc
from ..images.images import QEMU_IMG_PACKAGE
from ..libvirt.backup_job import refuse_running_backup, runs_backup
from ..libvirt.connection import is_code, libvirt, libvirt_errors
from ..libvirt.domains import definitions_of
from ..libvirt.running import find_domain, is_active, power_state, refuse_gone
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import fsync, remove_files
from ..os.locks import at_work
from ..os.paths import checked_id, checked_uuid, instance_dir, make_dirs
from ..os.room import check_room
from ..snapshots.files import convert
from ..snapshots.live_copy import ROOM, standing_still
from ..snapshots.publish import sha256_of
from ..snapshots.root_disk import RootDisk, root_disk, target_of
from . import checkpoints, folder
from .folder import StoredBackup, folder_of
from .guard import guarded

POLL = 0.25  # seconds
_END = 60.0  # seconds in which an aborted job ends


@dataclass(frozen=True)
class BackupSpec:
    """The backup to make of an instance.

    ``name``: of the instance. ``reason``: why it is full; "": an increment on ``chain``, if that is possible. ``kept_checkpoint``: on which a later
    increment could follow if this backup fails. ``removed``: ids of backups of which nothing is to be left. ``quiesce``: of core.images.quiesce
    """

    uuid: str
    backup_id: str
    name: str = ""
    quiesce: str = NO
    reason: str = ""
    chain: tuple[StoredBackup, ...] = ()
    kept_checkpoint: str = ""
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupPlace:
    """Where the disks of instances are, and where their backups belong."""

    instances_path: str
    uri: str
    directory: str


class CheckpointLost(Exception):
    """No increment is possible. The argument says why."""


def take(connection: t.Any, spec: BackupSpec, place: BackupPlace, check_mode: bool = False) -> dict[str, t.Any]:
    """Make a backup of the root disk. Returns {changed, power_state, kind, parent_id, reason, live, quiesced, seconds, removed}, and not in check mode {folder,
    file, size, virtual_size, checksum, checkpoint, checkpoint_xml}.

    :raises InstanceNotFound: the host has no domain of the instance. :raises BackupRuns: another backup of the guest runs.
    :raises InvalidDiskInfo, GuestDisksDiffer: see root_disk(), target_of(). :raises DiskFull: there is no room. :raises BackupFailed: QEMU gave up.
    :raises BackupDamaged: the file is not what was requested. :raises InstanceQuiesceNotSupported, LibvirtError, HypervisorUnavailable: as named.
    """
    begin = time.monotonic()
    uuid, backup_id = checked_uuid(spec.uuid), checked_id(spec.backup_id, "backup id")
    domain = find_domain(connection, uuid)
    if domain is None:
        raise InstanceNotFound(
            instance_id=spec.uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again.",
        )
    live = is_active(domain)
    own = folder_of(place.directory, uuid)
    disk = root_disk(
        place.instances_path, instance_dir(place.instances_path, uuid), readable=not live and not check_mode
    )
    target = target_of(definitions_of(domain)[0], disk, uuid, domain.name())
    if live and not check_mode:
        _end_left_over(domain, own)
    refuse_running_backup(domain)
    reason = _why_full(spec, disk, live, own)
    outcome: dict[str, t.Any] = {"changed": True, "live": live, "quiesced": False, "removed": []}
    if check_mode:
        return {**outcome, **_kind_of(spec, reason), "power_state": power_state(domain), "seconds": 0.0}
    refuse_gone(uuid)
    with at_work([uuid]):
        progress.mark_changed()
        outcome["removed"] = folder.remove(own, spec.removed)
        if live:
            checkpoints.delete_others(domain, {spec.kept_checkpoint})
        make_dirs(own)  # QEMU can pass it
        path = os.path.join(own, backup.file_name(backup_id))
        remove_files(path)
        if live:
            made = _take_live(domain, spec, place, disk, target, path, reason)
        else:
            made = _take_cold(domain, spec, disk, path, reason)
        try:
            outcome.update(_finished(spec, path, made))
        except BaseException:
            _remove_half(domain, str(made["checkpoint"]), path)
            raise
        return {**outcome, "power_state": power_state(domain), "seconds": round(time.monotonic() - begin, 3)}


def _why_full(spec: BackupSpec, disk: RootDisk, live: bool, own: str) -> str:
    """Return why no increment is possible; "": one is, as far as this shows."""
    if not live:
        return backup.OFF
    if disk.format != QCOW2:
        return backup.FORMAT % disk.format
    if spec.reason:
        return spec.reason
    if not spec.chain:
        return backup.NO_PARENT
    elsewhere = next((stored for stored in spec.chain if stored.folder != own), None)
    wrong = folder.damage(spec.chain) if elsewhere is None else "it is in %s" % elsewhere.folder
    return backup.LOST_FILE % wrong if wrong else ""


def _kind_of(spec: BackupSpec, reason: str) -> dict[str, t.Any]:
    if reason:
        return {"kind": backup.FULL, "parent_id": None, "reason": reason}
    return {"kind": backup.INCREMENTAL, "parent_id": spec.chain[-1].id, "reason": ""}


# --- a guest that does not run --------------------------------------------------------------------------------------------


def _take_cold(domain: t.Any, spec: BackupSpec, disk: RootDisk, path: str, reason: str) -> dict[str, t.Any]:
    check_room(os.path.dirname(path), disk.room(QCOW2, False), "the backup needs")
    try:
        convert(disk.path, disk.format, path, QCOW2)
        if is_active(domain):
            raise LibvirtError(
                reason="guest %s was started while its disk was copied" % spec.uuid, remedy="Make the backup again."
            )
        size = folder.virtual_size(path)
        folder.check_file(path, spec.backup_id, size, ())
    except BaseException:
        remove_files(path)
        raise
    return {**_kind_of(spec, reason), "virtual_size": size, "checkpoint": "", "checkpoint_xml": "", "quiesced": False}


# --- a guest that runs ------------------------------------------------------------------------------------------------------


def _take_live(
    domain: t.Any, spec: BackupSpec, place: BackupPlace, disk: RootDisk, target: str, path: str, reason: str
) -> dict[str, t.Any]:
    """Make an increment, or a full backup where that shows to be impossible."""
    if not reason:
        parent = spec.chain[-1]
        try:
            if not checkpoints.has(domain, parent.checkpoint, parent.checkpoint_xml):
                raise CheckpointLost(backup.LOST_CHECKPOINT % parent.checkpoint)
            made = _run_job(domain, spec, place, disk, target, path, spec.chain)
            return {**_kind_of(spec, ""), **made}
        except CheckpointLost as lost:
            reason = str(lost)
        checkpoints.delete(domain, parent.checkpoint)
    check_room(os.path.dirname(path), disk.room(QCOW2, False), "the backup needs")
    made = _run_job(domain, spec, place, disk, target, path, ())
    return {**_kind_of(spec, reason), **made}


def _run_job(
    domain: t.Any,
    spec: BackupSpec,
    place: BackupPlace,
    disk: RootDisk,
    target: str,
    path: str,
    chain: t.Sequence[StoredBackup],
) -> dict[str, t.Any]:
    """Have QEMU write the file. What it leaves in a failure is removed.

    :raises CheckpointLost: QEMU does not know what was written since the backup before.
    """
    name = backup.checkpoint_name(spec.backup_id) if disk.format == QCOW2 else ""
    with libvirt_errors():
        size = int(domain.blockInfo(target, 0)[0])
    with guarded(place.uri, spec.uuid, name, path, spec.quiesce != NO):
        try:
            _make_file(path, size, chain)
            with standing_still(domain, spec.uuid, spec.quiesce) as still:
                _begin(domain, target, path, name, chain)
            _wait(domain, spec.uuid, path)
            folder.check_file(path, spec.backup_id, size, chain)
            xml = checkpoints.describe(domain, name) if name else ""
        except BaseException:
            _abort(domain, path)
            _remove_half(domain, name, path)
            raise
    return {"virtual_size": size, "checkpoint": name, "checkpoint_xml": xml, "quiesced": still}


def _make_file(path: str, size: int, chain: t.Sequence[StoredBackup]) -> None:
    base = ["-b", os.path.basename(chain[-1].file), "-F", QCOW2] if chain else []
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", QCOW2, *base, path, str(size)]
    run(argv, timeout=60.0, path=path)
    os.chmod(path, 0o600)


def _begin(domain: t.Any, target: str, path: str, name: str, chain: t.Sequence[StoredBackup]) -> None:
    since = "<incremental>%s</incremental>" % chain[-1].checkpoint if chain else ""
    disk = "<disk name=%s backup='yes' type='file'><driver type='qcow2'/><target file=%s/></disk>" % (
        quoteattr(target),
        quoteattr(path),
    )
    xml = "<domainbackup mode='push'>%s<disks>%s</disks></domainbackup>" % (since, disk)
    mark = "<domaincheckpoint><name>%s</name><disks><disk name=%s checkpoint='bitmap'/></disks></domaincheckpoint>"
    with libvirt_errors():
        try:
            flags = libvirt.VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL
            domain.backupBegin(xml, mark % (name, quoteattr(target)) if name else None, flags)
        except libvirt.libvirtError as error:
            if chain and is_code(error, "VIR_ERR_CHECKPOINT_INCONSISTENT", "VIR_ERR_NO_DOMAIN_CHECKPOINT"):
                raise CheckpointLost(backup.LOST_BITMAP) from None
            if is_code(error, "VIR_ERR_OPERATION_TIMEOUT"):
                refuse_running_backup(domain)
            raise


def _wait(domain: t.Any, uuid: str, path: str) -> None:
    """Wait for the end of the job. :raises BackupFailed, DiskFull: it did not complete. :raises RemoteError: the run is gone that asked for it"""
    while runs_backup(domain):
        refuse_gone(uuid)
        time.sleep(POLL)
    with libvirt_errors():
        try:
            done = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
        except libvirt.libvirtError:
            if domain.isActive():
                raise
            done = {}
    if done.get("type") == libvirt.VIR_DOMAIN_JOB_COMPLETED and (
        done.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP
    ):
        return
    status = os.statvfs(os.path.dirname(path))
    if status.f_frsize * status.f_bavail < ROOM:
        raise DiskFull(host=os.uname().nodename, path=path, reason="No space left on device")
    words = str(done.get("errmsg") or "") or ("QEMU gave up the job" if is_active(domain) else "the guest ended")
    raise BackupFailed(
        instance_uuid=uuid, reason=words, remedy="See /var/log/libvirt/qemu/%s.log on the host." % domain.name()
    )


def _abort(domain: t.Any, path: str) -> None:
    """End the job that writes to ``path``, if it runs."""
    with contextlib.suppress(libvirt.libvirtError):
        if path not in domain.backupGetXMLDesc(0):
            return
        domain.abortJob()
        until = time.monotonic() + _END
        while time.monotonic() < until and runs_backup(domain):
            time.sleep(POLL)


def _end_left_over(domain: t.Any, own: str) -> None:
    """End the job to a file of this folder that a killed module has left."""
    _abort(domain, own + "/")


def _remove_half(domain: t.Any, name: str, path: str) -> None:
    """Remove the file, and the checkpoint: one that is left would have the next increment begin at a backup that is not there."""
    with contextlib.suppress(libvirt.libvirtError, LibvirtError):
        if name:
            checkpoints.delete(domain, name)
    remove_files(path)


# --- the end ------------------------------------------------------------------------------------------------------------------


def _finished(spec: BackupSpec, path: str, made: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Name the backup in the manifest, with all bytes on the disk. Returns what the ledger keeps of it."""
    os.chown(path, 0, 0)  # it was QEMU's
    os.chmod(path, 0o600)
    fsync(path)
    own, file = os.path.split(path)
    stored: dict[str, t.Any] = {
        "file": file,
        "size": os.stat(path).st_size,
        "virtual_size": made["virtual_size"],
        "checksum": sha256_of(path),
    }
    about = {"id": spec.backup_id, "kind": made["kind"], "parent": made["parent_id"], "reason": made["reason"]}
    entry = {**about, "checkpoint": made["checkpoint"], "created_at": utc(time.time()), **stored}
    entry["sha256"] = entry.pop("checksum")
    folder.add(own, spec.uuid, spec.name, entry)
    return {**made, **stored, "folder": own}
