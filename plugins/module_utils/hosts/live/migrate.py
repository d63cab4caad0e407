# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest leaves this host while it runs: libvirt's peer to peer migration, through the sockets of relay.py.

libvirt alone decides where the guest goes on: it runs on its new host only when it has ended here. The definition stays here, so that what
belonged to it is found when the host is cleaned of it.
source: Nova's _live_migration_operation and _live_migration_monitor
"""

from __future__ import annotations

import os
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ...core.errors import BootflowError, LibvirtError, LiveMigrationAborted, MigrationError
from ...core.instances.power_states import POWER_PAUSED, RUNNING
from ..libvirt.connection import is_code, libvirt, libvirt_errors, tolerating, translate
from ..libvirt.running import find_domain, power_state
from ..os.batch import progress
from ..os.paths import instance_dir
from .channels import DISKS, LIBVIRT, MEMORY, Sockets
from .guests import definition_there, leaving
from .progress import Told

POLL = 0.2  # seconds
ABORT, FORCE_COMPLETE = "abort", "force_complete"
_POST_COPY = (
    "Run bootflow.compute.prepare for both hosts with bootflow_live_migration_permit_post_copy: it sets vm.unprivileged_userfaultfd, which a QEMU"
    " that is not root needs. Or migrate without post-copy."
)


@dataclass(frozen=True)
class Journey:
    """A guest and where it goes. Times are in seconds."""

    uuid: str
    sockets: Sockets
    disks: t.Sequence[str]  # targets of the disks that are copied
    folder_there: str  # of the instance
    volumes: t.Mapping[str, str] = field(default_factory=dict)  # id -> <disk> there; see guests.definition_there()
    devices: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)  # there; see empty_disks.make_disks()
    vnc_listen: str = ""  # there; empty: as here
    pins: t.Mapping[str, t.Any] = field(default_factory=dict)  # there, see core.guest.numa.pins()
    timeout: float = 0.0  # 0: none
    timeout_action: str = ABORT
    post_copy: bool = False  # permitted
    auto_converge: bool = False
    downtime: float = 0.5  # of the guest at its end, at most, if that can be
    bandwidth: int = 0  # MiB a second; 0: as much as it can


def migrate(connection: t.Any, instances_path: str, journey: Journey, reports: Told) -> dict[str, t.Any]:
    """Take the guest to its new host: {changed, left, power_state, seconds, downtime, transferred, forced}.

    ``left`` is true when the guest has ended here, and is false of no guest that this function returns a result for.

    :raises LiveMigrationAborted: it was ended; the guest goes on here.
    :raises MigrationError: it failed; the guest goes on here, if it does anywhere.
    :raises InstanceNotFound, MigrationPreCheckError: see guests.leaving().
    """
    begin = time.monotonic()
    domain = leaving(connection, journey.uuid)
    before = power_state(domain)
    parameters = _parameters(domain, instance_dir(instances_path, journey.uuid), journey)
    progress.mark_changed()
    work = _Work(domain, journey, parameters, reports)
    try:
        work.watch()
    finally:
        reports.over(journey.uuid)
    if work.error is not None and not _has_left(domain):
        if before == RUNNING:
            _go_on(domain)
        raise work.error
    stats = work.statistics()
    return {
        "changed": True,
        "left": True,
        "power_state": before,
        "seconds": round(time.monotonic() - begin, 3),
        "downtime": round(float(stats.get("downtime") or 0) / 1000, 3),
        "transferred": int(stats.get("data_processed") or 0),
        "forced": work.forced,
    }


def _parameters(domain: t.Any, folder: str, journey: Journey) -> dict[str, t.Any]:
    secret = libvirt.VIR_DOMAIN_XML_SECURE
    with libvirt_errors():
        live = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | secret)
        persistent_xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_MIGRATABLE | secret)
    where = (folder, journey.folder_there, journey.vnc_listen, journey.pins, journey.volumes)
    # What larger extents add to a disk the guest sees when it starts again.
    whole = {target: {**device, "size": 0} for target, device in journey.devices.items()}
    parameters: dict[str, t.Any] = {
        libvirt.VIR_MIGRATE_PARAM_URI: "unix://%s" % journey.sockets.path(MEMORY),
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: definition_there(live, *where, journey.devices),
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: definition_there(persistent_xml, *where, whole),
    }
    if journey.bandwidth:
        parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = journey.bandwidth
    if journey.disks:
        parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(journey.disks)
        parameters["disks_uri"] = "unix://%s" % journey.sockets.path(DISKS)  # python3-libvirt has no name for it yet
    return parameters


class _Work:
    """The migration, in a separate thread, as its call returns at its end; and its supervision meanwhile."""

    def __init__(self, domain: t.Any, journey: Journey, parameters: dict[str, t.Any], reports: Told):
        self.reports = reports
        self.domain = domain
        self.journey = journey
        self.parameters = parameters
        self.error: BootflowError | None = None
        self.forced = False
        self.timed_out = False
        self.last: dict[str, t.Any] = {}

    def watch(self) -> None:
        thread = threading.Thread(target=self._run, daemon=True, name="bootflow-live-migration")
        deadline = time.monotonic() + self.journey.timeout
        thread.start()
        tuned = False
        while thread.is_alive():
            thread.join(POLL)
            self._look()
            if not tuned and self.last:
                tolerating(self._tune, "VIR_ERR_OPERATION_INVALID")
                tuned = True
            if self.journey.timeout and not self.timed_out and time.monotonic() >= deadline:
                self.timed_out = True
                self._time_is_over()

    def _tune(self) -> None:
        self.domain.migrateSetMaxDowntime(int(self.journey.downtime * 1000), 0)

    def _run(self) -> None:
        flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_PERSIST_DEST
        if self.journey.disks:
            flags |= libvirt.VIR_MIGRATE_NON_SHARED_DISK
        if self.journey.auto_converge:
            flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
        if self.journey.post_copy:
            flags |= libvirt.VIR_MIGRATE_POSTCOPY
        destination_uri = "qemu+unix:///system?socket=%s" % self.journey.sockets.path(LIBVIRT)
        try:
            self.domain.migrateToURI3(destination_uri, self.parameters, flags)
        except libvirt.libvirtError as error:
            self.error = self._error(error)
        except Exception as error:
            self.error = MigrationError(reason="%s: %s" % (type(error).__name__, error))

    def _error(self, error: t.Any) -> BootflowError:
        if is_code(error, "VIR_ERR_OPERATION_ABORTED"):
            why = "it took more than %d s" % self.journey.timeout if self.timed_out else "another run ended it"
            return LiveMigrationAborted(instance_uuid=self.journey.uuid, reason=why)
        return failed_migration(translate(error).message)

    def _look(self) -> None:
        try:
            stats = self.domain.jobStats(0)
        except libvirt.libvirtError:
            return
        if stats.get("type") not in (None, libvirt.VIR_DOMAIN_JOB_NONE):
            self.last = dict(stats)
            self.reports.record_stats(self.journey.uuid, stats)

    def statistics(self) -> dict[str, t.Any]:
        """Return the statistics of the completed migration, as far as libvirt still has them."""
        try:
            return dict(self.domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED))
        except libvirt.libvirtError:
            return self.last

    def _time_is_over(self) -> None:
        if self.journey.timeout_action == FORCE_COMPLETE:
            self.forced = force_complete(self.domain, self.journey.post_copy)
        else:
            tolerating(self.domain.abortJob, "VIR_ERR_OPERATION_INVALID")


def failed_migration(message: str) -> MigrationError:
    """Return the error of a migration that failed with this message of libvirt's."""
    if "Postcopy is not supported" in message:  # QEMU's words: it may not wait for the memory of its guest
        return MigrationError(reason=message, remedy=_POST_COPY)
    return MigrationError(reason=message)


def _has_left(domain: t.Any) -> bool:
    """Return whether libvirt reports that the guest migrated to another host."""
    with libvirt_errors():
        state, reason = domain.state()[:2]
    return bool(state == libvirt.VIR_DOMAIN_SHUTOFF and reason == libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED)


def _go_on(domain: t.Any) -> None:
    """Resume a guest that was stopped for the end of its migration, which failed."""
    with libvirt_errors():
        state, reason = domain.state()[:2]
    if state == libvirt.VIR_DOMAIN_PAUSED and reason == libvirt.VIR_DOMAIN_PAUSED_USER:
        tolerating(domain.resume, "VIR_ERR_OPERATION_INVALID")


# --- by another run -------------------------------------------------------------------------------------------------------


def intervene(connection: t.Any, uuid: str, action: str, post_copy: bool, check_mode: bool) -> dict[str, t.Any]:
    """End the guest's migration, or have it come to its end: {changed, ...}, see the module for the fields.

    :arg check_mode: only say how far it is.
    :raises MigrationError: no migration of the guest is under way.
    """
    domain: t.Any = find_domain(connection, uuid)
    stats: dict[str, t.Any] = {}
    if domain is not None and power_state(domain) in (RUNNING, POWER_PAUSED):
        with libvirt_errors():
            stats = domain.jobStats(0)
    if stats.get("operation") != libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT:
        raise MigrationError(
            reason="no migration of guest %s is under way on %s" % (uuid, os.uname().nodename),
            remedy="The migration has not begun yet, or has ended: run bootflow.compute.show to see where the instance is.",
        )
    if not check_mode:
        progress.mark_changed()
        if action == ABORT:
            with libvirt_errors():
                domain.abortJob()
        else:
            force_complete(domain, post_copy)
    total, remaining = (int(stats.get(n) or 0) for n in ("data_total", "data_remaining"))
    return {"changed": True, "total": total, "remaining": remaining}


def force_complete(domain: t.Any, post_copy: bool) -> bool:
    """Switch the guest to its new host now: its memory follows, where post-copy is permitted; otherwise its CPUs stop until the end of the migration.

    Returns whether something was done: a guest that is paused needs nothing.
    """
    if post_copy:
        try:
            with libvirt_errors():
                domain.migrateStartPostCopy(0)
            return True
        except LibvirtError:  # the copy of its memory has not begun, or the migration was begun without the permission
            pass
    return tolerating(domain.suspend, "VIR_ERR_OPERATION_INVALID") is not None
