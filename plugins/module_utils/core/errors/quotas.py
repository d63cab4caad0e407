# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of limits: Nova's quotas, and Cinder's quotas of volumes."""

from __future__ import annotations

from .base import Forbidden


class OverQuota(Forbidden):
    """A quota of instances, cores or memory is exceeded (source: Nova's Controller.create)."""

    msg_fmt = "Quota exceeded for %(overs)s: Requested %(req)s, but already used %(used)s of %(allowed)s %(overs)s"
    remedy = "Delete instances, ask for fewer, or raise bootflow_quotas."


class MetadataLimitExceeded(OverQuota):
    """An instance has more metadata than the quota allows."""

    msg_fmt = "Maximum number of metadata items exceeds %(allowed)d"
    remedy = "Give fewer metadata items, or raise metadata_items in bootflow_quotas."


class OnsetFileLimitExceeded(OverQuota):
    """An instance has more injected files than the quota allows."""

    msg_fmt = "Personality file limit exceeded: %(used)d of %(allowed)d files"
    remedy = "Let user_data write the rest (write_files), or raise injected_files in bootflow_quotas."


class OnsetFilePathLimitExceeded(OnsetFileLimitExceeded):
    """The path of an injected file is too long."""

    msg_fmt = "Personality file path exceeds maximum %(allowed)s"
    remedy = "Use a shorter path, or raise injected_file_path_length in bootflow_quotas."


class OnsetFileContentLimitExceeded(OnsetFileLimitExceeded):
    """An injected file is too large."""

    msg_fmt = "Personality file content exceeds maximum %(allowed)s"
    remedy = "Let user_data fetch the file, or raise injected_file_content_bytes in bootflow_quotas."


class PortLimitExceeded(Forbidden):
    """The quota of ports is exceeded."""

    msg_fmt = "Maximum number of ports exceeded"


class QuotaError(OverQuota):
    """A quota of volumes is exceeded. Cinder answers 413 where Nova answers 403."""

    msg_fmt = "Quota exceeded: code=%(code)s"
    status = 413
    remedy = "Delete volumes or snapshots, ask for less, or raise bootflow_quotas."


class VolumeSizeExceedsAvailableQuota(QuotaError):
    """The quota of gigabytes is exceeded."""

    msg_fmt = (
        "Requested volume or snapshot exceeds allowed %(name)s quota. Requested %(requested)sG, quota is %(quota)sG "
        "and %(consumed)sG has been consumed."
    )


class VolumeSizeExceedsLimit(QuotaError):
    """The volume is larger than per_volume_gigabytes."""

    msg_fmt = "Requested volume size %(size)dG is larger than maximum allowed limit %(limit)dG."
    remedy = "Ask for a smaller volume, or raise per_volume_gigabytes in bootflow_quotas."


class VolumeLimitExceeded(QuotaError):
    """The quota of volumes is exceeded."""

    msg_fmt = "Maximum number of volumes allowed (%(allowed)d) exceeded for quota '%(name)s'."


class SnapshotLimitExceeded(QuotaError):
    """The quota of snapshots is exceeded."""

    msg_fmt = "Maximum number of snapshots allowed (%(allowed)d) exceeded"


class UnexpectedOverQuota(QuotaError):
    """Another quota of volumes is exceeded."""

    msg_fmt = "Unexpected over quota on %(name)s."


class PruneRefused(Forbidden):
    """The playbook apply would delete more instances than it may; nothing was changed."""

    msg_fmt = "%(instances)s not in the file, more than bootflow_prune_max (%(most)d): %(names)s"
    remedy = "Look at the plan (--check, without bootflow_prune), then raise bootflow_prune_max or complete the file."
