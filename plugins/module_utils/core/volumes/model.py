# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nouns of block storage as plain data: sizes in GB (GiB), times in seconds since the epoch.

Constructing one (also from_dict()) raises InvalidInput if a size is not a number or a mapping is not one.

source: Cinder's Volume, Snapshot, VolumeType and PoolState (Queens)
"""

from __future__ import annotations

import dataclasses
import math
import typing as t
from dataclasses import dataclass, field

from ..errors import InvalidInput
from ..reading.formats import MAX_INT
from .pool_hosts import extract_host

# Amounts that backends report: numbers of GB, or a word where they cannot tell one. source: Cinder's utils (Queens)
INFINITE = "infinite"
UNKNOWN = "unknown"
WORDS = (INFINITE, UNKNOWN)
AUTO = "auto"
INITIAL_AUTO_RATIO = 20.0  # while nothing is provisioned yet

Capacity = t.Union[float, str]  # a number of GB, or one of WORDS

_Self = t.TypeVar("_Self", bound="_Record")


class _Record:
    """as_dict() and from_dict() of the dataclasses below; from_dict() ignores unknown fields."""

    def as_dict(self) -> dict[str, t.Any]:
        """Plain JSON: mappings, lists, texts and numbers."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(t.cast(t.Any, self))}

    @classmethod
    def from_dict(cls: type[_Self], data: t.Mapping[str, t.Any]) -> _Self:
        """:raises InvalidInput: not a mapping, or a field without default is missing."""
        what = _words(cls)
        if not isinstance(data, t.Mapping):
            raise InvalidInput(reason="%s must be a mapping of its fields" % what)
        fields = dataclasses.fields(t.cast(t.Any, cls))
        values = {f.name: data[f.name] for f in fields if f.name in data}
        no_default = dataclasses.MISSING
        needed = [f.name for f in fields if f.default is no_default and f.default_factory is no_default]
        missing = [name for name in needed if name not in values]
        if missing:
            raise InvalidInput(reason="%s has no %s" % (what, ", ".join(missing)))
        return cls(**values)

    def __post_init__(self) -> None:
        for name in self._sizes:
            value = getattr(self, name)
            if value is None and getattr(type(self), name, 0) is None:  # its default
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
                raise InvalidInput(
                    reason="%s of %s must be a whole number, not %s" % (name, _words(type(self)), ascii(value))
                )
        for name in self._mappings:
            value = getattr(self, name)
            if not isinstance(value, t.Mapping) or not all(isinstance(key, str) for key in value):
                raise InvalidInput(reason="%s of %s must be a mapping" % (name, _words(type(self))))
        for name in self._texts:
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and getattr(type(self), name, 0) is None):
                raise InvalidInput(reason="%s of %s must be a text, not %s" % (name, _words(type(self)), ascii(value)))

    _sizes: t.ClassVar[tuple[str, ...]] = ()
    _mappings: t.ClassVar[tuple[str, ...]] = ()
    _texts: t.ClassVar[tuple[str, ...]] = ()


def _words(cls: type) -> str:
    return "".join(" " + c.lower() if c.isupper() else c for c in cls.__name__).strip()


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, t.Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


@dataclass(frozen=True)
class VolumeType(_Record):
    """A volume type of the inventory (bootflow_volume_types). ``extra_specs``: capabilities that its backend has to have."""

    name: str
    extra_specs: t.Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    description: str = ""
    is_public: bool = True
    projects: t.Sequence[str] = ()  # that may use it although it is not public

    _mappings = ("extra_specs",)
    _texts = ("name", "id")

    @property
    def thick(self) -> bool:
        """Whether its volumes are to be provisioned thick, even if the backend could do thin."""
        return self.extra_specs.get("provisioning:type") == "thick"

    @property
    def multiattach(self) -> bool:
        return self.extra_specs.get("multiattach", "False") == "<is> True"

    def open_to(self, project: str) -> bool:
        return self.is_public or project in self.projects


@dataclass(frozen=True)
class Volume:
    """A volume as the rules read it.

    ``status``, ``attach_status``: see states; ``migration_status`` None: never migrated (there are no migrations yet).
    """

    id: str
    size: int
    status: str = "creating"
    attach_status: str = "detached"
    migration_status: str | None = None
    availability_zone: str | None = None
    host: str | None = None  # host@backend#pool; None until scheduled
    volume_type: str | None = None  # by name
    snapshot_id: str | None = None
    source_volid: str | None = None
    image_id: str | None = None
    bootable: bool = False
    multiattach: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a volume as the rules read it."""

    id: str
    volume_size: int  # of its volume when it was made
    name: str = ""
    status: str = "creating"
    volume_type: str | None = None
    availability_zone: str | None = None  # of its volume
    host: str | None = None  # of its volume


class Attachment(t.Protocol):
    """Fields of an attachment that the rules read: ledger.storage.attachments has the rows."""

    @property
    def id(self) -> str: ...
    @property
    def instance_uuid(self) -> str: ...
    @property
    def attach_status(self) -> str: ...


@dataclass(frozen=True)
class VolumeRequest(_Record):
    """One validated request for a volume with all defaults (create_request.py), and what the scheduler reads.

    ``resource_backend``: the backend, with or without its pool, that it has to be on: a snapshot's or source's.
    ``new_size`` with ``size``: the volume exists and is to grow.
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

    _sizes = ("size", "new_size")
    _mappings = ("metadata", "scheduler_hints")
    _texts = ("volume_id", "availability_zone", "resource_backend")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.volume_type is not None and not isinstance(self.volume_type, VolumeType):
            raise InvalidInput(reason="volume_type of a volume request must be a volume type, not its name")

    @property
    def requested_size(self) -> int:
        """GB needed: the size, or the growth."""
        return self.new_size - self.size if self.new_size else self.size

    @property
    def thick(self) -> bool:
        return self.volume_type is not None and self.volume_type.thick

    @property
    def extra_specs(self) -> dict[str, str]:
        """The type's; a multiattach volume also needs a backend with multiattach."""
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
        if isinstance(data, t.Mapping) and isinstance(data.get("volume_type"), t.Mapping):
            data = {**data, "volume_type": VolumeType.from_dict(data["volume_type"])}
        return super().from_dict(data)


@dataclass(frozen=True)
class PoolState(_Record):
    """A backend's pool as last reported. ``host`` is host@backend#pool. Amounts are GB, reserved_percentage 0 to 100.

    free_capacity_gb None: not reported. provisioned_capacity_gb None: the same as allocated.
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
    capabilities: t.Mapping[str, t.Any] = field(default_factory=dict)  # all other reported values
    disabled: bool = False
    frozen: bool = False
    updated_at: float | None = None
    not_ready: str = ""  # why it takes no volumes now

    _sizes = ("volume_count",)
    _mappings = ("capabilities",)
    _texts = ("availability_zone", "volume_backend_name")

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if self.updated_at is not None:
            object.__setattr__(self, "updated_at", _number(self.updated_at, "%s: updated_at" % self.host))

    @property
    def provisioned(self) -> float:
        """GB promised."""
        return self.allocated_capacity_gb if self.provisioned_capacity_gb is None else self.provisioned_capacity_gb

    def ratio(self, default: float | str = 20.0) -> float:
        """max_over_subscription_ratio as the filter uses it; ``default`` if the backend reports none."""
        return oversubscription_ratio(
            self.max_over_subscription_ratio or default,
            total=self.total_capacity_gb,
            free=self.free_capacity_gb,
            provisioned=self.provisioned,
            thin=self.thin_provisioning_support,
        )

    def all_capabilities(self) -> dict[str, t.Any]:
        """Return the capabilities for CapabilitiesFilter: everything that the backend reports, its own values last.

        A scheduler's Backends give the amounts after what a run took; Cinder the amounts of the last report.
        """
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
            "QoS_support": False,
            "total_volumes": self.volume_count,
            "medium": self.medium,
            **self.capabilities,
        }


def capacity_of(value: t.Any, what: str = "capacity") -> Capacity:
    """A number of GB (also given as text), or ``infinite`` or ``unknown``.

    :raises InvalidInput: neither.
    """
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return value.strip().lower()
    if not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return value if isinstance(value, int) else number
    raise InvalidInput(
        reason="%s is %r" % (what, value), remedy="Set a number of GiB, or one of %s." % ", ".join(WORDS)
    )


def oversubscription_ratio(
    configured: float | str, total: Capacity | None, free: Capacity | None, provisioned: float, thin: bool
) -> float:
    """max_over_subscription_ratio as a number. ``auto``: 20 while nothing is provisioned, then 1 + provisioned / (used + 1).

    A ratio below 1.0 is accepted here; CapacityFilter rejects such a pool for thin volumes.

    :raises InvalidInput: neither a number nor ``auto``.
    """
    if not thin or isinstance(total, str) or isinstance(free, str):
        return 1.0  # unused for thick pools
    if configured == AUTO:
        if not provisioned:
            return INITIAL_AUTO_RATIO
        used = (total or 0) - (free or 0)
        return 1 + float(provisioned) / ((used + 1) or 1)  # a pool may report more free than there is
    try:
        ratio = float(configured)
    except (TypeError, ValueError, OverflowError):
        ratio = math.nan
    if not math.isfinite(ratio):
        raise InvalidInput(
            reason="max_over_subscription_ratio is %r" % (configured,), remedy="Set a number of 1.0 or more, or auto."
        )
    return ratio


def _number(value: t.Any, what: str) -> float:
    number = capacity_of(value, what)
    if isinstance(number, str):
        raise InvalidInput(reason="%s must be a number, not %s" % (what, number))
    return number
