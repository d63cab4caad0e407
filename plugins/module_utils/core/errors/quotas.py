# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of limits: Nova's quotas, and those of volumes in Cinder's words."""

from __future__ import annotations

from .base import Forbidden


class OverQuota(Forbidden):
    """Quota exceeded (Nova 403; source: Nova's Controller.create)."""

    msg_fmt = "Quota exceeded for %(overs)s: Requested %(req)s, but already used %(used)s of %(allowed)s %(overs)s"
    remedy = "Delete instances, ask for fewer, or raise bootflow_quotas."


class MetadataLimitExceeded(OverQuota):
    msg_fmt = "Maximum number of metadata items exceeds %(allowed)d"
    remedy = "Give fewer metadata items."


class OnsetFileLimitExceeded(OverQuota):
    msg_fmt = "Personality file limit exceeded: %(used)d of %(allowed)d files"
    remedy = "Inject fewer files; user_data can write the rest (write_files)."


class OnsetFilePathLimitExceeded(OnsetFileLimitExceeded):
    msg_fmt = "Personality file path exceeds maximum %(allowed)s"
    remedy = "Use a shorter path."


class OnsetFileContentLimitExceeded(OnsetFileLimitExceeded):
    msg_fmt = "Personality file content exceeds maximum %(allowed)s"
    remedy = "Inject a smaller file, or let user_data fetch it."


class PortLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of ports exceeded"


class QuotaError(OverQuota):
    """A quota of volumes. Cinder answers 413 where Nova answers 403."""

    msg_fmt = "Quota exceeded: code=%(code)s"
    status = 413
    remedy = "Delete volumes or snapshots, ask for less, or raise bootflow_quotas."


class VolumeSizeExceedsAvailableQuota(QuotaError):
    msg_fmt = (
        "Requested volume or snapshot exceeds allowed %(name)s quota. Requested %(requested)sG, quota is %(quota)sG "
        "and %(consumed)sG has been consumed."
    )


class VolumeSizeExceedsLimit(QuotaError):
    msg_fmt = "Requested volume size %(size)dG is larger than maximum allowed limit %(limit)dG."
    remedy = "Ask for a smaller volume, or raise per_volume_gigabytes in bootflow_quotas."


class VolumeLimitExceeded(QuotaError):
    msg_fmt = "Maximum number of volumes allowed (%(allowed)d) exceeded for quota '%(name)s'."


class SnapshotLimitExceeded(QuotaError):
    msg_fmt = "Maximum number of snapshots allowed (%(allowed)d) exceeded"


class UnexpectedOverQuota(QuotaError):
    msg_fmt = "Unexpected over quota on %(name)s."
