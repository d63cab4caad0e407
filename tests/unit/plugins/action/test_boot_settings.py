# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of a boot change what it accepts and what a host's modules are given, through the actions as the playbook runs them."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
import typing as t

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.action import (
    boot_accept,
    boot_build,
    boot_passwords,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.password_hash import sha512_crypt
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.schedule import request_spec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import device_places
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.views import instance_views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import cells, node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, at

IMAGE = {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "url": "http://x.example/tiny.qcow2"}
FLAVOR = {"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 2}
FILE = {"path": "/etc/motd", "contents": base64.b64encode(b"hello").decode()}


class Boot:
    """One entry, on host h1, with variables of all hosts."""

    def __init__(self, world: World, host: t.Mapping[str, t.Any] | None = None, **variables: t.Any):
        self.world = world
        self.given: dict[str, t.Any] = {}
        self.warnings: list[str] = []  # of accept()
        self.modules: list[str] = []  # that ran
        self.ends_build: list[bool] = []  # of each domain that was defined or started
        self.zone = "nova"  # of h1
        self.facts: dict[str, t.Any] = {}  # of h1
        everywhere = {
            "bootflow_flavors": [FLAVOR],
            "bootflow_images": [IMAGE],
            **{"bootflow_" + name: value for name, value in variables.items()},
        }
        hosts = {"localhost": everywhere, "h1": {**everywhere, **(host or {})}}
        groups = {"all": list(hosts), "bootflow_compute": ["h1"]}
        self.hosts = {h: {"inventory_hostname": h, "groups": groups, "hostvars": hosts, **hosts[h]} for h in hosts}

    def accept(self, **entry: t.Any) -> dict[str, t.Any]:
        entry = {"name": "web", "flavor": "small", "image": "tiny", "networks": "none", **entry}
        variables = {**self.hosts["localhost"], "bootflow_instances": [entry]}
        ports = WorldPorts(self.world, "a")
        result = action_of(boot_accept, ports, variables).act()
        self.warnings = ports.warnings
        return t.cast("dict[str, t.Any]", result)

    def errors(self, **entry: t.Any) -> list[tuple[str, str, int]]:
        with pytest.raises(InvalidRequest) as caught:
            self.accept(**entry)
        return [(e["path"], e["code"], e["status"]) for e in caught.value.errors]

    def build(self, **entry: t.Any) -> None:
        node(self.world, configuration={"availability_zone": self.zone}, **self.facts)
        self.accept(**entry)
        self.world.schedule()
        variables = {**self.hosts["h1"], "bootflow_instances": [{"name": "web", **entry}]}
        action = action_of(boot_build, WorldPorts(self.world, "a", self.run_module), variables)
        action._connection = type("Ssh", (), {"transport": "ssh"})
        assert not action.act()["failed_builds"]

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.given[name] = arguments
        self.modules.append(name)
        self.ends_build += [d.get("ends_build", True) for d in arguments.get("domains", ())]
        items = next(arguments[key] for key in ("networks", "drives", "domains", "instances") if key in arguments)
        running = {"power_state": power_states.RUNNING}
        return {"outcomes": {item.get("uuid") or item["name"]: {**running, **_defined(name, item)} for item in items}}

    def xml(self, number: int = 0) -> etree._Element:
        return etree.fromstring(self.given["domain"]["domains"][number]["xml"])

    def metadata(self, number: int = 0, file: str = "meta_data") -> dict[str, t.Any]:
        """What the guest was told."""
        files = unpack_files(self.given["config_drive"]["drives"][number]["files"])
        return t.cast("dict[str, t.Any]", json.loads(files["openstack/latest/%s.json" % file]))

    def login(self) -> tuple[str, str] | None:
        """The user whose password cloud-init sets, and its hash."""
        config = self.metadata(file="vendor_data").get("cloud-init")
        (user,) = json.loads(config[0].partition("\n")[2])["chpasswd"]["users"] if config else [None]
        return (user["name"], user["password"]) if user else None


def _defined(module: str, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The places of a defined domain's devices, as libvirt would give them addresses."""
    if module != "domain" or item["state"] != "defined":
        return {}
    root = etree.fromstring(item["xml"])
    for number, device in enumerate(root.iterfind("devices/*")):
        virtio = device.tag == "interface" or device.find("target[@bus='virtio']") is not None
        if device.find("address") is None and virtio:
            etree.SubElement(
                device, "address", type="pci", domain="0x0000", bus="0x0a", slot="0x%02x" % number, function="0x0"
            )
    return {"devices": device_places(etree.tostring(root, encoding="unicode"))}


@pytest.mark.parametrize(
    "quotas, entry, error",
    [
        ({"metadata_items": 1}, {"metadata": {"a": "b", "c": "d"}}, ("metadata", "MetadataLimitExceeded")),
        ({"injected_files": 0}, {"injected_files": [FILE]}, ("injected_files", "OnsetFileLimitExceeded")),
        (
            {"injected_file_content_bytes": 4},
            {"injected_files": [FILE]},
            ("injected_files[0].contents", "OnsetFileContentLimitExceeded"),
        ),
        (
            {"injected_file_path_length": 8},
            {"injected_files": [FILE]},
            ("injected_files[0].path", "OnsetFilePathLimitExceeded"),
        ),
    ],
)
def test_quotas_of_what_a_guest_is_given(
    world: World, quotas: dict[str, int], entry: dict[str, t.Any], error: tuple[str, str]
) -> None:
    for given in (quotas, {"projects": {"default": quotas}}):
        assert Boot(world, quotas=given).errors(**entry) == [("instances[0]." + error[0], error[1], 403)]
    assert Boot(world, quotas={"projects": {"other": quotas}}).accept(**entry)["created"]


def test_a_guest_has_an_ssh_host_key_whose_public_key_the_ledger_knows(world: World, tmp_path: pathlib.Path) -> None:
    boot = Boot(world, ssh_host_keys=True)
    boot.build(config_drive=True, admin_password="pw")
    (part,) = boot.metadata(file="vendor_data")["cloud-init"]
    config = json.loads(part.partition("\n")[2])
    (tmp_path / "key").write_text(config["ssh_keys"]["ed25519_private"])
    (tmp_path / "key").chmod(0o600)
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(tmp_path / "key")], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == config["ssh_keys"]["ed25519_public"] and config["chpasswd"]
    with world.ledger.read() as tx:
        (row,) = instances.select_live(tx)
        (view,) = instance_views(at(tx, world.time), [row])
    assert row.ssh_host_key == view["ssh_host_key"] == config["ssh_keys"]["ed25519_public"]
    everything = repr(world.everything())
    secret = "".join(config["ssh_keys"]["ed25519_private"].splitlines()[1:-1])
    assert secret not in everything and "PRIVATE KEY" not in everything


@pytest.mark.parametrize(
    ("settings", "entry"),
    [({}, {"config_drive": True}), ({"ssh_host_keys": True, "force_config_drive": False}, {"config_drive": False})],
)
def test_a_guest_without_one(world: World, settings: dict[str, t.Any], entry: dict[str, t.Any]) -> None:
    Boot(world, **settings).build(**entry)
    with world.ledger.read() as tx:
        assert [row.ssh_host_key for row in instances.select_live(tx)] == [None]


def test_no_entry_leaves_the_project_and_the_user_of_the_run(world: World) -> None:
    """With its quota and its names; the operator may allow it."""
    for variables in ({}, {"project": "web", "quotas": {"projects": {"web": {"instances": 0}}}}):
        boot = Boot(world, **variables)
        for field in ("project", "user"):
            for value in ("other", "Default", "webs", 7, "root"):
                found = boot.errors(**{field: value})
                assert [path for path, _code, _status in found] == ["instances[0].%s" % field]
                assert isinstance(value, int) or found[0][1:] == ("OwnerForbidden", 403)
    assert Boot(world, project="web").accept(name="a", project="web", user="ann")["created"]
    assert Boot(world, allow_other_owners=True).accept(name="b", project="other", user="carol")["created"]


def test_files_beyond_the_default_quota_reach_the_config_drive(world: World) -> None:
    files = [{**FILE, "path": "/f%d" % number} for number in range(6)]
    assert Boot(world).errors(injected_files=files) == [("instances[0].injected_files", "OnsetFileLimitExceeded", 403)]
    boot = Boot(world, quotas={"injected_files": 6})
    boot.build(injected_files=files)
    assert boot.given["config_drive"]["drives"]


def test_the_types_of_vmdk_that_a_host_accepts(world: World) -> None:
    boot = Boot(world, host={"bootflow_vmdk_allowed_types": ["streamOptimized"]})
    boot.build()
    assert boot.given["instance_disks"]["vmdk_allowed_types"] == ["streamOptimized"]
    with pytest.raises(InvalidRequest, match="monolithicFlat"):
        Boot(world, host={"bootflow_vmdk_allowed_types": ["monolithicFlat"]}).accept(name="db")


def test_the_zone_of_entries_that_name_none(world: World) -> None:
    boot = Boot(world, host={"bootflow_availability_zone": "north"}, default_schedule_zone="north")
    (named, other) = (boot.accept()["created"], boot.accept(name="db", availability_zone="north")["created"])
    assert [world.row(uuid).availability_zone for uuid in (*named, *other)] == ["north", "north"]
    (free,) = Boot(world).accept(name="free")["created"]
    assert world.row(free).availability_zone is None


@pytest.mark.parametrize("host", [{}, {"bootflow_availability_zone": "north"}])
def test_a_zone_has_to_exist(world: World, host: dict[str, str]) -> None:
    boot = Boot(world, host=host)
    assert boot.errors(availability_zone="south") == [("instances[0].availability_zone", "InvalidInput", 400)]
    assert Boot(world, host=host, default_schedule_zone="south").errors() == [
        ("instances[0].availability_zone", "InvalidInput", 400)
    ]
    assert boot.accept(availability_zone=host.get("bootflow_availability_zone", "nova"))["created"]
    aggregates = [{"name": "rack", "hosts": ["h1"], "metadata": {"availability_zone": "south"}}]
    if not host:
        assert Boot(world, aggregates=aggregates).accept(name="db", availability_zone="south")["created"]


def test_the_limit_of_local_disks(world: World) -> None:
    refused = [("instances[0].block_device_mapping", "InvalidBDMLocalsLimit", 400)]
    assert Boot(world, max_local_block_devices=1).errors() == refused  # root and ephemeral
    assert Boot(world, max_local_block_devices="0").errors() == refused
    halves = [{"source_type": "blank", "destination_type": "local", "volume_size": 1}] * 2
    assert Boot(world, max_local_block_devices=2).errors(block_device_mapping=halves) == refused
    assert Boot(world).accept(block_device_mapping=halves)["created"]


def test_what_a_host_says_of_ephemeral_disks_and_random_numbers(world: World) -> None:
    host = {"bootflow_default_ephemeral_format": "xfs", "bootflow_rng_dev_path": "/dev/hwrng"}
    boot = Boot(world, host=host)
    half = {"source_type": "blank", "destination_type": "local", "volume_size": 1}
    boot.build(block_device_mapping=[half, {**half, "guest_format": "vfat"}])
    (instance,) = boot.given["instance_disks"]["instances"]
    assert [d["fs"] for d in instance["disks"] if d["kind"] == "ephemeral"] == ["xfs", "vfat"]
    (domain,) = boot.given["domain"]["domains"]
    assert etree.fromstring(domain["xml"]).findtext("devices/rng/backend") == "/dev/hwrng"


def test_the_beginning_of_mac_addresses(world: World) -> None:
    networks = [{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}]
    for base, expected in (
        (None, "fa:16:3e:"),
        ("52:54:00:00:00:00", "52:54:00:"),
        ("52:54:00:A1:00:00", "52:54:00:a1:"),
    ):
        boot = Boot(world, networks=networks, base_mac=base)
        (uuid,) = boot.accept(name="with-%s" % base, networks=["blue"])["created"]
        with world.ledger.read() as tx:
            ((port, _network),) = ports.ports_of(tx, [uuid])[uuid]
        assert port.mac_address.startswith(expected)


def test_dhcp_of_a_managed_network_is_told_and_reserved(world: World) -> None:
    """The guest was told to ask a DHCP server, and there was none."""
    subnets = [{"cidr": "10.0.0.0/24", "enable_dhcp": True, "dns_nameservers": ["9.9.9.9"]}]
    networks = [
        {"name": "blue", "source": "bf-blue", "manage": True, "subnets": subnets},
        {"name": "lan", "type": "bridge", "source": "br0", "subnets": subnets},
    ]
    boot = Boot(world, networks=networks)
    boot.build(networks=["blue", "lan"])
    managed, outside = (node.get("address") for node in boot.xml().iterfind("devices/interface/mac"))
    (domain,) = boot.given["domain"]["domains"]
    assert domain["reservations"] == [{"network": "bf-blue", "mac": managed, "address": "10.0.0.2", "name": "web"}]
    assert [n["subnets"][0]["enable_dhcp"] for n in boot.given["virtual_network"]["networks"]] == [True, True]
    told = boot.metadata(file="network_data")["networks"]
    assert [each["type"] for each in told] == ["ipv4_dhcp", "ipv4_dhcp"] and outside != managed


def test_a_guest_cannot_have_the_gateway_of_a_managed_network(world: World) -> None:
    """It was accepted, and the guest took its host's address."""
    subnets = [{"cidr": "10.0.0.0/24"}]
    networks = [
        {"name": "blue", "manage": True, "subnets": subnets},
        {"name": "lan", "subnets": [{"cidr": "10.1.0.0/24"}]},
    ]
    boot = Boot(world, networks=networks)
    error = ("instances[0].networks[0].fixed_ip", "IpAddressInUse", 409)
    assert boot.errors(networks=[{"network": "blue", "fixed_ip": "10.0.0.1"}]) == [error]
    assert boot.accept(networks=[{"network": "lan", "fixed_ip": "10.1.0.1"}])["created"]


@pytest.mark.parametrize(
    ("host", "properties", "entry", "user"),
    [
        ({}, {}, {"admin_password": "given"}, "root"),
        ({}, {"os_admin_user": "debian"}, {"admin_password": "given"}, "debian"),
        ({}, {}, {}, None),
        ({"bootflow_inject_password": True}, {}, {}, "root"),
        ({"bootflow_inject_password": True}, {"os_type": "windows"}, {"admin_password": "given"}, None),
    ],
)
def test_who_sets_the_admin_password(
    world: World, tmp_path: pathlib.Path, host: t.Any, properties: t.Any, entry: t.Any, user: str | None
) -> None:
    """cloud-init sets a given one, and a generated one on request. Then the drive, which every user of the guest can read, has
    only its hash. Windows reads the text that Nova writes."""
    boot = Boot(world, host=host, images=[{**IMAGE, "properties": properties}])
    boot.build(**entry)
    folder = tmp_path / "new" / "passwords"
    variables = {**boot.hosts["localhost"], "bootflow_instances": [{"name": "web", **entry}]}
    ports = WorldPorts(world, "a")
    result = action_of(boot_passwords, ports, variables, admin_password_dir=str(folder)).act()
    ((key, known),) = result["admin_passwords"].items()
    password = known["password"]
    assert result["_ansible_no_log"] and password == entry.get("admin_password", password)
    login = boot.login()
    if user is None or login is None:
        assert login is None and boot.metadata()["admin_pass"] == password
    else:
        name, hashed = login
        assert name == user and hashed == sha512_crypt(password, hashed.split("$")[2])
        drive = unpack_files(boot.given["config_drive"]["drives"][0]["files"])
        assert password.encode() not in b"".join(drive.values())
    (uuid,) = [d["uuid"] for d in boot.given["domain"]["domains"]]
    assert (key, known["name"], known["project"]) == (uuid, "web", "default")
    assert (folder / uuid).read_text() == password + "\n" and [f.name for f in folder.iterdir()] == [uuid]
    assert [each.stat().st_mode & 0o777 for each in (folder, folder / uuid)] == [0o700, 0o600]
    assert str(folder) in "".join(ports.shown) and password not in "".join(ports.shown)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written to .*/file/x: Not a directory"):
        action_of(boot_passwords, ports, variables, admin_password_dir=str(tmp_path / "file" / "x")).act()


def test_instances_of_one_name_in_two_projects_have_a_password_each(world: World) -> None:
    """The passwords were keyed by name: one of these was lost."""
    boot = Boot(world, allow_other_owners=True)
    entries = [{"name": "web", "project": p, "admin_password": "of " + p} for p in ("red", "blue")]
    for entry in entries:
        boot.build(**entry)
    variables = {**boot.hosts["localhost"], "bootflow_instances": entries}
    found = action_of(boot_passwords, WorldPorts(world, "a"), variables).act()["admin_passwords"]
    assert len(found) == 2
    for row in world.rows(tables.instances):
        assert found[row.uuid] == {"name": "web", "project": row.project, "password": "of " + row.project}
        only = action_of(boot_passwords, WorldPorts(world, "a"), variables, uuids=[row.uuid]).act()["admin_passwords"]
        assert only == {row.uuid: found[row.uuid]}


def test_a_run_that_built_nothing_knows_no_password_without_a_look_into_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = WorldPorts(world, "a")
    monkeypatch.delattr(world, "ledger")
    result = action_of(boot_passwords, ports, {"bootflow_instances": [{"name": "web"}]}, uuids=[]).act()
    assert result == {"changed": False, "admin_passwords": {}, "_ansible_no_log": True}


def test_what_a_host_says_of_metadata(world: World) -> None:
    vendor_data = {"cloud-init": "#cloud-config", "rack": 4}
    boot = Boot(world, host={"bootflow_vendor_data": vendor_data, "bootflow_dhcp_domain": "example.org"})
    boot.build(config_drive=True)
    files = unpack_files(boot.given["config_drive"]["drives"][0]["files"])
    assert json.loads(files["openstack/latest/vendor_data.json"]) == vendor_data
    assert json.loads(files["openstack/latest/meta_data.json"])["hostname"] == "web.example.org"


def test_the_limit_of_builds_reaches_the_host_which_counts_those_of_all_runs(world: World) -> None:
    boot = Boot(world, {"bootflow_max_concurrent_builds": 3, "bootflow_instances_path": "/srv/guests"})
    boot.build()
    for module in ("instance_disks", "domain"):
        assert (boot.given[module]["max_builds"], boot.given[module]["instances_path"]) == (3, "/srv/guests")


def test_names_that_nothing_reads_are_warned_of_once_a_flavor_and_image(world: World) -> None:
    """A misspelt extra spec or property had no effect, and nobody said so."""
    flavor = {**FLAVOR, "extra_specs": {"hw:cpu_polcy": "dedicated", "hw:numa_sets": "1", "quota:cpu_shares": "9"}}
    image = {**IMAGE, "properties": {"hw_rack": "a", "os_distro": "debian", "hw_disc_bus": "scsi"}}
    boot = Boot(world, flavors=[flavor], images=[image])
    boot.accept(count=2)
    assert boot.warnings == [
        "The extra specs of flavor small have names that nothing reads: %s."
        % "hw:cpu_polcy (did you mean hw:cpu_policy?), hw:numa_sets",
        "The properties of image tiny have names that nothing reads: %s."
        % "hw_disc_bus (did you mean hw_disk_bus?), hw_rack",
    ]
    aggregate = {"name": "a", "hosts": ["h1"], "metadata": {"hw_rack": "a", "hw_disc_bus": "scsi"}}
    filters = ["RamFilter", "DiskFilter", "AggregateImagePropertiesIsolation"]
    boot = Boot(world, flavors=[FLAVOR], images=[image], aggregates=[aggregate], enabled_filters=filters)
    boot.accept(name="db")
    assert boot.warnings == []
    boot = Boot(world, flavors=[FLAVOR], images=[image], aggregates=[aggregate])
    boot.accept(name="web2")
    assert "hw_disc_bus (did you mean hw_disk_bus?), hw_rack" in boot.warnings[0], "no enabled filter compares them"


def test_settings_of_filters_that_are_not_enabled_are_warned_of(world: World) -> None:
    aggregate = {"name": "acme", "hosts": ["h1"], "metadata": {"filter_tenant_id": "acme", "rack": "a"}}
    given: dict[str, t.Any] = {
        "max_instances_per_host": 5,
        "isolated_images": [],
        "flavors": [{**FLAVOR, "extra_specs": {"ssd": "true"}}],
        "weighers": ["RAMWeigher"],
        "weight_multipliers": {"CPUWeigher": 2.0, "RAMWeigher": 2.0},
    }
    ratios = {"bootflow_cpu_allocation_ratio": 2.0, "bootflow_ram_allocation_ratio": 2.0}
    boot = Boot(world, ratios, aggregates=[aggregate], **given)
    boot.accept()
    nothing = "Nothing reads %s. Add %s, or remove the setting."
    assert boot.warnings == [
        "The extra specs of flavor small have names that no enabled filter reads: ssd (%s would, in the metadata of aggregates). %s"
        % ("AggregateInstanceExtraSpecsFilter", "Add the filter to bootflow_enabled_filters, or remove the names."),
        nothing
        % (
            "bootflow_max_instances_per_host: AggregateNumInstancesFilter and NumInstancesFilter are not enabled",
            "one of them to bootflow_enabled_filters",
        ),
        nothing % ("CPUWeigher of bootflow_weight_multipliers: CPUWeigher is not enabled", "it to bootflow_weighers"),
        nothing
        % (
            "filter_tenant_id of aggregate acme: AggregateMultiTenancyIsolation is not enabled",
            "it to bootflow_enabled_filters",
        ),
    ]
    reading = [
        "DiskFilter",
        "NumInstancesFilter",
        "AggregateMultiTenancyIsolation",
        "AggregateInstanceExtraSpecsFilter",
    ]
    given.update(weighers=["RAMWeigher", "CPUWeigher"], enabled_filters=reading)
    boot = Boot(world, ratios, aggregates=[aggregate], **given)
    boot.accept(name="db")
    assert boot.warnings == [  # CPUWeigher reads the ratio of the vCPUs
        nothing
        % (
            "bootflow_ram_allocation_ratio: RamFilter and AggregateRamFilter are not enabled",
            "one of them to bootflow_enabled_filters",
        )
    ]


def test_filters_of_the_users_may_read_any_ratio_and_metadata(world: World, tmp_path: pathlib.Path) -> None:
    """As those of Nova, which read host_state.ram_allocation_ratio and the metadata of aggregates."""
    (tmp_path / "own.py").write_text(
        "class Own:\n    def host_passes(self, host_state, spec_obj):\n        return True\n"
    )
    aggregate = {"name": "acme", "hosts": ["h1"], "metadata": {"ram_allocation_ratio": "2.0"}}
    given: dict[str, t.Any] = {"filter_dirs": [str(tmp_path)], "max_io_ops_per_host": 2, "aggregates": [aggregate]}
    ratio = {"bootflow_ram_allocation_ratio": 2.0}
    boot = Boot(world, ratio, enabled_filters=["DiskFilter"], **given)
    boot.accept()
    assert [w.split(":")[0] for w in boot.warnings] == [
        "Nothing reads bootflow_max_io_ops_per_host",
        "Nothing reads bootflow_ram_allocation_ratio",
        "Nothing reads ram_allocation_ratio of aggregate acme",
    ]
    boot = Boot(world, ratio, enabled_filters=["DiskFilter", "Own"], **given)
    boot.accept(name="db")
    assert [w.split(":")[0] for w in boot.warnings] == ["Nothing reads bootflow_max_io_ops_per_host"]


def test_a_boot_reads_of_hosts_the_variables_of_compute_hosts_only(world: World) -> None:
    """hostvars compares itself with a mapping by the variables of all hosts, which takes seconds."""

    class HostVars(dict):  # type: ignore[type-arg]
        def __eq__(self, other: object) -> bool:
            raise AssertionError("all hosts are read")

    boot = Boot(world)
    variables = boot.hosts["localhost"]
    variables["hostvars"] = HostVars(variables["hostvars"])
    boot.accept()


@pytest.mark.parametrize("groups", [["default"], [{"name": "default"}]])
def test_a_security_group_has_no_effect_and_a_boot_says_so(world: World, groups: t.Any) -> None:
    boot = Boot(world)
    boot.accept(security_groups=groups)
    (warning,) = boot.warnings
    assert warning.startswith("security_groups: default of web has no effect. Nothing filters the traffic of a guest")
    assert "any IP or MAC address" in warning
    boot = Boot(world)
    boot.accept(name="db", security_groups=[])
    assert boot.warnings == []


@pytest.mark.parametrize(
    ("zone", "entry"), [("nova", {}), ("north", {}), ("south, north", {"availability_zone": "north"})]
)
def test_a_guest_is_told_the_zone_of_its_host(world: World, zone: str, entry: dict[str, t.Any]) -> None:
    """It was null unless the entry named a zone."""
    boot = Boot(world, host={"bootflow_availability_zone": zone})
    boot.zone = zone
    boot.build(**entry)
    assert boot.metadata()["availability_zone"] == entry.get("availability_zone", zone)


def test_a_guest_is_told_where_it_finds_devices_with_a_tag(world: World) -> None:
    """Tags of interfaces never reached the guest, and those of disks came without an address."""
    networks = [{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}]
    boot = Boot(world, networks=networks)
    scratch = {"source_type": "blank", "destination_type": "local", "volume_size": 1}
    boot.build(
        networks=[{"network": "blue"}, {"network": "blue", "tag": "backup"}],
        block_device_mapping=[{**scratch, "tag": "fast"}, {**scratch, "disk_bus": "scsi", "tag": "slow"}],
    )
    assert boot.modules[-3:] == ["domain", "config_drive", "domain"]
    assert boot.ends_build == [False, True], "it is not built before it has its config drive"
    disk, slow, nic = boot.metadata()["devices"]
    macs = [node.get("address") for node in boot.xml().iterfind("devices/interface/mac")]
    assert (disk["type"], disk["bus"], disk["tags"]) == ("disk", "pci", ["fast"])
    assert (slow["type"], slow["bus"], slow["address"], slow["tags"]) == ("disk", "scsi", "none", ["slow"])
    assert (nic["type"], nic["mac"], nic["bus"], nic["tags"]) == ("nic", macs[1], "pci", ["backup"])
    assert all(device["address"].startswith("0000:0a:") for device in (disk, nic))


def test_a_guest_without_tags_is_defined_as_it_is_started(world: World) -> None:
    boot = Boot(world, networks=[{"name": "blue", "subnets": [{"cidr": "10.0.0.0/24"}]}])
    boot.build(networks=["blue"])
    assert boot.modules[-2:] == ["config_drive", "domain"] and boot.metadata()["devices"] == []
    assert boot.ends_build == [True]


def test_a_guest_with_tags_that_cannot_be_defined_is_not_started(world: World) -> None:
    boot = Boot(world)
    run = boot.run_module
    refused = {"code": "LibvirtError", "status": 500, "message": "unsupported", "remedy": "", "retryable": True}

    def refuse(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        result = run(name, arguments)
        if name == "domain":
            return {"outcomes": {uuid: {"changed": False, "error": refused} for uuid in result["outcomes"]}}
        return result

    boot.run_module = refuse  # type: ignore[method-assign]
    scratch = {"source_type": "blank", "destination_type": "local", "volume_size": 1, "tag": "fast"}
    with pytest.raises(AssertionError):
        boot.build(block_device_mapping=[scratch])
    assert "config_drive" not in boot.modules and boot.modules.count("domain") == 1


def test_a_guest_is_told_which_of_its_cpus_are_dedicated(world: World) -> None:
    """It was told of none."""
    flavor = {**FLAVOR, "vcpus": 2, "extra_specs": {"hw:cpu_policy": "dedicated"}}
    boot = Boot(world, flavors=[flavor])
    boot.facts = {"numa_topology": cells(1, 4, 4096)}
    boot.build(count=2)
    pins = [[pin.get("cpuset") for pin in boot.xml(number).iterfind("cputune/vcpupin")] for number in range(2)]
    assert len({cpu for of_guest in pins for cpu in of_guest}) == 4  # of the host
    assert [boot.metadata(number)["dedicated_cpus"] for number in range(2)] == [[0, 1], [0, 1]]


def test_fields_of_the_owner_reach_the_ledger_the_domain_and_filters(world: World, tmp_path: pathlib.Path) -> None:
    """They were accepted and had no effect."""
    fragment = {"name": "cost_centre", "server_create": {"cost_centre": {"type": "string"}}}
    (tmp_path / "cost_centre.json").write_text(json.dumps(fragment))
    entry = {"user": "carol", "access_ip_v4": "192.0.2.9", "access_ip_v6": "2001:db8::9", "disk_config": "AUTO"}
    boot = Boot(world, schema_dirs=[str(tmp_path)], allow_other_owners=True)
    boot.build(**entry, cost_centre="research")
    with world.ledger.read() as tx:
        (row,) = instances.select_live(tx)
        (view,) = instance_views(at(tx, world.time), [row])
        spec = request_spec(row.spec, [row.uuid], None, row.project)
    assert {name: view[name] for name in entry} == entry
    assert view["extra"] == spec.extra == {"cost_centre": "research"}
    owner = boot.xml().find("metadata/{*}instance/{*}owner/{*}user")
    assert owner is not None and owner.text == "carol"
    boot.accept(name="db")
    with world.ledger.read() as tx:
        assert {r.display_name: r.user_name for r in instances.select_live(tx)} == {"web": "carol", "db": "ann"}


def test_short_names_of_domains(world: World) -> None:
    """A name with a UUID is unusable by hand. The host says which of the names it took; the ledger has it for what follows."""
    boot = Boot(world, domain_names="short")
    run = boot.run_module
    on_host = {"db": "5ec0d000-0000-4000-8000-000000000002"}  # of somebody else

    def name_it(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        result = run(name, arguments)
        for item in arguments["domains"] if name == "domain" else ():
            taken = next(n for n in (item["name"], *item["spare_names"]) if on_host.get(n) in (None, item["uuid"]))
            on_host[taken] = item["uuid"]
            result["outcomes"][item["uuid"]]["name"] = taken
        return result

    boot.run_module = name_it  # type: ignore[method-assign]
    boot.build(count=2)
    rows = {row.display_name: row for row in world.rows(tables.instances)}
    given = {d["uuid"]: (d["name"], d["spare_names"]) for d in boot.given["domain"]["domains"]}
    assert len(rows) == 2
    for name, row in rows.items():
        assert given[row.uuid] == (name, ["%s-%s" % (name, row.uuid[:8]), "%s-%s" % (name, row.uuid)])
        assert on_host[row.domain_name] == row.uuid
    boot.build(name="db")
    (row,) = [row for row in world.rows(tables.instances) if row.display_name == "db"]
    assert row.domain_name == "db-" + row.uuid[:8]


def test_names_of_domains_have_the_uuid_by_default(world: World) -> None:
    boot = Boot(world)
    boot.build()
    (domain,) = boot.given["domain"]["domains"]
    assert domain["name"] == "web-" + domain["uuid"] and domain["spare_names"] == []
    with pytest.raises(InvalidRequest, match="domain_names"):
        Boot(world, domain_names="nice").accept(name="db")


def test_the_ledger_marks_what_it_has_on_hosts(world: World) -> None:
    """Its id is in the domain, and goes to the modules that make and remove folders and logical volumes."""
    boot = Boot(world)
    boot.build()
    owner = boot.xml().find("metadata/{*}owner")
    assert owner is not None and owner.get("ledger") == world.ledger.id == boot.given["instance_disks"]["ledger_id"]
