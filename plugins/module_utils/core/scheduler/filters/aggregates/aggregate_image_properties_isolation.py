# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AggregateImagePropertiesIsolation: aggregates that only take images with certain properties."""

from __future__ import annotations

from ....reading.platform_names import property_of
from ....reading.setting import Setting
from ...aggregates import Membership
from ...options import SchedulerOptions
from ...request_spec import RequestSpec
from .aggregate_rule import AggregateRule


class AggregateImagePropertiesIsolation(AggregateRule):
    """Rejects hosts with an aggregate whose metadata have other values for a property of the image.

    A property that the image lacks or leaves empty is not tested. With a namespace, only metadata keys that begin
    with it and the separator count.
    """

    name = "AggregateImagePropertiesIsolation"
    run_on_rebuild = True

    settings = (
        Setting(
            "aggregate_image_properties_isolation_namespace",
            str,
            "",
            "AggregateImagePropertiesIsolation: only image properties that begin with this, and the separator; empty: all.",
        ),
        Setting(
            "aggregate_image_properties_isolation_separator",
            str,
            ".",
            "AggregateImagePropertiesIsolation: what stands between that namespace and the rest of the name.",
        ),
    )

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        namespace = self.conf.aggregate_image_properties_isolation_namespace
        separator = self.conf.aggregate_image_properties_isolation_separator
        self.prefix = namespace + separator if namespace else ""

    def refusal(self, membership: Membership, spec: RequestSpec) -> str | None:
        for key, entries in membership.metadata.items():
            if not key.startswith(self.prefix):
                continue
            value = property_of(spec.image_properties, key)
            if value and str(value) not in entries:
                return "the image has %s %s, its aggregates take %s" % (key, value, ", ".join(sorted(entries)))
        return None
