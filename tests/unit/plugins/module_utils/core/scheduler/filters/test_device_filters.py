# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import WholeDiskRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import PF, VF, PciDevice
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources import (
    pci_passthrough_filter,
    whole_disk_filter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources.pci_passthrough_filter import (
    PciPassthroughFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.resources.whole_disk_filter import (
    WholeDiskFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options


def devices(count, product="0443", **more):
    return [PciDevice("0000:%02x:00.0" % n, "8086", product, **more) for n in range(count)]


def ask(count, product="0443", policy="legacy", **more):
    return PciRequest(count, ({"vendor_id": "8086", "product_id": product, **more},), "qat", policy)


def fleet(**column):
    name, values = next(iter(column.items()))
    return Fleet([HostState("h%d" % n, "n", **{name: value}) for n, value in enumerate(values)])


def spec(**more):
    return RequestSpec(["u"], Flavor("f", 1, 1), **more)


def evaluate(cls, hosts, request):
    filter_ = cls(make_options())
    result = filter_.evaluate(hosts, request, hosts.all_rows())
    for row, passes in enumerate(result.mask):
        alone = filter_.evaluate(hosts, request, row)
        assert bool(alone.mask) == bool(passes)
        assert passes or alone.text(0) == result.text(row)
    return result


@pytest.mark.parametrize(
    ("free", "requests", "passes"),
    [
        ([], [], True),
        ([], [ask(0)], True),
        ([], [ask(1)], False),
        (devices(2), [ask(2)], True),
        (devices(2), [ask(3)], False),
        (devices(3), [ask(2), ask(1)], True),
        (devices(2), [ask(2), ask(1)], False),
        (devices(2), [ask(1, "0442")], False),
        (devices(2, numa_node=1), [ask(2, policy="required")], True),  # cells are no matter of this filter
        (devices(1, dev_type=PF), [ask(1)], False),
        (devices(1, dev_type=PF), [ask(1, dev_type=PF)], True),
        (devices(1, dev_type=VF), [ask(1)], True),
    ],
)
def test_pci_passthrough(free, requests, passes):
    assert list(evaluate(PciPassthroughFilter, fleet(pci_devices=[free]), spec(pci_requests=requests)).mask) == [passes]


def test_pci_numbers_and_reason():
    hosts = fleet(pci_devices=[devices(3), devices(1), devices(5), ()])
    result = evaluate(PciPassthroughFilter, hosts, spec(pci_requests=[ask(3), ask(1)]))
    assert list(result.mask) == [False, False, True, False]
    assert (list(result.available), result.needed, result.unit) == ([3, 1, 4, 0], 4, "devices")
    assert result.text(0) == "PCI devices: needs 1 x qat, 0 free (3 free in all)"
    assert result.text(1) == "PCI devices: needs 3 x qat, 1 free; needs 1 x qat, 0 free (1 free in all)"


@pytest.mark.parametrize(
    ("free", "request_", "passes"),
    [
        ([], None, True),
        ([], WholeDiskRequest(), False),
        ([("a", 10, "hdd")], WholeDiskRequest(10), True),
        ([("a", 10, "hdd")], WholeDiskRequest(11), False),
        ([("a", 10, "hdd")], WholeDiskRequest(0, "ssd"), False),
        ([("a", 10, "hdd")], WholeDiskRequest(0, "", 2), False),
        ([("a", 10, "hdd"), ("b", 5, "ssd")], WholeDiskRequest(0, "", 2), True),
    ],
)
def test_whole_disk(free, request_, passes):
    disks = [{"path": path, "size_gb": size_gb, "medium": medium} for path, size_gb, medium in free]
    hosts = fleet(free_disks=[disks])
    requests = [request_] if request_ else []
    assert list(evaluate(WholeDiskFilter, hosts, spec(whole_disks=requests)).mask) == [passes]


def test_whole_disk_numbers_and_reason():
    hosts = fleet(free_disks=[[{"path": "/dev/sd%s" % n, "size_gb": n} for n in range(4)], ()])
    result = evaluate(WholeDiskFilter, hosts, spec(whole_disks=[WholeDiskRequest(2, "", 3)]))
    assert (list(result.available), result.needed, result.unit) == ([2, 0], 3, "disks")
    assert result.text(0) == "whole disks: needs 3 disks of 2 GiB, 2 of 4 free ones will do"


def test_a_host_with_what_another_has_is_not_asked_again(monkeypatch):
    asked = []
    monkeypatch.setattr(pci_passthrough_filter, "hand_out", lambda *args: asked.append(1) or [])
    hosts = fleet(pci_devices=[devices(2)] * 50 + [devices(1)])
    evaluate_once = PciPassthroughFilter(make_options())
    evaluate_once.evaluate(hosts, spec(pci_requests=[ask(1)]), hosts.all_rows())
    assert len(asked) == 2
    monkeypatch.setattr(whole_disk_filter, "choose_disks", lambda *args: asked.append(1))
    hosts = fleet(free_disks=[[{"path": "a", "size_gb": 1}]] * 50)
    WholeDiskFilter(make_options()).evaluate(hosts, spec(whole_disks=[WholeDiskRequest()]), hosts.all_rows())
    assert len(asked) == 3


def test_hosts_that_differ_in_tags_only_are_told_apart():
    tagged = devices(1, tags={"physical_network": "p"})
    hosts = fleet(pci_devices=[devices(1), tagged])
    result = evaluate(PciPassthroughFilter, hosts, spec(pci_requests=[ask(1, physical_network="p")]))
    assert list(result.mask) == [False, True]


@pytest.mark.parametrize("cls", [PciPassthroughFilter, WholeDiskFilter])
def test_what_the_scheduler_must_know_of_them(cls):
    assert (cls.per_host, cls.needs_pci, cls.run_once_per_request) == (True, True, False)
