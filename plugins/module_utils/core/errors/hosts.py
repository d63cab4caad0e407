# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of hosts: unreachable, out of space, without a program or library, or a failed program."""

from __future__ import annotations

import typing as t

from .base import BootflowError


class HostUnreachable(BootflowError):
    """Ansible could not connect to the host."""

    msg_fmt = "Host %(host)s is unreachable: %(reason)s"
    status = 503
    retryable = True
    remedy = "Check the connection (ansible -m ping), then run the same command again."


class FleetRunFailed(BootflowError):
    """A playbook that another one ran with the inventory of the fleet failed."""

    msg_fmt = "%(playbook)s failed with the inventory of the fleet, exit code %(status_code)s"
    status = 502
    remedy = "Its own messages are above. Fix the cause; molecule destroy removes what was made."


class HostTimeout(HostUnreachable):
    """A module did not end in time on the host, or the host accepted the connection and hangs."""

    msg_fmt = "Host %(host)s did not end %(module)s within %(seconds)s s"
    status = 504
    remedy = (
        "Find out what hangs on that host (libvirtd, its storage, sshd), or raise the time limit if the work takes that long"
        " (bootflow_work_timeout and its like, docs/variables.md)."
    )


class LeaseOver(BootflowError):
    """The run stood still between its look into the ledger and the module, and its lease was over: another run may have taken over."""

    msg_fmt = (
        "%(module)s was not sent to %(host)s: this run stood still for %(seconds)s s, so that another one may have"
        " taken over its instances"
    )
    status = 409
    retryable = True
    remedy = (
        "Run the same command again: it does what is still to be done, and leaves to other runs what they have taken over. A controller that sleeps, or"
        " cannot reach the ledger for longer than bootflow_lease_seconds, loses its instances."
    )


class InvalidAnswer(HostUnreachable):
    """A module's answer has a field of another type, range or form. The host counts as one that did not answer."""

    msg_fmt = "The answer of host %(host)s to %(module)s is invalid: %(path)s must be %(expects)s, got %(got)s"
    remedy = "Find out what changed the answer on that host (a shim around a program, a broken library), or disable the host."


class HypervisorUnavailable(BootflowError):
    """libvirt does not answer on the host."""

    msg_fmt = "Connection to the hypervisor is broken on host: %(host)s (%(reason)s)"
    status = 503
    retryable = True
    remedy = "Start libvirtd on that host, or disable the host."


class DiskFull(BootflowError):
    """A file system or volume group of the host is full."""

    msg_fmt = "No space left on %(host)s at %(path)s: %(reason)s"
    status = 503
    retryable = True
    remedy = "Free space there, or lower the host's disk_allocation_ratio."


class UnsafeFolder(BootflowError):
    """Another user of the host could put files into a folder that root uses."""

    msg_fmt = "Folder %(path)s on %(host)s is not safe: %(reason)s"
    retryable = True
    remedy = "Look at what is in it, then give it to root (chown root, chmod go-w), or configure another folder."


class MissingLibrary(BootflowError):
    """A Python library or a program is not installed."""

    msg_fmt = "%(name)s is missing on the %(where)s"

    def __init__(self, message: str | None = None, remedy: str | None = None, **details: t.Any):
        if remedy is None and details:
            tool = "pip install" if details.get("where") == "controller" else "apt-get install"
            remedy = "%s %s" % (tool, details.get("package", details.get("name")))
        super().__init__(message, remedy, **details)


class CommandFailed(BootflowError):
    """A program on a host returned an error."""

    msg_fmt = "%(cmd)s failed with exit code %(rc)s: %(stderr)s"
    retryable = True


class LibvirtError(BootflowError):
    """libvirt rejected a call."""

    msg_fmt = "libvirt: %(reason)s"
    retryable = True


class WaitTimeout(BootflowError):
    """An event did not happen in time."""

    msg_fmt = "%(what)s did not happen within %(seconds)s s on %(host)s"
    status = 504
    retryable = True


class CloudInitFailed(BootflowError):
    """cloud-init has finished in the guest, with errors."""

    msg_fmt = "cloud-init of the guest on %(host)s ended with errors: %(reason)s"
    remedy = (
        "Read /var/log/cloud-init.log in the guest, or its console; correct the user data or the image, and boot again."
    )


class RemoteError(BootflowError):
    """An unexpected error on a host, or an error with a code this version does not know."""

    msg_fmt = "%(reason)s"
    status = 400
    retryable = True


#: Remedy for a program that the kernel, or a person, ended by SIGKILL.
OUT_OF_MEMORY = (
    "The kernel kills processes where memory is short, and says so in the host's log (dmesg): free some there, or raise the host's"
    " bootflow_reserved_memory_mb. Then run the same command again."
)


class ModuleKilled(RemoteError):
    """A signal ended a module on the host before its answer, as the kernel's SIGKILL where memory is short. What it had begun may be done."""

    msg_fmt = "%(module)s on %(host)s was killed before it could answer (%(signal)s)"
    remedy = "Look for what ended it in the host's log (dmesg, journalctl), then run the same command again."


class ServiceNotPossible(BootflowError):
    """Hosts cannot be serviced now: their instances would not fit elsewhere, or cannot leave. Nothing of these hosts was touched."""

    msg_fmt = "%(hosts)s cannot be serviced now: %(reason)s"
    status = 409
    remedy = (
        "Make room on the other hosts (bootflow.compute.whatif with bootflow_whatif_n_plus_1 says what is missing), enable hosts or bring them back,"
        " or leave these hosts out of bootflow_service_hosts."
    )


class ServiceWindowTooShort(BootflowError):
    """The window is over before one host is expected to be done. Nothing was touched."""

    msg_fmt = "The window of %(window)s s is shorter than the %(expected)s s that a host is expected to take"
    status = 400
    remedy = "Raise bootflow_service_window, or lower bootflow_service_host_time if hosts take less."


class ServiceBusy(BootflowError):
    """Another run services hosts. Services go one after the other, so that no more hosts are out of use than one of them allows."""

    msg_fmt = "The run %(run)s works on the service %(name)s"
    status = 409
    retryable = True
    remedy = "Wait for it. A run that died is not waited for."


class ServiceStopped(BootflowError):
    """A step of the service failed on a host. No other host begins."""

    msg_fmt = "The service %(name)s stopped at %(host)s: %(reason)s"
    status = 503
    remedy = (
        "The host stays as it is, disabled until it has reported. Fix the cause and rerun the playbook: it continues with this host and leaves alone what"
        " is done. To give the host up, leave it out of bootflow_service_hosts."
    )


class ServiceTasksFailed(ServiceStopped):
    """The tasks of the user failed on a host, or took longer than bootflow_service_tasks_timeout."""


class HostNotBack(ServiceStopped):
    """A host did not report after its tasks."""

    msg_fmt = "The service %(name)s stopped at %(host)s: it did not report within %(seconds)s s after its tasks"
