# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image properties and extra specs with a closed set of values, which no host can have otherwise.

The request is checked with the same functions as the guest is built by: what libvirt or QEMU refuse on every host is an
error before anything is claimed. source: Nova's ImageMetaProps and api/validation/extra_specs
"""

from __future__ import annotations

import re
import typing as t

from ..disks.disk_names import DEVICE_BUSES, check_bus, check_device
from ..errors import BootflowError, InvalidInput, UnsupportedHardware
from ..model import Flavor
from ..reading import extra_specs_ops, platform_names

# Nova also has lan9118, which is soldered to ARM boards: no machine with PCI takes it.
VIF_MODELS = ("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3")
VIDEO_MODELS = ("virtio", "vga", "cirrus", "qxl", "vmvga", "bochs", "none")
SCSI_MODELS = (
    "virtio-scsi",
    "lsilogic",
    "lsisas1068",
    "lsisas1078",
    "vmpvscsi",
    "auto",
)  # libvirt has no buslogic for QEMU
WATCHDOG_ACTIONS = ("disabled", "reset", "poweroff", "pause", "none")
INPUT_BUSES = ("usb", "virtio")
FIRMWARE_TYPES = ("bios", "uefi")
RNG_MODELS = ("virtio",)

#: image property -> what it is, and its values
_MODELS: t.Mapping[str, tuple[str, t.Sequence[str]]] = {
    "hw_vif_model": ("VIF model", VIF_MODELS),
    "hw_video_model": ("video model", VIDEO_MODELS),
    "hw_scsi_model": ("SCSI model", SCSI_MODELS),
    "hw_input_bus": ("input bus", INPUT_BUSES),
    "hw_firmware_type": ("firmware", FIRMWARE_TYPES),
    "hw_rng_model": ("rng model", RNG_MODELS),
}
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z")
_UNITS = ("bytes", "iops")
_WAYS = ("total", "read", "write")
THROTTLE_MAX = 10**15  # QEMU's
_UINT_MAX = 2**32 - 1  # of libvirt's interfaces and random number generators

DISK_LIMITS = tuple("%s_%s_sec" % (way, unit) for unit in _UNITS for way in _WAYS)
VIF_LIMITS = tuple("%s_%s" % (way, what) for way in ("inbound", "outbound") for what in ("average", "peak", "burst"))

#: extra spec behind "quota:" -> its ranges in libvirt and QEMU. A negative quota of CPU time is none.
_QUOTAS: t.Mapping[str, t.Sequence[tuple[int, int]]] = {
    "cpu_shares": ((0, 0), (2, 262144)),
    "cpu_period": ((0, 0), (1000, 1000000)),
    "cpu_quota": ((-(2**63), 0), (1000, 17592186044415)),
    "disk_size_iops_sec": ((0, THROTTLE_MAX),),
    **{"disk_%s%s" % (name, burst): ((0, THROTTLE_MAX),) for name in DISK_LIMITS for burst in ("", "_max")},
    **{"vif_" + name: ((0, _UINT_MAX),) for name in VIF_LIMITS},
}

#: of what the scheduler compares with facts and aggregates of hosts
_REQUIREMENTS = ("capabilities:", "aggregate_instance_extra_specs:")

Properties = t.Mapping[str, t.Any]


def is_windows(image_properties: t.Mapping[str, t.Any]) -> bool:
    return str(image_properties.get("os_type", "")).lower() == "windows"


def value_errors(flavor: Flavor, properties: Properties) -> t.Iterator[BootflowError]:
    """Yield the errors in the values, each by itself, and in the limits of disks and interfaces together."""
    checks: list[tuple[t.Callable[..., t.Any], tuple[t.Any, ...]]] = [
        *((model, (properties, name)) for name in _MODELS),
        (watchdog_action, (flavor, properties)),
        *((_check_bus, (properties, kind)) for kind in DEVICE_BUSES),
        *((rule, (properties,)) for rule in (architecture, _check_hypervisor, _check_vm_mode, _check_version)),
        (_check_bits, (flavor, properties)),
        *(
            (extra_specs_ops.check, (str(requirement),))
            for name, requirement in flavor.extra_specs.items()
            if name.startswith(_REQUIREMENTS)
        ),
        *((rng_number, (flavor, name)) for name in ("hw_rng:rate_bytes", "hw_rng:rate_period")),
    ]
    yield from _errors_of(checks)
    wrong = list(_errors_of((quota_number, (flavor, name)) for name in _QUOTAS))
    yield from wrong or _limits_together(flavor)


def _errors_of(
    checks: t.Iterable[tuple[t.Callable[..., t.Any], tuple[t.Any, ...]]],
) -> t.Iterator[BootflowError]:
    for check, arguments in checks:
        try:
            check(*arguments)
        except BootflowError as error:
            yield error


def one_of(what: str, value: str, known: t.Sequence[str], virt_type: str = "kvm") -> str:
    """The value. :raises UnsupportedHardware: it is not one of the known ones."""
    if value not in known:
        raise UnsupportedHardware(
            model="%s %s" % (what, value), virt=virt_type, remedy="Use one of %s." % ", ".join(known)
        )
    return value


def model(properties: Properties, name: str, default: str | None = None, virt_type: str = "kvm") -> str | None:
    """The image's property, or the default where it is missing or empty. :raises UnsupportedHardware: an unknown value."""
    value = properties.get(name)
    if value in (None, ""):
        return default
    what, known = _MODELS[name]
    return one_of(what, str(value), known, virt_type)


def watchdog_action(flavor: Flavor, properties: Properties, virt_type: str = "kvm") -> str:
    """The image's hw_watchdog_action, else the flavor's, else ``disabled``. :raises UnsupportedHardware: an unknown action."""
    actions = [properties.get("hw_watchdog_action"), flavor.extra_specs.get("hw:watchdog_action"), "disabled"]
    return one_of("watchdog action", str(next(v for v in actions if v not in (None, ""))), WATCHDOG_ACTIONS, virt_type)


def _check_bus(properties: Properties, kind: str) -> None:
    bus = properties.get("hw_%s_bus" % kind)
    if bus:
        machine = properties.get("hw_machine_type")
        check_device(kind, check_bus(str(bus), machine=None if machine is None else str(machine)))


def architecture(properties: Properties) -> str | None:
    """The canonical name of the image's architecture; None for none. :raises InvalidInput: an unknown one."""
    return platform_names.architecture(platform_names.property_of(properties, "hw_architecture"))


def _check_hypervisor(properties: Properties) -> None:
    platform_names.hv_type(platform_names.property_of(properties, "img_hv_type"))


def _check_vm_mode(properties: Properties) -> None:
    platform_names.vm_mode(platform_names.property_of(properties, "hw_vm_mode"))


def _check_version(properties: Properties) -> None:
    version = platform_names.property_of(properties, "img_hv_requested_version")
    if version:
        platform_names.parse_version_range(str(version))


def _check_bits(flavor: Flavor, properties: Properties) -> None:
    platform_names.address_bits("hw:maxphysaddr_bits", flavor.extra_specs.get("hw:maxphysaddr_bits"))
    platform_names.address_bits("hw_maxphysaddr_bits", properties.get("hw_maxphysaddr_bits"))


def rng_number(flavor: Flavor, name: str) -> int | None:
    """The flavor's hw_rng:rate_bytes or hw_rng:rate_period; None for 0, too. :raises InvalidInput: not a whole number."""
    value = flavor.extra_specs.get(name)
    if value in (None, ""):
        return None
    number = _whole(value)
    if number is None or not 0 <= number <= _UINT_MAX:
        raise InvalidInput(
            reason="extra spec %s of flavor %s must be a number, got %r" % (name, flavor.name, value),
            remedy="Write it in digits, at most %d." % _UINT_MAX,
        )
    return number or None


def quota_number(flavor: Flavor, name: str) -> int | None:
    """The flavor's extra spec ``quota:<name>``. :raises InvalidInput: not a number that libvirt and QEMU take."""
    value = flavor.extra_specs.get("quota:%s" % name)
    if value is None:
        return None
    number = _whole(value)
    if number is None or not any(least <= number <= most for least, most in _QUOTAS[name]):
        raise InvalidInput(
            reason="extra spec quota:%s of flavor %s must be a number, got %r" % (name, flavor.name, value),
            remedy="Write %s." % " or ".join(_range(*limits) for limits in _QUOTAS[name]),
        )
    return number


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return "%d to %d" % (least, most) if least > -(2**63) else "%d or less" % most


def _limits_together(flavor: Flavor) -> t.Iterator[BootflowError]:
    """Yield the errors that QEMU has for the limits of disks, and libvirt for the limits of interfaces, on every host."""
    limits = {name: quota_number(flavor, name) or 0 for name in _QUOTAS}
    for unit in _UNITS:
        total, read, write = ("disk_%s_%s_sec" % (way, unit) for way in _WAYS)
        if limits[total] and (limits[read] or limits[write]):
            yield _together(flavor, "quota:%s excludes quota:%s and quota:%s" % (total, read, write))
        for name in (total, read, write):
            burst = limits[name + "_max"]
            if burst and not limits[name]:
                yield _together(flavor, "quota:%s_max needs quota:%s" % (name, name))
            elif burst and burst < limits[name]:
                yield _together(flavor, "quota:%s_max is less than quota:%s" % (name, name))
    if limits["disk_size_iops_sec"] and not any(limits["disk_%s_iops_sec" % way] for way in _WAYS):
        yield _together(flavor, "quota:disk_size_iops_sec needs a limit of iops")
    for way in ("inbound", "outbound"):
        given = [what for what in ("peak", "burst") if limits["vif_%s_%s" % (way, what)]]
        if given and not limits["vif_%s_average" % way]:
            yield _together(flavor, "quota:vif_%s_%s needs quota:vif_%s_average" % (way, given[0], way))


def _together(flavor: Flavor, reason: str) -> InvalidInput:
    return InvalidInput(
        reason="flavor %s: %s" % (flavor.name, reason), remedy="Correct the flavor's extra_specs in bootflow_flavors."
    )


def _whole(value: t.Any) -> int | None:
    text = str(value).strip()
    return int(text) if not isinstance(value, bool) and _INTEGER.match(text) else None
