# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that read scheduler hints: the places of other volumes or of an instance. source: Cinder's affinity_filter and
instance_locality_filter (Queens)
"""

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
        there = {backends.volume_hosts[each] for each in uuids if each in backends.volume_hosts}
        holds = np.array([backends.ids[row] in there for row in rows], dtype=bool)
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
