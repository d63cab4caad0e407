# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All variables, in the order of the documents."""

from __future__ import annotations

import typing as t

from ..reading.nearest import nearest
from ..reading.setting import PREFIX, Setting
from .apply import APPLY, FOLLOW
from .backups import BACKUP_DELETION, BACKUP_RESTORE, BACKUP_SELECTION
from .hosts import HOST
from .images import IMAGE_DELETION, IMAGE_EXPORT, IMAGE_SELECTION, IMAGE_STORES, IMAGE_WORK
from .live import LIVE_MIGRATION, LIVE_TARGET
from .molecule import GUESTS_FILE, MOLECULE
from .names import strangers
from .plans import PLAN_DISCARD, PLANS
from .ports import PORT_DELETION, PORT_SELECTION, PORTS
from .rebalance import REBALANCE
from .request import REQUEST, SHIPPED_IMAGES
from .run import GUEST_DATA, INIT, LEDGER, MAINTENANCE, OVN, PLAYBOOKS, PURGE, READING, RUN, TIME_LIMITS, WATCH, WATCHED
from .scheduling import SCHEDULER
from .security_groups import (
    SECURITY_GROUP_DELETION,
    SECURITY_GROUP_RULE_IDS,
    SECURITY_GROUP_RULES,
    SECURITY_GROUP_SELECTION,
    SECURITY_GROUPS,
)
from .selection import (
    ADOPTION,
    AUDIT,
    CONFIRMATION,
    CONSOLE,
    DELETION,
    DRAIN,
    HOSTS,
    INTERFACES,
    LISTING,
    LOCK,
    METRICS,
    MOVE,
    OPERATION,
    PRECACHE,
    REPORT,
    RESET,
    SELECTION,
    WHATIF,
)
from .service import SERVICE
from .storage import STORAGE
from .volumes import (
    CROSS_AZ_ATTACH,
    VOLUME,
    VOLUME_DELETION,
    VOLUME_SCHEDULER,
    VOLUME_SELECTION,
    VOLUME_SWAP,
    VOLUME_SWAP_COPY,
    VOLUME_UPLOAD,
    VOLUME_WORK,
)

#: (title, text above the table, settings); a variable is listed in the first section that has it
SECTIONS: tuple[tuple[str, str, tuple[Setting, ...]], ...] = (
    ("The request and the catalogue", "", (*REQUEST, *SHIPPED_IMAGES)),
    (
        "A fleet that follows its file",
        "Of the playbook `apply`, see [apply.md](apply.md); it reads the variables of a boot too.",
        (*APPLY, *FOLLOW),
    ),
    (
        "Plans that hold places",
        "See [plans.md](plans.md).",
        (*PLANS, *PLAN_DISCARD),
    ),
    (
        "The ledger and the run",
        "",
        (*LEDGER, *READING, *INIT, *MAINTENANCE, *PURGE, *RUN, *GUEST_DATA, *TIME_LIMITS, *PLAYBOOKS, *WATCH, *WATCHED),
    ),
    ("Scheduling", "", SCHEDULER),
    ("Of a compute host", "Read for each host: set them in host_vars, group_vars or for all hosts.", HOST),
    (
        "Live migration",
        "Read for each host; see [live-migration.md](live-migration.md).",
        (*LIVE_MIGRATION, *LIVE_TARGET),
    ),
    (
        "Images of the ledger",
        "See [images.md](images.md).",
        (*IMAGE_STORES, *IMAGE_WORK, *IMAGE_SELECTION, *IMAGE_DELETION, *IMAGE_EXPORT),
    ),
    ("OVN", "See [ovn.md](ovn.md).", OVN),
    ("Ports", "See [ports.md](ports.md).", (*PORTS, *PORT_SELECTION, *PORT_DELETION)),
    (
        "Security groups",
        "See [security-groups.md](security-groups.md).",
        (
            *SECURITY_GROUPS,
            *SECURITY_GROUP_RULES,
            *SECURITY_GROUP_RULE_IDS,
            *SECURITY_GROUP_SELECTION,
            *SECURITY_GROUP_DELETION,
        ),
    ),
    (
        "Incremental backups",
        "See [incremental-backups.md](incremental-backups.md).",
        (*BACKUP_SELECTION, *BACKUP_DELETION, *BACKUP_RESTORE),
    ),
    (
        "Volumes",
        "",
        (
            *VOLUME_WORK,
            *VOLUME,
            *VOLUME_SCHEDULER,
            *CROSS_AZ_ATTACH,
            *VOLUME_SELECTION,
            *VOLUME_DELETION,
            *VOLUME_UPLOAD,
            *VOLUME_SWAP,
            *VOLUME_SWAP_COPY,
        ),
    ),
    ("Of a storage host", "Read for each host.", STORAGE),
    ("Hosts and audits", "", (*AUDIT, *HOSTS, *METRICS, *REPORT, *PRECACHE)),
    ("Adoption of domains", "See [adopt.md](adopt.md).", ADOPTION),
    ("Molecule", "See [molecule.md](molecule.md).", (*MOLECULE, *GUESTS_FILE)),
    ("Service of hosts", "See [service-a-host.md](service-a-host.md).", SERVICE),
    ("An even fleet", "See [rebalance.md](rebalance.md).", REBALANCE),
    ("What if", "Of the playbook `whatif`, see [whatif.md](whatif.md); it reads the variables of a boot too.", WHATIF),
    (
        "Selecting instances (list, delete, operations such as stop)",
        "",
        (
            *SELECTION,
            *OPERATION,
            *MOVE,
            *CONFIRMATION,
            *DRAIN,
            *INTERFACES,
            *LOCK,
            *RESET,
            *CONSOLE,
            *DELETION,
            *LISTING,
        ),
    ),
)

#: variable -> its setting
ALL: dict[str, Setting] = {}
for _title, _text, _settings in SECTIONS:
    for _setting in _settings:
        ALL.setdefault(_setting.variable, _setting)


def unknown(names: t.Iterable[str], declared: t.Iterable[Setting] = ()) -> dict[str, str]:
    """Unknown names with our prefix -> the nearest variable, "" if none is near.

    :arg declared: settings of the user's own filters.
    """
    known = {*ALL, *(setting.variable for setting in declared)}
    return {name: nearest(name, known, PREFIX) for name in sorted(strangers(names) - known)}
