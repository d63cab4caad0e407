#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fails on code under plugins/ and scripts/ that nothing there uses (vulture): tests and benchmarks do not count.

ALLOWED says what vulture cannot see, and why; an entry without a match is named.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
MIN_CONFIDENCE = 60

# (files, names, why), both as regular expressions for the whole of it
ALLOWED = (
    (
        r"plugins/(callback|inventory|modules|doc_fragments)/.*",
        r"DOCUMENTATION|EXAMPLES|RETURN|ModuleDocFragment",
        "ansible-doc reads it",
    ),
    (r"plugins/doc_fragments/(shared|guest)\.py", r"[A-Z_]+", "modules name it; a unit test finds what none names"),
    (r"plugins/module_utils/hosts/os/program\.py", r"create_module|is_package|get_code", "Python calls it"),
    (r"plugins/action/.*", r"ActionModule", "Ansible loads it"),
    (r"plugins/callback/.*", r"CallbackModule|CALLBACK_NAME|v2_\w+", "Ansible loads and calls it"),
    (r"plugins/inventory/.*", r"InventoryModule|available_variables", "Ansible loads it; its templar has them"),
    (r"plugins/action/ledger\.py", r"_migrated|_backup|_purged|_capacity_recorded", "found by the name of the state"),
    (
        r".*",
        r"dummy\w*|dot|kwargs",
        "ansible-test's word for what is unused on purpose; ends of a partition; a signature",
    ),
    (
        r".*/core/image_access\.py",
        r"validate_certs|ca_path|client_\w+|url_username|use_proxy",
        "fields of ImageAccess, which asdict() hands to the reader of images",
    ),
    (r".*/core/guest/domain/.*", r"\w+", "fields of XML elements, which element.py reads and writes by reflection"),
    (r".*/core/scheduler/.*", r"needs_\w+", "of filters and weighers, read by getattr"),
    (
        r".*/core/scheduler/(host_state|placement)\.py",
        r"hypervisor_\w+|total_usable_\w+|disk_mb_used|service|max_\w+_per_host",
        "Nova's names, which extra specs, JsonFilter and filters with a setting ask for by text",
    ),
    (
        r".*/core/(volumes/attachment|instances/move_life|images/life)\.py",
        r"EVENTS|LAWS|meaning|only_made",
        "the whole tables, which docs/volumes.md, docs/ledger.md and docs/images.md show and tests walk",
    ),
    (
        r".*/ledger/compute/(instances|runs)\.py",
        r"launched_on|swap_mb|started_at",
        "columns, which the types of rows declare as the tables have them",
    ),
    (r".*/ledger/db/address\.py", r"ssl\w+", "read by the names of libpq's parameters"),
    (r".*/ledger/db/engine\.py", r"on_\w+|isolation_level|is_disconnect", "SQLAlchemy and sqlite3 call or read it"),
)


def main() -> int:
    os.chdir(ROOT)
    vulture = Vulture()
    vulture.scavenge(["plugins", "scripts"])  # the scripts write documentation from what plugins declare
    problems, matched = [], set()
    for item in vulture.get_unused_code(min_confidence=MIN_CONFIDENCE):
        path = Path(item.filename).resolve().relative_to(ROOT).as_posix()
        rules = [rule for rule in ALLOWED if re.fullmatch(rule[0], path) and re.fullmatch(rule[1], item.name)]
        matched.update(rules)
        if not rules:
            problems.append("%s:%d: unused %s '%s'" % (path, item.first_lineno, item.typ, item.name))
    idle = ["scripts/dead_code.py: nothing matches %s, %s" % rule[:2] for rule in ALLOWED if rule not in matched]
    print("\n".join(problems + idle) or "no dead code")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
