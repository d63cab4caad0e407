# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups that requests name (security_groups): looked up in the ledger before an instance gets ports with them.

source: Nova's allocate_for_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...core.instances.request import DEFAULT_GROUPS, ServerRequest
from ...core.networks.security_rules import DEFAULT
from ...core.reading.problems import Problems
from ...ledger.db.transaction import Transaction
from ...ledger.networks import security_groups
from .security_groups import known_group

#: What an unknown group is in a boot; elsewhere it is 404.
NOT_FOUND_AT_BOOT = 400


def resolve_boot(
    tx: Transaction, entries: t.Sequence[ServerRequest], needed: t.Sequence[bool], problems: Problems
) -> list[ServerRequest]:
    """Return the entries with the ids of their security groups; where only the default group is named, as they are. Refusals are added to
    ``problems``. The transaction has the turns of the projects, so that no other run deletes the groups.

    :arg needed: of each entry whether it makes instances; the others have their ports
    """
    wanted = [r for r, asked in zip(entries, needed) if asked and r.security_groups != DEFAULT_GROUPS]
    for project in sorted({r.project for r in wanted if DEFAULT in r.security_groups}):
        security_groups.ensure_default(tx, project)
    rows = security_groups.find(tx, [(word, r.project) for r in wanted for word in r.security_groups])
    resolved = []
    for index, (request, asked) in enumerate(zip(entries, needed)):
        if not asked or request.security_groups == DEFAULT_GROUPS:
            resolved.append(request)
            continue
        ids = []
        before = len(problems.errors)
        for word in request.security_groups:
            with problems.collect("instances[%d].security_groups" % index):
                ids.append(known_group(rows.get((word, request.project)), word, request.project).id)
        for problem in problems.errors[before:]:
            problem["status"] = NOT_FOUND_AT_BOOT
        resolved.append(replace(request, security_groups=tuple(dict.fromkeys(ids))))
    return resolved
