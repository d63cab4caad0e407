# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of instances that move to another host or get another flavor."""

from __future__ import annotations

from .base import BootflowError, Conflict, InvalidInput


class CannotResizeToSameFlavor(InvalidInput):
    """A resize names the flavor that the instance has. The message is Nova's."""

    msg_fmt = "When resizing, instances must change flavor!"
    remedy = (
        "Name another flavor; bootflow.compute.migrate moves an instance to another host with the flavor that it has."
    )


class CannotResizeDisk(InvalidInput):
    """A flavor has a smaller disk than the instance. The message is Nova's."""

    msg_fmt = "Server disk was unable to be resized because: %(reason)s"
    remedy = "Choose a flavor whose disks are as large or larger; only swap shrinks."


class MoveNotSupported(InvalidInput):
    """The instance has something that a cold migration or resize does not carry to another host."""

    msg_fmt = "Instance %(instance_uuid)s cannot be moved: %(reason)s"
    remedy = "docs/resize-and-migrate.md says what moves."


class GuestDataRequired(InvalidInput):
    """The instance was booted with user data or injected files, which the ledger does not keep: a guest that is made again would lack them."""

    msg_fmt = "Instance %(name)s of project %(project)s was booted with %(had)s, which the ledger does not keep, and which %(where)s does not have (%(which)s)"
    remedy = (
        "Run it on the controller that booted the instance, as the same user, where bootflow_user_data_dir has them. Or give the file that booted it,"
        " as for boot: -e @FILE, whose bootflow_instances has its entry. If the file is lost, an entry without them makes"
        ' the guest without them: -e \'{"bootflow_instances": [{"name": NAME, "project": PROJECT}]}\'.'
    )


class GuestDataLocked(GuestDataRequired):
    """The ledger has user data or an injected file that no key of the run decrypts."""

    msg_fmt = (
        "The ledger has encrypted user data (sha256:%(which)s...), which no key of bootflow_user_data_keys decrypts"
    )
    remedy = (
        "Add the key that it was encrypted with to bootflow_user_data_keys. If that key is lost, give the file that booted the instance, as for boot:"
        " -e @FILE, whose bootflow_instances has its entry."
    )


class GuestDataDiffers(InvalidInput):
    """The user data or injected files of the request differ from the data that the instance was booted with."""

    msg_fmt = "Instance %(name)s of project %(project)s was booted with other %(what)s than the request has (%(which)s)"
    remedy = (
        "Give the file that booted it. To change what it has, evacuate it as it is, then run bootflow.compute.rebuild with the new file. If the old file is"
        ' lost, an entry without them makes the guest without them: -e \'{"bootflow_instances": [{"name": NAME, "project": PROJECT}]}\'.'
    )


class InstanceElsewhere(Conflict):
    """Another host reported something of the instance than the one where the ledger has it: a second copy of the guest would be made."""

    msg_fmt = "Instance %(instance_uuid)s is on %(host)s by the ledger, but %(found)s by the last report"
    remedy = (
        "The ledger may have been restored from a backup. bootflow.compute.audit asks all hosts again. Find out which of the two has the instance's data,"
        " and remove the other copy by hand. If that host is lost or its reports are wrong, force it down: its reports do not count then."
    )


class GuestDisksDiffer(Conflict):
    """The guest writes to a disk that is neither the instance's nor its volume: an overlay of an external snapshot, a copy, or a disk attached by hand.
    Its data would be left behind.
    """

    msg_fmt = (
        "Disk %(target)s of instance %(instance_uuid)s (domain %(domain)s on %(host)s) is %(path)s, which is not the instance's: its data would be"
        " left behind"
    )
    remedy = (
        "If it is the overlay of an external snapshot, as backup programs make it, merge it on that host while the guest runs, once for each overlay: virsh"
        " blockcommit DOMAIN DISK --active --shallow --pivot --wait. Without --shallow virsh would write to the base image, which other guests use. If it is a"
        " copy, copy it back: virsh blockcopy. Detach a disk that was attached by hand: virsh detach-disk DOMAIN DISK --persistent."
    )


class GuestHasSnapshots(Conflict):
    """libvirt has snapshots or checkpoints of the guest. They belong to its host and its disks there, and would be lost."""

    msg_fmt = "libvirt on %(host)s has %(what)s of instance %(instance_uuid)s (domain %(domain)s), which would be lost"
    remedy = "Delete them on that host: virsh snapshot-delete or virsh checkpoint-delete; virsh snapshot-list and virsh checkpoint-list show them."


class DiskCopyFailed(BootflowError):
    """The disks of an instance did not arrive on its new host."""

    msg_fmt = "The disks of instance %(instance_uuid)s were not copied from %(source)s: %(reason)s"
    retryable = True
    remedy = "Make sure that the new host reaches the former one at the ports bootflow_copy_ports; bootflow_copy_address is the address."


class ComputeServiceInUse(Conflict):
    """An evacuation from a host that is not forced down, or its deletion. The message is Nova's."""

    msg_fmt = "Compute service of %(host)s is still in use."
    remedy = "Make sure that the host is off, or its guests would run twice; then force it down: bootflow.compute.host with bootflow_host_state: forced_down."


class MigrationError(BootflowError):
    """A live migration failed; the guest runs on where it was. The message is Nova's."""

    msg_fmt = "Migration error: %(reason)s"
    remedy = (
        "The guest is still on its former host. /var/log/libvirt/qemu on both hosts says more; the new host must be reachable at the ports"
        " bootflow_copy_ports."
    )


class MigrationPreCheckError(MigrationError):
    """An instance cannot be migrated live to that host. Nothing was touched. The message is Nova's."""

    msg_fmt = "Migration pre-check error: %(reason)s"
    remedy = "Choose another host with bootflow_live_migrate_host, or migrate the instance while it is off: bootflow.compute.migrate."


class InvalidCPUInfo(InvalidInput):
    """The new host lacks what the guest's CPU has. The message is Nova's."""

    msg_fmt = "Unacceptable CPU info: %(reason)s"
    remedy = (
        "Name another host with bootflow_live_migrate_host, or none: up to bootflow_max_attempts hosts are then tried, and hosts to which a migration"
        " of the instance failed come last. Guests move"
        " between unlike hosts when bootflow_cpu_mode is custom and bootflow_cpu_model is one that all of them have."
    )


class DestinationHypervisorTooOld(InvalidInput):
    """QEMU or libvirt of the new host is older than where the guest runs. The message is Nova's."""

    msg_fmt = "The instance requires a newer hypervisor version than has been provided."
    remedy = "Upgrade QEMU and libvirt of the new host, or choose another one with bootflow_live_migrate_host."


class UnableToMigrateToSelf(InvalidInput):
    """A live migration to the host where the instance is. The message is Nova's."""

    msg_fmt = "Unable to migrate instance (%(instance_id)s) to current host (%(host)s)."
    remedy = "Name another host, or leave bootflow_live_migrate_host out: the scheduler chooses one."


class InvalidMigrationState(InvalidInput):
    """A live migration is not as far, or is further, than what is asked of it needs. The message is Nova's."""

    msg_fmt = (
        "Migration %(migration_id)s state of instance %(instance_uuid)s is %(state)s. Cannot %(method)s while the"
        " migration is in this state."
    )
    remedy = "Only a migration whose status is running can be aborted or forced to complete; bootflow.compute.show prints it."


class MigrationConflict(Conflict):
    """The status of a move does not admit the event: another run changed it."""

    msg_fmt = "Migration %(migration_id)s of instance %(instance_uuid)s is %(state)s, which does not admit the event %(event)s."
    remedy = "Run the playbook again: it continues from the state the migration has now."


class LiveMigrationAborted(Conflict):
    """A live migration was ended by bootflow.compute.live_migration_abort, or because its time was over."""

    msg_fmt = "Live migration of instance %(instance_uuid)s was aborted: %(reason)s"
    remedy = "The guest still runs on its former host."
