# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a report, by the options of its action: all are of one snapshot of the ledger."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.instances.request import ServerRequest
from ...module_utils.core.model import Flavor
from ...module_utils.core.plans import plan_file
from ...module_utils.core.report.figures import Fit, Report
from ...module_utils.core.request.catalogue import parse_catalogue
from ...module_utils.core.scheduler.whatif import WhatIf
from ...module_utils.core.settings.request import REQUEST
from ...module_utils.flows.boot import whatif
from ...module_utils.flows.report import fleet, plans, runs
from ...module_utils.ledger.db.transaction import Transaction
from ..plans import files
from ..run.ledger_action import LedgerAction
from ..scheduling import inventory_fleet
from ..scheduling.whatif import ANY_IMAGE, STAND_IN
from ..settings import boot_request, scheduler_settings

#: Settings of the request that decide whether an instance of a flavor fits; of the others a report takes the defaults.
OF_FLAVORS = (
    "flavors",
    "pci_alias",
    "instance_overhead",
    "allow_zero_disk_flavor",
    "project",
    "default_schedule_zone",
    "default_availability_zone",
)


def figures(action: LedgerAction) -> Report:
    """Return the figures of the report.

    :raises FlavorNotFound: bootflow_report_flavors names one that does not exist. :raises InvalidInput: no run has the request id.
    :raises BootflowError: this ledger has no plan like the file of bootflow_report_plan.
    """
    options = action.options
    file = options["plan"]
    plan = None if file is None else files.read(file)
    flavors = _flavors(options)
    requests, unfit = _requests(action, flavors)
    read_fleet, _explaining = inventory_fleet.reader(action, action.hosts_to_use())
    now, hosts = action.context().now, action.compute_hosts()
    checks_losses = len(hosts) <= options["limit"] if options["n_plus_1"] is None else options["n_plus_1"]
    scheduling = scheduler_settings.scheduler_options(action, now)

    def read(tx: Transaction) -> Report:
        capacities = whatif.fit_each(tx, list(requests.values()), read_fleet, scheduling)
        fits = dict(unfit)
        fits.update((name, _fit(flavors[name], capacity)) for name, capacity in zip(requests, capacities))
        unplaced = whatif.lose(tx, read_fleet, scheduling, hosts) if checks_losses else None
        return Report(
            moment=now,
            ledger=str(options["ledger_url"]),
            hosts=fleet.hosts(tx, hosts, options["service_down_time"]),
            losses=None if unplaced is None else fleet.losses(unplaced),
            run=runs.run(tx, options["request_id"], options["limit"]),
            refusals=runs.refused(tx),
            days=fleet.days(tx, options["days"]),
            fits=[fits[name] for name in flavors],
            plan=None if plan is None else plans.plan(tx, plan, file),
            limit=options["limit"],
        )

    with contextlib.closing(action.open_reader()) as ledger:
        if plan is not None:
            plan_file.check_use(plan, file, plan["kind"], ledger.id)
        return ledger.inspect(read)


def _flavors(options: t.Mapping[str, t.Any]) -> dict[str, Flavor]:
    """Return the flavors that are asked about, in the order of the inventory or of bootflow_report_flavors."""
    project = options["project"]
    catalogue = parse_catalogue(options["flavors"], [], [], [], [], options["pci_alias"], default_project=project)
    if options["flavor_names"] is None:
        return dict(catalogue.flavors)
    for name in options["flavor_names"]:
        if name not in catalogue.flavors:
            raise errors.FlavorNotFound(
                flavor_id=name, remedy="Name flavors of bootflow_flavors in bootflow_report_flavors."
            )
    return {name: catalogue.flavors[name] for name in options["flavor_names"]}


def _requests(action: LedgerAction, flavors: t.Mapping[str, Flavor]) -> tuple[dict[str, ServerRequest], dict[str, Fit]]:
    """Return the request for one instance of each flavor, and the flavors of which a boot would accept none, with the reason."""
    defaults = {setting.name: setting.read(None) for setting in REQUEST}
    options = {**defaults, **action.options, "images": [STAND_IN]}
    requests, unfit = {}, {}
    for name, flavor in flavors.items():
        entry = {"name": "report", "flavor": name, "image": ANY_IMAGE, "networks": "none"}
        try:
            (request,) = boot_request.BootRequest(
                {**options, "instances": [entry]}, scheduler_settings.reading_of(action), user=action.context().actor
            ).requests
        except errors.InvalidRequest as error:
            unfit[name] = _fit(flavor, errors.InvalidInput(message=error.errors[0]["message"]))
        else:
            requests[name] = replace(request, image=None)
    return requests, unfit


def _fit(flavor: Flavor, capacity: WhatIf | errors.BootflowError) -> Fit:
    amounts = {"memory_mb": flavor.memory_mb, "vcpus": flavor.vcpus, "disk_gb": flavor.root_gb + flavor.ephemeral_gb}
    if isinstance(capacity, errors.BootflowError):
        return Fit(flavor.name, amounts, None, 0, capacity.message)
    reason = capacity.stopped_by["reason"] if capacity.stopped_by is not None else ""
    return Fit(flavor.name, amounts, capacity.total, len({place["host"] for place in capacity.by_host}), reason)
