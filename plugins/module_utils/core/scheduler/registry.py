# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters and weighers by name: Nova's names for the built-in ones, class names for those in the user's files.

A user's file (any ``*.py`` in a folder of ``user_filter_dirs``) holds classes with ``host_passes(self, host_state,
spec)`` (True, False, or (False, "why")), or with ``weigh(self, host_state, spec)`` (a number, more is better), or
subclasses of Filter and Weigher. No registration is needed: unless the names are listed, they run after the built-in ones.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import sys
import typing as t

from ..errors import BootflowError, InvalidInput
from ..reading.nearest import question
from ..reading.setting import Setting
from .columns import Column, Fleet, Rows, np
from .filters.affinity_filter import DifferentHostFilter, SameHostFilter, SimpleCIDRAffinityFilter
from .filters.aggregates.aggregate_image_properties_isolation import AggregateImagePropertiesIsolation
from .filters.aggregates.aggregate_instance_extra_specs_filter import AggregateInstanceExtraSpecsFilter
from .filters.aggregates.aggregate_multitenancy_isolation import AggregateMultiTenancyIsolation
from .filters.aggregates.type_filter import AggregateTypeAffinityFilter, TypeAffinityFilter
from .filters.availability_zone_filter import AvailabilityZoneFilter
from .filters.base import Filter, FilterResult
from .filters.compute_capabilities_filter import ComputeCapabilitiesFilter
from .filters.compute_filter import ComputeFilter
from .filters.facts_age_filter import FactsAgeFilter
from .filters.image_props_filter import ImagePropertiesFilter
from .filters.isolated_hosts_filter import IsolatedHostsFilter
from .filters.json_filter import JsonFilter
from .filters.metrics_filter import MetricsFilter
from .filters.network_filter import NetworkFilter
from .filters.resources.core_filter import AggregateCoreFilter, CoreFilter
from .filters.resources.disk_filter import AggregateDiskFilter, DiskFilter
from .filters.resources.exact_filters import ExactCoreFilter, ExactDiskFilter, ExactRamFilter
from .filters.resources.io_ops_filter import AggregateIoOpsFilter, IoOpsFilter
from .filters.resources.num_instances_filter import AggregateNumInstancesFilter, NumInstancesFilter
from .filters.resources.numa_topology_filter import NUMATopologyFilter
from .filters.resources.pci_passthrough_filter import PciPassthroughFilter
from .filters.resources.ram_filter import AggregateRamFilter, RamFilter
from .filters.resources.whole_disk_filter import WholeDiskFilter
from .filters.retry_filter import RetryFilter
from .filters.server_group_filters import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter
from .host_state import declared_needs
from .options import SchedulerOptions
from .request_spec import RequestSpec
from .weighers.affinity import ServerGroupSoftAffinityWeigher, ServerGroupSoftAntiAffinityWeigher
from .weighers.base import Weigher
from .weighers.build_failure import BuildFailureWeigher
from .weighers.cpu import CPUWeigher
from .weighers.disk import DiskWeigher
from .weighers.io_ops import IoOpsWeigher
from .weighers.metrics import MetricsWeigher
from .weighers.pci import PCIWeigher
from .weighers.ram import RAMWeigher

# Enabled unless the user lists others, in the order of Nova's default list. Ram, Disk and Core are included, because no
# placement service has excluded full hosts before; and without a filter the claim does not check its limit either.
ENABLED_FILTERS: tuple[type[Filter], ...] = (
    RetryFilter,
    AvailabilityZoneFilter,
    ComputeFilter,
    FactsAgeFilter,
    RamFilter,
    DiskFilter,
    CoreFilter,
    ComputeCapabilitiesFilter,
    ImagePropertiesFilter,
    ServerGroupAntiAffinityFilter,
    ServerGroupAffinityFilter,
    NUMATopologyFilter,
    PciPassthroughFilter,
    WholeDiskFilter,
    NetworkFilter,
)
BUILTIN_FILTERS: tuple[type[Filter], ...] = (
    *ENABLED_FILTERS,
    AggregateRamFilter,
    AggregateDiskFilter,
    AggregateCoreFilter,
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateIoOpsFilter,
    AggregateMultiTenancyIsolation,
    AggregateNumInstancesFilter,
    AggregateTypeAffinityFilter,
    DifferentHostFilter,
    ExactCoreFilter,
    ExactDiskFilter,
    ExactRamFilter,
    IoOpsFilter,
    IsolatedHostsFilter,
    JsonFilter,
    MetricsFilter,
    NumInstancesFilter,
    SameHostFilter,
    SimpleCIDRAffinityFilter,
    TypeAffinityFilter,
)
# All weighers, as nova.scheduler.weights.all_weighers; Nova sums in the order in which its folder is read.
BUILTIN_WEIGHERS: tuple[type[Weigher], ...] = (
    RAMWeigher,
    CPUWeigher,
    DiskWeigher,
    IoOpsWeigher,
    PCIWeigher,
    MetricsWeigher,
    BuildFailureWeigher,
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)

DEFAULT_FILTERS = tuple(cls.name for cls in ENABLED_FILTERS)
DEFAULT_WEIGHERS = tuple(cls.name for cls in BUILTIN_WEIGHERS)


class HostPasses(Filter):
    """A user's filter with host_passes(), asked host by host."""

    def __init__(self, options: SchedulerOptions, name: str, made: t.Any, path: str):
        super().__init__(options)
        self.name = name
        self.made = made
        self.path = path
        once = getattr(made, "run_once_per_request", getattr(made, "run_filter_once_per_request", False))
        self.run_once_per_request = bool(once)
        self.run_on_rebuild = bool(getattr(made, "run_on_rebuild", getattr(made, "RUN_ON_REBUILD", False)))
        self.per_host = bool(getattr(made, "per_host", True))
        hints = getattr(made, "hints", ())
        self.hints = (hints,) if isinstance(hints, str) else tuple(hints)

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        return declared_needs(self.made)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        answers = [self._ask(fleet, spec, int(row)) for row in np.atleast_1d(rows)]
        mask = np.array([passes for passes, _why in answers], dtype=bool)
        return FilterResult(mask=mask if np.ndim(rows) else mask[0], text=lambda position: answers[position][1])

    def _ask(self, fleet: Fleet, spec: RequestSpec, row: int) -> tuple[bool, str]:
        host = fleet.host_state(row)
        try:
            answer = self.made.host_passes(host, spec)
        except BootflowError:
            raise
        except Exception as e:
            raise _broken(
                self.name, self.path, "host_passes() for host %s: %s: %s" % (host.host, type(e).__name__, e)
            ) from e
        passes, why = (
            (bool(answer[0]), str(answer[1])) if isinstance(answer, tuple) and len(answer) == 2 else (bool(answer), "")
        )
        return passes, why or "%s of %s gave no reason" % (self.name, os.path.basename(self.path))


class Weigh(Weigher):
    """A user's weigher with weigh(), asked host by host."""

    def __init__(self, options: SchedulerOptions, name: str, made: t.Any, path: str):
        super().__init__(options)
        self.name = name
        self.made = made
        self.path = path
        self.multiplier = float(getattr(made, "multiplier", 1.0))
        self.minval = getattr(made, "minval", None)
        self.maxval = getattr(made, "maxval", None)
        self.per_host = bool(getattr(made, "per_host", True))

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        return declared_needs(self.made)

    def raw(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> Column:
        values = np.array([self._ask(fleet, spec, int(row)) for row in np.atleast_1d(rows)], dtype=np.float64)
        return values if np.ndim(rows) else values[0]

    def _ask(self, fleet: Fleet, spec: RequestSpec, row: int) -> float:
        host = fleet.host_state(row)
        try:
            value = float(self.made.weigh(host, spec))
        except BootflowError:
            raise
        except Exception as e:
            raise _broken(self.name, self.path, "weigh() for host %s: %s: %s" % (host.host, type(e).__name__, e)) from e
        if not math.isfinite(value):
            raise _broken(self.name, self.path, "weigh() for host %s gave %s" % (host.host, value))
        return value


def _broken(name: str, path: str, reason: str) -> InvalidInput:
    return InvalidInput(
        reason="%s of %s: %s" % (name, path, reason),
        remedy="Correct that file, or list bootflow_enabled_filters without it.",
    )


UserClasses = t.Dict[str, t.Tuple[type, str]]


def user_classes(options: SchedulerOptions) -> UserClasses:
    """The classes of the user's folders, read once. :raises InvalidInput: see load_user_classes()"""
    if options.user_classes is None:
        options.user_classes = load_user_classes(options.user_filter_dirs)
    return options.user_classes


def declared(classes: t.Iterable[type]) -> tuple[Setting, ...]:
    """The settings of filters and weighers, each once."""
    settings: dict[str, Setting] = {}
    for cls in classes:
        for setting in getattr(cls, "settings", ()):
            settings.setdefault(setting.name, setting)
    return tuple(settings.values())


def load_user_classes(dirs: t.Iterable[str]) -> UserClasses:
    """name -> (class, file) of the classes in these folders, folder by folder, files in order of their names.

    A missing folder counts as empty. Raises InvalidInput for a file that cannot be loaded and for a name already in use.
    """
    classes: UserClasses = {}
    for folder in dirs:
        if not os.path.isdir(folder):
            continue
        for entry in sorted(os.listdir(folder)):
            if entry.endswith(".py") and not entry.startswith(("_", ".")):
                _load(os.path.join(folder, entry), classes)
    return classes


def _load(path: str, classes: UserClasses) -> None:
    module_name = "bootflow_user_filter_%s" % hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(reason="%s is not a Python file" % path, remedy="Name it something.py.")
    module = importlib.util.module_from_spec(spec)
    writes = sys.dont_write_bytecode
    sys.modules[module_name] = module  # dataclasses and pickling look up a class's module there
    sys.dont_write_bytecode = True  # the user's folder may be read-only
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise InvalidInput(
            reason="the filter file %s: %s: %s" % (path, type(e).__name__, e),
            remedy="Correct that file, or move it away.",
        ) from e
    finally:
        sys.dont_write_bytecode = writes
    reserved = {f.name for f in BUILTIN_FILTERS} | {w.name for w in BUILTIN_WEIGHERS}
    for value in list(vars(module).values()):
        if not isinstance(value, type) or value.__module__ != module_name or value.__name__.startswith("_"):
            continue
        if not (_is_filter(value) or is_weigher(value)):
            continue
        name = getattr(value, "name", "") or value.__name__
        if name in classes or name in reserved:
            owner = classes[name][1] if name in classes else "bootflow.compute"
            raise InvalidInput(
                reason="%s of %s is already the name of one of %s" % (name, path, owner), remedy="Give it another name."
            )
        classes[name] = (value, path)


def _is_filter(cls: type) -> bool:
    return callable(getattr(cls, "host_passes", None)) or callable(getattr(cls, "evaluate", None))


def is_weigher(cls: type) -> bool:
    return callable(getattr(cls, "weigh", None)) or callable(getattr(cls, "raw", None))


def make_filters(options: SchedulerOptions, user: UserClasses) -> list[Filter]:
    """The enabled filters in order. Raises InvalidInput for unknown names."""
    builtin = {cls.name: cls for cls in BUILTIN_FILTERS}
    of_user = {name: c for name, c in user.items() if _is_filter(c[0])}
    names = options.enabled_filters
    if names is None:
        ageless = options.settings.get("max_facts_age") is None  # FactsAgeFilter does nothing then
        defaults = (n for n in DEFAULT_FILTERS if not (ageless and n == FactsAgeFilter.name))
        names = [*defaults, *of_user]
    check_names("filter", names, [*builtin, *of_user], "bootflow_enabled_filters")
    return [builtin[n](options) if n in builtin else _user_filter(options, n, *of_user[n]) for n in names]


def hints_read_by(filters: t.Iterable[Filter | type[Filter]]) -> frozenset[str]:
    """The scheduler hints that any of these filters declares."""
    return frozenset(name for filter_ in filters for name in filter_.hints)


def make_weighers(options: SchedulerOptions, user: UserClasses) -> list[Weigher]:
    """The enabled weighers in order, each with its multiplier. Raises InvalidInput for unknown names."""
    builtin = {cls.name: cls for cls in BUILTIN_WEIGHERS}
    of_user = {name: c for name, c in user.items() if is_weigher(c[0])}
    names = options.weighers
    if names is None:
        names = [*DEFAULT_WEIGHERS, *of_user]
    known = [*builtin, *of_user]
    check_names("weigher", names, known, "bootflow_weighers")
    check_names("weigher", list(options.multipliers), known, "bootflow_weight_multipliers")
    made = [builtin[n](options) if n in builtin else _user_weigher(options, n, *of_user[n]) for n in names]
    for weigher in made:
        weigher.multiplier = check_multiplier(weigher, options.multipliers.get(weigher.name, weigher.multiplier))
    return made


def check_multiplier(weigher: Weigher, value: t.Any, setting: str = "bootflow_weight_multipliers") -> float:
    """The multiplier as a number. Raises InvalidInput if it is not a number, or too small for this weigher."""
    try:
        multiplier = float(value)
    except (TypeError, ValueError):
        multiplier = math.nan
    least = weigher.least_multiplier
    if not math.isfinite(multiplier) or (least is not None and multiplier < least):
        raise InvalidInput(
            reason="the multiplier of %s is %r" % (weigher.name, value),
            remedy="Give a number%s in %s." % ("" if least is None else ", %g or more," % least, setting),
        )
    return multiplier


def check_names(kind: str, names: t.Sequence[str], known: t.Sequence[str], setting: str) -> None:
    """Raise InvalidInput for unknown names and names listed twice."""
    unknown = [n for n in names if n not in known]
    if unknown:
        raise InvalidInput(
            reason="unknown %s %s" % (kind, ", ".join(unknown)),
            remedy="%s%s may hold: %s." % (question(unknown[0], known), setting, ", ".join(known)),
        )
    twice = sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise InvalidInput(
            reason="%s %s is listed twice" % (kind, ", ".join(twice)), remedy="List each name once in %s." % setting
        )


def _user_filter(options: SchedulerOptions, name: str, cls: type, path: str) -> Filter:
    made = _make(options, name, cls, path)
    if callable(getattr(made, "evaluate", None)):
        if not isinstance(made, Filter):
            raise _broken(
                name,
                path,
                "a class with evaluate() derives from Filter (core.scheduler.filters.base); host_passes() needs no base",
            )
        made.name = name
        return made
    return HostPasses(options, name, made, path)


def _user_weigher(options: SchedulerOptions, name: str, cls: type, path: str) -> Weigher:
    made = _make(options, name, cls, path)
    if callable(getattr(made, "raw", None)):
        if not isinstance(made, Weigher):
            raise _broken(
                name,
                path,
                "a class with raw() derives from Weigher (core.scheduler.weighers.base); weigh() needs no base",
            )
        made.name = name
        return made
    return Weigh(options, name, made, path)


def _make(options: SchedulerOptions, name: str, cls: type, path: str) -> t.Any:
    try:
        if issubclass(cls, (Filter, Weigher)):
            return cls(options)
        made: t.Any = cls()
        if getattr(made, "settings", ()):
            made.conf = options.values_of(made.settings)
        return made
    except BootflowError:
        raise
    except Exception as e:
        raise _broken(name, path, "%s: %s" % (type(e).__name__, e)) from e
