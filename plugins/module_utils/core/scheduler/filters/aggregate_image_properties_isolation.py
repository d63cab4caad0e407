# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AggregateImagePropertiesIsolation: aggregates that only take images with certain properties."""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ..aggregates import Membership
from ..request_spec import RequestSpec
from .aggregate_rule import AggregateRule
from .image_props_filter import LEGACY

if t.TYPE_CHECKING:
    from ..placement import SchedulerOptions


class AggregateImagePropertiesIsolation(AggregateRule):
    """Turns down where the image has a property that an aggregate's metadata names with other values.

    A property that the image does not have, or has without a value, is not tested. With a namespace, only metadata keys
    that begin with it and the separator count.
    """

    name = "AggregateImagePropertiesIsolation"

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        namespace = options.aggregate_image_properties_isolation_namespace or ""
        separator = options.aggregate_image_properties_isolation_separator
        if not isinstance(namespace, str) or not isinstance(separator, str):
            raise InvalidInput(
                reason="aggregate_image_properties_isolation_namespace %r with separator %r" % (namespace, separator),
                remedy="Give both as text.",
            )
        self.prefix = namespace + separator if namespace else ""

    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        for key, entries in membership.metadata.items():
            if not key.startswith(self.prefix):
                continue
            value = spec.image_properties.get(key, spec.image_properties.get(LEGACY.get(key, key)))
            if value and str(value) not in entries:
                return "the image has %s %s, its aggregates take %s" % (key, value, ", ".join(sorted(entries)))
        return None
