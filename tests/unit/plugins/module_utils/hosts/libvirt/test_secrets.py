# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, LibvirtError
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.domain import (
    DomainConfig,
    OsConfig,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse, to_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.secret import SecretConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import qemu_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import secrets

SCHEMAS = pathlib.Path("/usr/share/libvirt/schemas")
IQN = "iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01"
VALUE = "Secret0123456789"


class LibvirtError_(Exception):
    def __init__(self, code, message="no"):
        super().__init__(message)
        self.code, self.message = code, message

    def get_error_code(self):
        return self.code

    def get_error_domain(self):
        return 0

    def get_error_message(self):
        return self.message


@pytest.fixture
def libvirt(monkeypatch):
    names = ("VIR_FROM_REMOTE", "VIR_FROM_RPC", "VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC")
    names += ("VIR_ERR_SYSTEM_ERROR", "VIR_ERR_INTERNAL_ERROR", "VIR_ERR_NO_DOMAIN", "VIR_ERR_NO_NETWORK")
    fake = types.SimpleNamespace(
        libvirtError=LibvirtError_,
        VIR_SECRET_USAGE_TYPE_ISCSI=3,
        VIR_ERR_NO_SECRET=66,
        VIR_ERR_NO_SUPPORT=3,
        **{name: 100 + number for number, name in enumerate(names)},
    )
    monkeypatch.setattr(secrets, "libvirt", fake)
    monkeypatch.setattr(libvirt_connection, "libvirt", fake)
    return fake


class Connection:
    """libvirt's secrets in memory."""

    def __init__(self, libvirt):
        self.libvirt = libvirt
        self.secrets = {}
        self.values = {}
        self.refuses = False
        self.lists = None

    def listAllSecrets(self, flags):
        if self.lists:
            raise LibvirtError_(self.lists)
        return [self.shown(parse(xml)) for xml in self.secrets.values()]

    @staticmethod
    def shown(xml):
        usage = xml.find("usage")
        return types.SimpleNamespace(
            usageType=lambda: {"volume": 1, "iscsi": 3}[usage.get("type")],
            usageID=lambda: usage[0].text,
            UUIDString=lambda: xml.findtext("uuid"),
        )

    def secretLookupByUsage(self, kind, usage):
        assert kind == 3
        if usage not in self.secrets:
            raise LibvirtError_(66)
        return types.SimpleNamespace(
            XMLDesc=lambda flags: self.secrets[usage],
            undefine=lambda: (self.secrets.pop(usage), self.values.pop(usage, None)),
            setValue=lambda value, flags: self.set_value(usage, value),
        )

    def set_value(self, usage, value):
        if self.refuses:
            raise LibvirtError_(1, "bad value %r" % value)
        self.values[usage] = value

    def secretDefineXML(self, xml, flags):
        valid("secret", xml)
        usage = parse(xml).find("usage/target").text
        assert usage not in self.secrets
        self.secrets[usage] = xml
        return self.secretLookupByUsage(3, usage)


def valid(schema, xml):
    checker = etree.RelaxNG(etree.parse(str(SCHEMAS / (schema + ".rng"))))
    assert checker.validate(etree.fromstring(xml.encode())), checker.error_log


def test_a_secret_is_defined_valued_and_removed(libvirt):
    connection = Connection(libvirt)
    made = secrets.set_secret(connection, IQN, VALUE)
    assert made == {"uuid": qemu_connection.secret_uuid(IQN), "changed": True}
    assert connection.values == {IQN: VALUE.encode()}
    node = parse(connection.secrets[IQN])
    assert (node.get("private"), node.get("ephemeral"), node.find("usage").get("type")) == ("yes", "yes", "iscsi")
    assert VALUE not in connection.secrets[IQN]
    assert not secrets.set_secret(connection, IQN, "Another012345678")["changed"]
    assert connection.values == {IQN: b"Another012345678"}
    assert secrets.remove_secret(connection, IQN) == {"changed": True}
    assert connection.secrets == {} == connection.values
    assert secrets.remove_secret(connection, IQN) == {"changed": False}


def test_a_secret_of_another_kind_under_the_same_usage_is_replaced(libvirt):
    connection = Connection(libvirt)
    secrets.set_secret(connection, IQN, VALUE, ephemeral=False)
    assert parse(connection.secrets[IQN]).get("ephemeral") == "no"
    assert secrets.set_secret(connection, IQN, VALUE)["changed"]
    assert parse(connection.secrets[IQN]).get("ephemeral") == "yes"


def test_which_secrets_are_ours(libvirt):
    connection = Connection(libvirt)
    secrets.set_secret(connection, IQN, VALUE)
    foreign = "<secret><uuid>%s</uuid><usage type='%s'><%s>%s</%s></usage></secret>"
    other = "6c0b7c8e-0d5c-4b62-9a2e-0f8f2f4a1b11"
    connection.secrets["iqn.2004-10.com.example:x"] = foreign % (
        other,
        "iscsi",
        "target",
        "iqn.2004-10.com.example:x",
        "target",
    )
    connection.secrets["no name of a target"] = foreign % (other, "iscsi", "target", "no name of a target", "target")
    connection.secrets["/disk"] = foreign % (other, "volume", "volume", "/disk", "volume")
    assert secrets.secrets_there(connection) == [IQN]
    connection.lists = 3
    assert secrets.secrets_there(connection) == [], "a libvirt without secrets"
    connection.lists = 1
    with pytest.raises(LibvirtError):
        secrets.secrets_there(connection)


def test_check_mode_touches_nothing(libvirt):
    connection = Connection(libvirt)
    assert secrets.set_secret(connection, IQN, VALUE, check_mode=True)["changed"]
    assert connection.secrets == {}
    secrets.set_secret(connection, IQN, VALUE)
    assert secrets.remove_secret(connection, IQN, check_mode=True)["changed"] and connection.secrets


def test_a_value_that_libvirt_refuses_is_in_no_message_and_leaves_no_secret(libvirt):
    connection = Connection(libvirt)
    connection.refuses = True
    with pytest.raises(LibvirtError) as raised:
        secrets.set_secret(connection, IQN, VALUE)
    assert VALUE not in str(raised.value) and connection.secrets == {}


@pytest.mark.parametrize(("iqn", "value"), [(IQN, ""), ("<target>", VALUE)])
def test_bad_input_is_refused_before_libvirt_is_asked(libvirt, iqn, value):
    with pytest.raises(InvalidInput):
        secrets.set_secret(None, iqn, value)


@pytest.mark.parametrize(
    "config",
    [
        SecretConfig(ephemeral=True, private=True, usage_type="iscsi", usage_target=IQN, uuid=None),
        SecretConfig(usage_type="ceph", usage_name="client.cinder secret", description="of a pool"),
        SecretConfig(usage_type="volume", usage_volume="/dev/vg/v"),
    ],
)
def test_a_config_is_a_secret_for_libvirt_and_comes_back_the_same(config):
    text = to_text(config.to_xml())
    valid("secret", text)
    assert SecretConfig.from_xml(parse(text)) == config
    assert (config.usage_target or config.usage_name or config.usage_volume) in text


def test_a_disk_of_qemus_own_initiator_names_the_secret_and_is_valid():
    from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
    from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.devices import _source
    from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.disk import DiskConfig

    connection = qemu_connection.iscsi_connection(
        IQN, 1, [("192.0.2.10", 3260), ("192.0.2.11", 3260)], "user1", "iqn.2004-10.com.example:compute1"
    )
    planned = PlannedDisk(
        name="volume",
        kind="volume",
        device_name="/dev/vdb",
        disk_bus="virtio",
        source="network",
        path=None,
        driver_format="raw",
        connection=connection,
    )
    disk = DiskConfig(
        type="network",
        driver_name="qemu",
        driver_type="raw",
        driver_cache="none",
        target_dev="vdb",
        target_bus="virtio",
        serial="2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01",
        **_source(planned),
    )
    text = render(DomainConfig(name="n", memory=1024, disks=(disk,), os=OsConfig(arch="x86_64")))
    valid("domain", text)
    node = parse(text).find(".//disk")
    assert node.find("source").get("name") == IQN + "/1"
    assert [host.get("name") for host in node.findall("source/host")] == ["192.0.2.10"]
    assert node.find("auth").get("username") == "user1"
    assert dict(node.find("auth/secret").attrib) == {"type": "iscsi", "uuid": qemu_connection.secret_uuid(IQN)}
    own = qemu_connection.iscsi_connection(IQN, 1, [("192.0.2.10", 3260)], "u", secret=IQN + ":own")
    assert own["auth"]["secret_uuid"] == qemu_connection.secret_uuid(IQN + ":own") and own["name"] == IQN + "/1"
    wrapped = etree.fromstring(text.encode())
    assert DiskConfig.from_xml(wrapped.find(".//disk")) == disk


def test_without_credentials_a_disk_names_no_secret():
    assert "auth" not in qemu_connection.iscsi_connection(IQN, 0, [("2001:db8::1", 3260)])
    with pytest.raises(InvalidInput):
        qemu_connection.iscsi_connection(IQN, 0, [])
