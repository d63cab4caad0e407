# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The domain's metadata: in Nova's format, so that tools for Nova's guests can read it, and the ledger that has the guest.

source: Nova's libvirt driver writes ``nova:instance`` into ``<metadata>``; version 1.1 of its namespace has the ports.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at, many, one
from .namespaces import NOVA_NAMESPACE, OWNER_NAMESPACE


@dataclass(frozen=True)
class NovaElement(Element):
    NAMESPACE: t.ClassVar[t.Optional[str]] = NOVA_NAMESPACE
    PREFIX: t.ClassVar[t.Optional[str]] = "nova"


@dataclass(frozen=True)
class NovaFlavorConfig(NovaElement):
    """Memory and swap in MB, disk and ephemeral in GB."""

    TAG: t.ClassVar[str] = "flavor"

    name: str = at("@name", default="")
    memory: int = at("memory", "int", default=0)
    disk: int = at("disk", "int", default=0)
    swap: int = at("swap", "int", default=0)
    ephemeral: int = at("ephemeral", "int", default=0)
    vcpus: int = at("vcpus", "int", default=0)


@dataclass(frozen=True)
class NovaIpConfig(NovaElement):
    TAG: t.ClassVar[str] = "ip"

    type: str = at("@type", default="fixed")
    address: str = at("@address", default="")
    ip_version: str = at("@ipVersion", default="4")


@dataclass(frozen=True)
class NovaPortConfig(NovaElement):
    TAG: t.ClassVar[str] = "port"

    uuid: str = at("@uuid", default="")
    ips: t.Tuple[NovaIpConfig, ...] = many(NovaIpConfig)


@dataclass(frozen=True)
class NovaInstanceConfig(NovaElement):
    TAG: t.ClassVar[str] = "instance"

    package: t.Optional[str] = at("package/@version")
    name: t.Optional[str] = at("name")
    creation_time: t.Optional[str] = at("creationTime")
    flavor: t.Optional[NovaFlavorConfig] = one(NovaFlavorConfig)
    user_uuid: t.Optional[str] = at("owner/user/@uuid")
    user: t.Optional[str] = at("owner/user")
    project_uuid: t.Optional[str] = at("owner/project/@uuid")
    project: t.Optional[str] = at("owner/project")
    root_type: t.Optional[str] = at("root/@type")
    root_uuid: t.Optional[str] = at("root/@uuid")
    ports: t.Tuple[NovaPortConfig, ...] = many(NovaPortConfig, "ports/port")


@dataclass(frozen=True)
class OwnerConfig(Element):
    """Owner of the guest: the id of its ledger."""

    TAG: t.ClassVar[str] = "owner"
    NAMESPACE: t.ClassVar[t.Optional[str]] = OWNER_NAMESPACE
    PREFIX: t.ClassVar[t.Optional[str]] = "bootflow"

    ledger: str = at("@ledger", default="")
