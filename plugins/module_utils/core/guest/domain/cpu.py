# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guest's CPU and its share of the host's. source: libvirt's domain format."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at, many
from .numa import NumaCellConfig, VcpuPinConfig, VcpuSchedConfig


@dataclass(frozen=True)
class CpuFeatureConfig(Element):
    TAG: t.ClassVar[str] = "feature"

    policy: str = at("@policy", default="require")
    name: str = at("@name", default="")


@dataclass(frozen=True)
class CpuConfig(Element):
    """``<cpu>``; without mode and model it only has the topology."""

    TAG: t.ClassVar[str] = "cpu"

    mode: t.Optional[str] = at("@mode")  # custom, host-model, host-passthrough, maximum
    match: t.Optional[str] = at("@match")
    check: t.Optional[str] = at("@check")
    model: t.Optional[str] = at("model")
    sockets: t.Optional[int] = at("topology/@sockets", "int")
    cores: t.Optional[int] = at("topology/@cores", "int")
    threads: t.Optional[int] = at("topology/@threads", "int")
    features: t.Tuple[CpuFeatureConfig, ...] = many(CpuFeatureConfig)
    numa_cells: t.Tuple[NumaCellConfig, ...] = many(NumaCellConfig, "numa/cell")


@dataclass(frozen=True)
class CpuTuneConfig(Element):
    """``<cputune>``: weight, microseconds of CPU per period in microseconds, and the host's CPUs that it runs on."""

    TAG: t.ClassVar[str] = "cputune"

    shares: t.Optional[int] = at("shares", "int")
    period: t.Optional[int] = at("period", "int")
    quota: t.Optional[int] = at("quota", "int")
    vcpupins: t.Tuple[VcpuPinConfig, ...] = many(VcpuPinConfig)
    emulatorpin: t.Optional[str] = at("emulatorpin/@cpuset")
    vcpuscheds: t.Tuple[VcpuSchedConfig, ...] = many(VcpuSchedConfig)
