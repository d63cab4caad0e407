# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Combined requests of flavor and image: values that both may set. source: Nova's virt/hardware.py

The request is checked with the same rules as the guest is built by, so a contradiction is an error before anything is written.
"""

from __future__ import annotations

import typing as t

from ..errors import (
    BootflowError,
    FlavorImageConflict,
    ImageSerialPortNumberExceedFlavorValue,
    ImageSerialPortNumberInvalid,
    InvalidInput,
    LockMemoryForbidden,
    RequestedVRamTooHigh,
    SerialPortNumberLimitExceeded,
)
from . import cpu_topology
from .values import value_errors

if t.TYPE_CHECKING:
    from ..model import Flavor

#: Serial ports of QEMU's machines. Nova has one less: with its serial consoles the first is another device.
SERIAL_PORTS_MAX = 4
SECURE_BOOT_POLICIES = ("disabled", "optional", "required")
CACHE_MODES = ("default", "none", "writethrough", "writeback", "directsync", "unsafe")
CPU_MODES = ("none", "host-model", "host-passthrough", "maximum", "custom")

Properties = t.Mapping[str, t.Any]


def constraint_errors(flavor: Flavor, properties: Properties) -> t.Iterator[BootflowError]:
    """Yield the errors in the values of flavor and image, without knowledge of the host."""
    for rule in (_topology, secure_boot, pmu, multiqueue, locked_memory, video_ram, serial_ports):
        try:
            rule(flavor, properties)
        except BootflowError as error:
            yield error
    yield from value_errors(flavor, properties)


def _topology(flavor: Flavor, properties: Properties) -> None:
    cpu_topology.best_topology(flavor.vcpus, flavor.extra_specs, properties)


def secure_boot(flavor: Flavor, properties: Properties) -> bool:
    """Whether os:secure_boot or os_secure_boot is ``required``.

    :raises FlavorImageConflict: they differ.
    :raises InvalidInput: an unknown policy.
    """
    policy = _agreed(flavor.extra_specs.get("os:secure_boot"), properties.get("os_secure_boot"), "os:secure_boot")
    if policy not in (None, *SECURE_BOOT_POLICIES):
        raise InvalidInput(
            reason="os:secure_boot must be disabled, optional or required, got %r" % policy,
            remedy="Correct the flavor's os:secure_boot or the image's os_secure_boot.",
        )
    return bool(policy == "required")


def pmu(flavor: Flavor, properties: Properties) -> bool | None:
    """:raises FlavorImageConflict: hw:pmu and hw_pmu differ."""
    return _agreed_switch("pmu", flavor, properties)


def multiqueue(flavor: Flavor, properties: Properties) -> bool:
    """Whether a guest of several vCPUs gets interfaces with several queues.

    :raises FlavorImageConflict: hw:vif_multiqueue_enabled and hw_vif_multiqueue_enabled differ.
    """
    return flavor.vcpus > 1 and bool(_agreed_switch("vif_multiqueue_enabled", flavor, properties))


def locked_memory(flavor: Flavor, properties: Properties) -> bool:
    """Whether the guest's memory stays in the host's.

    :raises FlavorImageConflict: hw:locked_memory and hw_locked_memory differ.
    :raises LockMemoryForbidden: without a size of pages, which alone makes the host count the memory.
    """
    locked = bool(_agreed_switch("locked_memory", flavor, properties))
    if locked and not (flavor.extra_specs.get("hw:mem_page_size") or properties.get("hw_mem_page_size")):
        raise LockMemoryForbidden()
    return locked


def video_ram(flavor: Flavor, properties: Properties) -> int:
    """The image's hw_video_ram in MB, up to the flavor's hw_video:ram_max_mb; 0: the default of the adapter.

    :raises InvalidInput: not a whole number.
    :raises RequestedVRamTooHigh: more than the flavor permits. A flavor without a maximum permits none.
    """
    requested = _number(properties, "hw_video_ram")
    permitted = _number(flavor.extra_specs, "hw_video:ram_max_mb")
    if requested > permitted:
        raise RequestedVRamTooHigh(req_vram=requested, max_vram=permitted)
    return requested


def serial_ports(flavor: Flavor, properties: Properties) -> int:
    """Return the number of serial ports of the guest: the flavor's number, or a lower one of the image; 1 where neither has one.

    source: Nova's hardware.get_number_of_serial_ports

    :raises ImageSerialPortNumberInvalid: not a whole number.
    :raises ImageSerialPortNumberExceedFlavorValue: the image's number is higher than the flavor's.
    :raises SerialPortNumberLimitExceeded: more than QEMU has.
    """
    permitted = _ports(flavor.extra_specs.get("hw:serial_port_count"))
    requested = _ports(properties.get("hw_serial_port_count"))
    if permitted and requested > permitted:
        raise ImageSerialPortNumberExceedFlavorValue()
    number = requested or permitted or 1
    if number > SERIAL_PORTS_MAX:
        raise SerialPortNumberLimitExceeded(allowed=SERIAL_PORTS_MAX, virt_type="kvm")
    return number


def _ports(value: t.Any) -> int:
    text = "0" if value in (None, "") else str(value).strip()
    if not (text.isascii() and text.isdigit()):
        raise ImageSerialPortNumberInvalid(num_ports=value)
    return int(text) if len(text) <= 10 else SERIAL_PORTS_MAX + 1


def is_true(value: t.Any) -> bool:
    """Whether Nova reads a property or extra spec as true."""
    return str(value).strip().lower() in ("1", "t", "true", "on", "y", "yes")


def _agreed_switch(name: str, flavor: Flavor, properties: Properties) -> bool | None:
    own, asked = (
        None if value in (None, "") else is_true(value)
        for value in (flavor.extra_specs.get("hw:" + name), properties.get("hw_" + name))
    )
    return t.cast("bool | None", _agreed(own, asked, "hw:" + name))


def _agreed(own: t.Any, asked: t.Any, setting: str) -> t.Any:
    """The value of the one that has a value."""
    own, asked = (None if value == "" else value for value in (own, asked))
    if own is not None and asked is not None and own != asked:
        raise FlavorImageConflict(setting=setting, flavor_val=own, image_val=asked)
    return asked if own is None else own


def _number(source: Properties, name: str) -> int:
    value = source.get(name)
    text = "0" if value in (None, "") else str(value).strip()
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            reason="%s must be a whole number of MiB, got %r" % (name, value), remedy="Write it in digits."
        )
    return int(text)
