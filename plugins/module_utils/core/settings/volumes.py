# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of volumes: reading of requests, the scheduler of backends, selection for playbooks."""

from __future__ import annotations

import typing as t

from ..reading.setting import ENTRIES, NUMBERS, REQUESTS, UUIDS, Kind, Setting, Table, Unfit, names_of, to_number
from ..volumes.scheduler.options import AUTO, MOST_ATTEMPTS
from ..volumes.scheduler.registry import DEFAULT_FILTERS, DEFAULT_WEIGHERS, FILTERS, WEIGHERS
from .request import CATALOGUE, QUOTA
from .run import LONGEST, RUN
from .selection import MISSING_OK


def _ratio(value: t.Any) -> t.Any:
    if value == AUTO:
        return AUTO
    number = to_number(value)
    if number is None or number < 1:
        raise Unfit
    return number


RATIO = Kind("a number, at least 1.0, or auto", _ratio)

VOLUME_SCHEDULER = Table(
    (
        Setting(
            "volume_max_attempts",
            int,
            3,
            "How many backends a volume may be tried on.",
            least=1,
            most=MOST_ATTEMPTS,
        ),
        Setting(
            "volume_filters",
            names_of(FILTERS),
            help="Filters of backends in order, Cinder's names.",
            default_text=", ".join("`%s`" % name for name in DEFAULT_FILTERS),
        ),
        Setting(
            "volume_weighers",
            names_of(WEIGHERS),
            help="Weighers of backends, Cinder's names.",
            default_text=", ".join("`%s`" % name for name in DEFAULT_WEIGHERS),
        ),
        Setting(
            "volume_weight_multipliers",
            NUMBERS,
            {},
            "Multipliers of weighers of backends that differ from the default.",
        ),
        Setting(
            "max_over_subscription_ratio",
            RATIO,
            20.0,
            "Over-subscription ratio of thin backends; 1.0 means no over-subscription. An entry of"
            " `bootflow_storage_backends` may have its own.",
        ),
        RUN.named("service_down_time"),
    )
)

#: Settings for reading requests for volumes.
VOLUME = Table(
    (
        Setting(
            "volume_types",
            ENTRIES,
            (),
            "Volume types that requests may name: `name`, `extra_specs` (what a backend has to report, such as `medium: ssd` or"
            " `volume_backend_name: fast`; `provisioning:type`), `description`, `is_public`, `projects`, `id`.",
        ),
        Setting("default_volume_type", str, help="Volume type of entries that name none."),
        CATALOGUE.named("images"),
        *QUOTA,
        Setting("storage_availability_zone", str, "nova", "Availability zone of volumes that name none."),
        Setting(
            "allow_availability_zone_fallback",
            bool,
            False,
            "A volume for a zone without a backend goes to `bootflow_storage_availability_zone`.",
        ),
        Setting("no_snapshot_gb_quota", bool, False, "Snapshots do not count for the quota of gigabytes."),
        VOLUME_SCHEDULER.named("volume_max_attempts"),
    )
)

CROSS_AZ_ATTACH = Table(
    (Setting("cross_az_attach", bool, True, "A volume may be in another availability zone than its instance."),)
)

VOLUME_WORK = Table(
    (
        Setting(
            "volumes",
            REQUESTS,
            help="Playbook `volume_create`: requested volumes: `name` (required, unique in its project), `size` (GiB), `description`,"
            " `volume_type`, `metadata`, `availability_zone`, `scheduler_hints`, `multiattach`, and one of `image_id` (or"
            " `image`), `snapshot_id`, `source_volid`, by name or id. Playbook `volume_extend`: `name` or `id`, and the new"
            " `size`; other fields are ignored.",
            required=True,
        ),
        Setting(
            "snapshots",
            REQUESTS,
            help="Playbook `volume_snapshot`: requested snapshots: `name`, `volume` (name or id), `description`, `metadata`, `force`"
            " (of a volume in use too), `state` (`present`, `absent`).",
            required=True,
        ),
        Setting(
            "attachments",
            REQUESTS,
            help="Playbooks `attach_volume` and `detach_volume`: `instance` and `volume` (name or UUID). To attach also `device`"
            " (such as `/dev/vdb`; the next free one by default), `mode` (`rw`, `ro`), `delete_on_termination`, `disk_bus`,"
            " `tag`; to detach, `instance` is needed only where there are several.",
            required=True,
        ),
    )
)

VOLUME_SWAP = Table(
    (
        Setting(
            "volume_swaps",
            REQUESTS,
            help="Playbook `swap_volume`: `instance`, `old_volume` that it has, and `new_volume` that it gets instead, by name or UUID.",
            required=True,
        ),
    )
)

#: Read for each compute host.
VOLUME_SWAP_COPY = Table(
    (
        Setting(
            "volume_swap_bandwidth",
            int,
            0,
            "Playbook `swap_volume`: MiB that QEMU copies a second for each volume; 0: no limit.",
            least=0,
            most=1_000_000,
        ),
        Setting(
            "volume_swap_timeout",
            float,
            7200.0,
            "Playbook `swap_volume`: time for the copy of a volume. After it the copy is aborted, and the guest keeps its volume.",
            least=1,
            most=LONGEST,
            unit="seconds",
        ),
    )
)

VOLUME_UPLOAD = Table(
    (
        Setting(
            "volume_uploads",
            REQUESTS,
            help="Playbook `volume_upload_image`: images of volumes, each with `name` (of the image) and `volume` (name or id), both required,"
            " `disk_format` (`raw`, `qcow2`), `store` (the first of `bootflow_image_stores` by default), `visibility` (`private`, `public`,"
            " `community`), `protected`, `force` (of a volume in use too).",
            required=True,
        ),
        Setting(
            "enable_force_upload",
            bool,
            False,
            "Playbook `volume_upload_image`: `force` counts; without it, images of volumes in use are refused, as Cinder's setting.",
        ),
    )
)

VOLUME_SELECTION = Table(
    (
        Setting("volume_names", list, help="Names of volumes to list or delete."),
        Setting("volume_ids", UUIDS, help="UUIDs of volumes to list or delete."),
        QUOTA.named("project").but(default=None, help="Only volumes of this project."),
    )
)

VOLUME_DELETION = Table(
    (
        MISSING_OK,
        Setting(
            "volume_delete_all",
            bool,
            False,
            "Playbook `volume_delete`: all volumes of `bootflow_project`.",
            option="all",
        ),
        Setting("volume_cascade", bool, False, "Playbook `volume_delete`: snapshots too.", option="cascade"),
        Setting(
            "volume_force",
            bool,
            False,
            "Playbook `volume_delete`: whatever their status is, unless they are attached.",
            option="force",
        ),
        Setting(
            "volume_unmanage",
            bool,
            False,
            "Playbook `volume_delete`: remove them from the ledger without asking their storage hosts; the data stays there.",
            option="unmanage",
        ),
    )
)
