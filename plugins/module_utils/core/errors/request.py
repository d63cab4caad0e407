# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of requests: their entries, input data, and the catalogue."""

from __future__ import annotations

import typing as t

from .base import Forbidden, InvalidInput, NotFound


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
