# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of instances: missing, existing, busy, locked, or in the wrong state."""

from __future__ import annotations

from .base import Conflict, InvalidInput, NotFound


class InstanceNotFound(NotFound):
    """No instance has this name or UUID."""

    msg_fmt = "Instance %(instance_id)s could not be found."
    remedy = "Name an instance that bootflow.compute.list shows, of the same project, or give its UUID."


class InstanceExists(Conflict):
    """An instance of this name exists and differs from the request."""

    msg_fmt = "Instance %(name)s already exists with another definition: %(reason)s."
    remedy = (
        "Run bootflow.compute.apply, which changes what can be changed; or delete it first (bootflow.compute.delete), give the new one another"
        " name, or restore its definition."
    )


class InstanceBusy(Conflict):
    """Another live run is working on the instance (InstanceIsLocked is a user's lock)."""

    msg_fmt = "Instance %(name)s is being worked on by run %(run)s until %(until)s."
    remedy = "Wait for that run; if it is dead, its lease ends at the time named."


class InstanceIsLocked(Conflict):
    """A user locked the instance against actions (Nova's lock; InstanceBusy is another run at work)."""

    msg_fmt = "Instance %(instance_uuid)s is locked"
    remedy = "Unlock it first."


class UnexpectedTaskStateError(Conflict):
    """The instance changed its task state meanwhile."""

    msg_fmt = "Conflict updating instance %(instance_uuid)s. Expected: %(expected)s. Actual: %(actual)s."


class UnexpectedDeletingTaskStateError(UnexpectedTaskStateError):
    """The instance is being deleted meanwhile."""


class InstanceInvalidState(Conflict):
    """The instance's state does not allow the action."""

    msg_fmt = "Cannot '%(method)s' instance %(instance_uuid)s while it is in %(attr)s %(state)s"


class InstanceNotReady(Conflict):
    """The instance has no guest on a host."""

    msg_fmt = "Instance %(instance_id)s is not ready"
    remedy = "Look at its state: bootflow.compute.show."


class InstanceNotRescuable(InvalidInput):
    """The instance cannot be rescued by the image that the request names, or without one."""

    msg_fmt = "Instance %(instance_id)s cannot be rescued: %(reason)s"
