# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of live migrations. source: Nova's group libvirt"""

from __future__ import annotations

from ..reading.setting import Setting, Table

ABORT, FORCE_COMPLETE = "abort", "force_complete"

#: of the host that guests leave
LIVE = Table(
    (
        Setting(
            "max_concurrent_live_migrations",
            int,
            1,
            "Guests of a run that leave a host at the same time; more make each of them slower.",
            least=1,
            most=64,
        ),
        Setting(
            "live_migration_completion_timeout",
            int,
            800,
            "Time that a live migration has for each GiB of the guest's memory and of its local disks; each counts as 2 GiB at least.",
            least=1,
            most=1_000_000,
            unit="seconds",
        ),
        Setting(
            "live_migration_timeout_action",
            str,
            ABORT,
            "What happens after that time: the guest stays where it is, or it is paused (or followed by its memory, see the next variable) until it is"
            " on its new host.",
            choices=(ABORT, FORCE_COMPLETE),
        ),
        Setting(
            "live_migration_permit_post_copy",
            bool,
            False,
            "A migration that is forced to complete lets the guest run on its new host before all of its memory is there. If one of the"
            " hosts or the network fails then, the guest is lost.",
        ),
        Setting(
            "live_migration_permit_auto_converge",
            bool,
            False,
            "A guest that writes to its memory faster than it is copied gets less CPU time.",
        ),
        Setting(
            "live_migration_bandwidth",
            int,
            0,
            "The most that a guest's migration sends, in MiB a second; 0: as much as it can.",
            least=0,
            most=1_000_000,
        ),
        Setting(
            "live_migration_downtime",
            int,
            500,
            "How long a guest may stand still at the end of its migration, in milliseconds: with less, busy guests take longer to go over.",
            least=100,
            most=600_000,
        ),
    )
)

LIVE_TARGET = Table(
    (
        Setting(
            "live_migrate_host",
            str,
            help="Playbook `live_migrate`: the compute host that the instances go to; filters and claims hold for it too.",
            default_text="the scheduler chooses",
            option="to_host",
        ),
    )
)
