# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that an instance may get another image on the host where it is.

source: Nova's BaseFilter.filter_all with RUN_ON_REBUILD, to which the conductor's rebuild_instance sends a request with a new image

This rule is the scheduler's, so it stays in the core: plugin_utils.operations.rebuilds.rebuild_hosts alone calls it.
"""

from __future__ import annotations

from ..errors import NoValidHost
from .columns import Fleet, np
from .options import SchedulerOptions
from .registry import make_filters, user_classes
from .request_spec import RequestSpec


def check_host(fleet: Fleet, spec: RequestSpec, options: SchedulerOptions, host: str, node: str) -> None:
    """Ask the enabled filters that look at images. What the instance has claimed is not looked at again.

    :arg spec: with the new image. :arg fleet: with the host.
    :raises NoValidHost: one of them refuses the host, or the fleet does not have it.
    """
    places = [i for i in range(len(fleet)) if (fleet.hosts[i].host, fleet.hosts[i].nodename) == (host, node)]
    if not places:
        raise NoValidHost(
            reason="Host %s has not reported." % host, remedy="Let the host report: run bootflow.compute.heartbeat."
        )
    rows = np.array(places[:1])
    for filter_ in make_filters(options, user_classes(options)):
        if not filter_.run_on_rebuild or not filter_.concerns(spec):
            continue
        result = filter_.evaluate(fleet, spec, rows)
        if not bool(np.atleast_1d(result.mask)[0]):
            why = ": " + result.text(0) if result.text is not None else ""
            raise NoValidHost(
                reason="%s rejects %s for image %s%s" % (filter_.name, host, spec.image_name, why),
                remedy="Rebuild the instance from another image, or boot it again, so that another host is chosen.",
            )
