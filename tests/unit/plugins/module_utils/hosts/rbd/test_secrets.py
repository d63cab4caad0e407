# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.rbd_names import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd import secrets

from .pool import FSID

OURS = secret_uuid(FSID, "cinder")
DISK = "<domain><devices><disk><auth username='cinder'><secret type='ceph' uuid='%s'/></auth></disk></devices></domain>"


class Connection:
    """libvirt with one secret of the user, and one domain."""

    def __init__(self, uuid: str, xml: str) -> None:
        self.secret = types.SimpleNamespace(UUIDString=lambda: uuid, undefine=self.undefine)
        self.domain = types.SimpleNamespace(XMLDesc=lambda flags: xml, name=lambda: "web")
        self.removed = False

    def undefine(self) -> None:
        self.removed = True

    def secretLookupByUsage(self, kind: int, usage: str) -> t.Any:
        assert (kind, usage) == (4, "client.cinder of " + FSID)
        return self.secret

    def listAllDomains(self, flags: int) -> list[t.Any]:
        return [self.domain]


@pytest.mark.parametrize(
    ("uuid", "xml", "check_mode", "removed", "outcome"),
    [
        (OURS, "<domain/>", False, True, {"changed": True, "users": []}),
        (OURS, "<domain/>", True, False, {"changed": True, "users": []}),
        (OURS, DISK % OURS, False, False, {"changed": False, "users": ["web"]}),
        (FSID, "<domain/>", False, False, {"changed": False, "users": []}),
    ],
    ids=["unused", "check mode", "used by a guest", "of somebody else"],
)
def test_a_secret_is_removed_if_it_is_ours_and_unused(
    monkeypatch: pytest.MonkeyPatch, uuid: str, xml: str, check_mode: bool, removed: bool, outcome: dict[str, t.Any]
) -> None:
    fake = types.SimpleNamespace(
        libvirtError=ZeroDivisionError, VIR_SECRET_USAGE_TYPE_CEPH=4, VIR_DOMAIN_XML_INACTIVE=2, VIR_ERR_NO_SECRET=66
    )
    monkeypatch.setattr(secrets, "libvirt", fake)
    monkeypatch.setattr(libvirt_connection, "libvirt", fake)
    connection = Connection(uuid, xml)
    assert secrets.remove_secret(connection, FSID, "cinder", check_mode) == outcome
    assert connection.removed is removed
