# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input through the playbooks: an error with its code and its remedy, nothing half done, nothing left behind."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import re
import sqlite3
import subprocess
import threading
from pathlib import Path

import flow as flow_module
import pytest
from flow import Flow, Run, entry

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
ODD_NAME = 'a<b>&"../c'
ROWS = ("instances", "reservations", "request_specs", "ports", "ip_allocations", "claims", "instance_actions", "cleanups")


def test_placeholder() -> None:
    """Kept short: see the functions below."""


def words(done: Run) -> str:
    """The output as a person reads it, without line ends and the escapes of JSON."""
    return " ".join(done.output.replace("\\n", " ").replace('\\"', '"').split())


def rows(flow: Flow) -> dict[str, int]:
    """How much of instances is in the ledger, deleted ones too."""
    return {table: flow.query("SELECT count(*) AS n FROM %s" % table)[0]["n"] for table in ROWS} if flow.ledger_path.exists() else {}


def refused(flow: Flow, *expected: str, playbook: str = "boot", options: tuple[str, ...] = (), **variables) -> Run:
    """The playbook ends with an error that has these texts, and neither the ledger nor a host has anything of it."""
    before = rows(flow)
    done = flow.run(playbook, *options, **variables)
    text = words(done)
    assert done.returncode == 2, done.output
    for part in expected:
        assert part in text, "%s is not in:\n%s" % (part, done.output)
    assert "Traceback" not in done.output, done.output
    after = rows(flow)
    assert after == (before or {table: 0 for table in after}), done.output
    return done
