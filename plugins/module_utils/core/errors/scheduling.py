# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of scheduling, claims and builds."""

from __future__ import annotations

from .base import BootflowError, InvalidInput, NotFound


class NoValidHost(BootflowError):
    msg_fmt = "No valid host was found. %(reason)s"
    status = 503
    remedy = "Run the same boot with --check to see why each host was turned down."


class MaxRetriesExceeded(NoValidHost):
    msg_fmt = "Exceeded maximum number of retries. %(reason)s"


class ComputeResourcesUnavailable(BootflowError):
    msg_fmt = "Insufficient compute resources: %(reason)s."
    status = 503
    retryable = True


class ComputeHostNotFound(NotFound):
    msg_fmt = "Compute host %(host)s could not be found."


class ComputeHostMetricNotFound(NotFound):
    msg_fmt = "Metric %(name)s could not be found on the compute host node %(host)s.%(node)s."
    remedy = "Enable MetricsFilter, let the host report it, or set metrics_required: false."


class UnsupportedPolicyException(InvalidInput):
    """A server group's policy, but not what enforces it (source: Nova's scheduler utils)."""

    msg_fmt = "ServerGroup policy is not supported: %(reason)s"


class RescheduledException(BootflowError):
    msg_fmt = "Build of instance %(instance_uuid)s was re-scheduled: %(reason)s"
    retryable = True


class BuildAbortException(BootflowError):
    msg_fmt = "Build of instance %(instance_uuid)s aborted: %(reason)s"
