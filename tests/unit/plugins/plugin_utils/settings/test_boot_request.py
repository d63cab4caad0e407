# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings.boot_request import BootRequest
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings.scheduler_settings import Reading

FLAVOR = {"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}
IMAGE = {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "path": "/tiny.qcow2"}
ENTRY = {"name": "web", "flavor": "small", "image": "tiny", "networks": "none"}


def options(make_action, hints=None, **others):
    entry = {**ENTRY, "scheduler_hints": hints or {}}
    return make_action(**{"instances": [entry], "flavors": [FLAVOR], "images": [IMAGE], **others}).options


def told(*arguments):
    with pytest.raises(InvalidRequest) as caught:
        BootRequest(*arguments)
    return [(e["path"].rpartition("].")[2], e["code"], e["status"]) for e in caught.value.errors]


def test_groups_and_aliases_reach_the_requests(make_action):
    found = BootRequest(
        options(
            make_action,
            {"group": "apart"},
            project="acme",
            server_groups=[{"name": "apart", "policy": "anti-affinity"}],
            flavors=[{**FLAVOR, "extra_specs": {"pci_passthrough:alias": "gpu:2", "bootflow:whole_disks": 1}}],
            pci_alias=[{"name": "gpu", "vendor_id": "10de"}],
        )
    )
    (request,) = found.requests
    assert (request.server_group.name, request.server_group.project) == ("apart", "acme")
    assert [(r.alias_name, r.count) for r in request.pci_requests] == [("gpu", 2)]
    assert [r.count for r in request.whole_disks] == [1]


def test_hints_are_held_against_the_settings(make_action):
    same = {"same_host": "db"}
    assert told(options(make_action, same)) == [("scheduler_hints.same_host", "InvalidInput", 400)]
    enabled = options(make_action, same, enabled_filters=["SameHostFilter"])
    assert BootRequest(enabled).requests[0].scheduler_hints == {"same_host": ["db"]}
    reading = Reading(filters=("Mine",), weighers=(), hints=frozenset(("same_host",)))
    assert BootRequest(options(make_action, same), reading).requests[0].scheduler_hints == {"same_host": ["db"]}


def test_groups_are_held_against_the_settings(make_action):
    groups = [{"name": "apart", "policy": "anti-affinity"}]
    assert BootRequest(options(make_action, {"group": "apart"}, server_groups=groups)).requests[0].server_group
    bare = options(make_action, {"group": "apart"}, server_groups=groups, enabled_filters=["RamFilter"])
    assert told(bare) == [("scheduler_hints.group", "UnsupportedPolicyException", 400)]


@pytest.mark.parametrize(
    ("specs", "name"),
    [
        ({"hw:cpu_policy": "dedicated"}, "NUMATopologyFilter"),
        ({"pci_passthrough:alias": "gpu:1"}, "PciPassthroughFilter"),
        ({"bootflow:whole_disks": 1}, "WholeDiskFilter"),
    ],
)
def test_resources_that_no_enabled_filter_looks_for_are_refused(make_action, specs, name):
    """A pinned guest would silently have no pinning, one with a device go from host to host in vain."""
    given = {
        "flavors": [{**FLAVOR, "extra_specs": specs}],
        "pci_alias": [{"name": "gpu", "vendor_id": "10de"}],
        "allow_forced_host": True,
    }
    filters = [f for f in DEFAULT_FILTERS if f != name]
    with pytest.raises(InvalidRequest) as caught:
        BootRequest(options(make_action, **given, enabled_filters=filters))
    (error,) = caught.value.errors
    assert error["path"] == "instances[0].flavor" and name in error["message"] and name in error["remedy"]
    assert BootRequest(options(make_action, **given)).requests
    forced = {**ENTRY, "availability_zone": "nova:kvm1"}  # filters are not asked then, the claim looks
    assert BootRequest(options(make_action, **given, instances=[forced], enabled_filters=filters)).requests


@pytest.mark.parametrize(
    ("spec", "value", "name"),
    [
        ("aggregate_instance_extra_specs:ssd", "true", "AggregateInstanceExtraSpecsFilter"),
        ("capabilities:disk_medium", "ssd", "ComputeCapabilitiesFilter"),
        ("hw:maxphysaddr_bits", "40", "ComputeCapabilitiesFilter"),
    ],
)
def test_extra_specs_that_no_enabled_filter_reads_are_refused(make_action, spec, value, name):
    """Nova ignores them without a word; the guest would be anywhere."""
    given = {"flavors": [{**FLAVOR, "extra_specs": {spec: value}}]}
    others = [f for f in DEFAULT_FILTERS if f != name]
    with pytest.raises(InvalidRequest) as caught:
        BootRequest(options(make_action, **given, enabled_filters=others))
    (error,) = caught.value.errors
    assert error["path"] == "instances[0].flavor" and spec in error["message"] and name in error["remedy"]
    assert BootRequest(options(make_action, **given, enabled_filters=[*others, name])).requests
    without = {"flavors": [{**FLAVOR, "extra_specs": {spec: ""}}]}
    assert BootRequest(options(make_action, **without, enabled_filters=others)).requests


def test_a_task_without_the_schedulers_settings_takes_the_request_as_it_is(make_action):
    given = {k: v for k, v in options(make_action, {"same_host": "db"}).items() if k in REQUEST.options()}
    assert BootRequest(given).requests[0].scheduler_hints == {"same_host": ["db"]}


def test_hints_that_ones_own_filters_read(make_action):
    given = options(make_action, {"rack": 4}, scheduler_hint_names=["rack"])
    assert BootRequest(given).requests[0].scheduler_hints == {"rack": 4}


LOCAL_DISK = {"source_type": "image", "uuid": "tiny", "destination_type": "local", "boot_index": 0}


@pytest.mark.parametrize(
    ("policy", "field", "allowed"),
    [
        ("create", "name", None),
        ("create:attach_network", "networks", {"networks": None}),
        ("create:attach_volume", "block_device_mapping", {"block_device_mapping": None}),
    ],
)
def test_denied_policies_refuse_the_entries_that_need_them(make_action, policy, field, allowed):
    entry = {**ENTRY, "block_device_mapping": [LOCAL_DISK]}
    given = options(make_action, instances=[entry], denied_policies=[policy])
    assert told(given) == [(field, "PolicyNotAuthorized", 403)]
    if allowed is not None:
        assert BootRequest(options(make_action, instances=[{**entry, **allowed}], denied_policies=[policy])).requests


def test_an_unknown_policy_is_named():
    setting = REQUEST.named("denied_policies")
    assert setting.read("create, create:attach_volume") == ["create", "create:attach_volume"]
    with pytest.raises(BootflowError, match="must be a list of create, create:attach_network.*got 'create:all'"):
        setting.read(["create", "create:all"])


def test_the_quota_of_server_groups(make_action):
    groups = [{"name": "g%d" % i, "policy": "affinity"} for i in range(11)]
    assert told(options(make_action, server_groups=groups)) == [("server_groups", "OverQuota", 403)]
    BootRequest(options(make_action, server_groups=groups, quotas={"server_groups": 11}))
    BootRequest(options(make_action, server_groups=groups[:10]))


def test_forcing_a_host_needs_the_right(make_action):
    entry = {**ENTRY, "availability_zone": "nova:kvm1"}
    given = options(make_action)
    assert told({**given, "instances": [entry]}) == [("availability_zone", "ForcedHostForbidden", 403)]
    found = BootRequest({**given, "instances": [entry], "allow_forced_host": True}).requests[0]
    assert (found.availability_zone, found.forced_host, found.forced_node) == ("nova", "kvm1", None)
