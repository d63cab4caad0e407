# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of live migrations. source: Nova's group libvirt"""

from __future__ import annotations

from ..reading.setting import Setting, Table

ABORT, FORCE_COMPLETE = "abort", "force_complete"

#: of the host that guests leave
LIVE_MIGRATION = Table(
    (
        Setting(
            "max_concurrent_live_migrations",
            int,
            1,
            "How many guests of a run leave a host at the same time. With more, each of them takes longer.",
            least=1,
            most=64,
        ),
        Setting(
            "live_migration_completion_timeout",
            int,
            800,
            "Time limit of a live migration for each GiB of the guest's memory and of its local disks. The memory and each disk count as at least"
            " 2 GiB.",
            least=1,
            most=1_000_000,
            unit="seconds",
        ),
        Setting(
            "live_migration_timeout_action",
            str,
            ABORT,
            "What happens when a live migration reaches its time limit: `abort` lets the guest stay where it is; `force_complete` pauses it until it"
            " is on its new host, or lets its memory follow it (see the next variable).",
            choices=(ABORT, FORCE_COMPLETE),
        ),
        Setting(
            "live_migration_permit_post_copy",
            bool,
            False,
            "Permit post-copy: a migration that is forced to complete lets the guest run on its new host before all of its memory is there. If one of the"
            " hosts or the network fails then, the guest is lost. Where this is set, the role compute_host sets `vm.unprivileged_userfaultfd`, without which"
            " QEMU has no post-copy: run `prepare` once more.",
        ),
        Setting(
            "live_migration_permit_auto_converge",
            bool,
            False,
            "Permit auto-converge: a guest that writes to its memory faster than it is copied gets less CPU time.",
        ),
        Setting(
            "live_migration_bandwidth",
            int,
            0,
            "Limit of what the live migration of a guest sends, in MiB a second; 0: no limit.",
            least=0,
            most=1_000_000,
        ),
        Setting(
            "live_migration_downtime",
            int,
            500,
            "How long a guest may stand still at the end of its migration, in milliseconds: with less, the migrations of busy guests take longer.",
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
            help="Playbook `live_migrate`: the compute host that the instances go to; filters and claims apply to it, too.",
            default_text="the scheduler chooses",
            option="to_host",
        ),
        Setting(
            "live_migrate_hosts",
            dict,
            help="Playbook `live_migrate`: UUID of an instance to the compute host that it goes to, in place of `bootflow_live_migrate_host`. The playbook"
            " `rebalance` uses it.",
            default_text="`bootflow_live_migrate_host` for each",
            option="to_hosts",
        ),
    )
)
