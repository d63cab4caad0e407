# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of scheduling, claims and builds."""

from __future__ import annotations

from .base import BootflowError, InvalidInput, NotFound


class NoValidHost(BootflowError):
    """The scheduler found no host for the instance."""

    msg_fmt = "No valid host was found. %(reason)s"
    status = 503
    remedy = "Run the same boot with --check to see why each host was rejected."


class MaxRetriesExceeded(NoValidHost):
    """Every attempt to build the instance failed."""

    msg_fmt = "Exceeded maximum number of retries. %(reason)s"


class ComputeResourcesUnavailable(BootflowError):
    """The host no longer has the resources; another run took them first."""

    msg_fmt = "Insufficient compute resources: %(reason)s."
    status = 503
    retryable = True


class ComputeHostNotFound(NotFound):
    """The compute host is not in the inventory or not in the ledger."""

    msg_fmt = "Compute host %(host)s could not be found."


class ComputeHostMetricNotFound(NotFound):
    """The host does not report a metric that bootflow_metrics_weight_setting requires."""

    msg_fmt = "Metric %(name)s could not be found on the compute host node %(host)s.%(node)s."
    remedy = "Enable MetricsFilter, let the host report it, or set metrics_required: false."


class UnsupportedPolicyException(InvalidInput):
    """The filter that enforces the server group's policy is not enabled (source: Nova's scheduler utils)."""

    msg_fmt = "ServerGroup policy is not supported: %(reason)s"


class RescheduledException(BootflowError):
    """The build failed on one host and continues on another."""

    msg_fmt = "Build of instance %(instance_uuid)s was re-scheduled: %(reason)s"
    retryable = True


class BuildAbortException(BootflowError):
    """The build failed with an error that no other host would avoid."""

    msg_fmt = "Build of instance %(instance_uuid)s aborted: %(reason)s"
