# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ImagePropertiesFilter: hosts that can run guests of the image's kind."""

from __future__ import annotations

import typing as t

from ...reading import platform_names
from ...reading.setting import Kind, Setting
from ..columns import Fleet, Rows
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import by_group, pass_all

Supported = t.Tuple[t.Tuple[t.Tuple[str, ...], ...], int, t.Optional[int]]


def _kind(host: HostState) -> Supported:
    maxphysaddr = host.cpu_info.get("maxphysaddr") or {}
    supported = tuple(platform_names.supported_instance(triple) for triple in host.supported_instances)
    return supported, int(host.hypervisor_version or 0), maxphysaddr.get("bits")


class ImagePropertiesFilter(Filter):
    """Passes hosts that support the image's architecture, hypervisor type and vm mode, in a version the image accepts.

    Without any of the three nothing is tested. Raises InvalidInput for an unknown name,
    and for a version or bits that cannot be read.
    """

    name = "ImagePropertiesFilter"
    run_on_rebuild = True
    run_once_per_request = True
    settings = (
        Setting(
            "image_properties_default_architecture",
            Kind("an architecture such as x86_64 or aarch64", platform_names.architecture, "str"),
            help="ImagePropertiesFilter: architecture of images that name none.",
            default_text="none; such images fit any host",
        ),
    )

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        props = {name: platform_names.property_of(spec.image_properties, name) for name in platform_names.LEGACY}
        wanted = [
            n
            for n in (
                platform_names.architecture(props["hw_architecture"])
                or self.conf.image_properties_default_architecture,
                platform_names.hv_type(props["img_hv_type"]),
                platform_names.vm_mode(props["hw_vm_mode"]),
            )
            if n
        ]
        if not wanted:
            return pass_all(rows)
        version = props["img_hv_requested_version"]
        comparisons = platform_names.parse_version_range(str(version)) if version else []
        bits = platform_names.address_bits("hw_maxphysaddr_bits", spec.image_properties.get("hw_maxphysaddr_bits"))
        groups = fleet.groups("image_properties", _kind, ("supported_instances", "hypervisor_version", "cpu_info"))
        reasons = [_refusal(kind, wanted, str(version), comparisons, bits) for kind in groups.values]
        return by_group(groups, reasons, rows)


def _refusal(
    kind: Supported, wanted: t.Sequence[str], version: str, comparisons: t.Sequence[t.Any], bits: int | None
) -> str | None:
    supported, number, host_bits = kind
    if not supported:
        return "the image asks for %s, the host reports no supported instances" % ", ".join(wanted)
    if not any(all(name in triple for name in wanted) for triple in supported):
        return "the image asks for %s, the host supports %s" % (
            ", ".join(wanted),
            "; ".join("/".join(triple) for triple in supported),
        )
    if (
        number
        and comparisons
        and not platform_names.version_in_range(platform_names.version_tuple(number), comparisons)
    ):
        return "the image asks for hypervisor version %s, the host has %s" % (
            version,
            ".".join(map(str, platform_names.version_tuple(number))),
        )
    if bits and host_bits and host_bits < bits:
        return "the image asks for %d physical address bits, the host has %d" % (bits, host_bits)
    return None
