# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of instances: missing, existing, busy, locked, or in the wrong state."""

from __future__ import annotations

import typing as t

from .base import BootflowError, Conflict, InvalidInput, NotFound


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


class UnshelveException(Conflict):
    """An instance cannot be built from the image that it was shelved in."""

    msg_fmt = "Error during unshelve instance %(instance_id)s: %(reason)s"


class UnshelveInstanceInvalidState(Conflict):
    """A destination is named for an instance that is still on its host."""

    msg_fmt = (
        'Specifying an availability zone or a host when unshelving server "%(instance_uuid)s" with status "%(state)s" is not supported.'
        " The server status must be SHELVED_OFFLOADED."
    )
    remedy = "Leave the zone and the host out, or run bootflow.compute.shelve_offload first."


class UnshelveHostNotInAZ(Conflict):
    """The host that is named for an instance is not in the instance's availability zone."""

    msg_fmt = 'Host "%(host)s" is not in the availability zone "%(availability_zone)s".'
    remedy = "Name a host of that zone, another zone (bootflow_unshelve_availability_zone), or set bootflow_unshelve_unpin: true."


class InstanceNotReady(Conflict):
    """The instance has no guest on a host."""

    msg_fmt = "Instance %(instance_id)s is not ready"
    remedy = "Run bootflow.compute.show to see the state."


class InstanceNotRescuable(InvalidInput):
    """The instance cannot be rescued by the image that the request names, or without one."""

    msg_fmt = "Instance %(instance_id)s cannot be rescued: %(reason)s"


class QemuGuestAgentNotEnabled(Conflict):
    """The image of the instance does not say that its guests have an agent."""

    msg_fmt = "QEMU guest agent is not enabled"
    remedy = "Boot the instance from an image with qemu-guest-agent and the property hw_qemu_guest_agent: yes."


class InstanceQuiesceNotSupported(InvalidInput):
    """The guest's file systems are to stand still during a snapshot, and its agent cannot have them do so."""

    msg_fmt = "Quiescing is not supported in instance %(instance_id)s: %(reason)s"
    remedy = "Let the agent in the guest do guest-fsfreeze-freeze, or boot from an image without os_require_quiesce."


class SetAdminPasswdNotSupported(Conflict):
    """The guest's agent does not know the command, or may not do it."""

    msg_fmt = "Set admin password is not supported"
    remedy = "Let the agent in the guest do guest-set-user-password (its option block-rpcs), or install a newer one."


class InstancePasswordSetFailed(Conflict):
    """The guest's agent did not set the password."""

    msg_fmt = "Failed to set admin password on %(instance)s because %(reason)s"
    remedy = (
        "Check whether the guest has that user (image property os_admin_user), and what its agent says in its journal."
    )


class GuestAgentUnresponsive(BootflowError):
    """The guest's agent does not answer."""

    msg_fmt = "set_admin_password is not implemented by this driver or guest instance."
    status = 501
    retryable = True
    remedy = "The agent in the guest does not answer: wait until the guest is up, and see whether qemu-guest-agent runs in it."


class InstanceIsAdopted(Conflict):
    """Other software made the guest of the instance: its disks and its definition are not this collection's."""

    msg_fmt = (
        "Cannot '%(method)s' instance %(instance)s: it is adopted, other software made its disks and its definition"
    )
    remedy = (
        "An adopted instance can be stopped, started, paused, suspended and rebooted softly. Do anything else with the software that made it, or release it"
        " first (bootflow.compute.release): its domain stays as it is."
    )


class InstanceNotAdopted(Conflict):
    """This collection made the guest of the instance: only adopted instances can be released."""

    msg_fmt = "Instance %(instance)s cannot be released: this collection made its disks and its definition"
    remedy = "Delete it (bootflow.compute.delete), or leave it out."


class DomainsNotAdoptable(Conflict):
    """Domains that were named cannot become instances. Nothing was written."""

    msg_fmt = "%(failed)d of %(total)d domains cannot be adopted: %(reasons)s"
    remedy = "Look at the reasons with --check. Do what each says, or leave the domain out of bootflow_adopt_domains."

    MOST_NAMED = 5

    @classmethod
    def from_verdicts(cls, refused: t.Sequence[t.Any], total: int) -> DomainsNotAdoptable:
        """:arg refused: core.adopt.verdict.Verdict of each domain. :arg total: the number of all"""
        named = refused[: cls.MOST_NAMED]
        texts = ["%s on %s: %s (%s)" % (v.domain, v.host, r.message, r.code) for v in named for r in v.reasons]
        more = ["and %d more" % (len(refused) - len(named))] if len(refused) > len(named) else []
        steps = list(dict.fromkeys(r.remedy for v in named for r in v.reasons))
        return cls(
            remedy="%s Or leave them out of bootflow_adopt_domains." % " ".join(steps),
            failed=len(refused),
            total=total,
            reasons="; ".join([*texts, *more]),
        )


class DomainNotFound(NotFound):
    """No host that answered has a domain that was named. Nothing was written."""

    msg_fmt = "No host has a domain %(domains)s"
    remedy = "Name domains that virsh list --all shows on the hosts, by name or UUID. Hosts that did not answer are in the warnings."
