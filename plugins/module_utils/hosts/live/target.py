# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""This host before a guest comes to it running: whether it can, and the empty disks that its own are copied to.

source: Nova's check_can_live_migrate_destination and pre_live_migration
"""

from __future__ import annotations

import os
import shutil
import typing as t
import urllib.parse

from ...core.errors import Conflict, DestinationHypervisorTooOld, HypervisorUnavailable, InvalidCPUInfo
from ...core.guest.domain.element import parse
from ..disks.file_disks import write_records
from ..images.images import QEMU_IMG_PACKAGE
from ..libvirt.connection import libvirt, libvirt_errors, tolerating
from ..libvirt.running import find_domain
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import fsync
from ..os.locks import host_lock
from ..os.ownership import mark_folder
from ..os.paths import checked_disk_name, checked_instances_path, instance_dir, make_dirs
from ..os.room import check_room

_SOCKETS = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock", "/var/run/libvirt/libvirt-sock")
_RESULT = "CPU doesn't have compatibility.\n\n%(ret)s\n\nRefer to %(u)s"  # Nova's words
_RESULTS = "http://libvirt.org/html/libvirt-libvirt-host.html#virCPUCompareResult"


def check(connection: t.Any, guest: t.Mapping[str, t.Any]) -> None:
    """Check whether the guest can run here. Writes nothing.

    :arg guest: as guests.describe() gives it.
    :raises InvalidCPUInfo: the CPU lacks something that the guest's has.
    :raises DestinationHypervisorTooOld: QEMU or libvirt are older than where it is.
    :raises Conflict: another domain has its name.
    """
    with libvirt_errors():
        older = connection.getVersion() < guest["hypervisor_version"]
        older = older or connection.getLibVersion() < guest["libvirt_version"]
    if older:
        raise DestinationHypervisorTooOld()
    if guest["cpu"]:
        _check_cpu(connection, guest)
    other = tolerating(lambda: connection.lookupByName(guest["name"]), "VIR_ERR_NO_DOMAIN")
    if other is not None:
        raise Conflict(
            message="%s has a domain %s with UUID %s" % (os.uname().nodename, guest["name"], other.UUIDString()),
            remedy="Remove or rename that domain; bootflow.compute.audit removes what is left of an earlier move.",
        )


def _check_cpu(connection: t.Any, guest: t.Mapping[str, t.Any]) -> None:
    """source: Nova's _compare_cpu"""
    result: int
    try:
        if guest["cpu_of_host"]:
            result = connection.compareCPU(guest["cpu"], 0)
        else:
            machine = (guest["arch"], guest["machine"], guest["virt_type"])
            result = connection.compareHypervisorCPU(None, *machine, guest["cpu"], 0)
    except libvirt.libvirtError as error:
        raise InvalidCPUInfo(reason=error.get_error_message() or str(error)) from None
    if result <= 0:
        raise InvalidCPUInfo(reason=_RESULT % {"ret": result, "u": _RESULTS})


def make_disks(connection: t.Any, instances_path: str, ledger_id: str, uuid: str, guest: t.Mapping[str, t.Any]) -> None:
    """Make the folder of the guest, with empty disks of the same sizes that no base image is below.

    A copy of all that the guest sees, as in a cold migration: this host needs no image for it, and another one's base may be gone.

    :raises Conflict: the host has something of the instance already. :raises DiskFull: there is not enough room.
    """
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        if os.path.lexists(folder) or find_domain(connection, uuid) is not None:
            raise Conflict(
                message="host %s already has files or a domain of instance %s" % (os.uname().nodename, uuid),
                remedy="bootflow.compute.audit removes what is left of an earlier move.",
            )
        path = checked_instances_path(instances_path)
        make_dirs(path)
        check_room(path, sum(int(d["allocated"]) for d in guest["disks"]))
        progress.mark_changed()
        try:
            mark_folder(folder, ledger_id)
            make_dirs(folder)
            records = {checked_disk_name(d["name"]): dict(d["record"]) for d in guest["disks"]}
            write_records(folder, records)
            for name, record in records.items():
                _make(os.path.join(folder, name), record)
            fsync(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _make(path: str, record: t.Mapping[str, t.Any]) -> None:
    size = str(int(record["virtual_size"]))
    run(
        [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", record["format"], path, size],
        timeout=60.0,
        path=path,
    )
    os.chmod(path, 0o600)


def qemu_owner(connection: t.Any, virt_type: str) -> tuple[int, int]:
    """The user and the group of QEMU's processes."""
    with libvirt_errors():
        capabilities = parse(connection.getCapabilities())
    for model in capabilities.iterfind("host/secmodel"):
        label = model.findtext("baselabel[@type='%s']" % virt_type) or ""
        user, colon, group = label.replace("+", "").partition(":")
        if model.findtext("model") == "dac" and colon and user.isdigit() and group.isdigit():
            return int(user), int(group)
    return 0, 0


def libvirt_socket(uri: str) -> str:
    """Where libvirt listens on this host. :raises HypervisorUnavailable: nowhere."""
    named = urllib.parse.parse_qs(urllib.parse.urlsplit(uri).query).get("socket")
    for path in named or _SOCKETS:
        if os.path.exists(path):
            return path
    raise HypervisorUnavailable(
        host=os.uname().nodename, reason="libvirt listens on none of its sockets (%s)" % ", ".join(_SOCKETS)
    )
