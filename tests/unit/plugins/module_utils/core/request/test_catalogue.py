# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    FlavorNotFound,
    ImageNotFound,
    InvalidInput,
    InvalidRequest,
    KeypairNotFound,
    NetworkNotFound,
    SubnetNotFound,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.nearest import suggestion
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import (
    find_subnet,
    parse_catalogue,
    parse_images,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests

from .conftest import FLAVORS, IMAGES, KEY, KEYPAIRS, NETWORKS, SHA


def failures(**kinds):
    """The errors of the catalogue, and of each image for who names it."""
    found = []
    try:
        catalogue = parse_catalogue(**{"flavors": None, "images": None, "networks": None, "keypairs": None, **kinds})
    except InvalidRequest as error:
        found = error.errors
    else:
        for name in catalogue.images:
            try:
                catalogue.image(name)
            except InvalidRequest as error:
                found += error.errors
    assert found and all(error["remedy"] for error in found)
    return [(error["path"], error["message"]) for error in found]


def one_network(**fields):
    return parse_catalogue(None, None, [{"name": "n", **fields}], None).networks["n"]


def one_subnet(**fields):
    return one_network(subnets=[fields]).subnets[0]


def test_lists_and_mappings_are_the_same():
    def keyed(entries):
        return {entry["name"]: {k: v for k, v in entry.items() if k != "name"} for entry in entries}

    lists = parse_catalogue(FLAVORS, IMAGES, NETWORKS, KEYPAIRS)
    assert lists == parse_catalogue(keyed(FLAVORS), keyed(IMAGES), keyed(NETWORKS), {"mine": KEY})
    assert parse_catalogue(None, None, None, None).flavors == {}


def test_ids_default_to_the_name_alone(catalogue):
    assert catalogue.images["tiny"].id == str(uuid.uuid5(uuid.NAMESPACE_URL, "bootflow:image:tiny"))
    assert catalogue.flavors["big"].flavorid == str(uuid.uuid5(uuid.NAMESPACE_URL, "bootflow:flavor:big"))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("flavors", {"memory_mb": 1, "vcpus": 1}),
        ("images", {"url": "http://x/y", "disk_format": "raw", "allow_unverified": True}),
        ("networks", {}),
    ],
)
def test_half_a_surrogate_pair_in_a_name_is_an_error_like_others(kind, entry):
    """YAML can hold it; nothing that is written can."""
    refusal = ("%s[0].name" % kind, "name character 2 (U+D800) is not printable")
    assert failures(**{kind: [{"name": "a\ud800", **entry}]}) == [refusal]


def test_lookups(catalogue):
    assert catalogue.flavor("42").name == catalogue.flavor("small").name == "small"
    assert catalogue.image(catalogue.images["fat"].id).name == "fat"
    assert catalogue.network(catalogue.networks["red"].id).name == "red"
    assert catalogue.subnet("blue-v6")[0].name == "blue"
    assert find_subnet(catalogue.networks["red"], "red-1").cidr == "10.0.1.0/24"
    for lookup, error in (
        (catalogue.flavor, FlavorNotFound),
        (catalogue.image, ImageNotFound),
        (catalogue.network, NetworkNotFound),
        (catalogue.subnet, SubnetNotFound),
        (catalogue.keypair, KeypairNotFound),
    ):
        with pytest.raises(error, match="nobody"):
            lookup("nobody")
    with pytest.raises(FlavorNotFound, match="disabled"):
        catalogue.flavor("old")


def test_a_subnet_name_of_two_networks_is_ambiguous():
    networks = [{"name": n, "subnets": [{"name": "s", "cidr": "10.0.0.0/24"}]} for n in "ab"]
    with pytest.raises(InvalidInput, match="several networks"):
        parse_catalogue(None, None, networks, None).subnet("s")


def test_values_are_made_fit():
    catalogue = parse_catalogue(
        [{"name": "f", "memory_mb": "512", "vcpus": 2, "extra_specs": {"hw:a": 1, "hw:b": True, "hw:c": "x"}}],
        [
            {
                "name": "i",
                "disk_format": "raw",
                "url": "file:///x",
                "checksum": "SHA256:" + SHA.upper(),
                "properties": {"hw_disk_bus": "sata", "none": None},
            }
        ],
        None,
        None,
    )
    assert catalogue.flavors["f"].memory_mb == 512
    assert catalogue.flavors["f"].extra_specs == {"hw:a": "1", "hw:b": "True", "hw:c": "x"}
    assert catalogue.images["i"].checksum == SHA
    assert catalogue.images["i"].properties == {"hw_disk_bus": "sata"}


def test_all_errors_at_once():
    assert [path for path, _message in failures(flavors=[{"name": "f", "vcpus": 0}, 5], networks=7, keypairs=[{"name": "k"}])] == [
        "flavors[1]", "flavors[f].memory_mb", "flavors[f].vcpus", "networks", "keypairs[k].public_key",
    ]  # fmt: skip


FLAVOR = {"name": "f", "memory_mb": 1, "vcpus": 1}
IMAGE = {"name": "i", "disk_format": "raw", "url": "http://x/y", "checksum": SHA}


@pytest.mark.parametrize(
    "kind, entry, path, part",
    [
        ("flavors", {**FLAVOR, "memory_mb": 0}, "memory_mb", "got 0"),
        ("flavors", {**FLAVOR, "vcpus": "many"}, "vcpus", "integer"),
        ("flavors", {**FLAVOR, "root_gb": -1}, "root_gb", "got -1"),
        ("flavors", {**FLAVOR, "ram": 1}, "ram", "Unknown field"),
        ("flavors", {**FLAVOR, "name": ""}, "name", "1 to 255"),
        ("flavors", {**FLAVOR, "extra_specs": {"a/b": 1}}, "extra_specs", "a/b"),
        ("flavors", {**FLAVOR, "extra_specs": {"a": []}}, "extra_specs", "a must be"),
        ("flavors", {**FLAVOR, "extra_specs": []}, "extra_specs", "mapping"),
        ("flavors", {**FLAVOR, "disabled": "perhaps"}, "disabled", "true or false"),
        ("images", {**IMAGE, "checksum": ""}, "checksum", "missing"),
        ("images", {**IMAGE, "checksum": "md5:" + "a" * 32}, "checksum", "sha256"),
        ("images", {**IMAGE, "checksum": "a" * 63}, "checksum", "64"),
        ("images", {**IMAGE, "disk_format": "qcow3"}, "disk_format", "one of raw"),
        ("images", {**IMAGE, "url": "ftp://x/y"}, "url", "http"),
        ("images", {**IMAGE, "url": "file://host/y"}, "url", "file:///"),
        ("images", {**IMAGE, "url": "http:///y"}, "url", "no host"),
        ("images", {**IMAGE, "url": "http://x/a b"}, "url", "blanks"),
        ("images", {**IMAGE, "url": "http://x:port/"}, "url", "not valid"),
        ("images", {**IMAGE, "path": "a/b"}, "path", "absolute"),
        ("images", {**IMAGE, "status": "fine"}, "status", "active"),
        ("images", {**IMAGE, "validate_certs": "maybe"}, "validate_certs", "true or false"),
        ("images", {**IMAGE, "ca_path": "ca.pem"}, "ca_path", "absolute"),
        ("images", {**IMAGE, "client_key": "/k"}, "client_key", "without client_cert"),
        ("images", {**IMAGE, "url_password": "p"}, "url_password", "without url_username"),
        ("images", {**IMAGE, "url": "https://u:p@x/", "url_username": "v"}, "url_username", "too"),
        ("images", {**IMAGE, "url": "file:///x", "use_proxy": False}, "use_proxy", "no effect"),
        ("images", {**IMAGE, "headers": ["X"]}, "headers", "mapping"),
        ("images", {**IMAGE, "headers": {"X Y": "1"}}, "headers", "name of a header"),
        ("images", {**IMAGE, "headers": {"X": "1\r\nHost: y"}}, "headers", "one line"),
        ("images", {**IMAGE, "headers": {"X": None}}, "headers", "text"),
        ("networks", {"name": "n", "mtu": 10}, "mtu", "68"),
        ("networks", {"name": "n", "mtu": 1000, "subnets": [{"cidr": "fd00::/64"}]}, "mtu", "1280"),
        ("networks", {"name": "n", "type": "bridge", "source": "a" * 16}, "source", "bridge"),
        ("networks", {"name": "a/b"}, "source", "libvirt network"),
        ("networks", {"name": "n", "type": "token-ring"}, "type", "bridge"),
        ("networks", {"name": "n", "subnets": ["10.0.0.0/24"]}, "subnets[0]", "mapping"),
        ("networks", {"name": "n", "subnets": [{}]}, "subnets[0].cidr", "missing"),
        ("networks", {"name": "n", "subnets": [{"cidr": "10.0.0.0"}]}, "subnets[0].cidr", "not an address range"),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.5/24"}]},
            "subnets[0].cidr",
            "'10.0.0.0/24' is recommended",
        ),
        (
            "networks",
            {"name": "n", "manage": True, "subnets": [{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.1.1"}]},
            "subnets[0].gateway_ip",
            "10.0.1.1 is not in 10.0.0.0/24; in a managed network it is the address of each host",
        ),
        (
            "networks",
            {"name": "n", "manage": True, "subnets": [{"cidr": "fd00::/64", "gateway_ip": "fe80::1"}]},
            "subnets[0].gateway_ip",
            "fe80::1 is not in fd00::/64",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "gateway_ip": "224.0.0.1"}]},
            "subnets[0].gateway_ip",
            "not the address of a gateway",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.255"}]},
            "subnets[0].gateway_ip",
            "broadcast",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "gateway_ip": "fe80::1"}]},
            "subnets[0].gateway_ip",
            "version 4",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "dns_nameservers": ["x"]}]},
            "subnets[0].dns_nameservers",
            "'x'",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "host_routes": [{"destination": "0.0.0.0/0"}]}]},
            "subnets[0].host_routes",
            "nexthop",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24", "allocation_pools": [{"start": "10.0.0.5"}]}]},
            "subnets[0].allocation_pools",
            "start, end",
        ),
        (
            "networks",
            {
                "name": "n",
                "subnets": [{"cidr": "10.0.0.0/24", "allocation_pools": [{"start": "10.0.0.9", "end": "10.0.0.5"}]}],
            },
            "subnets[0].allocation_pools",
            "10.0.0.9",
        ),
        (
            "networks",
            {
                "name": "n",
                "subnets": [{"cidr": "10.0.0.0/24", "allocation_pools": [{"start": "10.0.0.1", "end": "10.0.0.5"}]}],
            },
            "subnets[0].allocation_pools",
            "10.0.0.1",
        ),
        (
            "networks",
            {"name": "n", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "10.0.0.128/25"}]},
            "subnets[1].cidr",
            "overlaps",
        ),
        ("keypairs", {"name": "k", "public_key": "ssh-rsa AAAA"}, "public_key", "OpenSSH"),
        ("keypairs", {"name": "k", "public_key": KEY + "\n" + KEY}, "public_key", "OpenSSH"),
        ("keypairs", {"name": "k", "public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "public_key", "private key"),
        ("keypairs", {"name": "k", "public_key": KEY.replace("ssh-ed25519", "ssh-rsa")}, "public_key", "OpenSSH"),
    ],
)
def test_refused(kind, entry, path, part):
    ((where, message),) = failures(**{kind: [entry]})
    assert where == "%s[%s].%s" % (kind, entry["name"] or 0, path)
    assert part in message


SERVED = {"cidr": "10.1.0.0/24", "enable_dhcp": True}


@pytest.mark.parametrize(
    ("subnets", "reason"),
    [
        ([{"cidr": "fd00:1::/64", "enable_dhcp": True}], "libvirt reserves IPv6 addresses by DUID"),
        ([{**SERVED, "gateway_ip": None}], "gateway_ip, which is to be the address of the server, is null"),
        ([SERVED, {**SERVED, "cidr": "10.2.0.0/24"}], "one IPv4 subnet of a network, and subnet n-1 has it"),
    ],
)
def test_dhcp_that_libvirt_cannot_serve(subnets, reason):
    """It is refused. Without ``manage`` a server outside serves it, whatever it is."""
    ((where, message),) = failures(networks=[{"name": "n", "manage": True, "subnets": subnets}])
    assert where == "networks[n].subnets[%d].enable_dhcp" % (len(subnets) - 1) and reason in message
    for outside in ({}, {"manage": True, "type": "bridge"}):
        assert one_network(subnets=subnets, **outside).subnets[0].enable_dhcp
    plain = {"cidr": "10.3.0.0/24", "gateway_ip": None}
    assert one_network(manage=True, subnets=[SERVED, plain]).is_managed


def test_how_an_image_is_fetched():
    given = {
        "validate_certs": False,
        "ca_path": "/ca",
        "client_cert": "/cert",
        "client_key": "/key",
        "url_username": "u",
        "url_password": "p",
        "headers": {"X-Number": 5},
        "use_proxy": False,
    }
    image = parse_catalogue(None, [{**IMAGE, **given}], None, None).images["i"]
    assert dataclasses.asdict(image.access) == {**given, "headers": {"X-Number": "5"}}
    image = parse_catalogue(None, [{**IMAGE, "url": "https://u:p%40@x/y?z"}], None, None).images["i"]
    assert (image.url, image.access.url_username, image.access.url_password) == ("https://x/y?z", "u", "p@")
    assert "p@" not in repr(image)


@pytest.mark.parametrize("image_id", ["../../etc", "a/b", ".hidden", "a.b", "-x", "x" * 129, "\u00e4"])
def test_ids_of_images_are_names_of_files(image_id):
    """The hosts refuse them, too, but only after the boot has begun."""
    assert {p for p, _m in failures(images=[{**IMAGE, "id": image_id}])} == {"images[i].id"}


@pytest.mark.parametrize("url", ["HTTP://[::1", "http://[::1", "http://h:port/x", "HTTP://"])
def test_urls_that_cannot_be_read_are_refused(url):
    assert {p for p, _m in failures(images=[{**IMAGE, "url": url}])} == {"images[i].url"}


def test_names_and_ids_are_used_once():
    assert [p for p, _m in failures(flavors=[FLAVOR, {**FLAVOR, "flavorid": "2"}])] == ["flavors[f].name"]
    assert [p for p, _m in failures(images=[{**IMAGE, "id": "1"}, {**IMAGE, "name": "j", "id": "1"}])] == [
        "images[j].id"
    ]


@pytest.mark.parametrize(
    "fields, gateway, first_pool",
    [
        ({"cidr": "10.0.0.0/24"}, "10.0.0.1", ("10.0.0.2", "10.0.0.254")),
        ({"cidr": "10.0.0.0/24", "gateway_ip": None}, None, ("10.0.0.1", "10.0.0.254")),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.9"}, "10.0.0.9", ("10.0.0.1", "10.0.0.8")),
        ({"cidr": "fd00::/64"}, "fd00::1", ("fd00::2", "fd00::ffff:ffff:ffff:ffff")),
        ({"cidr": "fd00::/64", "gateway_ip": "fe80::1"}, "fe80::1", ("fd00::1", "fd00::ffff:ffff:ffff:ffff")),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "198.51.100.1"}, "198.51.100.1", ("10.0.0.1", "10.0.0.254")),
        ({"cidr": "fd00::/64", "gateway_ip": "fd01::1"}, "fd01::1", ("fd00::1", "fd00::ffff:ffff:ffff:ffff")),
        ({"cidr": "10.0.0.7/32", "gateway_ip": "10.0.0.1"}, "10.0.0.1", ("10.0.0.7", "10.0.0.7")),
        ({"cidr": "10.0.0.7/32"}, None, ("10.0.0.7", "10.0.0.7")),
    ],
)
def test_defaults_of_a_subnet(fields, gateway, first_pool):
    subnet = one_subnet(**fields)
    assert subnet.gateway_ip == gateway
    assert (subnet.allocation_pools[0]["start"], subnet.allocation_pools[0]["end"]) == first_pool


def test_a_whole_subnet():
    subnet = one_subnet(
        name="s",
        cidr="10.0.0.0/24",
        enable_dhcp=True,
        dns_nameservers=["9.9.9.9", "2620:fe::fe"],
        host_routes=[{"destination": "192.0.2.0/24", "nexthop": "10.0.0.3"}],
        allocation_pools=[],
    )
    assert subnet.enable_dhcp is True
    assert subnet.dns_nameservers == ("9.9.9.9", "2620:fe::fe")
    assert subnet.host_routes == ({"destination": "192.0.2.0/24", "nexthop": "10.0.0.3"},)
    assert subnet.allocation_pools == ()
    assert subnet.id == str(uuid.uuid5(uuid.NAMESPACE_URL, "bootflow:subnet:n/s"))


def test_a_network_is_called_by_its_name_on_the_hosts_unless_told():
    assert one_network().source == "n"
    assert one_network(type="bridge", source="br0", mtu="9000", manage="yes", forward="nat").mtu == 9000


def test_errors_of_an_image_are_of_the_request_that_names_it():
    """The catalogue has many images, a request one; each error names its image."""
    images = [{"name": "new", "url": "http://x/y", "disk_format": "raw"}, *IMAGES]
    catalogue = parse_catalogue(FLAVORS, images, NETWORKS, KEYPAIRS)
    entry = {"name": "web", "flavor": "small", "networks": ["blue"]}
    assert parse_requests([{**entry, "image": "tiny"}], catalogue, RequestOptions())[0].image.name == "tiny"
    with pytest.raises(InvalidRequest) as caught:
        parse_requests(
            [{**entry, "image": "new"}, {**entry, "name": "db", "image": "new"}], catalogue, RequestOptions()
        )
    assert [(e["path"], e["message"]) for e in caught.value.errors] == [("images[new].checksum", "checksum is missing")]
    assert sorted(parse_images(images)) == ["fat", "hungry", "tiny"]


@pytest.mark.parametrize(
    "lookup, asked, remedy",
    [
        ("flavor", "Smal", "Did you mean small? bootflow_flavors has: big, old, small."),
        ("image", "hungri", "Did you mean hungry? bootflow_images has: fat, hungry, tiny."),
        ("network", "blu", "Did you mean blue? bootflow_networks has: bare, blue, red."),
        (
            "subnet",
            "blue_v4",
            "Did you mean blue-v4? The list of subnets in bootflow_networks has: blue-v4, blue-v6, red-1.",
        ),
        ("keypair", "mein", "Did you mean mine? bootflow_keypairs has: mine."),
        ("keypair", "zzz", "bootflow_keypairs has: mine."),
    ],
)
def test_the_nearest_name(catalogue, lookup, asked, remedy):
    with pytest.raises(BootflowError) as caught:
        getattr(catalogue, lookup)(asked)
    assert caught.value.remedy == remedy


def test_many_names_are_counted():
    assert suggestion("n7x", ["n%d" % i for i in range(40)], "bootflow_images").endswith(
        "bootflow_images has 40 names."
    )
    assert suggestion("x", [], "bootflow_images") == "bootflow_images is empty."
