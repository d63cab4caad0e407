# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IsolatedHostsFilter: certain images on certain hosts only."""

from __future__ import annotations

from ...reading.setting import Setting
from ..columns import Fleet, Rows, np
from ..options import SchedulerOptions
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .verdicts import pass_all


class IsolatedHostsFilter(Filter):
    """Keeps isolated images on isolated hosts, and (unless restrict_... is off) other images away from them.

    An image is isolated when isolated_images holds its id or its name.
    """

    name = "IsolatedHostsFilter"
    run_on_rebuild = True
    run_once_per_request = True
    settings = (
        Setting(
            "isolated_hosts",
            list,
            (),
            "IsolatedHostsFilter: hosts (or groups of the inventory) for the isolated images.",
        ),
        Setting(
            "isolated_images", list, (), "IsolatedHostsFilter: images (names or ids) that only go to isolated hosts."
        ),
        Setting(
            "restrict_isolated_hosts_to_isolated_images",
            bool,
            True,
            "IsolatedHostsFilter: isolated hosts take isolated images only.",
        ),
    )

    def __init__(self, options: SchedulerOptions):
        super().__init__(options)
        self.isolated_hosts = frozenset(self.conf.isolated_hosts) - {""}
        self.isolated_images = frozenset(self.conf.isolated_images) - {""}
        self.restrict = self.conf.restrict_isolated_hosts_to_isolated_images

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        image_isolated = not self.isolated_images.isdisjoint({spec.image_id, spec.image_name})
        if not image_isolated and not (self.restrict and self.isolated_hosts):
            return pass_all(rows)
        isolated = np.array([host in self.isolated_hosts for host in fleet.values("host")], dtype=bool)[rows]
        mask = isolated if image_isolated else ~isolated
        image = spec.image_name or spec.image_id
        if image_isolated:
            reason = "image %s is isolated, the host is not one of isolated_hosts" % image
        else:
            reason = "the host is one of isolated_hosts, image %s is not isolated" % (image or "(none)")
        return FilterResult(mask=mask, text=lambda position: reason)
