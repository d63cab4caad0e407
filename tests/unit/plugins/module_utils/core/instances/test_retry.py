# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import LibvirtError, MaxRetriesExceeded
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import retry


@pytest.mark.parametrize(
    ("max_attempts", "hosts", "nodes", "absent"),
    [
        (3, [], [], False),
        (1, [], [], True),
        (3, ["h"], [], True),
        (3, [], ["n"], True),
        (3, ["h"], ["n"], True),
        (3, ["h", "i"], [], False),
        (3, [], ["n", "o"], False),
        (3, ["h", "i"], ["n"], True),
        (1, ["h", "i"], [], True),
    ],
)
def test_when_there_is_no_record(max_attempts, hosts, nodes, absent):
    record = retry.populate_retry(None, max_attempts, "u1", hosts, nodes)
    assert (record is None) == absent
    if not absent:
        assert record == {"num_attempts": 1, "hosts": []}


def test_three_attempts_and_the_text_of_the_fourth():
    record = None
    for number in (1, 2, 3):
        before = copy.deepcopy(record)
        new = retry.populate_retry(record, max_attempts=3, instance_uuid="u1")
        assert record == before
        assert new["num_attempts"] == number
        assert "exc_reason" not in new
        host = "h%d" % number
        chosen = retry.record_host(new, host, "n")
        assert [host, "n"] not in new["hosts"]
        record = retry.record_failure(chosen, host, "n", LibvirtError(reason="no %d" % number))
        assert record["hosts"] == [["h%d" % i, "n"] for i in range(1, number + 1)]
        assert record["exc_reason"] == "libvirt: no %d" % number
        assert record["exc"] == "LibvirtError: libvirt: no %d" % number
    with pytest.raises(MaxRetriesExceeded) as caught:
        retry.populate_retry(record, max_attempts=3, instance_uuid="u1")
    assert caught.value.message == (
        "Exceeded maximum number of retries. Exceeded max scheduling attempts 3 for instance u1. Last exception: libvirt: no 3"
    )


def test_failure_before_a_host_was_noted_notes_it():
    record = retry.populate_retry(None, 3, "u1")
    assert retry.record_failure(record, "h", "n", LibvirtError(reason="x"))["hosts"] == [["h", "n"]]
    assert retry.record_failure(record, None, None, LibvirtError(reason="x"))["hosts"] == []


def test_no_record_stays_none():
    assert retry.record_host(None, "h", "n") is None
    assert retry.record_failure(None, "h", "n", LibvirtError(reason="x")) is None
