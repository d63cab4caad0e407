# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A type of network costs its two files and a line in two registries: a bridge of Open vSwitch is one here, from the catalogue to the domain XML."""

from __future__ import annotations

import contextlib
import types
import typing as t

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HostLacksNetwork, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import guest_config
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.spec import GuestSpec, HostCapabilities
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import dhcp
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.names import check_interface
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
    network_data,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.on_hosts import ABSENT, HostNetwork
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.network_type import (
    lack_words,
    read_management,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import NETWORK_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.fields import Fields
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_batch import (
    NETWORK_BATCH_ARGUMENTS,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import (
    network as libvirt_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    FoundNetwork,
    NetworkSpec,
    ServedNetwork,
    Uplinks,
    found_as_it_is,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    HOST_NETWORK_TYPES,
    ensure_network,
    found_networks,
    purge_networks,
    served_networks,
)

UUID = "11111111-2222-4333-8444-555555555555"
PORT = "aaaaaaaa-0000-4000-8000-000000000001"


class OpenVSwitch:
    """A bridge of Open vSwitch."""

    name = "ovs"
    vif_type = "vhostuser"
    is_logical = False
    noun = "Open vSwitch bridge"
    can_be_managed = False
    can_be_filtered = True

    def default_source(self, fields: Fields, name: str) -> str:
        return name

    def check_source(self, source: str) -> str:
        return check_interface(source)

    def read(self, fields: Fields, subnets: t.Sequence[t.Any]) -> dict[str, t.Any]:
        return read_management(fields)

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": source, "details": {"datapath_type": "system"}}

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        return t.cast("str | None", vif["network"]["bridge"])

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition["source"])

    def words(self, source: str, exists: bool) -> str:
        return lack_words(self.noun, source, exists)

    def remedy(self, source: str, name: str, exists: bool) -> str:
        return "Create it (ovs-vsctl add-br %s)." % source

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {"type": "bridge", "source_bridge": source, "virtualport_type": "openvswitch"}


class HostOpenVSwitch:
    """The bridges of Open vSwitch of a host that has br-int alone."""

    kind = OpenVSwitch()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        if spec.real_name != "br-int":
            raise HostNetwork(self.kind.name, spec.real_name, spec.name).refusal(ABSENT, "kvm1")
        return found_as_it_is(spec, spec.real_name)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        for name in {"br-old"} - set(keep):
            yield {"name": name, "changed": True, "definition": "", "error": None}

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        return [FoundNetwork("br-int")]

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return [ServedNetwork("br-int", False, {})]


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry, added in ((NETWORK_TYPES, OpenVSwitch()), (HOST_NETWORK_TYPES, HostOpenVSwitch())):
        monkeypatch.setitem(t.cast(t.Any, registry), "ovs", added)


def network_of(**fields: t.Any) -> t.Any:
    entry = {"name": "tenant", "type": "ovs", "source": "br-int", "subnets": [{"cidr": "10.0.0.0/24"}], **fields}
    return parse_catalogue(None, None, [entry], None).networks["tenant"]


def vifs_of(network: t.Any) -> list[dict[str, t.Any]]:
    fixed = ({"subnet_id": network.subnets[0].id, "ip_address": "10.0.0.5"},)
    return build_network_info([PortRecord(PORT, network.id, "fa:16:3e:00:00:01", fixed)], {network.id: network}, "p")


def test_the_catalogue_reads_it() -> None:
    network = network_of(manage=True, mtu=1400)
    assert (network.type, network.source, network.mtu) == ("ovs", "br-int", 1400)
    assert not network.is_managed and network.host_ranges == [], "hosts have no network of their own for it"
    assert dhcp.reservations("fa:16:3e:00:00:01", [], network, "web") == []


def test_the_catalogue_checks_its_name_on_the_host() -> None:
    with pytest.raises(InvalidRequest) as caught:
        network_of(source="longer than an interface")
    assert "is not the name of a network interface" in str(caught.value.as_dict())


def test_network_info_and_the_config_drive_have_its_name() -> None:
    (vif,) = vifs_of(network_of())
    assert (vif["type"], vif["network"]["bridge"], vif["details"]) == (
        "vhostuser",
        "br-int",
        {"datapath_type": "system"},
    )
    assert network_data([vif])["links"][0]["type"] == "vhostuser", "a type that Nova names"


def test_the_guest_is_plugged_into_it() -> None:
    guest = GuestSpec(
        uuid=UUID,
        name="web",
        display_name="web",
        memory_mb=512,
        vcpus=1,
        flavor=Flavor("small", 512, 1),
        disks=(),
        network_info=vifs_of(network_of()),
    )
    (interface,) = guest_config(guest, HostCapabilities(virt_type="qemu", host="h")).interfaces
    xml = etree.fromstring(etree.tostring(interface.to_xml()))
    assert (xml.get("type"), dict(xml.find("source").attrib)) == ("bridge", {"bridge": "br-int"})
    assert dict(xml.find("virtualport").attrib) == {"type": "openvswitch"}
    place = {"type": "bridge", "network": None, "bridge": "br-int", "switch": "openvswitch", "port": None}
    assert interface.place == place


def test_the_host_checks_it() -> None:
    found = ensure_network(None, NetworkSpec("tenant", "ovs", "br-int"))
    assert found == {"changed": False, "type": "ovs", "source": "br-int", "bridge": "br-int", "defined": False, "started": False}  # fmt: skip
    with pytest.raises(HostLacksNetwork, match="Open vSwitch bridge br-ex does not exist on kvm1") as caught:
        ensure_network(None, NetworkSpec("tenant", "ovs", "br-ex"))
    assert caught.value.remedy == "Create it (ovs-vsctl add-br br-ex)."


def test_the_host_reports_it_to_the_scheduler() -> None:
    there = types.SimpleNamespace(listAllNetworks=lambda _flags: 1 // 0)
    found = found_networks(there)
    assert found["ovs"] == [FoundNetwork("br-int")] and "network" not in found, "what cannot be read is not known"
    reported = {kind: {each.name: each.active for each in networks} for kind, networks in found.items()}
    lacks = [HostNetwork("ovs", source, "tenant").lack(reported) for source in ("br-int", "br-ex")]
    assert lacks == ["", ABSENT]


def test_the_host_reports_and_purges_it_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """This libvirt has no networks of its own."""
    monkeypatch.setattr(libvirt_network, "host_lock", lambda *_arguments: contextlib.nullcontext())
    there = types.SimpleNamespace(listAllNetworks=lambda _flags: [])
    monkeypatch.setattr(connection, "libvirt", types.SimpleNamespace(libvirtError=LookupError))
    assert [each.name for each in served_networks(there)] == ["br-int"]
    assert [each["name"] for each in purge_networks(there, 0, ())] == ["br-old"]
    assert list(purge_networks(there, 0, ("br-old",))) == []


def test_the_module_takes_the_types_of_the_registry() -> None:
    choices = NETWORK_BATCH_ARGUMENTS["networks"]["options"]["type"]["choices"]
    assert choices == [name for name in HOST_NETWORK_TYPES if name != "ovs"], "as it was loaded before this test"
