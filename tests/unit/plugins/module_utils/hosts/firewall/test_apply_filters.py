# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters come into a kernel whole or not at all, and into the file that is loaded when the host starts. nft is real, in a network of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

SCRIPT = r"""
import json, os, re, subprocess, sys
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HostCannotFilter
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.firewall import port_filters

render, folder = port_filters.render, sys.argv[1] + "/filters"
# This kernel may track no connections on bridges.
port_filters.render = lambda filters: re.sub(r"(?m)^ *ct .*\n", "", render(filters))

def apply(revision, ledger="one", check=False, addresses=("10.0.0.11",)):
    port = {
        "port_id": "00000001-1111-4000-8000-000000000001", "instance": None, "device": "lo", "mac": "fa:16:3e:00:00:01",
        "addresses": addresses, "port_security_enabled": True, "groups": [],
    }
    document = {"version": 1, "revision": revision, "ports": [port], "groups": {}}
    try:
        result = port_filters.apply_filters(read_filters(document), ledger, folder, check)
    except HostCannotFilter as error:
        result = {"error": error.message}
    path = folder + "/port_filters.nft"
    listed = subprocess.run(["nft", "list", "tables"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {
        **result,
        "tables": listed.splitlines(),
        "head": open(path).readline() if os.path.exists(path) else "",
        "modes": [oct(os.stat(p).st_mode & 0o777) for p in (folder, path) if os.path.exists(p)],
    }

steps = {"check mode": apply(1, check=True), "new": apply(1), "same": apply(2), "older": apply(1)}
subprocess.run(["nft", "flush", "ruleset"], check=True)
steps["flushed"] = apply(3)
steps["other ledger"] = apply(1, ledger="two")
steps["changed"] = apply(2, ledger="two", addresses=["10.0.0.12"])
port_filters.render = lambda filters: render(filters) + "no word of nft\n"
steps["refused"] = apply(3, ledger="two")
print(json.dumps(steps))
"""
TABLES = ["table inet bootflow", "table arp bootflow", "table bridge bootflow"]


@pytest.fixture(scope="module", name="steps")
def _steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    folder: pathlib.Path = tmp_path_factory.mktemp("filters")
    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return t.cast("dict[str, t.Any]", json.loads(done.stdout))


def test_check_mode_says_what_changes_and_changes_nothing(steps: dict[str, t.Any]) -> None:
    step = steps["check mode"]
    assert step["changed"] and step["diff"]["after"] == steps["new"]["diff"]["after"]
    assert (step["tables"], step["head"], step["modes"]) == ([], "", [])


def test_new_filters_are_in_the_kernel_and_in_a_file_of_root(steps: dict[str, t.Any]) -> None:
    step = steps["new"]
    assert step["changed"] and sorted(step["tables"]) == sorted(TABLES)
    assert step["head"] == "# revision 1 of ledger one\n" and step["modes"] == ["0o700", "0o600"]
    assert step["present"] == ["00000001-1111-4000-8000-000000000001"]


def test_the_same_filters_change_nothing_but_their_number(steps: dict[str, t.Any]) -> None:
    step = steps["same"]
    assert not step["changed"] and step["head"] == "# revision 2 of ledger one\n"
    assert step["diff"]["before"] == step["diff"]["after"]


def test_older_filters_are_superseded(steps: dict[str, t.Any]) -> None:
    step = steps["older"]
    assert (step["changed"], step["superseded"], step["revision"]) == (False, True, 2)
    assert step["head"] == "# revision 2 of ledger one\n"


def test_filters_that_somebody_flushed_come_back(steps: dict[str, t.Any]) -> None:
    assert steps["flushed"]["changed"] and sorted(steps["flushed"]["tables"]) == sorted(TABLES)


def test_another_ledger_has_its_own_numbers(steps: dict[str, t.Any]) -> None:
    step = steps["other ledger"]
    assert not step["superseded"] and step["head"] == "# revision 1 of ledger two\n"


def test_what_nft_refuses_leaves_the_filters_that_are_there(steps: dict[str, t.Any]) -> None:
    assert "10.0.0.12" in steps["changed"]["diff"]["after"]
    step = steps["refused"]
    assert "cannot filter" in step["error"] and sorted(step["tables"]) == sorted(TABLES)
    assert step["head"] == "# revision 2 of ledger two\n"
