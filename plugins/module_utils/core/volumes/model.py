# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nouns of block storage as plain data: sizes in GB (GiB), times in seconds since the epoch.

source: mission row C01; semantics 11, 12; Cinder's Volume, Snapshot, VolumeType and PoolState (Queens)
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ..errors import InvalidInput
from .capacities import Capacity, capacity_of, oversubscription_ratio
from .places import extract_host

_Self = t.TypeVar("_Self", bound="_Record")


class _Record:
    """as_dict() and from_dict() of the dataclasses below; what from_dict() does not know it leaves out."""

    def as_dict(self) -> dict[str, t.Any]:
        """Plain JSON: mappings, lists, texts and numbers."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(t.cast(t.Any, self))}

    @classmethod
    def from_dict(cls: type[_Self], data: t.Mapping[str, t.Any]) -> _Self:
        names = {f.name for f in dataclasses.fields(t.cast(t.Any, cls))}
        return cls(**{name: value for name, value in data.items() if name in names})


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, t.Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


@dataclass(frozen=True)
class VolumeType(_Record):
    """A volume type of the inventory (bootflow_volume_types)."""

    name: str
    extra_specs: t.Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    description: str = ""
    is_public: bool = True
    projects: t.Sequence[str] = ()  # who may use it although it is not public

    @property
    def thick(self) -> bool:
        """Whether its volumes are to be provisioned thick, whatever the backend could do (semantics 12, step 9)."""
        return self.extra_specs.get("provisioning:type") == "thick"

    @property
    def multiattach(self) -> bool:
        return self.extra_specs.get("multiattach", "False") == "<is> True"

    def open_to(self, project: str) -> bool:
        return self.is_public or project in self.projects


@dataclass(frozen=True)
class Volume(_Record):
    """One volume. ``host`` is host@backend#pool, None until it was scheduled."""

    id: str
    size: int
    name: str = ""
    description: str = ""
    status: str = "creating"
    attach_status: str = "detached"
    migration_status: str | None = None
    availability_zone: str | None = None
    host: str | None = None
    volume_type: str | None = None  # by name
    snapshot_id: str | None = None
    source_volid: str | None = None
    image_id: str | None = None
    bootable: bool = False
    multiattach: bool = False
    project: str = "default"
    user: str = ""
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    image_metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    provider_location: str | None = None
    group_id: str | None = None
    previous_status: str | None = None
    readonly: bool = False
    created_at: float | None = None
    scheduled_at: float | None = None
    launched_at: float | None = None
    terminated_at: float | None = None


@dataclass(frozen=True)
class Snapshot(_Record):
    id: str
    volume_id: str
    volume_size: int
    name: str = ""
    description: str = ""
    status: str = "creating"
    volume_type: str | None = None
    availability_zone: str | None = None  # of its volume
    host: str | None = None  # of its volume
    bootable: bool = False  # of its volume
    project: str = "default"
    user: str = ""
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    group_snapshot_id: str | None = None
    progress: str = "0%"
    created_at: float | None = None


@dataclass(frozen=True)
class Attachment(_Record):
    id: str
    volume_id: str
    instance_uuid: str | None = None
    attached_host: str | None = None
    mountpoint: str | None = None
    attach_status: str = "reserved"
    attach_mode: str = "rw"


@dataclass(frozen=True)
class VolumeRequest(_Record):
    """One validated wish for a volume, all defaults filled in (create_request.py), and what the scheduler reads.

    ``resource_backend``: the backend, with or without its pool, that it has to be on: a snapshot's or source's (row C07).
    ``new_size`` with ``size``: the volume exists and is to grow. ``exists_on``: the backend that has it already.
    """

    size: int
    volume_id: str = ""
    name: str = ""
    description: str = ""
    volume_type: VolumeType | None = None
    availability_zone: str | None = None
    image_id: str | None = None
    snapshot_id: str | None = None
    source_volid: str | None = None
    multiattach: bool = False
    bootable: bool = False
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    scheduler_hints: t.Mapping[str, t.Any] = field(default_factory=dict)
    project: str = "default"
    user: str = ""
    resource_backend: str | None = None
    retry: t.Mapping[str, t.Any] | None = None
    new_size: int | None = None
    exists_on: str | None = None

    @property
    def requested_size(self) -> int:
        """GB to be found: the size, or what it grows by (semantics 12, step 3)."""
        return self.new_size - self.size if self.new_size else self.size

    @property
    def thick(self) -> bool:
        return self.volume_type is not None and self.volume_type.thick

    @property
    def extra_specs(self) -> dict[str, str]:
        """Of the type; a volume for several instances wants a backend that can attach it to several."""
        specs = dict(self.volume_type.extra_specs) if self.volume_type is not None else {}
        if self.multiattach:
            specs.setdefault("multiattach", "<is> True")
        return specs

    def as_dict(self) -> dict[str, t.Any]:
        result = super().as_dict()
        result["volume_type"] = None if self.volume_type is None else self.volume_type.as_dict()
        return result

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> VolumeRequest:
        values = dict(data)
        if isinstance(values.get("volume_type"), t.Mapping):
            values["volume_type"] = VolumeType.from_dict(values["volume_type"])
        return super().from_dict(values)


@dataclass(frozen=True)
class PoolState(_Record):
    """A backend's pool as last reported. ``host`` is host@backend#pool.

    free_capacity_gb None: the report said nothing of it. provisioned_capacity_gb None: as much as is allocated.
    max_over_subscription_ratio: a number, ``auto``, or None for the setting's.
    """

    host: str
    total_capacity_gb: Capacity = 0
    free_capacity_gb: Capacity | None = None
    allocated_capacity_gb: float = 0
    provisioned_capacity_gb: float | None = None
    max_over_subscription_ratio: float | str | None = None
    reserved_percentage: float = 0
    thin_provisioning_support: bool = False
    thick_provisioning_support: bool = False
    availability_zone: str = "nova"
    medium: str = ""
    volume_backend_name: str = ""
    storage_protocol: str = "iSCSI"
    vendor_name: str = "Open Source"
    driver_version: str = ""
    multiattach: bool = False
    volume_count: int = 0
    capabilities: t.Mapping[str, t.Any] = field(default_factory=dict)  # whatever else it reports
    disabled: bool = False
    frozen: bool = False
    updated_at: float | None = None
    not_ready: str = ""  # why nothing can be made on it now

    def __post_init__(self) -> None:
        extract_host(self.host, "host")
        for name in ("total_capacity_gb", "free_capacity_gb"):
            value = getattr(self, name)
            if value is not None or name == "total_capacity_gb":
                object.__setattr__(self, name, capacity_of(value, "%s: %s" % (self.host, name)))
        for name in ("allocated_capacity_gb", "reserved_percentage"):
            object.__setattr__(self, name, _number(getattr(self, name), "%s: %s" % (self.host, name)))
        if self.provisioned_capacity_gb is not None:
            value = _number(self.provisioned_capacity_gb, "%s: provisioned_capacity_gb" % self.host)
            object.__setattr__(self, "provisioned_capacity_gb", value)

    @property
    def provisioned(self) -> float:
        """GB promised."""
        return self.allocated_capacity_gb if self.provisioned_capacity_gb is None else self.provisioned_capacity_gb

    def ratio(self, default: float | str = 20.0) -> float:
        """max_over_subscription_ratio as the filter uses it; ``default`` where the backend says nothing."""
        return oversubscription_ratio(
            self.max_over_subscription_ratio or default,
            total=self.total_capacity_gb,
            free=self.free_capacity_gb,
            provisioned=self.provisioned,
            thin=self.thin_provisioning_support,
        )

    def all_capabilities(self) -> dict[str, t.Any]:
        """What CapabilitiesFilter looks at: all that the backend reports, its own words last."""
        return {
            "pool_name": extract_host(self.host, "pool", default_pool_name=True),
            "volume_backend_name": self.volume_backend_name or extract_host(self.host, "backend").partition("@")[2],
            "storage_protocol": self.storage_protocol,
            "vendor_name": self.vendor_name,
            "driver_version": self.driver_version,
            "total_capacity_gb": self.total_capacity_gb,
            "free_capacity_gb": self.free_capacity_gb,
            "allocated_capacity_gb": self.allocated_capacity_gb,
            "provisioned_capacity_gb": self.provisioned,
            "reserved_percentage": self.reserved_percentage,
            "max_over_subscription_ratio": self.max_over_subscription_ratio,
            "thin_provisioning_support": self.thin_provisioning_support,
            "thick_provisioning_support": self.thick_provisioning_support,
            "multiattach": self.multiattach,
            "medium": self.medium,
            **self.capabilities,
        }


def _number(value: t.Any, what: str) -> float:
    found = capacity_of(value, what)
    if isinstance(found, str):
        raise InvalidInput(reason="%s must be a number, not %s" % (what, found))
    return found
