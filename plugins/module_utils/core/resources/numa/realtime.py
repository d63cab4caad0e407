# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests whose CPUs have real-time priority: hw:cpu_realtime and its mask. source: Nova's virt.hardware"""

from __future__ import annotations

import typing as t

from ... import errors
from ...model import Flavor
from .cpu_spec import parse_cpu_spec
from .topology import DEDICATED, ISOLATE

_YES = ("1", "t", "true", "on", "y", "yes")


def is_realtime(specs: t.Mapping[str, t.Any]) -> bool:
    """Whether the flavor has hw:cpu_realtime; an image cannot request it."""
    return str(specs.get("hw:cpu_realtime", "")).strip().lower() in _YES


def realtime_cpus(flavor: Flavor, image_properties: t.Mapping[str, t.Any]) -> frozenset[int]:
    """Return the guest's CPUs with real-time priority: the CPUs of the mask (``2-3``), or all others (``^0-1``). The image's mask comes first.

    Where the emulator's threads have their own CPU, all may have it, and no mask means all.

    :raises RealtimeMaskNotFoundOrInvalid: the mask is missing or malformed, leaves no CPU of one kind, or names one that the guest has not.
    source: Nova's get_realtime_cpu_constraint
    """
    given = image_properties.get("hw_cpu_realtime_mask") or flavor.extra_specs.get("hw:cpu_realtime_mask")
    mask = "" if given is None else str(given).strip()
    isolated = flavor.extra_specs.get("hw:emulator_threads_policy") == ISOLATE
    if not mask and not isolated:
        raise errors.RealtimeMaskNotFoundOrInvalid()
    everything = frozenset(range(flavor.vcpus))
    try:
        others = not mask or mask.startswith("^")
        cpus = parse_cpu_spec("0-%d,%s" % (flavor.vcpus - 1, mask) if others else mask)
    except errors.InvalidInput as error:
        raise errors.RealtimeMaskNotFoundOrInvalid(remedy="%r cannot be read: %s" % (mask, error.message)) from error
    if not cpus or (cpus >= everything and not isolated) or not cpus <= everything:
        raise errors.RealtimeMaskNotFoundOrInvalid(
            remedy="%r of %d vCPUs leaves %d with real-time priority. Name the CPUs without it, such as ^0, or those with it."
            % (mask, flavor.vcpus, len(cpus & everything))
        )
    return cpus


def check_realtime(flavor: Flavor, image_properties: t.Mapping[str, t.Any], cpu_policy: str) -> None:
    """
    :raises RealtimeConfigurationInvalid: real time for CPUs that are not dedicated.
    :raises RealtimeMaskNotFoundOrInvalid: see realtime_cpus.
    """
    if not is_realtime(flavor.extra_specs):
        return
    if cpu_policy != DEDICATED:
        raise errors.RealtimeConfigurationInvalid()
    realtime_cpus(flavor, image_properties)
