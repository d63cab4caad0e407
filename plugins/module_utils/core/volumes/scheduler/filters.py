# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of backends but CapacityFilter; filters that read scheduler hints come last. source: Cinder's scheduler filters (Queens)"""

from __future__ import annotations

import typing as t
import uuid

from ...errors import InstanceNotFound, InvalidUUID
from ...scheduler.columns import Rows, np
from ...scheduler.filters.base import FilterResult
from ...scheduler.filters.verdicts import pass_all
from ..model import VolumeRequest
from ..pool_hosts import extract_host
from .backends import Backends
from .base import BackendFilter
from .extra_specs import satisfies


class AvailabilityZoneFilter(BackendFilter):
    """Passes pools of the requested zone."""

    name = "AvailabilityZoneFilter"
    run_once_per_request = True

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        wanted = request.availability_zone
        if not wanted:
            return pass_all(rows)
        return FilterResult(
            mask=np.asarray(backends.zones[rows] == wanted, dtype=bool),
            text=lambda position: "zone %s requested, the host is in %s" % (wanted, backends.zones[rows[position]]),
        )


class CapabilitiesFilter(BackendFilter):
    """Passes pools whose capabilities satisfy the extra specs of the volume type."""

    name = "CapabilitiesFilter"

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        extra_specs = request.extra_specs
        if not extra_specs:
            return pass_all(rows)
        asked = repr(extra_specs)
        against = []
        for row in rows.tolist():
            judged = backends.judged[row]
            if asked not in judged:  # the volumes of a run have few types, and each changes one row
                judged[asked] = satisfies(backends.capabilities_of(row), extra_specs)
            against.append(judged[asked])

        def text(position: int) -> str:
            refusal = against[position]
            if refusal is None:
                return ""
            return 'Volume type extra spec requirement "%s=%s" does not match reported capability "%s"' % refusal

        return FilterResult(mask=np.array([refusal is None for refusal in against], dtype=bool), text=text)


class IgnoreAttemptedHostsFilter(BackendFilter):
    """Passes pools that have not failed this volume. Not enabled unless listed."""

    name = "IgnoreAttemptedHostsFilter"

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        tried = set((request.retry or {}).get("backends", ()))
        return FilterResult(
            mask=np.array([backends.ids[row] not in tried for row in rows], dtype=bool),
            text=lambda position: "%s was already tried for this volume" % backends.ids[rows[position]],
        )


# --- by hints: the places of other volumes, or of an instance --------------------------------------------------------


def is_uuid_like(value: t.Any) -> bool:
    """A UUID with or without hyphens, braces and ``urn:``."""
    try:
        plain = str(value).replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
        return str(uuid.UUID(value)).replace("-", "") == plain
    except (TypeError, ValueError, AttributeError):
        return False


class _AffinityFilter(BackendFilter):
    together = True

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        (hint,) = self.hints
        given = (request.scheduler_hints or {}).get(hint, [])
        uuids = given if isinstance(given, list) else [given]
        bad = [value for value in uuids if not is_uuid_like(value)]
        if bad:  # better no backend than a wrong one
            return FilterResult(
                mask=np.zeros(len(rows), dtype=bool),
                text=lambda position: "hint %s: %s is not a UUID" % (hint, ascii(bad[0])),
            )
        if not uuids:
            return pass_all(rows)
        hosts_of_volumes = {
            backends.volume_hosts[volume_id] for volume_id in uuids if volume_id in backends.volume_hosts
        }
        holds = np.array([backends.ids[row] in hosts_of_volumes for row in rows], dtype=bool)
        word = "none" if self.together else "one"
        return FilterResult(
            mask=holds if self.together else ~holds,
            text=lambda position: "hint %s: it holds %s of the volumes" % (hint, word),
        )


class SameBackendFilter(_AffinityFilter):
    """Passes pools that hold one of the volumes of the hint same_host."""

    name = "SameBackendFilter"
    hints = ("same_host",)


class DifferentBackendFilter(_AffinityFilter):
    """Passes pools that hold none of the volumes of the hint different_host."""

    name = "DifferentBackendFilter"
    hints = ("different_host",)
    together = False


class InstanceLocalityFilter(BackendFilter):
    """Passes pools on the host of the instance of the hint local_to_instance.

    Raises InvalidUUID, and InstanceNotFound if the instance's host is unknown.
    """

    name = "InstanceLocalityFilter"
    hints = ("local_to_instance",)

    def judge(self, backends: Backends, request: VolumeRequest, rows: Rows) -> FilterResult:
        instance = (request.scheduler_hints or {}).get("local_to_instance")
        if not instance:
            return pass_all(rows)
        if not is_uuid_like(instance):
            raise InvalidUUID(uuid=ascii(instance), remedy="Correct the hint local_to_instance.")
        host = backends.instance_hosts.get(instance)
        if host is None:
            raise InstanceNotFound(instance_id=instance, remedy="The instance must be on a host for local_to_instance.")
        return FilterResult(
            mask=np.array([extract_host(backends.ids[row], "host") == host for row in rows], dtype=bool),
            text=lambda position: "hint local_to_instance: the instance is on %s" % host,
        )
