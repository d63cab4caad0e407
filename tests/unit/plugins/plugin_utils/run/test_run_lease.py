# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tasks of a run know of its lease, and that no command goes to a host when it was over meanwhile."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import Ports
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.run_lease import RunLease

SECONDS = 100.0


@pytest.fixture
def lease(tmp_path: pathlib.Path) -> RunLease:
    made = RunLease(tmp_path / "of the run", SECONDS)
    made.renewed(1000.0)
    made.looked(1000.0)
    return made


def test_a_lease_that_is_renewed_in_time_holds_however_long_ago_the_ledger_was_read(lease: RunLease) -> None:
    for at in range(1090, 1900, 90):
        lease.renewed(float(at))
    assert lease.remaining_seconds(1900.0) == 1810 + SECONDS - 1900 and lease.holds(1900.0)
    assert not lease.holds(1911.0), "it is over"


def test_a_lease_that_was_over_is_another_one(lease: RunLease) -> None:
    lease.renewed(1101.0)
    assert lease.remaining_seconds(1101.0) == SECONDS
    assert not lease.holds(1102.0), "another run may have had it for a second"
    lease.looked(1103.0)
    assert lease.holds(1190.0), "the ledger was read since"


def test_a_task_knows_what_others_of_its_run_did(lease: RunLease, tmp_path: pathlib.Path) -> None:
    other = RunLease(tmp_path / "of the run", SECONDS)
    other.renewed(1090.0)
    assert lease.holds(1150.0)
    other.looked(1150.0)
    assert not lease.holds(1195.0), "what another task read says nothing of what this one knows"


def test_an_older_renewal_that_is_told_later_shortens_nothing(lease: RunLease) -> None:
    lease.renewed(1050.0)
    lease.renewed(1040.0)
    assert lease.remaining_seconds(1100.0) == 50.0


def test_what_is_true_for_a_while_is_read_shortly_before_however_well_the_lease_is_kept(lease: RunLease) -> None:
    assert lease.holds(1029.0, newly=True) and not lease.holds(1031.0, newly=True)
    assert lease.holds(1031.0)


def test_a_task_that_has_read_nothing_may_do_what_it_does(tmp_path: pathlib.Path) -> None:
    assert RunLease(tmp_path, SECONDS).holds(1e9)


class Sending:
    """An action whose module takes two commands on its host, and that removes its files there in any case."""

    def __init__(self, over_after: int):
        self.over_after = over_after  # so many commands the lease was over
        self.sent: list[str] = []

    def check_lease(self, module: str) -> None:
        if len(self.sent) >= self.over_after:
            raise errors.LeaseOver(host="h1", module=module, seconds=700)

    def _low_level_execute_command(self, command: str) -> None:
        self.sent.append(command)

    def _remove_tmp_path(self, path: str) -> None:
        self._low_level_execute_command("remove " + path)

    def _execute_module(self, **_arguments: t.Any) -> dict[str, t.Any]:
        try:
            self._low_level_execute_command("make a folder")
            self._low_level_execute_command("run the module")
        finally:
            self._remove_tmp_path("the folder")
        return {"changed": True}

    _display = None


def test_no_command_of_a_module_goes_to_its_host_once_the_lease_was_over() -> None:
    action: t.Any = Sending(over_after=1)
    with pytest.raises(errors.LeaseOver, match="domain_power was not sent to h1: this run stood still for 700 s"):
        Ports(action).run_module("bootflow.compute.domain_power", {}, {}, 1.0)
    assert action.sent == ["make a folder", "remove the folder"]


def test_what_a_module_did_is_known_though_the_lease_was_over_when_it_ended() -> None:
    action: t.Any = Sending(over_after=2)
    assert Ports(action).run_module("bootflow.compute.domain_power", {}, {}, 1.0) == {"changed": True}
    assert action.sent == ["make a folder", "run the module", "remove the folder"]
    assert not {"_low_level_execute_command", "_remove_tmp_path"} & set(vars(action))
