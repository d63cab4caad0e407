# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks that this ansible-playbook process was started with."""

from __future__ import annotations

from ansible import context

COLLECTION = "bootflow.compute"


def playbooks() -> list[str]:
    """As they were named on the command line."""
    return [str(each) for each in context.CLIARGS.get("args") or ()]


def own_name(playbook: str) -> str:
    """``boot`` of ``bootflow.compute.boot``; "" of a playbook that is not of this collection, or named by its path."""
    collection, _dot, name = playbook.rpartition(".")
    return name if collection == COLLECTION else ""


def is_alone() -> bool:
    """Whether a playbook of this collection is all that is run, so that no later play of others sees what its tasks register."""
    played = playbooks()
    return len(played) == 1 and bool(own_name(played[0]))
