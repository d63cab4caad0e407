# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import dataclasses
import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors as error_classes
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    InvalidInput,
    InvalidRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import (
    catalogue_id,
    parse_catalogue,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import (
    parse_az,
    parse_requests,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.work import lines_run

UUID = "0b6e8a3c-1f2d-4c5b-9a7e-6d5c4b3a2f10"


def b64(data):
    return base64.b64encode(data).decode()


def test_the_shortest_entry_gets_all_defaults(parse, catalogue):
    request = parse()
    assert (request.name, request.flavor, request.image) == (
        "web",
        catalogue.flavors["small"],
        catalogue.images["tiny"],
    )
    assert (request.min_count, request.max_count) == (1, 1)
    assert (request.project, request.user, request.description) == ("default", "", "")
    assert [n.network for n in request.networks] == [catalogue_id("network", "blue")]
    assert (request.availability_zone, request.forced_host, request.forced_node) == (None, None, None)
    assert request.security_groups == ("default",)
    assert request.config_drive is None
    assert request.disk_config == "MANUAL"
    assert request.extra == {}


def test_every_field_of_nova_create_is_honoured(parse):
    request = parse(
        name="db <&> /1",
        description="the database",
        project="acme",
        user="me",
        flavor="42",
        key_name="mine",
        metadata={"role": "db", "empty": ""},
        access_ip_v4="192.0.2.1",
        access_ip_v6="2001:db8::1",
        injected_files=[{"path": "/etc/motd", "contents": b64(b"hi")}],
        admin_password="s3cret",
        min_count="1",
        max_count=1,
        return_reservation_id="yes",
        networks=[{"network": "blue", "subnet": "blue-v4", "fixed_ip": "10.0.0.11", "tag": "front"}],
        security_groups=[{"name": "default"}],
        user_data="#cloud-config\n",
        availability_zone="north:host-1:node-1",
        config_drive="true",
        block_device_mapping=[{"source_type": "blank", "guest_format": "swap", "volume_size": 1}],
        disk_config="AUTO",
        scheduler_hints={"rack": 4},
        hostname="db1.example.com",
        legacy_bdm=False,
        check_server_group_quota="no",
        _options=RequestOptions(extra_hint_names=["rack"]),
    )
    assert (request.name, request.description, request.project, request.user) == (
        "db <&> /1",
        "the database",
        "acme",
        "me",
    )
    assert request.flavor.name == "small"
    assert request.key_name == "mine" and request.key_data.startswith("ssh-ed25519 ")
    assert request.metadata == {"role": "db", "empty": ""}
    assert (request.access_ip_v4, request.access_ip_v6) == ("192.0.2.1", "2001:db8::1")
    assert [(f.path, f.contents) for f in request.injected_files] == [("/etc/motd", b64(b"hi"))]
    assert request.admin_password == "s3cret"
    (network,) = request.networks
    assert (network.subnet, network.fixed_ip, network.tag) == (
        catalogue_id("subnet", "blue/blue-v4"),
        "10.0.0.11",
        "front",
    )
    assert request.user_data == "#cloud-config\n"
    assert (request.availability_zone, request.forced_host, request.forced_node) == ("north", "host-1", "node-1")
    assert request.config_drive is True
    (device,) = request.block_device_mapping
    assert (device.source_type, device.destination_type, device.delete_on_termination) == ("blank", "local", True)
    assert request.disk_config == "AUTO"
    assert request.scheduler_hints == {"rack": 4}
    assert request.hostname == "db1.example.com"


@pytest.mark.parametrize(
    "fields, path",
    [
        ({"networks": ["blue"], "security_groups": ["web"]}, "security_groups"),
        ({"scheduler_hints": {"target_cell": "c"}}, "scheduler_hints.target_cell"),
        ({"scheduler_hints": {"different_cell": ["c"]}}, "scheduler_hints.different_cell"),
        ({"host": "h"}, "host"),
        ({"hypervisor_hostname": "h"}, "hypervisor_hostname"),
        ({"trusted_image_certificates": ["c"]}, "trusted_image_certificates"),
    ],
)
def test_what_comes_later_is_refused_in_words(errors, fields, path):
    ((where, code, status, message),) = errors(**fields)
    assert (where, code, status) == (path, "NotSupportedYet", 400)
    assert "is not supported by this version" in message


# (fields, path, code, status, part of the message)
REFUSED = [
    ({"name": None}, "name", "InvalidInput", 400, "Server name is not defined"),
    ({"name": ""}, "name", "InvalidInput", 400, "at least 1 character"),
    ({"name": "x" * 256}, "name", "InvalidInput", 400, "at most 255 characters, has 256"),
    ({"name": " x"}, "name", "InvalidInput", 400, "blanks"),
    ({"name": "x "}, "name", "InvalidInput", 400, "blanks"),
    ({"name": "a\x07b"}, "name", "InvalidInput", 400, "U+0007"),
    ({"name": "a\n"}, "name", "InvalidInput", 400, "U+000A"),
    ({"name": "a\x00b"}, "name", "InvalidInput", 400, "U+0000"),
    ({"name": "a\u202eb"}, "name", "InvalidInput", 400, "U+202E"),
    ({"name": 5}, "name", "InvalidInput", 400, "must be a text, not a whole number"),
    ({"nmae": "x"}, "nmae", "InvalidInput", 400, "Unknown field"),
    ({"flavor": "none-such"}, "flavor", "FlavorNotFound", 400, "none-such"),
    ({"flavor": "old"}, "flavor", "FlavorNotFound", 400, "disabled"),
    ({"flavor": None}, "flavor", "InvalidInput", 400, "Missing flavorRef"),
    ({"image": "none-such"}, "image", "ImageNotFound", 400, "none-such"),
    ({"image": None}, "image", "InvalidInput", 400, "Missing imageRef attribute"),
    ({"image": ""}, "image", "InvalidInput", 400, "Missing imageRef attribute"),
    ({"image": "hungry"}, "image", "FlavorMemoryTooSmall", 400, "memory is too small"),
    ({"key_name": "yours"}, "key_name", "KeypairNotFound", 400, "yours"),
    ({"min_count": 0}, "min_count", "InvalidInput", 400, "must be 1 or more"),
    ({"min_count": -1}, "min_count", "InvalidInput", 400, "must be 1 or more"),
    ({"max_count": "two"}, "max_count", "InvalidInput", 400, "must be an integer"),
    ({"max_count": True}, "max_count", "InvalidInput", 400, "boolean"),
    ({"max_count": 2**63}, "max_count", "InvalidInput", 400, "must be 100000 or less"),
    ({"count": "9" * 30}, "count", "InvalidInput", 400, "must be 100000 or less"),
    ({"count": 1e300}, "count", "InvalidInput", 400, "must be 100000 or less"),
    ({"count": "9" * 5000}, "count", "InvalidInput", 400, ""),
    ({"min_count": 3, "max_count": 2}, "min_count", "InvalidInput", 400, "min_count must be <= max_count"),
    ({"count": 2, "min_count": 1}, "count", "InvalidInput", 400, "excludes"),
    ({"name": "x" * 254, "count": 2}, "name", "InvalidInput", 400, "256 characters"),
    ({"availability_zone": "a:b:c:d"}, "availability_zone", "InvalidInput", 400, "Unable to parse availability_zone"),
    ({"access_ip_v4": "2001:db8::1"}, "access_ip_v4", "InvalidInput", 400, "IPv4"),
    ({"access_ip_v6": "1.2.3.4"}, "access_ip_v6", "InvalidInput", 400, "IPv6"),
    ({"disk_config": "SOMETIMES"}, "disk_config", "InvalidInput", 400, "AUTO, MANUAL"),
    ({"config_drive": "perhaps"}, "config_drive", "InvalidInput", 400, "true or false"),
    ({"hostname": "-x"}, "hostname", "InvalidInput", 400, "must be a host name"),
    ({"hostname": "web1", "count": 2}, "hostname", "AmbiguousHostnameForMultipleInstances", 400, "single hostname"),
    ({"metadata": {"a/b": "x"}}, "metadata['a/b']", "InvalidMetadata", 400, "not a valid key"),
    ({"metadata": {"": "x"}}, "metadata['']", "InvalidMetadata", 400, "not a valid key"),
    ({"metadata": {"k" * 256: "x"}}, None, "InvalidMetadata", 400, "not a valid key"),
    ({"metadata": {"k": "v" * 256}}, "metadata.k", "InvalidMetadata", 400, "at most 255"),
    ({"metadata": {2024: "x"}}, "metadata", "InvalidInput", 400, "The key 2024 is not a text but a whole number"),
    ({"metadata": {None: "x"}}, "metadata", "InvalidInput", 400, "The key None is not a text but null"),
    ({"networks": [{True: "x", "network": "blue"}]}, "networks[0]", "InvalidInput", 400, "The key True is not a text"),
    ({"metadata": {"k": 5}}, "metadata.k", "InvalidMetadata", 400, "must be a text"),
    ({"metadata": {"k": None}}, "metadata.k", "InvalidMetadata", 400, "must be a text, not null"),
    ({"metadata": {"k\n": "v"}}, None, "InvalidMetadata", 400, "not a valid key"),
    ({"metadata": {"k%d" % n: "v" for n in range(129)}}, "metadata", "MetadataLimitExceeded", 403, "exceeds 128"),
    ({"user_data": "x" * 49150}, "user_data", "InstanceUserDataTooLarge", 400, "65536 bytes"),
    ({"user_data": {"a": 1}}, "user_data", "InvalidInput", 400, "must be a text, not a mapping"),
    ({"user_data_base64": "!!"}, "user_data_base64", "InstanceUserDataMalformed", 400, "not valid base64"),
    ({"user_data": "a", "user_data_base64": "YQ=="}, "user_data_base64", "InvalidInput", 400, "exclude"),
    ({"user_data_base64": b64(b"\x1f\x8b\xff")}, "user_data_base64", "NotSupportedYet", 400, "UTF-8"),
    (
        {"user_data": "a", "config_drive": False},
        "config_drive",
        "InvalidInput",
        400,
        "user_data cannot reach the guest",
    ),
    (
        {"injected_files": [{"path": "/a", "contents": "%%"}]},
        "injected_files[0].contents",
        "Base64Exception",
        400,
        "not valid base64",
    ),
    (
        {"injected_files": [{"path": "/a", "contents": "YQ"}]},
        "injected_files[0].contents",
        "Base64Exception",
        400,
        "not valid base64",
    ),
    ({"injected_files": [{"path": "a/b", "contents": ""}]}, "injected_files[0].path", "InvalidInput", 400, "absolute"),
    ({"injected_files": [{"path": "/a/../b", "contents": ""}]}, "injected_files[0].path", "InvalidInput", 400, ".."),
    (
        {"injected_files": [{"path": "/a\x00", "contents": ""}]},
        "injected_files[0].path",
        "InvalidInput",
        400,
        "control",
    ),
    ({"injected_files": [{"path": "/a/", "contents": ""}]}, "injected_files[0].path", "InvalidInput", 400, "folder"),
    ({"injected_files": [{"path": "/a"}]}, "injected_files[0].contents", "InvalidInput", 400, "missing"),
    (
        {"injected_files": [{"path": "/" + "a" * 255, "contents": ""}]},
        "injected_files[0].path",
        "OnsetFilePathLimitExceeded",
        403,
        "255",
    ),
    (
        {"injected_files": [{"path": "/a", "contents": b64(b"x" * 10241)}]},
        "injected_files[0].contents",
        "OnsetFileContentLimitExceeded",
        403,
        "10240",
    ),
    (
        {"injected_files": [{"path": "/%d" % n, "contents": ""} for n in range(6)]},
        "injected_files",
        "OnsetFileLimitExceeded",
        403,
        "6 of 5",
    ),
    ({"injected_files": [{"path": "/a", "contents": ""}] * 2}, "injected_files[1].path", "InvalidInput", 400, "twice"),
    ({"networks": "some"}, "networks", "InvalidInput", 400, "networks"),
    ({"networks": ["green"]}, "networks[0].network", "NetworkNotFound", 400, "green"),
    ({"networks": [{}]}, "networks[0]", "InvalidInput", 400, "missing 'network'"),
    ({"networks": [{"network": "blue", "colour": 1}]}, "networks[0].colour", "InvalidInput", 400, "Unknown field"),
    ({"networks": [{"network": "blue", "subnet": "x"}]}, "networks[0].subnet", "SubnetNotFound", 400, "network blue"),
    ({"networks": [{"subnet": "x"}]}, "networks[0].subnet", "SubnetNotFound", 400, "x"),
    (
        {"networks": [{"network": "blue", "fixed_ip": "10.0.0.300"}]},
        "networks[0].fixed_ip",
        "InvalidInput",
        400,
        "not an IP",
    ),
    (
        {"networks": [{"network": "blue", "fixed_ip": "10.9.0.3"}]},
        "networks[0].fixed_ip",
        "InvalidIpForNetwork",
        400,
        "any of the subnets",
    ),
    (
        {"networks": [{"network": "red", "subnet": "red-1", "fixed_ip": "10.9.0.3"}]},
        "networks[0].fixed_ip",
        "InvalidIpForSubnet",
        400,
        "10.9.0.3",
    ),
    (
        {"networks": [{"network": "blue", "fixed_ip": "10.0.0.30"}]},
        "networks[0].fixed_ip",
        "InvalidIpForAllocationPools",
        400,
        "pools",
    ),
    (
        {"networks": [{"network": "red", "fixed_ip": "10.0.1.255"}]},
        "networks[0].fixed_ip",
        "InvalidIpForSubnet",
        400,
        "10.0.1.255",
    ),
    (
        {"networks": [{"network": "red", "fixed_ip": "10.0.1.5"}], "count": 2},
        "networks[0].fixed_ip",
        "InvalidFixedIpAndMaxCountRequest",
        400,
        "max_count",
    ),
    ({"networks": ["bare"]}, "networks[0].network", "InvalidInput", 400, "requires a subnet"),
    (
        {"networks": [{"network": "red", "fixed_ip": "10.0.1.5"}] * 2},
        "networks[1].fixed_ip",
        "FixedIpAlreadyInUse",
        409,
        "twice",
    ),
    ({"networks": [{"network": "red", "tag": "a,b"}]}, "networks[0].tag", "InvalidInput", 400, "without a comma"),
    ({"networks": None}, "networks", "NetworkAmbiguous", 409, "Multiple possible networks"),
    ({"networks": "auto"}, "networks", "NetworkAmbiguous", 409, "Multiple possible networks"),
    ({"networks": [{"port": "p"}, {"port": "p"}]}, "networks[1].port", "PortInUse", 409, "Port p is requested twice"),
    (
        {"block_device_mapping": [{}]},
        "block_device_mapping[0]",
        "InvalidBDMFormat",
        400,
        "Some required fields are missing",
    ),
    (
        {"block_device_mapping": [{"source_type": "floppy"}]},
        "block_device_mapping[0].source_type",
        "InvalidInput",
        400,
        "one of volume, image",
    ),
    (
        {"block_device_mapping": [{"source_type": "image"}]},
        "block_device_mapping[0]",
        "InvalidBDMFormat",
        400,
        "Missing device UUID",
    ),
    (
        {"block_device_mapping": [{"image_id": "tiny", "boot_index": 1}]},
        "block_device_mapping[0]",
        "InvalidBDMFormat",
        400,
        "image to local",
    ),
    (
        {"block_device_mapping": [{"source_type": "blank", "device_name": "vd b"}]},
        "block_device_mapping[0].device_name",
        "InvalidBDMFormat",
        400,
        "must be letters",
    ),
    (
        {"block_device_mapping": [{"source_type": "blank", "boot_index": "x"}]},
        "block_device_mapping[0].boot_index",
        "InvalidInput",
        400,
        "integer",
    ),
]


@pytest.mark.parametrize("fields, path, code, status, part", REFUSED)
def test_refused(errors, fields, path, code, status, part):
    found = errors(**fields)
    assert len(found) == 1, found
    where, its_code, its_status, message = found[0]
    assert (its_code, its_status) == (code, status)
    assert part in message
    if path is not None:
        assert where == path
    assert issubclass(getattr(error_classes, its_code), BootflowError)


def test_all_errors_of_all_entries_at_once(catalogue, base):
    entries = [
        {**base, "flavor": "x", "image": "y", "count": 0, "bogus": 1},
        "not a mapping",
        {**base, "name": "ok"},
        {**base, "name": "third", "networks": ["blue", "red", {"network": "red", "fixed_ip": "1.2.3.4"}]},
    ]
    with pytest.raises(InvalidRequest) as caught:
        parse_requests(entries, catalogue)
    found = {(error["path"], error["code"], error["status"]) for error in caught.value.errors}
    assert found == {
        ("instances[0].flavor", "FlavorNotFound", 400),
        ("instances[0].image", "ImageNotFound", 400),
        ("instances[0].count", "InvalidInput", 400),
        ("instances[0].bogus", "InvalidInput", 400),
        ("instances[1]", "MalformedRequestBody", 422),
        ("instances[3].networks[2].fixed_ip", "InvalidIpForNetwork", 400),
    }
    assert caught.value.status == 400
    assert "instances[3].networks[2].fixed_ip" in caught.value.message


@pytest.mark.parametrize("entries", [None, {}, "web", 5])
def test_what_is_no_list_is_a_malformed_body(catalogue, entries):
    with pytest.raises(InvalidRequest) as caught:
        parse_requests(entries, catalogue)
    assert caught.value.status == 422


def test_the_status_is_that_of_the_errors_where_they_agree(errors, parse):
    options = RequestOptions(allow_forced_host=False)
    assert [e[:3] for e in errors(options, availability_zone="a:b")] == [
        ("availability_zone", "ForcedHostForbidden", 403)
    ]
    with pytest.raises(InvalidRequest) as caught:
        parse(options, availability_zone="a:b")
    assert caught.value.status == 403
    assert parse(options, availability_zone="a").availability_zone == "a"


COUNTS = [
    ({}, (1, 1)),
    ({"min_count": 2}, (2, 2)),
    ({"max_count": 3}, (1, 3)),
    ({"min_count": 2, "max_count": 3}, (2, 3)),
    ({"min_count": "2", "max_count": "2"}, (2, 2)),
    ({"count": 4}, (4, 4)),
    ({"min_count": None, "max_count": 2}, (1, 2)),
    ({"min_count": 2, "max_count": None}, (2, 2)),
]


@pytest.mark.parametrize("fields, counts", COUNTS)
def test_counts(parse, fields, counts):
    request = parse(**fields)
    assert (request.min_count, request.max_count) == counts


@pytest.mark.parametrize(
    "name", ["a", "x" * 255, "a<b>&\"'c", "../etc/passwd", "Größe", "日本", "a b", "a;rm -rf", "$(x)"]
)
def test_printable_names_are_taken_as_they_are(parse, name):
    assert parse(name=name).name == name


def test_null_is_the_same_as_left_out(parse):
    nulls = dict.fromkeys(
        ("description", "user_data", "config_drive", "key_name", "metadata", "block_device_mapping", "hostname")
    )
    assert parse(**{k: v for k, v in nulls.items() if k != "metadata"}) == parse()


def test_user_data_at_the_limit(parse):
    # 49149 bytes are 65532 characters of base64; one group more is 65536
    assert len(parse(user_data="x" * 49149).user_data) == 49149
    assert parse(user_data_base64=b64("grün".encode())).user_data == "grün"
    assert parse(user_data="").user_data is None


def test_file_limits_at_the_edge_and_lifted(parse):
    files = [{"path": "/" + "%d" % n * 254, "contents": b64(b"x" * 10240)} for n in range(5)]
    assert len(parse(injected_files=files).injected_files) == 5
    lifted = RequestOptions(
        quotas=dict.fromkeys(
            ("injected_files", "injected_file_content_bytes", "injected_file_path_length", "metadata_items"), -1
        )
    )
    many = [{"path": "/" + "%d" % n * 300, "contents": b64(b"x" * 20000)} for n in range(7)]
    assert len(parse(lifted, injected_files=many, metadata={"k%d" % n: "" for n in range(300)}).injected_files) == 7


def test_base64_with_line_ends_is_normalised(parse):
    (file,) = parse(injected_files=[{"path": "/a", "contents": "aGVs\n bG8=\n"}]).injected_files
    assert file.contents == "aGVsbG8="


@pytest.mark.parametrize(
    "field, value", [("admin_password", 12345678), ("user_data", ["hunter2"]), ("user_data_base64", "hunter2!")]
)
def test_no_secret_in_an_error(errors, field, value):
    ((path, _code, _status, message),) = errors(**{field: value})
    assert path == field
    assert "hunter2" not in message and "12345678" not in message


def test_config_drive_is_asked_for_when_something_needs_it(parse, errors):
    for field, value in (("user_data", "x"), ("admin_password", "x"), ("key_name", "mine")):
        assert parse(**{field: value}).config_drive is True
    assert parse(config_drive=False).config_drive is False
    forced = RequestOptions(force_config_drive=True)
    assert parse(forced, user_data="x", config_drive=False).config_drive is False
    assert parse().config_drive is None
    assert errors(user_data="x", config_drive=False)[0][0] == "config_drive"


def test_networks_none_empty_and_the_only_one(parse, base):
    assert parse(networks="none").networks == ()
    assert parse(networks=[]).networks == ()
    only = parse_catalogue(
        [{"name": "small", "memory_mb": 1, "vcpus": 1, "root_gb": 1}],
        [{"name": "tiny", "disk_format": "raw", "url": "http://x/y", "allow_unverified": True}],
        [{"name": "n", "subnets": [{"cidr": "10.0.0.0/24"}]}],
        None,
    )
    for wished in (None, "auto"):
        (request,) = parse_requests([{**base, "networks": wished}], only)
        assert [n.network for n in request.networks] == [only.networks["n"].id]


def test_no_network_in_the_catalogue(base):
    empty = parse_catalogue(
        [{"name": "small", "memory_mb": 1, "vcpus": 1, "root_gb": 1}],
        [{"name": "tiny", "disk_format": "raw", "url": "http://x/y", "allow_unverified": True}],
        [],
        [],
    )
    assert parse_requests([{**base, "networks": None}], empty)[0].networks == ()
    with pytest.raises(InvalidRequest, match="networks: auto"):
        parse_requests([{**base, "networks": "auto"}], empty)


def test_a_fixed_ip_finds_its_subnet_and_its_short_form(parse):
    (network,) = parse(networks=[{"network": "blue", "fixed_ip": "fd00:0001:0::0005"}]).networks
    assert (network.subnet, network.fixed_ip) == (catalogue_id("subnet", "blue/blue-v6"), "fd00:1::5")
    (network,) = parse(networks=[{"subnet": "blue-v6"}]).networks
    assert network.network == catalogue_id("network", "blue")
    (network,) = parse(networks=[{"uuid": catalogue_id("network", "red")}]).networks
    assert network.network == catalogue_id("network", "red")


def test_a_port_with_anything_else_tells_everything(errors):
    found = errors(networks=[{"port": UUID, "network": "blue", "fixed_ip": "10.0.0.11"}], count=2)
    assert sorted((path, code) for path, code, _status, _message in found) == [
        ("networks[0].fixed_ip", "InvalidInput"),
        ("networks[0].network", "InvalidInput"),
        ("networks[0].port", "MultiplePortsNotApplicable"),
    ]


def test_duplicate_networks_by_setting(parse, errors):
    assert len(parse(networks=["blue", "blue"]).networks) == 2
    options = RequestOptions(allow_duplicate_networks=False)
    assert errors(options, networks=["blue", "red", "blue"])[0][:3] == ("networks[2]", "NetworkDuplicated", 400)


MANAGED = {"name": "one", "manage": True, "subnets": [{"cidr": "10.9.0.0/24"}]}


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        ({}, "10.9.0.0/24"),
        ({"subnets": [{"cidr": "10.8.0.0/24"}, {"cidr": "10.9.0.128/25"}]}, "10.9.0.128/25"),
        ({"source": "one"}, None),  # the same libvirt network
        ({"manage": False}, None),
        ({"type": "bridge", "source": "br0"}, None),
        ({"subnets": [{"cidr": "10.9.0.0/24", "gateway_ip": None}]}, None),  # hosts have no address there
        ({"subnets": [{"cidr": "10.9.1.0/24"}]}, None),
        ({"subnets": [{"cidr": "fd00:9::/64"}]}, None),
    ],
)
def test_managed_networks_of_one_guest_that_overlap_are_refused(catalogue, base, other, meets):
    """Their host could start only one of them, and said so when the guest was built. Guests of other hosts may use the other."""
    both = parse_catalogue(None, None, [MANAGED, {**MANAGED, "name": "two", **other}], None)
    catalogue = dataclasses.replace(catalogue, networks=both.networks)
    assert len(parse_requests([{**base, "name": n, "networks": [n]} for n in ("one", "two")], catalogue)) == 2
    if meets is None:
        assert len(parse_requests([{**base, "networks": ["one", "two"]}], catalogue)[0].networks) == 2
        return
    with pytest.raises(InvalidRequest) as caught:
        parse_requests([{**base, "networks": ["one", "two"]}], catalogue)
    (error,) = caught.value.errors
    assert error["path"] == "instances[0].networks[1]" and "another cidr in bootflow_networks" in error["remedy"]
    assert error["message"].startswith("network two (%s) overlaps with network one (10.9.0.0/24)" % meets)


def test_volume_rules(errors):
    found = errors(block_device_mapping=[{"source_type": "volume", "uuid": "v", "device_name": "vda"}], count=2)
    assert [error[:3] for error in found] == [("block_device_mapping[0]", "InvalidInput", 400)] * 2
    messages = " ".join(message for _path, _code, _status, message in found)
    assert "Cannot attach one or more volumes to multiple instances" in messages
    assert "same device name as the root device" in messages


def test_default_flavor_and_zone(parse):
    options = RequestOptions(default_flavor="big", default_schedule_zone="north", availability_zones=["north"])
    request = parse(options, flavor=None)
    assert (request.flavor.name, request.availability_zone) == ("big", "north")


def test_unknown_zone_unless_a_host_is_forced(parse, errors):
    options = RequestOptions(availability_zones=["north"])
    assert "not available" in errors(options, availability_zone="south")[0][3]
    assert "not available" in errors(options, availability_zone="south::node")[0][3]
    assert parse(options, availability_zone="south:h").forced_host == "h"


@pytest.mark.parametrize(
    "first, second, clash",
    [
        ({"name": "a"}, {"name": "a"}, True),
        ({"name": "a"}, {"name": "a", "project": "other"}, False),
        ({"name": "a", "count": 3}, {"name": "a-3"}, True),
        ({"name": "a", "count": 3}, {"name": "a-4"}, False),
        ({"name": "a", "count": 3}, {"name": "a-03"}, False),
        ({"name": "a-1"}, {"name": "a", "count": 2}, True),
        ({"name": "a", "count": 3}, {"name": "a-1", "count": 2}, False),
    ],
)
def test_names_of_one_run_differ(catalogue, base, first, second, clash):
    entries = [{**base, **first}, {**base, **second}]
    if not clash:
        assert len(parse_requests(entries, catalogue)) == 2
        return
    with pytest.raises(InvalidRequest, match="is also the name of an instance of"):
        parse_requests(entries, catalogue)


def test_one_address_for_two_entries(catalogue, base):
    networks = [{"network": "red", "fixed_ip": "10.0.1.9"}]
    with pytest.raises(InvalidRequest) as caught:
        parse_requests([{**base, "name": n, "networks": networks} for n in ("a", "b")], catalogue)
    assert [(e["path"], e["code"]) for e in caught.value.errors] == [
        ("instances[1].networks[0].fixed_ip", "FixedIpAlreadyInUse")
    ]


def test_a_fragment_of_the_user_is_enough(tmp_path, parse):
    (tmp_path / "cost.json").write_text(
        json.dumps({"name": "cost", "server_create": {"cost_center": {"type": "string"}}})
    )
    request = parse(RequestOptions(schema_dirs=[str(tmp_path)]), cost_center="4711")
    assert request.extra == {"cost_center": "4711"}
    with pytest.raises(InvalidRequest, match="cost_center"):
        parse(cost_center="4711")


def test_limits_are_those_of_the_project(parse, errors):
    quotas = {
        "metadata_items": 1,
        "injected_files": 0,
        "projects": {"web": {"injected_files": 1, "injected_file_content_bytes": 3, "injected_file_path_length": 4}},
    }
    options = RequestOptions(quotas=quotas)
    file = {"path": "/abc", "contents": b64(b"xyz")}
    assert parse(options, metadata={"a": "b"}, injected_files=[file], project="web").injected_files
    assert [e[:2] for e in errors(options, metadata={"a": "b", "c": "d"}, injected_files=[file])] == [
        ("injected_files", "OnsetFileLimitExceeded"),
        ("metadata", "MetadataLimitExceeded"),
    ]
    long = [{"path": "/abcd", "contents": b64(b"xyz1")}]
    assert [e[:2] for e in errors(options, injected_files=long, project="web")] == [
        ("injected_files[0].path", "OnsetFilePathLimitExceeded"),
        ("injected_files[0].contents", "OnsetFileContentLimitExceeded"),
    ]


def test_wrong_quotas_are_reported_once(catalogue, base):
    with pytest.raises(InvalidRequest) as caught:
        entries = [{**base, "name": name} for name in ("a", "b")]
        parse_requests(entries, catalogue, RequestOptions(quotas={"injected_file": 5}))
    assert [e["path"] for e in caught.value.errors] == ["bootflow_quotas"]


def test_a_count_of_a_thousand_costs_nothing(catalogue, base):
    def lines(count):
        return lines_run(lambda: parse_requests([{**base, "count": count}], catalogue))

    lines(1)
    assert lines(100_000) < lines(1) + 100


def test_image_rules(parse, errors, base):
    assert parse(image="fat", flavor="big").image.name == "fat"
    catalogue = parse_catalogue(
        [{"name": "f", "memory_mb": 512, "vcpus": 1, "root_gb": 2}, {"name": "z", "memory_mb": 512, "vcpus": 1}],
        [
            {"name": n, "disk_format": "raw", "url": "http://x/y", "allow_unverified": True, **more}
            for n, more in {
                "saving": {"status": "saving"},
                "deep": {"min_disk": 3},
                "long": {"size": 2 * 1024**3 + 1},
                "full": {
                    "size": 2 * 1024**3 + 1,
                    "min_disk": 2,
                    "disk_format": "qcow2",
                    "properties": {"image_type": "snapshot"},
                },
                "fixed": {"properties": {"auto_disk_config": "Disabled"}},
                "auto": {"properties": {"auto_disk_config": "True"}},
            }.items()
        ],
        [{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}],
        [],
    )

    def code(options=None, **fields):
        try:
            return parse_requests([{**base, **fields}], catalogue, options)[0].disk_config
        except InvalidRequest as error:
            return error.errors[0]["code"]

    assert code(image="saving", flavor="f") == "ImageNotActive"
    assert code(image="deep", flavor="f") == "FlavorDiskSmallerThanMinDisk"
    assert code(image="deep", flavor="z") == "MANUAL"
    assert code(image="long", flavor="z") == "MANUAL"
    assert code(image="auto", flavor="z") == "ImageUnacceptable", "what its root disk claims is not known"
    zero_disk_forbidden = RequestOptions(allow_zero_disk=False)
    assert code(zero_disk_forbidden, image="deep", flavor="z") == "BootFromVolumeRequiredForZeroDiskFlavor"
    assert code(zero_disk_forbidden, image="auto", flavor="f") == "AUTO"
    assert code(image="long", flavor="f") == "FlavorDiskSmallerThanImage"
    assert code(image="full", flavor="f") == "MANUAL", "a layer with a full disk is larger than the disk"
    assert code(image="fixed", flavor="f", disk_config="AUTO") == "AutoDiskConfigDisabledByImage"
    assert code(image="fixed", flavor="f", disk_config="MANUAL") == "MANUAL"
    assert code(image="fixed", flavor="f") == "MANUAL"
    assert code(image="auto", flavor="f") == "AUTO"


BLANK = {"source_type": "blank", "destination_type": "local"}
OWN = {"source_type": "image", "uuid": "tiny", "boot_index": 0}


@pytest.mark.parametrize(
    "devices, image, good",
    [
        ([BLANK], "tiny", True),
        ([OWN, BLANK], "tiny", True),
        ([{**BLANK, "boot_index": -1}], "tiny", True),
        ([{**BLANK, "boot_index": "1"}], "tiny", True),
        ([{**BLANK, "boot_index": 0}], "tiny", False),
        ([{**BLANK, "boot_index": 2}], "tiny", False),
        ([BLANK], None, False),
        ([{**BLANK, "boot_index": 1}], None, False),
    ],
)
def test_boot_sequence(parse, errors, devices, image, good):
    if good:
        assert len(parse(image=image, block_device_mapping=devices).block_device_mapping) == len(devices)
    else:
        found = errors(image=image, block_device_mapping=devices)
        assert [error[:3] for error in found] == [("block_device_mapping", "InvalidBDMBootSequence", 400)]


def test_all_entries_together_are_limited(catalogue, base):
    """What would be expanded is limited before anything is."""
    entries = [{**base, "name": name, "count": 40} for name in ("a", "b", "c")]
    assert len(parse_requests(entries, catalogue, RequestOptions(max_count=120))) == 3
    with pytest.raises(InvalidRequest) as caught:
        parse_requests(entries, catalogue, RequestOptions(max_count=100))
    (error,) = caught.value.errors
    assert (error["path"], error["code"]) == ("instances[2].max_count", "InvalidInput")
    assert "120 instances" in error["message"] and "bootflow_max_count" in error["remedy"]


@pytest.mark.parametrize(
    "text, parts",
    [
        ("north", ("north", None, None)),
        ("north:h", ("north", "h", None)),
        ("north:h:n", ("north", "h", "n")),
        ("north::n", ("north", None, "n")),
        (":h", ("nova", "h", None)),
        ("::n", ("nova", None, "n")),
        (":h:n", ("nova", "h", "n")),
        ("", ("nova", None, None)),
        (None, ("nova", None, None)),
        ("north:", ("north", None, None)),
        ("north:h:", ("north", "h", None)),
    ],
)
def test_parse_az(text, parts):
    assert parse_az(text, "nova") == parts


def test_parse_az_without_default_and_with_four_parts():
    assert parse_az(":h", None) == (None, "h", None)
    with pytest.raises(InvalidInput, match="Unable to parse availability_zone"):
        parse_az("a:b:c:d", None)
