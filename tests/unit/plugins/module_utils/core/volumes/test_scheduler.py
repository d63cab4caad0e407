# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    InstanceNotFound,
    InvalidInput,
    InvalidParameterValue,
    InvalidUUID,
    NoValidBackend,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import (
    PoolState,
    VolumeRequest,
    VolumeType,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.retry import populate_retry, record_failure
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.explain import explanation_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.extra_specs import (
    match,
    satisfies,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.options import (
    VolumeSchedulerOptions,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.select import (
    BackendSelection,
    VolumeScheduler,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

U1, U2 = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def host(number, pool="vg"):
    return "stor%d@lvm#%s" % (number, pool)


def state(number, free=100, total=1000, **more):
    return PoolState(more.pop("host", host(number)), total, free, **more)


def options(**more):
    return VolumeSchedulerOptions(**more)


def select_backend(states, request, with_options=None):
    return VolumeScheduler(states, with_options).select(request)


def select_backends(states, requests):
    scheduler = VolumeScheduler(states)
    found = []
    for request in requests:
        try:
            found.append(scheduler.select(request))
        except BootflowError as e:
            found.append(e)
    return found


def chosen(states, request=None, **more):
    return select_backend(states, request or VolumeRequest(1, "v"), options(**more)).host


# --- extra specs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "requirement", "satisfied"),
    [
        ("ssd", "ssd", True),
        ("ssd", "hdd", False),
        (True, "True", False),  # as Cinder has it: say <is> True
        (True, "<is> True", True),
        ("yes", "<is> on", True),
        (False, "<is> True", False),
        (False, "<is> False", True),
        ("nonsense", "<is> False", True),
        (None, "<is> False", False),
        (True, "<is>", False),
        ("12", "= 11", True),
        (12, "= 11", True),
        (12.5, ">= 12.5", True),
        (12, "<= 11", False),
        (12, "== 12", True),
        (12, "!= 12", False),
        (True, "== 1", True),
        ("many", ">= 1", False),
        ("12", ">= many", False),  # no error, as in a flavor, but no
        ("a b", "<in> b", True),
        ("ab", "<in> c", False),
        ("b", "<or> a <or> b", True),
        ("c", "<or> a <or> b", False),
        (5, "<or> 5", False),
        ("b", "<or>", False),
        ("a b", "<all-in> a b", False),  # no operator of Cinder's: compared as a whole
        ("<all-in> a b", "<all-in> a b", True),
        ("abc", "s== abc", True),
        ("abc", "s!= abc", False),
        ("2", "s> 10", True),
        (5, "s== 5", False),
        (5, "s!= 5", True),
        (None, "x", False),
        (None, "s!= x", False),
        ("", "", True),
        (None, None, True),
        ("x", None, False),
        # <in> of what is no text asks for a member, as Python's "in" does for Cinder
        (["a", "b"], "<in> b", True),
        (["ab"], "<in> b", False),
        (("a", "b"), "<in> a", True),
        ({"a": 1}, "<in> a", True),
        ({"a": 1}, "<in> 1", False),
        (["a"], "<in>", False),
        (True, "<in> True", False),  # Cinder ends with a TypeError
        (["a"], "s!= a", True),
        (5, "s< 6", False),  # Cinder ends with a TypeError
    ],
)
def test_one_requirement(value, requirement, satisfied):
    assert match(value, requirement) is satisfied


@pytest.mark.parametrize(
    ("capabilities", "extra_specs", "met"),
    [
        ({}, {}, True),
        ({"a": "1"}, {"a": "1"}, True),
        ({"a": "1"}, {"b": "1"}, False),
        ({"a": "1"}, {"capabilities:a": "1"}, True),
        ({"a": "1"}, {"capabilities:a": "2"}, False),
        ({"a": {"b": "1"}}, {"capabilities:a:b": "1"}, True),
        ({"a": "1"}, {"capabilities:a:b": "1"}, False),
        ({}, {"provisioning:type": "thick"}, True),
        ({}, {"vendor:whatever:else": "x"}, True),
        ({"a": ["x", "y"]}, {"a": "y"}, True),
        ({"a": ["x", "y"]}, {"a": "z"}, False),
        ({"a": []}, {"a": "z"}, False),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "3"}, False),
        ({"a": "1"}, {"capabilities": "<in> a"}, True),  # the scope alone: the capabilities themselves
        ({"a": [["x"], "y"]}, {"a": "<in> x"}, True),
        ({"a": "1"}, {"capabilities:": "1"}, False),
    ],
)
def test_capabilities_against_extra_specs(capabilities, extra_specs, met):
    assert (satisfies(capabilities, extra_specs) is None) is met


# --- filters ----------------------------------------------------------------------------------------------------------


def test_a_zone_is_kept_to():
    states = [state(1, 500), state(2, 100, availability_zone="az2")]
    assert chosen(states, VolumeRequest(1, "v", availability_zone="az2")) == host(2)
    assert chosen(states) == host(1)


def test_a_type_finds_its_backend():
    states = [state(1, 500), state(2, volume_backend_name="fast", medium="ssd")]
    assert chosen(states, VolumeRequest(1, "v", volume_type=VolumeType("t", {"volume_backend_name": "fast"}))) == host(
        2
    )
    assert chosen(states, VolumeRequest(1, "v", volume_type=VolumeType("t", {"capabilities:medium": "ssd"}))) == host(2)


def test_a_volume_for_several_instances_goes_where_that_works():
    states = [state(1, 500), state(2, multiattach=True)]
    assert chosen(states, VolumeRequest(1, "v", multiattach=True)) == host(2)


ALL = ["AvailabilityZoneFilter", "CapacityFilter", "CapabilitiesFilter", "SameBackendFilter", "DifferentBackendFilter",
       "InstanceLocalityFilter"]  # fmt: skip


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({}, host(1)),
        ({"same_host": [U2]}, host(2)),
        ({"same_host": U2}, host(2)),
        ({"same_host": []}, host(1)),
        ({"different_host": U1}, host(2)),
        ({"different_host": [U1, U2]}, host(3)),
        ({"different_host": [U1], "same_host": [U1]}, None),
        ({"same_host": "no-uuid"}, None),
        ({"different_host": [U1, "no-uuid"]}, None),
        ({"different_host": 5}, None),
        ({"local_to_instance": U1}, host(3)),
    ],
)
def test_hints(hints, expected):
    states = [state(1, 500), state(2, 400), state(3, 300)]
    scheduler = VolumeScheduler(states, options(enabled_filters=ALL), {U1: host(1), U2: host(2)}, {U1: "stor3"})
    request = VolumeRequest(1, "v", scheduler_hints=hints)
    if expected is None:
        with pytest.raises(NoValidBackend):
            scheduler.select(request)
    else:
        assert scheduler.select(request).host == expected


def test_volumes_placed_in_this_run_count_for_hints():
    scheduler = VolumeScheduler([state(1, 500), state(2, 400)], options(enabled_filters=ALL))
    first = scheduler.select(VolumeRequest(1, U1))
    second = scheduler.select(VolumeRequest(1, U2, scheduler_hints={"different_host": [U1]}))
    assert {first.host, second.host} == {host(1), host(2)}


@pytest.mark.parametrize(("hint", "error"), [("x", InvalidUUID), (U2, InstanceNotFound)])
def test_locality_to_nobody(hint, error):
    scheduler = VolumeScheduler([state(1)], options(enabled_filters=ALL), {}, {U1: "stor1"})
    with pytest.raises(error):
        scheduler.select(VolumeRequest(1, "v", scheduler_hints={"local_to_instance": hint}))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"enabled_filters": ["NoFilter"]}, "NoFilter"),
        ({"enabled_filters": ["CapacityFilter"] * 2}, "twice"),
        ({"weighers": ["NoWeigher"]}, "NoWeigher"),
        ({"multipliers": {"NoWeigher": 1}}, "NoWeigher"),
        ({"multipliers": {"CapacityWeigher": "x"}}, "multiplier of CapacityWeigher"),
    ],
)
def test_settings_that_name_nothing(wrong, text):
    with pytest.raises(InvalidInput, match=text):
        VolumeScheduler([state(1)], options(**wrong))


# --- choosing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, host(2)),
        ({"multipliers": {"CapacityWeigher": -1.0}}, host(3)),
        ({"weighers": ["AllocatedCapacityWeigher"]}, host(1)),
        ({"weighers": ["AllocatedCapacityWeigher"], "multipliers": {"AllocatedCapacityWeigher": 1.0}}, host(3)),
        ({"weighers": ["VolumeNumberWeigher"]}, host(3)),
        ({"weighers": ["VolumeNumberWeigher"], "multipliers": {"VolumeNumberWeigher": 1}}, host(1)),
        ({"weighers": ["CapacityWeigher", "AllocatedCapacityWeigher"]}, host(1)),  # 0.5 - 0.0 and 1.0 - 0.5: equals
        (
            {"weighers": ["CapacityWeigher", "AllocatedCapacityWeigher"], "multipliers": {"CapacityWeigher": 1.1}},
            host(2),
        ),
        ({"weighers": []}, host(1)),
    ],
)
def test_who_is_best(more, expected):
    states = [
        state(1, 200, allocated_capacity_gb=10, volume_count=9),
        state(2, 300, allocated_capacity_gb=20, volume_count=5),
        state(3, 100, allocated_capacity_gb=30, volume_count=1),
    ]
    assert chosen(states, **more) == expected


def test_equals_keep_their_order():
    assert chosen([state(1), state(2)]) == host(1)
    assert chosen([state(2), state(1)]) == host(2)


def test_alternates_are_the_next_best_as_many_as_attempts_are_left():
    states = [state(n, 100 + n) for n in range(1, 6)]
    found = select_backend(states, VolumeRequest(1, "v"))
    assert (found.host, found.alternates) == (host(5), (host(4), host(3)))
    assert select_backend(states, VolumeRequest(1, "v"), options(max_attempts=1)).alternates == ()


@pytest.mark.parametrize(
    ("backend", "expected"), [("stor1@lvm#b", host(1, "b")), ("stor1@lvm", host(1, "a")), ("stor2@lvm", host(2))]
)
def test_a_clone_stays_with_its_source(backend, expected):
    states = [state(1, 300, host=host(1, "a")), state(1, 200, host=host(1, "b")), state(2, 500)]
    found = select_backend(states, VolumeRequest(1, "v", resource_backend=backend))
    assert found.host == expected
    assert all(other.startswith(backend.partition("#")[0]) for other in found.alternates)


def test_a_source_on_a_full_backend_leaves_no_choice():
    with pytest.raises(NoValidBackend, match="the source is on stor1@lvm#vg") as caught:
        chosen([state(1, 5), state(2, 500)], VolumeRequest(10, "v", resource_backend=host(1)))
    assert "CapacityFilter rejected stor1@lvm#vg (disk: needs 10 GiB, 5 GiB usable)" in caught.value.message


@pytest.mark.parametrize(
    "out",
    [state(1, 900, disabled=True), state(1, 900, frozen=True), state(1, 900, updated_at=100), state(1, 900)],
)
def test_backends_that_are_out(out):
    more = {} if out.disabled or out.frozen else {"now": 200.0}
    assert chosen([out, state(2, updated_at=150)], **more) == host(2)
    with pytest.raises(NoValidBackend, match="stor1@lvm#vg"):
        chosen([out], **more)


def test_nobody_has_room():
    with pytest.raises(NoValidBackend) as caught:
        chosen([state(1, 5), state(2, 900, availability_zone="b")], VolumeRequest(10, U1, availability_zone="nova"))
    error = caught.value
    assert error.message == (
        "No valid backend was found. Of 2 backends: AvailabilityZoneFilter rejected stor2@lvm#vg (zone nova requested, the host"
        " is in b); CapacityFilter rejected stor1@lvm#vg (disk: needs 10 GiB, 5 GiB usable). Nearest miss: stor1@lvm#vg lacks"
        " 5 GiB of disk."
    )
    assert error.details["filters"][1] == {"name": "CapacityFilter", "start": 1, "end": 0}


def test_there_is_no_backend_at_all():
    with pytest.raises(NoValidBackend, match="There is no backend"):
        chosen([])


def test_volumes_of_a_batch_spread_and_the_last_gigabytes_go_to_one():
    states = [state(1, 25), state(2, 15)]
    found = select_backends(states, [VolumeRequest(10, "v%d" % n) for n in range(5)])
    placed = [f.host for f in found if isinstance(f, BackendSelection)]
    assert placed == [host(1), host(1), host(2)] or placed == [host(1), host(2), host(1)]
    assert [type(f) for f in found[3:]] == [NoValidBackend, NoValidBackend]
    assert states[0].free_capacity_gb == 25


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.booleans(),
)
def test_no_pool_gives_more_than_it_has(frees, sizes, is_thin):
    ratio = 1.5
    states = [
        state(
            n,
            free,
            60,
            provisioned_capacity_gb=60 - free,
            thin_provisioning_support=is_thin,
            max_over_subscription_ratio=ratio,
        )
        for n, free in enumerate(frees)
    ]
    requests = [VolumeRequest(size, "v%d" % n) for n, size in enumerate(sizes)]
    given_out = dict.fromkeys((s.host for s in states), 0)
    for request, found in zip(requests, select_backends(states, requests)):
        if isinstance(found, BackendSelection):
            given_out[found.host] += request.size
        else:
            assert isinstance(found, BootflowError)
    for each in states:
        limit = 60 * ratio - each.provisioned if is_thin else each.free_capacity_gb
        assert given_out[each.host] <= limit


# --- retry ------------------------------------------------------------------------------------------------------------


def test_the_record_of_an_attempt():
    first = select_backend([state(1), state(2, 50)], VolumeRequest(1, "v"))
    assert first.retry == {"num_attempts": 1, "backends": [host(1)]}
    failed = record_failure(first.retry, NoValidBackend(reason="x"))
    again = select_backend([state(1), state(2, 50)], VolumeRequest(1, "v", retry=failed))
    assert again.host == host(2)  # although it has less room
    assert again.retry == {"num_attempts": 2, "backends": [host(1), host(2)]}
    third = select_backend([state(1), state(2, 50)], VolumeRequest(1, "v", retry=again.retry))
    assert third.host == host(1)  # nobody is left that it was not tried on
    with pytest.raises(NoValidBackend) as caught:
        select_backend([state(1)], VolumeRequest(1, "v", retry=third.retry))
    assert caught.value.message == "No valid backend was found. Exceeded max scheduling attempts 3 for volume v"


def test_a_backend_that_failed_may_be_left_out_altogether():
    request = VolumeRequest(1, "v", retry={"num_attempts": 1, "backends": [host(1)]})
    names = ["CapacityFilter", "IgnoreAttemptedHostsFilter"]
    with pytest.raises(NoValidBackend, match="IgnoreAttemptedHostsFilter"):
        select_backend([state(1)], request, options(enabled_filters=names))


@pytest.mark.parametrize(
    "record", ["x", [1], {"num_attempts": "1"}, {"num_attempts": 1, "backends": "x"}, {"backends": [5]}]
)
def test_what_is_no_record(record):
    with pytest.raises(InvalidInput, match="not a retry record"):
        populate_retry(record, 3, "v")


@pytest.mark.parametrize("attempts", [0, -1, "3", None, True, 2.0])
def test_attempts_are_a_number_of_one_or_more(attempts):
    with pytest.raises(InvalidParameterValue, match="must be >=1"):
        populate_retry(None, attempts, "v")


@pytest.mark.parametrize(
    "wrong",
    [
        {"enabled_filters": "CapacityFilter"},
        {"enabled_filters": [["CapacityFilter"]]},
        {"weighers": 5},
        {"multipliers": ["CapacityWeigher"]},
        {"multipliers": {5: 1.0}},
    ],
)
def test_settings_of_another_kind(wrong):
    with pytest.raises(InvalidInput, match="must be a"):
        VolumeScheduler([state(1)], options(**wrong))


def test_without_retries_an_old_record_does_not_count():
    request = VolumeRequest(1, "v", retry={"num_attempts": 1, "backends": [host(1)]})
    names = ["CapacityFilter", "IgnoreAttemptedHostsFilter"]
    found = select_backend([state(1), state(2, 50)], request, options(max_attempts=1, enabled_filters=names))
    assert (found.host, found.retry) == (host(1), None)


def test_one_attempt_keeps_no_record():
    assert select_backend([state(1)], VolumeRequest(1, "v"), options(max_attempts=1)).retry is None
    with pytest.raises(InvalidParameterValue, match="must be >=1"):
        select_backend([state(1)], VolumeRequest(1, "v"), options(max_attempts=0))


def test_a_failed_request_takes_nothing():
    scheduler = VolumeScheduler([state(1, 10)])
    with pytest.raises(NoValidBackend):
        scheduler.select(VolumeRequest(11, "v"))
    assert scheduler.backends.state(0).free_capacity_gb == 10


# --- why --------------------------------------------------------------------------------------------------------------


def test_a_decision_tells_everything():
    states = [state(1, 5), state(2, 50), state(3, 900, disabled=True), state(4, 80)]
    found = select_backend(states, VolumeRequest(10, "v"), options(explain=True))
    decision = found.decision
    assert decision["chosen"] == host(4)
    assert [b["host"] for b in decision["backends"]] == [host(4), host(2), host(1), host(3)]
    best, second, full, out = decision["backends"]
    assert (best["rank"], best["weight"], second["weight"]) == (1, 1.0, 0.0)
    assert best["weighers"] == [
        {
            "name": "CapacityWeigher",
            "text": "80 GiB allocatable",
            "raw": 80.0,
            "normalised": 1.0,
            "multiplier": 1.0,
            "score": 1.0,
        }
    ]
    assert full["rejected_by"]["filter"] == "CapacityFilter"
    numbers = [full["rejected_by"][name] for name in ("available", "needed", "missing", "unit")]
    assert numbers == [5.0, 10.0, 5.0, "GiB"]
    assert out["rejected_by"]["reason"] == "disabled"
    assert decision["filters"][1] == {"name": "CapacityFilter", "start": 3, "end": 2}
    assert explanation_text(decision) == [
        "volume v (10 GiB) -> %s" % host(4),
        "  filters: 2 of 3 backends passed; rejected by CapacityFilter 1",
        "  + %s  weight 1.0000: CapacityWeigher 1 x 1.0000 for 80 GiB allocatable" % host(4),
        "  + %s  weight 0.0000: CapacityWeigher 1 x 0.0000 for 50 GiB allocatable" % host(2),
        "  - %s  CapacityFilter: disk: needs 10 GiB, 5 GiB usable" % host(1),
        "  - %s  disabled" % host(3),
    ]
    assert explanation_text(decision, 1)[-1] == "  ... and 1 more rejected"


def test_the_nearest_miss_comes_first():
    """Units everywhere, the resource by its name, and what lacks least before the others."""
    states = [state(1, 5), state(2, 40, availability_zone="b"), state(3, 41.97), state(4, 9, disabled=True)]
    with pytest.raises(NoValidBackend) as caught:
        select_backend(states, VolumeRequest(50, "v", availability_zone="nova"), options())
    error = caught.value
    assert error.message == (
        "No valid backend was found. Of 4 backends: AvailabilityZoneFilter rejected %s (zone nova requested, the host is in b);"
        " CapacityFilter rejected 2 backends, the nearest is %s (disk: needs 50 GiB, 41.9 GiB usable); %s (disabled)."
        " Nearest miss: %s lacks 8.1 GiB of disk." % (host(2), host(3), host(4), host(3))
    )
    assert explanation_text(error.details["decision"]) == [
        "volume v (50 GiB) -> no backend",
        "  filters: 0 of 3 backends passed; rejected by AvailabilityZoneFilter 1, CapacityFilter 2",
        "  nearest miss: %s lacks 8.1 GiB of disk" % host(3),
        "  - %s  CapacityFilter: disk: needs 50 GiB, 41.9 GiB usable" % host(3),
        "  - %s  CapacityFilter: disk: needs 50 GiB, 5 GiB usable" % host(1),
        "  - %s  AvailabilityZoneFilter: zone nova requested, the host is in b" % host(2),
        "  - %s  disabled" % host(4),
    ]


def test_weighers_say_what_their_numbers_are():
    names = ["CapacityWeigher", "AllocatedCapacityWeigher", "VolumeNumberWeigher"]
    states = [state(1, 50, volume_count=1, allocated_capacity_gb=10), state(2, "unknown", volume_count=3)]
    found = select_backend(states, VolumeRequest(10, "v"), options(explain=True, weighers=names))
    told = {b["host"]: {w["name"]: w["text"] for w in b["weighers"]} for b in found.decision["backends"]}
    assert told == {
        host(1): dict(zip(names, ("50 GiB allocatable", "10 GiB allocated", "1 volume"))),
        host(2): dict(zip(names, ("no number of GiB reported", "0 GiB allocated", "3 volumes"))),
    }


def test_a_single_candidate_is_weighed():
    found = select_backend([state(1, 50)], VolumeRequest(10, "v"), options(explain=True))
    assert found.decision["backends"][0]["weighers"][0]["raw"] == 50.0
    assert found.decision["backends"][0]["weight"] == 0.0


def test_a_refusal_can_be_explained_too():
    with pytest.raises(NoValidBackend) as caught:
        select_backend([state(1, 5)], VolumeRequest(10, "v"), options(explain=True))
    decision = caught.value.details["decision"]
    assert decision["chosen"] is None
    assert explanation_text(decision)[0].endswith("no backend")
