# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The devices of a host for guests: Nova's [pci]passthrough_whitelist, here bootflow_pci_device_spec.

An entry has vendor_id, product_id and either address or devname, all optional; other fields are tags of the devices
it admits (physical_network, trusted).
"""

from __future__ import annotations

import dataclasses
import json
import re
import string
import typing as t
from dataclasses import dataclass

from ...errors import PciConfigInvalidWhitelist, PciDeviceInvalidDeviceName, PciDeviceWrongAddressFormat
from ...reading.formats import FALSE_WORDS, TRUE_WORDS
from .device import PciDevice

ANY = "*"
#: The parts of an address: name, largest value, least digits. The domain is libvirt's: the kernel gives 10000 and more to devices behind
#: their own controller (Intel VMD, Hyper-V). Nova has at most FFFF.
_PARTS = (("domain", 0xFFFFFFFF, 4), ("bus", 0xFF, 2), ("slot", 0x1F, 2), ("function", 0x7, 1))

Address = t.Tuple[str, str, str, str]


class HostLookup(t.Protocol):
    """Questions that only the host can answer."""

    def function_of_interface(self, name: str) -> tuple[str | None, bool]:
        """The PCI address of a network interface (None: it has none), and whether it is a PF."""

    def is_physical_function(self, address: str) -> bool:
        """Whether the device is a PF."""


def split_address(address: str) -> Address:
    """Domain, bus, slot and function of a full address, in lower case with all digits.

    :raises PciDeviceWrongAddressFormat: not an address.
    :raises PciConfigInvalidWhitelist: a part is not a hex number, or too large.
    """
    front, dot, function = str(address).partition(".")
    parts = front.split(":") + [function]
    if len(parts) != 4 or not all(parts):
        raise PciDeviceWrongAddressFormat(address=address)
    domain, bus, slot, function = [_number(part, *limits) for part, limits in zip(parts, _PARTS)]
    return domain, bus, slot, function


def _number(text: str, name: str, largest: int, digits: int) -> str:
    try:
        value = int(text, 16)
    except ValueError:
        raise PciConfigInvalidWhitelist(
            reason="property %s ('%s') does not parse as a hex number." % (name, text)
        ) from None
    if not 0 <= value <= largest:
        raise PciConfigInvalidWhitelist(
            reason="property %s (%s) is greater than the maximum allowable value (%X)." % (name, text, largest)
        )
    return "%0*x" % (digits, value)


@dataclass(frozen=True)
class AddressPattern:
    """The addresses of an entry: each part is an exact text, ``*``, or a regular expression.

    The single address of a PF includes its VFs.
    """

    parts: t.Tuple[str, str, str, str]
    regex: bool = False
    physical_function: bool = False

    def matches(self, address: str, parent: str | None = None) -> bool:
        if self.physical_function and parent and self._fits(split_address(parent)):
            return True
        return self._fits(split_address(address))

    def _fits(self, address: Address) -> bool:
        if self.regex:
            return all(re.match(pattern, part) for pattern, part in zip(self.parts, address))
        return all(wanted in (ANY, part) for wanted, part in zip(self.parts, address))

    @property
    def single(self) -> bool:
        return all(part and set(part) <= set(string.hexdigits) for part in self.parts)

    @property
    def text(self) -> str:
        return "%s:%s:%s.%s" % self.parts


def address_pattern(address: t.Any, lookup: HostLookup | None = None) -> AddressPattern:
    """A pattern from ``*:0a:00.*`` (parts may be left out) or from {domain, bus, slot, function: regular expression}.

    :raises PciDeviceWrongAddressFormat: neither of them.
    :raises PciConfigInvalidWhitelist: a part is not a hex number, or too large.
    """
    if isinstance(address, str):
        pattern = AddressPattern(_glob_parts(address))
    elif isinstance(address, t.Mapping):
        pattern = AddressPattern(_regex_parts(address), regex=True)
    else:
        raise PciDeviceWrongAddressFormat(address=address)
    if lookup is not None and pattern.single and lookup.is_physical_function(pattern.text):
        pattern = dataclasses.replace(pattern, physical_function=True)
    return pattern


def _glob_parts(address: str) -> Address:
    front, dot, function = address.partition(".")
    parts = [function.strip() or ANY]
    _part(parts[0], _PARTS[3])
    fields = front.split(":") if front else []
    if len(fields) > 3:
        raise PciDeviceWrongAddressFormat(address=address)
    # "0a:00" has no domain, ":00." neither bus nor function.
    parts = [ANY] * (3 - len(fields)) + [field.strip() or ANY for field in fields] + parts
    domain, bus, slot, function = [_part(part, limits) for part, limits in zip(parts, _PARTS)]
    return domain, bus, slot, function


def _part(text: str, limits: tuple[str, int, int]) -> str:
    return text if text == ANY else _number(text, *limits)


def _regex_parts(address: t.Mapping[str, t.Any]) -> Address:
    parts = [address.get(name, ".*") for name, dummy, dummy in _PARTS]
    if not all(isinstance(part, str) for part in parts) or set(address) - {name for name, dummy, dummy in _PARTS}:
        raise PciDeviceWrongAddressFormat(address=dict(address))
    for part in parts:
        try:
            re.compile(part)
        except re.error:
            raise PciDeviceWrongAddressFormat(address=dict(address)) from None
    domain, bus, slot, function = parts
    return domain, bus, slot, function


@dataclass(frozen=True)
class DeviceSpec:
    """One entry. ``address`` is None if the host lacks the interface ``devname``."""

    vendor_id: str
    product_id: str
    address: t.Optional[AddressPattern]
    devname: str = ""
    tags: t.Mapping[str, t.Optional[str]] = dataclasses.field(default_factory=dict, hash=False)

    def matches(self, device: PciDevice) -> bool:
        return (
            self.vendor_id in (ANY, device.vendor_id.lower())
            and self.product_id in (ANY, device.product_id.lower())
            and self.address is not None
            and self.address.matches(device.address, device.parent_addr)
        )


def parse_device_specs(entries: t.Any, lookup: HostLookup | None = None) -> tuple[DeviceSpec, ...]:
    """The entries of pci_device_spec: a list of mappings (or their JSON texts, or lists of them, as in nova.conf).

    :arg lookup: None: interfaces are unknown and no address is that of a PF.
    :raises PciConfigInvalidWhitelist: an entry is not a mapping, an id not a hex number, or a tag not a text.
    :raises PciDeviceWrongAddressFormat: an invalid address.
    :raises PciDeviceInvalidDeviceName: an entry has address and devname.
    """
    if isinstance(entries, (str, t.Mapping)):
        entries = [entries]
    specs: list[DeviceSpec] = []
    if entries and not isinstance(entries, (list, tuple)):
        raise PciConfigInvalidWhitelist(reason="Invalid entry: '%s'; Expecting dict" % (entries,))
    for entry in entries or ():
        loaded = _loaded(entry)
        for single in loaded if isinstance(loaded, list) else [loaded]:
            if not isinstance(single, t.Mapping):
                raise PciConfigInvalidWhitelist(reason="Invalid entry: '%s'; Expecting dict" % (single,))
            specs.append(_device_spec(single, lookup))
    return tuple(specs)


def _loaded(entry: t.Any) -> t.Any:
    if not isinstance(entry, str):
        return entry
    try:
        return json.loads(entry)
    except ValueError:
        raise PciConfigInvalidWhitelist(reason="Invalid entry: '%s'" % entry) from None


def _device_spec(entry: t.Mapping[str, t.Any], lookup: HostLookup | None) -> DeviceSpec:
    rest = dict(entry)
    ids = {name: _identifier(name, rest.pop(name, ANY)) for name in ("vendor_id", "product_id")}
    address, devname = rest.pop("address", None), rest.pop("devname", None)
    if address and devname:
        raise PciDeviceInvalidDeviceName()
    pattern: AddressPattern | None
    if devname:
        function_address, physical = lookup.function_of_interface(str(devname)) if lookup is not None else (None, False)
        pattern = None
        if function_address is not None:
            pattern = AddressPattern(split_address(function_address), physical_function=physical)
    else:
        pattern = address_pattern(address or "*:*:*.*", lookup)
    return DeviceSpec(address=pattern, devname=str(devname or ""), tags=_tags(rest), **ids)


def _identifier(name: str, value: t.Any) -> str:
    if not isinstance(value, str):
        # YAML reads 0443 as a number, and not as the intended one.
        raise PciConfigInvalidWhitelist(
            reason="property %s (%r) is not a text" % (name, value), remedy="Put %s in quotes." % name
        )
    text = value.strip()
    return text if text == ANY else _number(text, name, 0xFFFF, 4)


#: Tags with which Nova treats devices otherwise, and the values with which it does not. source: Nova's PciDeviceSpec
_AS_USUAL: t.Mapping[str, t.Container[str]] = {
    "managed": TRUE_WORDS,
    "one_time_use": FALSE_WORDS,
    "remote_managed": FALSE_WORDS,
}


def _tags(rest: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    tags: dict[str, str | None] = {}
    for name, value in rest.items():
        if name in _AS_USUAL and value not in (None, "") and str(value).strip().lower() not in _AS_USUAL[name]:
            raise PciConfigInvalidWhitelist(
                reason="the tag %s (%s) would have no effect" % (name, value),
                remedy="Leave these devices out: libvirt detaches devices from their drivers, and one that is free again is given to the next guest.",
            )
        if isinstance(value, bool):
            tags[str(name)] = "true" if value else "false"
        elif value is None or isinstance(value, str):
            tags[str(name)] = value
        else:
            raise PciConfigInvalidWhitelist(reason="the tag %s (%r) is not a text" % (name, value))
    return tags


def admitted(devices: t.Iterable[PciDevice], specs: t.Sequence[DeviceSpec]) -> list[PciDevice]:
    """The devices that an entry admits, by address, with the tags of the first such entry."""
    result = []
    for device in sorted(devices, key=lambda d: d.address):
        spec = next((spec for spec in specs if spec.matches(device)), None)
        if spec is not None:
            result.append(dataclasses.replace(device, tags=dict(spec.tags)))
    return result
