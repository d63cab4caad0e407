# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of requests: their entries, input data, and the catalogue."""

from __future__ import annotations

import typing as t

from .base import Conflict, Forbidden, InvalidInput, NotFound


class MalformedRequestBody(InvalidInput):
    """An entry is not a mapping (source: Nova's Controller.create, 422)."""

    msg_fmt = "Malformed request body: %(reason)s"
    status = 422
    remedy = "Write each instance as a mapping with a name, a flavor and an image."


class InvalidRequest(InvalidInput):
    """The request has errors; all of them are in errors (path, code, status, message, remedy)."""

    def __init__(self, errors: t.Sequence[t.Mapping[str, t.Any]], message: str | None = None, **details: t.Any):
        self.errors = [dict(e) for e in errors]
        if message is None:
            lines = ["%s: %s" % (e.get("path") or "request", e.get("message", "")) for e in self.errors]
            message = "The request has %d error%s: %s" % (len(lines), "" if len(lines) == 1 else "s", "; ".join(lines))
        super().__init__(message=message, **details)

    def as_dict(self) -> dict[str, t.Any]:
        return {**super().as_dict(), "errors": self.errors}


class NotSupportedYet(InvalidInput):
    """Nova knows the feature and this version does not implement it; the request is rejected, not silently ignored."""

    msg_fmt = "%(feature)s is not supported by this version of bootflow.compute"
    remedy = "Leave it out; the changelog announces when it is supported."


class InvalidMetadata(InvalidInput):
    """The metadata of an instance is malformed."""

    msg_fmt = "Invalid metadata: %(reason)s"


class Base64Exception(InvalidInput):
    """An injected file is not valid base64."""

    msg_fmt = "Invalid Base 64 data for file %(path)s"
    remedy = "Encode the content: base64 -w0 FILE, or the filter b64encode."


class InstanceUserDataTooLarge(InvalidInput):
    """The user data is too large."""

    msg_fmt = "User data too large. User data must be no larger than %(maxsize)s bytes once base64 encoded. Your data is %(length)d bytes"
    remedy = "Shorten it, or let it fetch the rest (#include)."


class InstanceUserDataMalformed(InvalidInput):
    """The user data is not valid base64."""

    msg_fmt = "User data needs to be valid base 64."
    remedy = "Encode it with base64 -w0 FILE, or give plain text as user_data."


class AmbiguousHostnameForMultipleInstances(InvalidInput):
    """One hostname is requested for several instances."""

    msg_fmt = "Unable to allocate a single hostname to multiple instances"
    remedy = "Leave hostname out: each instance then takes it from its own name."


class PolicyNotAuthorized(Forbidden):
    """A setting of this inventory forbids the request."""

    msg_fmt = "Policy doesn't allow %(action)s to be performed."
    remedy = "Leave that part of the request out, or ask the operator of this inventory (bootflow_denied_policies)."


class BootFromVolumeRequiredForZeroDiskFlavor(Forbidden):
    """The flavor has no root disk, the instance does not boot from a volume, and bootflow_allow_zero_disk_flavor is false."""

    msg_fmt = "Only volume-backed servers are allowed for flavors with zero disk."
    remedy = "Choose a flavor with a root_gb, boot from a volume, or set bootflow_allow_zero_disk_flavor: true for administrators."


class ForcedHostForbidden(Forbidden):
    """The request names a host and bootflow_allow_forced_host is false."""

    msg_fmt = "Policy doesn't allow create:forced_host to be performed (availability_zone %(zone)s)."
    remedy = "Ask for a zone only, or set bootflow_allow_forced_host: true for administrators."


class OwnerForbidden(Forbidden):
    """An entry names another project or user than the run has, and bootflow_allow_other_owners is false."""

    msg_fmt = "The entry is of %(field)s %(wanted)s, %(of_run)s."
    remedy = (
        "Leave it out of the entry, set bootflow_project, or set bootflow_allow_other_owners: true for administrators."
    )


class FlavorNotFound(NotFound):
    """The flavor is not in bootflow_flavors."""

    msg_fmt = "Flavor %(flavor_id)s could not be found."
    status = 400
    remedy = "Name a flavor of bootflow_flavors."


class KeypairNotFound(NotFound):
    """The key pair is not in bootflow_keypairs."""

    msg_fmt = "Keypair %(name)s not found."
    status = 400
    remedy = "Add it to bootflow_keypairs."


class InstanceGroupNotFound(NotFound):
    """The server group is not in bootflow_server_groups."""

    msg_fmt = "Instance group %(group)s could not be found."
    status = 400


class ProjectNotFound(NotFound):
    """All of a project was selected, and the ledger has nothing of it, or nothing any more since a purge."""

    msg_fmt = "Project %(project_id)s could not be found."
    remedy = "Give bootflow_project a project that bootflow.compute.list shows."


class InvalidUUID(InvalidInput):
    """A value that must be a UUID is not one."""

    msg_fmt = "Expected a UUID but received %(uuid)s."


class InvalidParameterValue(InvalidInput):
    """A value does not suit its parameter."""

    msg_fmt = "%(err)s"


# --- plans that hold places -------------------------------------------------------------------------------------------


class PlanRefused(Conflict):
    """A plan is not done, as something is not as it was planned. Nothing was touched."""


class PlanUnreadable(InvalidInput):
    """The file of bootflow_plan does not have a plan."""

    msg_fmt = "%(file)s is not a plan: %(reason)s"
    remedy = "Name a file that the same playbook wrote with --check and bootflow_plan_out."


class PlanNotWritable(InvalidInput):
    """The file of bootflow_plan_out cannot be written. Nothing is held."""

    msg_fmt = "The plan cannot be written to %(file)s: %(reason)s"
    remedy = "Name a new file in a folder that exists."


class PlanAltered(PlanRefused):
    """The content of a plan's file is not the one that was planned: its hash is another one."""

    msg_fmt = "The plan in %(file)s was altered: its hash is not the one over its content, or not the one in the ledger"
    remedy = "Restore the file as it was written, or discard the plan and make another one."


class PlanNotFound(NotFound):
    """The ledger has no such plan, or not any more since a purge."""

    msg_fmt = "The ledger has no plan %(plan)s"
    remedy = "Run bootflow.compute.plans for a list. Otherwise make another plan."


class PlanExpired(PlanRefused):
    """The time of a plan is over, and its places are free again."""

    msg_fmt = "The plan %(plan)s expired at %(moment)s"
    remedy = "Make another plan. bootflow_plan_ttl says how long a plan holds its places."


class PlanUsed(PlanRefused):
    """A plan is used once."""

    msg_fmt = "The plan %(plan)s was used by run %(run)s at %(moment)s"
    remedy = "If that run ended too early, run the same playbook without bootflow_plan: it does what is left with the same instances."


class PlanDiscarded(PlanRefused):
    """The plan was given up."""

    msg_fmt = "The plan %(plan)s was discarded at %(moment)s"
    remedy = "Make another plan."


class PlanOfAnotherLedger(PlanRefused):
    """The plan holds places in another ledger than the one that the run opened."""

    msg_fmt = "The plan in %(file)s is of the ledger %(of)s, not of %(ledger_id)s"
    remedy = "Set bootflow_ledger_url as it was when the plan was made."


class PlanOfAnotherPlaybook(PlanRefused):
    """The plan is of another playbook."""

    msg_fmt = "The plan in %(file)s is of the playbook %(kind)s, not of %(playbook)s"
    remedy = "Run the playbook that the plan is of."


class PlanRequestDiffers(PlanRefused):
    """The request is not the one that was planned."""

    msg_fmt = "The request is not the one of plan %(plan)s: %(reason)s"
    remedy = "Restore the request, or discard the plan and make another one."


class PlanOutdated(PlanRefused):
    """Hosts or instances of the plan have changed so that it cannot be done any more. Its places stay held."""

    msg_fmt = "The plan %(plan)s cannot be done any more: %(reason)s"
    remedy = (
        "Fix the cause, or discard the plan (bootflow.compute.plans with bootflow_plan_discard) and make another one."
    )


class PlanNotPossible(PlanRefused):
    """No plan of this can hold places."""

    msg_fmt = "No plan that holds places can be made: %(reason)s"


class PlanNotTaken(InvalidInput):
    """The playbook neither writes plans nor uses any."""

    msg_fmt = "%(playbook)s neither writes nor uses plans, and bootflow_%(variable)s is set"
    remedy = "Leave it out. The playbooks boot, resize, migrate, drain and apply write and use plans (docs/plans.md)."
