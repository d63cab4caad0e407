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
    remedy = "Choose a flavor whose disks are as large or larger; disks never shrink."


class MoveNotSupported(InvalidInput):
    """The instance has something that a cold migration or resize does not carry to another host."""

    msg_fmt = "Instance %(instance_uuid)s cannot be moved: %(reason)s"
    remedy = "docs/operations.md says what moves."


class DiskCopyFailed(BootflowError):
    """The disks of an instance did not arrive on its new host."""

    msg_fmt = "The disks of instance %(instance_uuid)s were not copied from %(source)s: %(reason)s"
    retryable = True
    remedy = (
        "See that its new host reaches it there at the ports bootflow_copy_ports; bootflow_copy_address is the address."
    )


class ComputeServiceInUse(Conflict):
    """An evacuation from a host that is not forced down. The message is Nova's."""

    msg_fmt = "Compute service of %(host)s is still in use."
    remedy = "See that the host is off, or its guests would run twice; then force it down: bootflow.compute.host with bootflow_host_state: forced_down."
