# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import metrics
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.files import read_json, write_json

NAMES = {
    "cpu.frequency",
    "cpu.user.time",
    "cpu.kernel.time",
    "cpu.idle.time",
    "cpu.iowait.time",
    "cpu.user.percent",
    "cpu.kernel.percent",
    "cpu.idle.percent",
    "cpu.iowait.percent",
    "cpu.percent",
}


def sample(user, kernel, idle, iowait):
    return {"user": user, "kernel": kernel, "idle": idle, "iowait": iowait}


def percents(found):
    return [found["cpu.%spercent" % kind] for kind in ("user.", "kernel.", "idle.", "iowait.", "")]


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (sample(10, 20, 60, 10), None, [10, 20, 60, 10, 40]),
        (sample(110, 120, 560, 210), sample(10, 20, 60, 10), [11, 11, 55, 22, 44]),
        (sample(1, 1, 1, 0), None, [33, 33, 33, 0, 66]),  # rounded down, as Nova does, each for itself
        (sample(29, 0, 71, 0), None, [28, 0, 71, 0, 28]),  # in floating point, as Nova does
        (sample(0, 0, 0, 0), None, [0, 0, 0, 0, 0]),
        (sample(10, 20, 60, 10), sample(10, 20, 60, 10), [10, 20, 60, 10, 40]),  # no time went by
        (sample(10, 20, 60, 10), sample(20, 0, 0, 0), [10, 20, 60, 10, 40]),  # a counter went back
    ],
)
def test_percentages(now, before, expected):
    assert percents(metrics.metrics_of(now, 2400, before)) == expected


TIMES = st.builds(sample, *[st.integers(0, 10**18)] * 4)


@given(TIMES, TIMES)
def test_all_names_are_there_and_percentages_are_such(one, two):
    found = metrics.metrics_of(one, 2400, two)
    assert set(found) == NAMES
    assert all(0 <= value <= 100 for name, value in found.items() if name.endswith("percent"))
    assert abs(found["cpu.percent"] + found["cpu.idle.percent"] - 100) <= 2 or not any(one.values())
    assert (found["cpu.frequency"], found["cpu.iowait.time"]) == (2400, one["iowait"])


class LibvirtError(Exception):
    pass


class Connection:
    def __init__(self, stats):
        self.stats = stats

    def getCPUStats(self, cpu, flags):
        assert cpu == -1
        if self.stats is None:
            raise LibvirtError("this function is not supported")
        return self.stats

    def getInfo(self):
        return ["x86_64", 1000, 4, 2400, 1, 1, 4, 1]


@pytest.fixture(autouse=True)
def host(monkeypatch):
    monkeypatch.setattr(
        metrics, "libvirt", types.SimpleNamespace(libvirtError=LibvirtError, VIR_NODE_CPU_STATS_ALL_CPUS=-1)
    )
    monkeypatch.setattr(metrics, "boot_id", lambda: "boot-1")


def report(tmp_path, *times, write=True):
    return percents(metrics.cpu_metrics(Connection(sample(*times)), str(tmp_path / "instances"), write))


def test_each_report_is_measured_from_the_one_before(tmp_path):
    assert report(tmp_path, 10, 20, 60, 10) == [10, 20, 60, 10, 40]
    assert report(tmp_path, 20, 20, 150, 10) == [10, 0, 90, 0, 10]
    assert report(tmp_path, 120, 20, 150, 10) == [100, 0, 0, 0, 100]


def test_check_mode_leaves_no_trace_and_does_not_move_the_mark(tmp_path):
    assert report(tmp_path, 10, 20, 60, 10, write=False) == [10, 20, 60, 10, 40]
    assert list(tmp_path.iterdir()) == []
    report(tmp_path, 10, 20, 60, 10)
    for _again in range(2):
        assert report(tmp_path, 20, 20, 150, 10, write=False) == [10, 0, 90, 0, 10]


def test_after_a_new_start_of_the_host_it_begins_anew(tmp_path, monkeypatch):
    report(tmp_path, 10, 20, 60, 10)
    monkeypatch.setattr(metrics, "boot_id", lambda: "boot-2")
    assert report(tmp_path, 20, 20, 150, 10) == [10, 10, 75, 5, 25]


@pytest.mark.parametrize("kept", [None, [], {"boot_id": "boot-1"}, {"boot_id": "boot-1", **sample("1", 1, 1, 1)}])
def test_a_mark_that_is_none_is_passed_over(tmp_path, kept):
    report(tmp_path, 1, 1, 1, 1)
    mark = tmp_path / "instances/_probe/cpu.json"
    assert read_json(str(mark))["user"] == 1
    write_json(str(mark), kept)
    assert report(tmp_path, 10, 20, 60, 10) == [10, 20, 60, 10, 40]


@pytest.mark.parametrize("stats", [None, {}, {"user": 1, "kernel": 1, "idle": 1}])
def test_a_hypervisor_without_these_numbers_gives_none(stats, tmp_path):
    assert metrics.cpu_metrics(Connection(stats), str(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_start_of_this_host_has_a_name(tmp_path, monkeypatch):
    monkeypatch.undo()
    (tmp_path / "id").write_text("abc\n")
    assert (metrics.boot_id(str(tmp_path / "id")), metrics.boot_id(str(tmp_path / "none"))) == ("abc", "")
