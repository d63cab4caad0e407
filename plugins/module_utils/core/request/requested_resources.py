# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA cells, PCI devices and whole disks that a flavor and an image request, read with the request to report errors early.

source: Nova's _create_instance: base options
"""

from __future__ import annotations

import typing as t

from ..disks.whole_disks import WholeDiskRequest, whole_disk_requests
from ..errors import InvalidInput
from ..guest.constraints import constraint_errors
from ..model import Flavor, Image
from ..reading.problems import Problems
from ..resources.numa.constraints import numa_constraints
from ..resources.numa.topology import GuestNUMATopology
from ..resources.pci.request import PciRequest, parse_aliases, pci_requests
from .later import later_specs


class RequestedResources(t.NamedTuple):
    """Fields of a ServerRequest."""

    numa_topology: t.Optional[GuestNUMATopology] = None
    pci_requests: t.Tuple[PciRequest, ...] = ()
    whole_disks: t.Tuple[WholeDiskRequest, ...] = ()


def read_pci_aliases(data: t.Any, problems: Problems) -> t.Any:
    """bootflow_pci_alias in the form for pci_requests(); errors are added to ``problems``."""
    if data is None:
        return {}
    if not isinstance(data, (list, tuple)):
        problems.add(
            "pci_alias",
            InvalidInput(message="must be a list of mappings", remedy="Write one list item per alias."),
        )
        return {}
    sound = []
    for index, definition in enumerate(data):
        with problems.collect("pci_alias[%d]" % index):
            parse_aliases([definition])
            sound.append(definition)
    with problems.collect("pci_alias"):  # two definitions of one name may contradict each other
        return parse_aliases(sound)
    return {}


#: Beginnings of the names of extra specs that choose hosts -> the filter that reads them.
_READ_BY = {
    "aggregate_instance_extra_specs:": "AggregateInstanceExtraSpecsFilter",
    "capabilities:": "ComputeCapabilitiesFilter",
    "hw:maxphysaddr_bits": "ComputeCapabilitiesFilter",
}


def _requirements(flavor: Flavor) -> t.Iterator[tuple[list[str], str]]:
    """The flavor's extra specs that choose hosts, each with the filter that reads them."""
    for start, wanted in _READ_BY.items():
        yield [n for n in sorted(flavor.extra_specs) if n.startswith(start) and flavor.extra_specs[n] != ""], wanted


def requested_resources(
    flavor: Flavor,
    image: t.Optional[Image],
    pci_aliases: t.Any,
    path: str,
    problems: Problems,
    filters: t.Optional[t.Collection[str]] = None,
) -> RequestedResources:
    """Return the requested resources; errors are added to ``problems`` at ``path``.

    :arg filters: names of the enabled filters; one of them has to look for hosts with the resources; None: not checked here.
    """
    properties = image.properties if image is not None else {}
    numa_topology = None
    requests: t.Sequence[t.Any] = ()
    disks: t.Sequence[t.Any] = ()
    with problems.collect(path):
        numa_topology = numa_constraints(flavor, properties)
    for error in (*constraint_errors(flavor, properties), *later_specs(flavor, properties)):
        problems.add(path, error)
    with problems.collect(path):
        requests = pci_requests(flavor, pci_aliases, properties)
    with problems.collect(path):
        disks = whole_disk_requests(flavor)
    needs = (
        (numa_topology, "NUMA cells, pinned CPUs or huge pages", "NUMATopologyFilter"),
        (requests, "PCI devices", "PciPassthroughFilter"),
        (disks, "whole disks", "WholeDiskFilter"),
        *((names, ", ".join(names), wanted) for names, wanted in _requirements(flavor)),
    )
    for needed, what, wanted in needs:
        if needed and filters is not None and wanted not in filters:
            problems.add(
                path,
                InvalidInput(
                    message="Flavor %s requests %s, which no enabled filter looks for: %s is not enabled"
                    % (flavor.name, what, wanted),
                    remedy="Add %s to bootflow_enabled_filters, or choose another flavor." % wanted,
                ),
            )
    return RequestedResources(numa_topology, tuple(requests), tuple(disks))
