# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    InvalidInput,
    OverQuota,
    PortLimitExceeded,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.quotas import (
    check_group_members,
    check_server_groups,
    fit_count,
    fit_projects,
    limits_of,
    needs,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, NetworkRequest

GB = 1024


def wish(low, high, vcpus=1, memory_mb=GB, ports=0, project="default"):
    flavor = Flavor(name="f", memory_mb=memory_mb, vcpus=vcpus)
    networks = (NetworkRequest(network="n"),) * ports
    return ServerRequest(
        name="w", flavor=flavor, image=None, min_count=low, max_count=high, networks=networks, project=project
    )


@pytest.mark.parametrize(
    "low, high, usage, limits, count",
    [
        (1, 5, {}, {}, 5),
        (1, 5, {}, {"instances": -1, "cores": -1, "ram": -1}, 5),
        (1, 5, {}, {"instances": 3}, 3),
        (1, 5, {"instances": 2}, {"instances": 3}, 1),
        (1, 5, {}, {"cores": 9}, 4),
        (1, 5, {"ram": GB}, {"ram": 3 * GB + 1}, 2),
        (5, 5, {"instances": 5, "cores": 10, "ram": 5 * GB}, {"instances": 10, "cores": 20, "ram": 10 * GB}, 5),
        (1, 5, {}, {"ports": 6}, 3),
        (1, 5, {"instances": 99}, {"instances": -1, "cores": 2}, 1),
    ],
)
def test_the_largest_count_that_fits(low, high, usage, limits, count):
    assert fit_count([wish(low, high, vcpus=2, ports=2)], usage, limits) == [count]


def test_novas_text():
    with pytest.raises(OverQuota) as caught:
        fit_count([wish(5, 5, vcpus=4)], {"instances": 8, "cores": 16}, {"instances": 10, "cores": 20, "ram": 51200})
    assert caught.value.message == (
        "Quota exceeded for instances, cores: Requested 5, 20, but already used 8, 16 of 10, 20 instances, cores"
    )
    assert caught.value.status == 403 and caught.value.remedy


def test_the_text_of_a_range():
    with pytest.raises(OverQuota, match="Requested 3-5, but already used 8 of 10 instances"):
        fit_count([wish(3, 5)], {"instances": 8}, {"instances": 10})


def test_a_limit_of_nothing_is_a_limit():
    with pytest.raises(OverQuota):
        fit_count([wish(1, 1)], {}, {"instances": 0})
    with pytest.raises(OverQuota):
        fit_count([wish(1, 1)], {"instances": 5}, {"instances": 3})


def test_ports_refuse_as_soon_as_the_minimum_does_not_fit():
    # the later rule
    with pytest.raises(PortLimitExceeded, match="Maximum number of ports exceeded"):
        fit_count([wish(3, 5, ports=1)], {}, {"ports": 2})
    assert fit_count([wish(2, 5, ports=1)], {}, {"ports": 2}) == [2]
    assert fit_count([wish(2, 5)], {}, {"ports": 0}) == [5]


def test_an_early_wish_for_many_leaves_the_later_its_minimum():
    assert fit_count([wish(1, 10), wish(2, 4)], {}, {"instances": 6}) == [4, 2]
    with pytest.raises(OverQuota):
        fit_count([wish(1, 10), wish(6, 6)], {}, {"instances": 6})


requests = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(1, 4), st.integers(1, 9)), max_size=4)


@given(requests, st.integers(-1, 30), st.integers(-1, 40), st.integers(-1, 90), st.integers(0, 5))
def test_what_fits_fits_and_no_more_would(shapes, instances, cores, ram, used):
    wishes = [wish(low, low + more, vcpus, memory) for low, more, vcpus, memory in shapes]
    usage, limits = (
        {"instances": used, "cores": used, "ram": used},
        {"instances": instances, "cores": cores, "ram": ram},
    )

    def holds(counts):
        return all(
            limit < 0 or not counts or usage[name] + sum(needs(w)[name] * n for w, n in zip(wishes, counts)) <= limit
            for name, limit in limits.items()
        )

    try:
        counts = fit_count(wishes, usage, limits)
    except OverQuota:
        assert not holds([w.min_count for w in wishes])
        return
    assert holds(counts)
    for place, request in enumerate(wishes):
        assert request.min_count <= counts[place] <= request.max_count
        more = [n + (at == place) for at, n in enumerate(counts)]
        assert counts[place] == request.max_count or not holds(more)


def test_projects_have_their_own_limits():
    wishes = [wish(1, 9, project="a"), wish(1, 9, project="b"), wish(1, 9, project="a")]
    quotas = {"instances": 5, "projects": {"b": {"instances": 2}}}
    assert fit_projects(wishes, {"a": {"instances": 1}}, quotas) == [3, 2, 1]


def test_limits_of():
    others = {"server_groups": 10, "server_group_members": 10, "metadata_items": 128, "injected_files": 5}
    others.update(injected_file_content_bytes=10240, injected_file_path_length=255)
    others.update(security_groups=10, security_group_rules=100)  # source: Neutron
    assert limits_of(None, "p") == {"instances": -1, "cores": -1, "ram": -1, "ports": -1, **others}
    quotas = {"instances": "10", "cores": 20, "projects": {"p": {"cores": -1, "server_groups": 3}}}
    assert limits_of(quotas, "p") == {
        "instances": 10,
        "cores": -1,
        "ram": -1,
        "ports": -1,
        **others,
        "server_groups": 3,
    }
    assert limits_of(quotas, "q")["cores"] == 20
    for bad in (
        {"cpus": 1},
        {"cores": -2},
        {"cores": "x"},
        {"cores": True},
        {"projects": []},
        {"projects": {"p": {"x": 1}}},
        "ten",
        [{"cores": 1}],
        {"projects": "p"},
        {"projects": {"p": "ten"}},
        {"cores": "\u00b2"},
        {"cores": "--5"},
        {"cores": 1.5},
        {"cores": 2**31},
        {1: 2},
    ):
        if bad == {"projects": []}:
            assert limits_of(bad, "p")["cores"] == -1
            continue
        with pytest.raises(InvalidInput):
            limits_of(bad, "p")


GROUP = ServerGroup(id="g", name="web", policy="anti-affinity", project="p")


@pytest.mark.parametrize(
    "members, new, quotas, fits",
    [
        (0, 10, None, True),
        (9, 1, None, True),
        (10, 1, None, False),
        (9, 2, None, False),
        (0, 11, {}, False),
        (10, 0, None, True),
        (12, 0, None, True),
        (12, 1, {"server_group_members": -1}, True),
        (2, 1, {"server_group_members": 3}, True),
        (3, 1, {"server_group_members": "3"}, False),
        (0, 1, {"server_group_members": 0}, False),
        (3, 1, {"server_group_members": 3, "projects": {"p": {"server_group_members": 4}}}, True),
        (3, 1, {"server_group_members": 9, "projects": {"p": {"server_group_members": 3}}}, False),
        (3, 1, {"projects": {"q": {"server_group_members": 3}}}, True),
    ],
)
def test_members_of_a_server_group(members, new, quotas, fits):
    limits = limits_of(quotas, "p")
    if fits:
        check_group_members(GROUP, members, new, limits)
        return
    with pytest.raises(OverQuota, match="Quota exceeded, too many servers in group") as caught:
        check_group_members(GROUP, members, new, limits)
    assert caught.value.status == 403 and "server_group_members" in caught.value.remedy


@given(st.integers(0, 30), st.integers(0, 30), st.integers(-1, 30))
def test_members_never_pass_their_quota(members, new, limit):
    limits = limits_of({"server_group_members": limit}, "p")
    try:
        check_group_members(GROUP, members, new, limits)
    except OverQuota:
        assert limit >= 0 and members + new > limit and new
    else:
        assert limit < 0 or members + new <= limit or not new


def test_server_groups_of_a_project():
    def groups(count, project):
        return [
            ServerGroup(id="%s%d" % (project, i), name="g%d" % i, policy="affinity", project=project)
            for i in range(count)
        ]

    check_server_groups(groups(10, "a") + groups(10, "b"), None)
    check_server_groups([], {"server_groups": 0})
    check_server_groups(groups(30, "a"), {"server_groups": -1})
    check_server_groups(groups(11, "a"), {"projects": {"a": {"server_groups": 11}}})
    for many, quotas in ((groups(11, "a"), None), (groups(3, "b"), {"projects": {"b": {"server_groups": 2}}})):
        with pytest.raises(OverQuota, match="Quota exceeded, too many server groups") as caught:
            check_server_groups(groups(1, "c") + many, quotas)
        assert caught.value.status == 403 and "server_groups" in caught.value.remedy
