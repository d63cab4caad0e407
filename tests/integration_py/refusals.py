# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person reads of a playbook that refuses its input, and that nothing of the request is left."""

from __future__ import annotations

from flow import Flow, Run

TABLES = (
    "instances",
    "reservations",
    "request_specs",
    "ports",
    "ip_allocations",
    "claims",
    "instance_actions",
    "cleanups",
    "block_device_mappings",
)


def words(done: Run) -> str:
    """The output as a person reads it: what Ansible prints above the task's JSON, in one line."""
    return " ".join(" ".join(line for line in done.output.splitlines() if not line.startswith("fatal: ")).split())


def rows(flow: Flow) -> dict[str, int]:
    """How much of instances the ledger has ever had; nothing where there is no ledger."""
    if not flow.ledger_path.exists():
        return dict.fromkeys(TABLES, 0)
    return {table: flow.query("SELECT count(*) AS n FROM %s" % table)[0]["n"] for table in TABLES}


def says(done: Run, *expected: str) -> None:
    assert done.returncode == 2, done.output
    text = words(done)
    for part in expected:
        assert part in text, "%r is not in what the person reads:\n%s" % (part, done.output)
    assert "Traceback" not in done.output and "Unknown error" not in done.output, done.output


def refused(flow: Flow, *expected: str, playbook: str = "boot", options: tuple[str, ...] = (), **variables) -> Run:
    """The playbook ends with these words, and nothing of it is in the ledger, on no host, in no later play."""
    before = rows(flow)
    done = flow.run(playbook, *options, **variables)
    says(done, *expected)
    assert rows(flow) == before, done.output
    assert "compute1" not in done.output.partition("PLAY RECAP")[2], "a host was asked:\n%s" % done.output
    return done
