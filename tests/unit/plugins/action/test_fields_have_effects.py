# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every field of a request has an effect that can be seen in the guest, in its domain or in the ledger, or it is refused."""

from __future__ import annotations

import base64
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.fragment_files import load_fragments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.views import instance_views
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, at

from .test_boot_settings import FILE, FLAVOR, IMAGE, Boot

TESTS = pathlib.Path(__file__).parents[1]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDVLUvbNmIRPUT0mMSZj5Dn9vrQQ6TDLOxDbcGHf+Fh me"
SUBNETS = [{"name": "low", "cidr": "10.0.0.0/24"}, {"name": "high", "cidr": "10.9.0.0/24"}]
EVERYTHING: dict[str, t.Any] = {
    "networks": [{"name": "blue", "subnets": SUBNETS}, {"name": "red", "subnets": [{"cidr": "10.1.0.0/24"}]}],
    "flavors": [FLAVOR, {**FLAVOR, "name": "wide", "vcpus": 3, "ephemeral_gb": 0, "swap": 512}],
    "images": [IMAGE, {**IMAGE, "name": "other"}],
    "keypairs": [{"name": "mine", "public_key": KEY}],
    "server_groups": [
        {"name": "apart", "policies": ["anti-affinity"]},
        {"name": "together", "policies": ["affinity"]},
    ],
    "quotas": {"server_group_members": 1},
    "allow_forced_host": True,
    "allow_other_owners": True,
}
BLANK = {"source_type": "blank", "destination_type": "local", "volume_size": 1}

Seen = t.Callable[[Boot], t.Any]


def view(name: str) -> Seen:
    def seen(boot: Boot) -> t.Any:
        with boot.world.ledger.read() as tx:
            return [v[name] for v in instance_views(at(tx, boot.world.time), instances.select_live(tx))]

    return seen


def told(name: str) -> Seen:
    return lambda boot: boot.metadata().get(name)


def file(name: str) -> Seen:
    return lambda boot: unpack_files(boot.given["config_drive"]["drives"][0]["files"]).get(name)


def xml(path: str, attribute: str) -> Seen:
    return lambda boot: [node.get(attribute) for node in boot.xml().iterfind(path)]


def disks(field: str) -> Seen:
    return lambda boot: [d.get(field) for d in boot.given["instance_disks"]["instances"][0]["disks"]]


def addresses(boot: Boot) -> list[str]:
    (found,) = view("addresses")(boot)
    return [address["ip_address"].rpartition(".")[0] for address in found]


def hints(boot: Boot) -> t.Any:
    with boot.world.ledger.read() as tx:
        (row,) = instances.select_live(tx)
    return row.spec["scheduler_hints"]


def blank(**fields: t.Any) -> dict[str, t.Any]:
    return {"block_device_mapping": [{**BLANK, **fields}]}


#: field -> (the entry, what is seen, its value)
EFFECTS: dict[str, tuple[dict[str, t.Any], Seen, t.Any]] = {
    "name": ({"name": "db"}, told("name"), "db"),
    "flavor": ({"flavor": "wide"}, lambda boot: boot.xml().findtext("vcpu"), "3"),
    "image": ({"image": "other"}, lambda boot: boot.given["instance_disks"]["images"][0]["name"], "other"),
    "metadata": ({"metadata": {"role": "db"}}, told("meta"), {"role": "db"}),
    "project": ({"project": "blue"}, told("project_id"), "blue"),
    "user": ({"user": "carol"}, view("user"), ["carol"]),
    "description": ({"description": "of the shop"}, view("description"), ["of the shop"]),
    "tags": ({"tags": ["web", "a", "web"]}, view("tags"), [["a", "web"]]),
    "hostname": ({"hostname": "shop"}, told("hostname"), "shop"),
    "access_ip_v4": ({"access_ip_v4": "192.0.2.9"}, view("access_ip_v4"), ["192.0.2.9"]),
    "access_ip_v6": ({"access_ip_v6": "2001:db8::9"}, view("access_ip_v6"), ["2001:db8::9"]),
    "disk_config": ({"disk_config": "AUTO"}, view("disk_config"), ["AUTO"]),
    "admin_password": ({"admin_password": "pass-word"}, lambda boot: (boot.login() or ("nobody",))[0], "root"),
    "availability_zone": ({"availability_zone": "nova:h1"}, view("host"), ["h1"]),
    "config_drive": ({"config_drive": True}, view("config_drive"), [True]),
    "injected_files": (
        {"injected_files": [FILE]},
        told("files"),
        [{"path": FILE["path"], "content_path": "/content/0000"}],
    ),
    "injected_files.path": ({"injected_files": [FILE]}, lambda boot: boot.metadata()["files"][0]["path"], FILE["path"]),
    "injected_files.contents": ({"injected_files": [FILE]}, file("openstack/content/0000"), b"hello"),
    "key_name": ({"key_name": "mine"}, told("public_keys"), {"mine": KEY}),
    "user_data": ({"user_data": "#cloud-config"}, file("openstack/latest/user_data"), b"#cloud-config"),
    "user_data_base64": (
        {"user_data_base64": base64.b64encode(b"#!/bin/sh").decode()},
        file("openstack/latest/user_data"),
        b"#!/bin/sh",
    ),
    "count": ({"count": 2}, view("name"), ["web-1", "web-2"]),
    "max_count": ({"max_count": 2}, view("name"), ["web-1", "web-2"]),
    "min_count": ({"min_count": 2}, view("name"), ["web-1", "web-2"]),
    "networks": ({"networks": ["blue", "red"]}, lambda boot: len(boot.xml().findall("devices/interface")), 2),
    "networks.network": ({"networks": [{"network": "red"}]}, addresses, ["10.1.0"]),
    "networks.uuid": ({"networks": [{"uuid": "red"}]}, addresses, ["10.1.0"]),
    "networks.subnet": ({"networks": [{"network": "blue", "subnet": "high"}]}, addresses, ["10.9.0"]),
    "networks.fixed_ip": (
        {"networks": [{"network": "blue", "fixed_ip": "10.0.0.77"}]},
        lambda boot: view("addresses")(boot)[0][0]["ip_address"],
        "10.0.0.77",
    ),
    "networks.tag": (
        {"networks": [{"network": "blue", "tag": "lan"}]},
        lambda boot: [d["tags"] for d in boot.metadata()["devices"]],
        [["lan"]],
    ),
    "scheduler_hints": ({"scheduler_hints": {"group": "apart"}}, lambda boot: list(hints(boot)), ["group"]),
    "scheduler_hints.group": ({"scheduler_hints": {"group": "apart"}}, view("server_group"), ["apart"]),
    "return_reservation_id": (
        {"return_reservation_id": True},
        lambda boot: [text[:2] for text in view("reservation_id")(boot)],
        ["r-"],
    ),
    "legacy_bdm": (
        {
            "legacy_bdm": True,
            "block_device_mapping": [{"device_name": "/dev/vdq", "virtual_name": "ephemeral0"}],
        },
        lambda boot: "vdq" in xml("devices/disk/target", "dev")(boot),
        True,
    ),
    "block_device_mapping.virtual_name": (
        {
            "flavor": "wide",
            "legacy_bdm": True,
            "block_device_mapping": [{"device_name": "/dev/vdq", "virtual_name": "swap"}],
        },
        disks("kind"),
        ["image", "swap"],
    ),
    "check_server_group_quota": (
        {"check_server_group_quota": False, "count": 2, "scheduler_hints": {"group": "together"}},
        view("server_group"),
        ["together", "together"],
    ),
    "block_device_mapping": (blank(), disks("name"), ["disk", "disk.eph0"]),
    "block_device_mapping.source_type": (blank(), disks("kind"), ["image", "ephemeral"]),
    "block_device_mapping.destination_type": (blank(), disks("kind"), ["image", "ephemeral"]),
    "block_device_mapping.volume_size": (blank(volume_size=2), disks("size_gb"), [1, 2]),
    "block_device_mapping.guest_format": (blank(guest_format="xfs"), disks("fs"), [None, "xfs"]),
    "block_device_mapping.device_name": (
        blank(device_name="/dev/vdq"),
        lambda boot: "vdq" in xml("devices/disk/target", "dev")(boot),
        True,
    ),
    "block_device_mapping.disk_bus": (
        blank(disk_bus="scsi"),
        lambda boot: xml("devices/disk/target", "bus")(boot)[:2],
        ["virtio", "scsi"],
    ),
    "block_device_mapping.device_type": (
        blank(device_type="cdrom"),
        lambda boot: xml("devices/disk", "device")(boot)[:2],
        ["disk", "cdrom"],
    ),
    "block_device_mapping.tag": (
        blank(tag="fast"),
        lambda boot: [d["tags"] for d in boot.metadata()["devices"]],
        [["fast"]],
    ),
}
#: field -> (the entry, the code of its error): what has no effect is refused
REFUSED: dict[str, tuple[dict[str, t.Any], str]] = {
    "host": ({"host": "h1"}, "NotSupportedYet"),
    "hypervisor_hostname": ({"hypervisor_hostname": "h1"}, "NotSupportedYet"),
    "trusted_image_certificates": ({"trusted_image_certificates": ["a"]}, "NotSupportedYet"),
    "security_groups": ({"security_groups": ["web"]}, "NotSupportedYet"),
    "security_groups.name": ({"security_groups": [{"name": "web"}]}, "NotSupportedYet"),
    "scheduler_hints.different_cell": ({"scheduler_hints": {"different_cell": ["c"]}}, "NotSupportedYet"),
    "scheduler_hints.target_cell": ({"scheduler_hints": {"target_cell": "c"}}, "NotSupportedYet"),
    # of a boot; the playbook apply follows them
    "state": ({"state": "stopped"}, "InvalidInput"),
    "locked": ({"locked": True}, "InvalidInput"),
    "locked_reason": ({"locked_reason": "mine"}, "InvalidInput"),
    "allow": ({"allow": ["restart"]}, "InvalidInput"),
}
#: field -> the file of tests that sees its effect, below the unit tests of core
ELSEWHERE = {
    **dict.fromkeys(
        ("scheduler_hints." + hint for hint in ("same_host", "different_host", "build_near_host_ip", "cidr")),
        "scheduler/filters/test_filters_affinity.py",
    ),
    "scheduler_hints.query": "scheduler/filters/test_json_filter.py",
    **dict.fromkeys(
        ("block_device_mapping." + name for name in ("boot_index", "delete_on_termination", "uuid", "volume_type")),
        "request/test_volume_devices.py",
    ),
    **dict.fromkeys(
        ("block_device_mapping." + name for name in ("image_id", "snapshot_id", "volume_id")),
        "request/test_volume_devices.py",
    ),
    "networks.port": "interfaces/test_port_entries.py",  # and flows/networks/test_ports.py
    "block_device_mapping.no_device": "disks/test_block_device_rules.py",
}


def fields() -> set[str]:
    """Of the fragments, with those of their items."""
    found = set()
    for fragment in load_fragments():
        for name, schema in fragment["server_create"].items():
            found.add(name)
            found |= {"%s.%s" % (name, inner) for inner in _inner(schema)}
    return found


def _inner(schema: dict[str, t.Any]) -> set[str]:
    names = set(schema.get("properties", ()))
    for part in (schema.get("items"), *schema.get("oneOf", ()), *schema.get("anyOf", ())):
        if part:
            names |= _inner(part)
    return names


def test_every_field_is_in_one_of_the_tables() -> None:
    assert fields() == set(EFFECTS) | set(REFUSED) | set(ELSEWHERE)
    for field, path in ELSEWHERE.items():
        text = (TESTS / "module_utils" / "core" / path).read_text(encoding="utf-8")
        assert field.rpartition(".")[2] in text, field


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("field", sorted(EFFECTS))
def test_a_field_that_is_accepted_has_an_effect(world: World, field: str) -> None:
    entry, seen, value = EFFECTS[field]
    boot = Boot(world, **EVERYTHING)
    boot.build(**entry)
    assert seen(boot) == value


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("field", sorted(REFUSED))
def test_a_field_without_an_effect_is_refused(world: World, field: str) -> None:
    entry, code = REFUSED[field]
    assert [error[1] for error in Boot(world, **EVERYTHING).errors(**entry)] == [code]
