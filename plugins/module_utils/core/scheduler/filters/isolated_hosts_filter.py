# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IsolatedHostsFilter: certain images on certain hosts only."""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ..columns import Fleet, Rows, np
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import pass_all

if t.TYPE_CHECKING:
    from ..placement import SchedulerOptions


class IsolatedHostsFilter(Filter):
    """Keeps isolated images on isolated hosts, and (unless restrict_... is off) other images away from them.

    An image is isolated when isolated_images holds its id or its name.
    """

    name = "IsolatedHostsFilter"
    run_once_per_request = True

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self.isolated_hosts = _names(options, "isolated_hosts")
        self.isolated_images = _names(options, "isolated_images")
        self.restrict = options.restrict_isolated_hosts_to_isolated_images

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        image_isolated = not self.isolated_images.isdisjoint({spec.image_id, spec.image_name})
        if not image_isolated and not (self.restrict and self.isolated_hosts):
            return pass_all(rows)
        isolated = np.array([host in self.isolated_hosts for host in fleet.values("host")], dtype=bool)[rows]
        mask = isolated if image_isolated else ~isolated
        image = spec.image_name or spec.image_id
        if image_isolated:
            reason = "the image %s is isolated, this host is not one of isolated_hosts" % image
        else:
            reason = "this host is one of isolated_hosts, the image %s is not isolated" % (image or "(none)")
        return FilterResult(mask=mask, text=lambda position: reason)


def _names(options: SchedulerOptions, setting: str) -> frozenset[str]:
    value = getattr(options, setting) or ()
    if isinstance(value, (str, bytes)) or not all(isinstance(name, str) for name in value):
        raise InvalidInput(reason="%s is %r" % (setting, value), remedy="Give a list of names.")
    return frozenset(value) - {""}
