# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of networks and of connectors are objects: their words and their classes occur in their own files, and nowhere else."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import NETWORK_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.connectors.registry import (
    CHOICES,
    CONNECTOR_TYPES,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    HOST_NETWORK_TYPES,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.connectors.registry import (
    HOST_CONNECTORS,
    HOST_LOGINS,
)

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
CORE, HOSTS = "module_utils/core/", "module_utils/hosts/"
#: Where a word may be: the file of the type, and the declaration of the variable.
OWN = {
    "network": {CORE + "networks/types/network.py", HOSTS + "libvirt/network_types/network.py"},
    "bridge": {CORE + "networks/types/bridge.py"},
    "vxlan": {CORE + "networks/types/vxlan.py"},
    "vlan": {CORE + "networks/types/vlan.py"},
    "macvtap": {CORE + "networks/types/macvtap.py"},
    "ovn": {CORE + "networks/types/ovn.py"},
    "kernel": {CORE + "volumes/connectors/kernel.py", CORE + "settings/hosts.py"},
    "qemu": {CORE + "volumes/connectors/qemu.py"},
    "rbd": {CORE + "volumes/connectors/rbd.py", CORE + "volumes/drivers/rbd.py"},
}
#: Meaning of the same word that has nothing to do with a type -> the files that have it so.
OTHER_MEANINGS: dict[tuple[str, str], set[str]] = {
    ("network", "a field that names a network, or the network itself"): {
        CORE + "interfaces/entries.py",
        CORE + "interfaces/interface_outcomes.py",
        CORE + "interfaces/port_entries.py",
        CORE + "reading/nearest.py",
        CORE + "request/catalogue_networks.py",
        CORE + "request/networks.py",
        HOSTS + "libvirt/dhcp.py",
        "plugin_utils/builds/handover.py",
    },
    ("network", "libvirt's disks that QEMU reaches by a protocol"): {
        CORE + "disks/stores/rbd.py",
        CORE + "guest/arriving.py",
        CORE + "guest/devices.py",
        CORE + "settings/hosts.py",
        CORE + "volumes/connectors/qemu.py",
        CORE + "volumes/connectors/rbd.py",
        HOSTS + "copies/other_disks.py",
        HOSTS + "live/guests.py",
        HOSTS + "os/volume_sources.py",
    },
    ("network", "libvirt's default for an interface of a definition"): {CORE + "guest/domain/interface.py"},
    ("network", "libvirt's types of disks and interfaces, and their attributes"): {
        CORE + "adopt/description.py",
        CORE + "adopt/verdict.py",
    },
    ("bridge", "libvirt's type of an interface, and its attribute"): {
        CORE + "adopt/description.py",
        CORE + "adopt/verdict.py",
    },
    ("bridge", "libvirt's mode of macvtap, and of a network that forwards by it"): {
        CORE + "networks/types/macvtap.py",
        HOSTS + "libvirt/network_types/macvtap.py",
    },
    ("network", "the element of libvirt's definition of a network"): {HOSTS + "libvirt/network_types/macvtap.py"},
    ("bridge", "Nova's list of types that network_data.json names"): {CORE + "networks/network_info.py"},
    ("bridge", "libvirt's type of an interface in a Linux bridge"): {CORE + "networks/types/joined_bridge.py"},
    ("bridge", "libvirt's type of an interface in a bridge of Open vSwitch"): {CORE + "networks/types/ovn.py"},
    ("network", "an attribute of libvirt's interfaces"): {HOSTS + "libvirt/network_types/used_networks.py"},
    ("bridge", "an attribute of libvirt's interfaces"): {HOSTS + "libvirt/network_types/used_networks.py"},
    ("vxlan", "the kernel's type of a device"): {HOSTS + "bridges/tunnels.py"},
    ("vlan", "the field with the number of the VLAN"): {
        CORE + "request/catalogue_networks.py",
        "plugin_utils/builds/build_parts.py",
    },
    ("vlan", "an element of libvirt's interfaces"): {CORE + "guest/domain/compare.py"},
    ("vlan", "the kernel's type of a device, and the field with its number"): {HOSTS + "bridges/vlans.py"},
    ("bridge", "a program of iproute2, and the kernel's type of a device"): {
        HOSTS + "bridges/tunnels.py",
        HOSTS + "bridges/made_bridges.py",
    },
    ("bridge", "the element of libvirt's definition of a network"): {HOSTS + "libvirt/network_types/network.py"},
    ("bridge", "nftables' family of tables for frames that a bridge forwards"): {CORE + "firewall/nftables.py"},
    ("kernel", "the time of a CPU, or the kernel that a guest starts"): {
        CORE + "guest/domain/compare.py",
        CORE + "guest/domain/platform.py",
        HOSTS + "facts/metrics.py",
    },
    ("qemu", "virt_type: emulation without KVM"): {
        CORE + "answers/compute.py",
        CORE + "guest/arriving.py",
        CORE + "settings/hosts.py",
        HOSTS + "facts/facts.py",
        HOSTS + "facts/virt_probe.py",
        "modules/compute_node_info.py",
    },
    ("qemu", "the driver of a disk or of an interface"): {CORE + "guest/arriving.py", CORE + "guest/devices.py"},
    ("rbd", "the store of local disks in a pool"): {CORE + "disks/stores/rbd.py"},
    ("rbd", "the protocol of a network disk"): {CORE + "volumes/rbd_names.py", HOSTS + "os/volume_sources.py"},
    ("rbd", "the program"): {HOSTS + "rbd/cluster.py", HOSTS + "rbd/images.py"},
}
#: Files of roles and playbooks with words that scripts/settings.py writes from the objects.
WRITTEN = {("kernel", "roles/compute_host/defaults/main.yml"), ("kernel", "roles/compute_host/vars/main.yml")}
GENERATED = re.compile(r"# Generated by .*?: begin\n.*?# end of what is generated\n", re.DOTALL)
#: File of one type -> the files that import it, besides its registry.
COUNTERPARTS = {
    # Guests of macvtap are in a libvirt network, too.
    CORE + "networks/types/network.py": {
        HOSTS + "libvirt/network_types/network.py",
        CORE + "networks/types/macvtap.py",
    },
    CORE + "networks/types/bridge.py": {HOSTS + "libvirt/network_types/bridge.py"},
    CORE + "networks/types/vxlan.py": {HOSTS + "libvirt/network_types/vxlan.py"},
    CORE + "networks/types/vlan.py": {HOSTS + "libvirt/network_types/vlan.py"},
    CORE + "networks/types/macvtap.py": {HOSTS + "libvirt/network_types/macvtap.py"},
    CORE + "networks/types/ovn.py": {HOSTS + "libvirt/network_types/ovn.py"},
    CORE + "volumes/connectors/kernel.py": {"plugin_utils/volumes/connectors/kernel.py"},
    CORE + "volumes/connectors/qemu.py": {"plugin_utils/volumes/connectors/qemu.py"},
    CORE + "volumes/connectors/rbd.py": {
        "plugin_utils/volumes/connectors/rbd.py",
        "plugin_utils/volumes/drivers/rbd.py",
    },
    CORE + "volumes/drivers/rbd.py": {"plugin_utils/volumes/drivers/rbd.py"},
    HOSTS + "libvirt/network_types/bridge.py": set(),
    HOSTS + "libvirt/network_types/network.py": {HOSTS + "libvirt/network_types/macvtap.py"},
    HOSTS + "libvirt/network_types/macvtap.py": set(),
    HOSTS + "libvirt/network_types/ovn.py": set(),
    HOSTS + "libvirt/network_types/vxlan.py": set(),
    HOSTS + "libvirt/network_types/vlan.py": set(),
    "plugin_utils/volumes/connectors/kernel.py": set(),
    "plugin_utils/volumes/connectors/qemu.py": set(),
    "plugin_utils/volumes/connectors/rbd.py": set(),
    "plugin_utils/volumes/drivers/rbd.py": set(),
}
#: Methods whose first argument is the name of a field, an attribute or an element.
_BY_NAME = {"get", "pop", "find", "set", "has"}


def words_of(tree: ast.AST) -> set[str]:
    """Find the words in code that are values: not keys, and not names of fields or attributes that are read."""
    names: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            names.add(id(node.slice))
        elif isinstance(node, ast.Dict):
            names.update(id(key) for key in node.keys)
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "attr", "") in _BY_NAME:
            names.add(id(node.args[0]))
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in OWN
        and id(node) not in names
    }


def quoted_words_of(text: str) -> set[str]:
    """Find the words in an expression of a role or playbook."""
    return set(re.findall(r"""['"](%s)['"]""" % "|".join(OWN), text))


def trees() -> dict[str, ast.Module]:
    return {str(p.relative_to(PLUGINS)): ast.parse(p.read_text()) for p in sorted(PLUGINS.rglob("*.py"))}


def imports_of(name: str, tree: ast.AST) -> set[str]:
    """Find the files of the collection that a file imports from."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = list(Path(name).parts[: -node.level])
            elif (node.module or "").startswith("ansible_collections.bootflow.compute.plugins."):
                base = []
            else:
                continue
            module = (node.module or "").replace("ansible_collections.bootflow.compute.plugins.", "")
            path = "/".join([*base, *module.split(".")])
            found.add(path + ".py")
            found.update("%s/%s.py" % (path, alias.name) for alias in node.names)
    return found


def test_the_words_are_all_that_there_are() -> None:
    assert set(NETWORK_TYPES) | set(CONNECTOR_TYPES) == set(OWN)


def test_each_type_of_the_core_has_one_on_the_host() -> None:
    assert list(HOST_NETWORK_TYPES) == list(NETWORK_TYPES) and list(HOST_CONNECTORS) == list(CONNECTOR_TYPES)
    assert set(HOST_LOGINS) == {name for name, each in CONNECTOR_TYPES.items() if each.host_logs_in}
    assert all(HOST_CONNECTORS[name] is each for name, each in HOST_LOGINS.items())


def test_a_host_may_have_each_connector_but_that_of_a_backend_and_the_first_by_default() -> None:
    assert [HOST.read({"bootflow_volume_attach": name}).volume_attach for name in CHOICES] == list(CHOICES)
    assert set(CONNECTOR_TYPES) - set(CHOICES) == {"rbd"}
    assert HOST.read({}).volume_attach == next(iter(CONNECTOR_TYPES))


def test_a_word_is_in_the_files_of_its_type_only() -> None:
    """The lists are exact: a file that no longer has the word leaves them."""
    found = {(word, name) for name, tree in trees().items() for word in words_of(tree)}
    allowed = {(word, name) for word, files in OWN.items() for name in files}
    other = {(word, name) for (word, _meaning), files in OTHER_MEANINGS.items() for name in files}
    assert found - allowed - other == set()
    assert other - found == set(), "no longer there: shorten the list"
    assert allowed - found == set()


def test_roles_and_playbooks_leave_the_words_to_the_plugins() -> None:
    found = {
        (word, str(path.relative_to(ROOT)))
        for folder in ("roles", "playbooks")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".yml", ".yaml", ".j2")
        for word in quoted_words_of(GENERATED.sub("", path.read_text()))
    }
    assert found == set()
    written = {(word, name) for word, name in WRITTEN if word in quoted_words_of((ROOT / name).read_text())}
    assert written == WRITTEN


def test_the_file_of_a_type_is_imported_by_its_registry_and_its_counterpart() -> None:
    importers: set[tuple[str, str]] = {
        (imported, name)
        for name, tree in trees().items()
        for imported in imports_of(name, tree)
        if imported in COUNTERPARTS
    }
    expected = {(own, other) for own, others in COUNTERPARTS.items() for other in others}
    expected |= {(own, str(Path(own).with_name("registry.py"))) for own in COUNTERPARTS}
    assert importers == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("kind == 'bridge'", {"bridge"}),
        ("kind in ('kernel', 'qemu')", {"kernel", "qemu"}),
        ("options = {'choices': ['network', 'bridge']}", {"network", "bridge"}),
        ("def f(kind='network'): return 'qemu'", {"network", "qemu"}),
        ("of = {'bridge': 1}; of['network']; source.get('bridge'); source.find('bridge')", set()),
        ("find('bridge')", {"bridge"}),
        ("text = 'a bridge of the host'; b'bridge'", set()),
    ],
)
def test_what_is_a_word_in_code(code: str, words: set[str]) -> None:
    assert words_of(ast.parse(code)) == words


@pytest.mark.parametrize(
    ("line", "found"), [("when: a == 'kernel'", {"kernel"}), ('x: "qemu"', {"qemu"}), ("- kernel's", set())]
)
def test_what_is_a_word_in_a_playbook(line: str, found: t.Collection[str]) -> None:
    assert quoted_words_of(line) == found


def test_what_counts_as_an_import() -> None:
    own = CORE + "networks/types/bridge.py"
    for code in (
        "from ..types.bridge import Bridge",
        "from ..types import bridge",
        "from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types import bridge",
    ):
        assert own in imports_of(CORE + "networks/types/x.py", ast.parse(code)), code
    assert own not in imports_of(CORE + "networks/x.py", ast.parse("from .names import bridge"))
