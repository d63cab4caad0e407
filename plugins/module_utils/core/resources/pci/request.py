# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests of a flavor for PCI devices: the operator's aliases, with counts in an extra spec."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from ...errors import ImagePCINUMAPolicyForbidden, InvalidPCINUMAAffinity, PciInvalidAlias, PciRequestAliasNotDefined
from ...model import Flavor
from .device import DEVICE_TYPES

EXTRA_SPEC = "pci_passthrough:alias"
LEGACY, PREFERRED, REQUIRED = "legacy", "preferred", "required"
NUMA_POLICIES = (REQUIRED, LEGACY, PREFERRED)

_KEYS = ("name", "capability_type", "product_id", "vendor_id", "device_type", "numa_policy")
_CHOICES: t.Mapping[str, t.Sequence[str]] = {
    "capability_type": ("pci",),
    "device_type": DEVICE_TYPES,
    "numa_policy": NUMA_POLICIES,
}
_ID = re.compile(r"[0-9a-fA-F]{4}")
_NAME_LENGTH = 256


@dataclass(frozen=True)
class PciRequest:
    """``count`` devices, each of them fits one of the alternatives in ``spec`` ({vendor_id, product_id, dev_type...})."""

    count: int
    spec: t.Tuple[t.Mapping[str, t.Any], ...]
    alias_name: str = ""
    numa_policy: str = LEGACY
    request_id: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data, for the ledger."""
        return {
            "count": self.count,
            "spec": [dict(alternative) for alternative in self.spec],
            "alias_name": self.alias_name,
            "numa_policy": self.numa_policy,
            "request_id": self.request_id,
        }

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> PciRequest:
        return cls(
            count=int(data["count"]),
            spec=tuple(dict(alternative) for alternative in data.get("spec") or ()),
            alias_name=str(data.get("alias_name") or ""),
            numa_policy=str(data.get("numa_policy") or LEGACY),
            request_id=str(data.get("request_id") or ""),
        )

    def __str__(self) -> str:
        return "%d x %s" % (self.count, self.alias_name or ", ".join(_words(spec) for spec in self.spec))


def _words(spec: t.Mapping[str, t.Any]) -> str:
    return " ".join("%s=%s" % item for item in sorted(spec.items())) or "any device"


@dataclass(frozen=True)
class Alias:
    """The meaning of an alias: alternatives, and the devices' affinity to the guest's memory."""

    name: str
    numa_policy: str
    spec: t.Tuple[t.Mapping[str, str], ...]

    @property
    def dev_type(self) -> str | None:
        return self.spec[0].get("dev_type")


Aliases = t.Mapping[str, Alias]


def parse_aliases(definitions: t.Iterable[t.Mapping[str, t.Any] | str]) -> dict[str, Alias]:
    """The operator's aliases by name: mappings, or JSON texts as in nova.conf.

    Several definitions of one name are alternatives.

    :raises PciInvalidAlias: unknown or wrong fields, or definitions of one name that differ in device_type or
        numa_policy.
    """
    aliases: dict[str, Alias] = {}
    if not isinstance(definitions, (list, tuple)):
        raise PciInvalidAlias(reason="%r is not a list of mappings" % (definitions,))
    for definition in definitions:
        fields = _checked(definition)
        name = fields["name"].strip()
        policy = fields.get("numa_policy", LEGACY)
        spec: dict[str, str] = {key: fields[key] for key in ("vendor_id", "product_id") if key in fields}
        if "device_type" in fields:
            spec["dev_type"] = fields["device_type"]
        known = aliases.get(name)
        if known is not None and known.numa_policy != policy:
            raise PciInvalidAlias(reason="NUMA policy mismatch for alias '%s'" % name)
        if known is not None and known.dev_type != spec.get("dev_type"):
            raise PciInvalidAlias(reason="Device type mismatch for alias '%s'" % name)
        aliases[name] = Alias(name, policy, (known.spec if known else ()) + (spec,))
    return aliases


def _checked(definition: t.Any) -> dict[str, str]:
    if isinstance(definition, str):
        try:
            definition = json.loads(definition)
        except ValueError as error:
            raise PciInvalidAlias(reason="%r is not JSON (%s)" % (definition, error)) from None
    if not isinstance(definition, t.Mapping):
        raise PciInvalidAlias(reason="%r is not a mapping" % (definition,))
    unknown = sorted(str(key) for key in definition if key not in _KEYS)
    if unknown:
        raise PciInvalidAlias(reason="%s: %s unexpected, known are %s" % (dict(definition), unknown, ", ".join(_KEYS)))
    for key, value in definition.items():
        if not isinstance(value, str):
            # YAML reads 0443 as a number, and not as the intended one.
            raise PciInvalidAlias(reason="%s %r is not a text" % (key, value), remedy="Put %s in quotes." % key)
        if key in _CHOICES and value not in _CHOICES[key]:
            raise PciInvalidAlias(reason="%s %r is not one of %s" % (key, value, ", ".join(_CHOICES[key])))
        if key in ("vendor_id", "product_id") and not _ID.fullmatch(value):
            raise PciInvalidAlias(reason="%s %r is not four hex digits" % (key, value))
    if not 1 <= len(definition.get("name", "")) <= _NAME_LENGTH:
        raise PciInvalidAlias(reason="%s needs a name of 1 to %d characters" % (dict(definition), _NAME_LENGTH))
    return dict(definition)


def pci_requests(
    flavor: Flavor,
    aliases: Aliases | t.Sequence[t.Mapping[str, t.Any] | str],
    image_properties: t.Mapping[str, t.Any] | None = None,
) -> tuple[PciRequest, ...]:
    """The requests of the flavor's ``pci_passthrough:alias`` ("a1:2,a2:1"), in its order.

    :arg aliases: from parse_aliases(), or the definitions; read only if the flavor has requests.
    :raises PciRequestAliasNotDefined: an unknown alias.
    :raises PciInvalidAlias: the extra spec, or a definition, is malformed.
    :raises InvalidPCINUMAAffinity: an unknown policy in hw:pci_numa_affinity_policy of the flavor or
        hw_pci_numa_affinity_policy of the image.
    :raises ImagePCINUMAPolicyForbidden: both are set, and differ.
    """
    policy = _policy_override(flavor, image_properties or {})
    text = flavor.extra_specs.get(EXTRA_SPEC)
    if text is None:
        return ()
    known = aliases if isinstance(aliases, t.Mapping) else parse_aliases(aliases)
    requests = []
    for part in str(text).split(","):
        name, count = _name_and_count(part, flavor)
        if name not in known:
            raise PciRequestAliasNotDefined(
                alias=name, remedy="Defined are: %s." % (", ".join(sorted(known)) or "none (bootflow_pci_alias)")
            )
        alias = known[name]
        requests.append(
            PciRequest(count=count, spec=alias.spec, alias_name=name, numa_policy=policy or alias.numa_policy)
        )
    return tuple(requests)


def _name_and_count(part: str, flavor: Flavor) -> tuple[str, int]:
    name, colon, count = part.partition(":")
    try:
        number = int(count)
    except ValueError:
        number = -1
    if not colon or number < 0:
        raise PciInvalidAlias(
            reason="%r in %s of flavor %s is not of the form name:count" % (part, EXTRA_SPEC, flavor.name),
            remedy='Write "alias:count,alias:count".',
        )
    return name.strip(), number


def _policy_override(flavor: Flavor, properties: t.Mapping[str, t.Any]) -> str | None:
    of_flavor = flavor.extra_specs.get("hw:pci_numa_affinity_policy")
    of_image = properties.get("hw_pci_numa_affinity_policy")
    if of_flavor and of_image and of_flavor != of_image:
        raise ImagePCINUMAPolicyForbidden()
    policy = of_flavor or of_image
    if policy and policy not in NUMA_POLICIES:
        raise InvalidPCINUMAAffinity(policy=policy)
    return str(policy) if policy else None
