# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The question of what-if: how many more instances fit, and where the instances of a lost host would go. Nothing is written."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.instances.request import ServerRequest
from ...module_utils.core.networks.network import Network
from ...module_utils.flows.boot import whatif as ledger_whatif
from ...module_utils.flows.boot.whatif import Answer, Facts
from ...module_utils.ledger.db.transaction import Transaction
from ..run import tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..run.results import error_result
from ..settings import boot_request, ledger_images, scheduler_settings, variable_names
from . import inventory_fleet
from .whatif_report import answer_data, problems_of, whatif_lines

ALL = "all"
NAME = "whatif"  # of the entry that is made of the options
# Options that are fields of the entry; errors of a field are reported at the option's variable.
FIELDS = ("flavor", "image", "availability_zone", "scheduler_hints", "count")
# Where no image is asked about: one that fits every flavor and every host.
ANY_IMAGE = "any image, none was asked about"
STAND_IN = {"name": ANY_IMAGE, "url": "file:///none", "disk_format": "raw", "allow_unverified": True}

Answers = t.Tuple[t.List[Answer], t.List[t.Dict[str, t.Any]], Facts]  # of requests, of lost hosts


class WhatIf:
    """A question, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options
        self._networks: dict[str, Network] = {}  # of the inventory by id, where the requests may name them

    def answer(self) -> dict[str, t.Any]:
        """Return the result of the task. :raises InvalidRequest: the question has errors, at its variables"""
        variable_names.warn(self.action)
        losing = self._hosts_to_lose()
        try:
            requests = self._requests(losing is not None)
            scheduler_settings.check(self.action)
            self._check_limit(requests)
            answers, losses, facts = self._read(requests, losing)
        except errors.InvalidRequest as e:
            raise self._with_variables(e) from e
        if self.options["print_table"]:
            asks_for_liveness = "ComputeFilter" in scheduler_settings.reading_of(self.action).filters
            tables.show(self.action.ports.display, whatif_lines(answers, losses, facts, asks_for_liveness))
        problems = problems_of(answers, losses)
        result: dict[str, t.Any] = {
            "changed": False,
            "answers": [answer_data(a) for a in answers],
            "lost": losses,
            "hosts_down": facts.down,
            "oldest_facts": facts.oldest,
            "fits": not problems,
        }
        if self.options["fail"] and problems:
            remedy = "The answers list for each host why the next instance was rejected."
            return error_result(errors.NoValidHost(reason=" ".join(problems), remedy=remedy), **result)
        return result

    # --- the question ------------------------------------------------------------------------------------------------

    def _hosts_to_lose(self) -> list[str] | None:
        """Return the hosts to be lost, one at a time; None where the question is another.

        :raises ComputeHostNotFound: hosts that are not compute hosts of the inventory.
        """
        wanted = self.options["lose"] or ([ALL] if self.options["n_plus_1"] else None)
        if wanted is None:
            return None
        hosts = self.action.compute_hosts()
        if wanted == [ALL]:
            return hosts
        unknown = sorted(set(wanted) - set(hosts))
        if unknown:
            raise errors.ComputeHostNotFound(
                host=", ".join(unknown),
                remedy="bootflow_whatif_lose takes compute hosts of the inventory, or all alone.",
            )
        return [h for h in hosts if h in set(wanted)]

    def _requests(self, n_plus_1: bool) -> list[ServerRequest]:
        options = self.options
        if options["flavor"] is not None:
            return self._one_request()
        given = sorted(n for n in (*FIELDS, "server_group") if options[n] is not None)
        if given:
            raise errors.InvalidInput(
                reason="%s without bootflow_whatif_flavor" % ", ".join("bootflow_whatif_%s" % n for n in given),
                remedy="Name the flavor that is asked about. Entries of bootflow_instances have other fields.",
            )
        if n_plus_1:
            return []
        if options["instances"] is None:
            raise errors.InvalidInput(
                reason="no question is asked",
                remedy="Set bootflow_whatif_flavor, or bootflow_instances, or bootflow_whatif_n_plus_1: true.",
            )
        asked = boot_request.BootRequest(
            options,
            scheduler_settings.reading_of(self.action),
            user=self.action.context().actor,
            ledger_images=ledger_images.images_of(self.action),
            filters_ports=port_filters.are_filtered(self.action),
        )
        self._networks = {network.id: network for network in asked.catalogue.networks.values()}
        return asked.requests

    def _one_request(self) -> list[ServerRequest]:
        options = dict(self.options)
        entry = {"name": NAME, "networks": "none", **{n: options[n] for n in FIELDS if options[n] is not None}}
        if options["server_group"] is not None:
            hints = dict(options["scheduler_hints"] or {})
            if hints.setdefault("group", options["server_group"]) != options["server_group"]:
                raise errors.InvalidInput(
                    reason="bootflow_whatif_server_group is %s, and the hint group is %s"
                    % (options["server_group"], hints["group"]),
                    remedy="Name one server group.",
                )
            entry["scheduler_hints"] = hints
        if options["image"] is None:
            entry["image"] = ANY_IMAGE
            if isinstance(options["images"], list):
                options["images"] = [*options["images"], STAND_IN]
        options["instances"] = [entry]
        requests = boot_request.BootRequest(
            options,
            scheduler_settings.reading_of(self.action),
            user=self.action.context().actor,
            ledger_images=ledger_images.images_of(self.action),
            filters_ports=port_filters.are_filtered(self.action),
        ).requests
        return [replace(r, image=None) for r in requests] if self.options["image"] is None else requests

    def _check_limit(self, requests: t.Sequence[ServerRequest]) -> None:
        limit = self.options["limit"]
        most = max([r.max_count for r in requests], default=0)
        if limit is not None and limit < most:
            raise errors.InvalidInput(
                reason="bootflow_whatif_limit must be at least %d, the number of requested instances, got %d"
                % (most, limit),
                remedy="Raise bootflow_whatif_limit to %d, or leave it out." % most,
            )

    def _with_variables(self, error: errors.InvalidRequest) -> errors.InvalidRequest:
        """Return the same errors, at the variables of the one entry."""
        if self.options["flavor"] is None:
            return error
        places = {"instances[0].%s" % n: "bootflow_whatif_%s" % n for n in FIELDS}
        if self.options["server_group"] is not None:
            places["instances[0].scheduler_hints.group"] = "bootflow_whatif_server_group"
        for one in error.errors:
            for place in sorted(places, key=len, reverse=True):
                if one["path"] == place or one["path"].startswith((place + ".", place + "[")):
                    one["path"] = places[place] + one["path"][len(place) :]
                    break
        return error

    # --- the ledger ------------------------------------------------------------------------------------------------

    def _read(self, requests: t.Sequence[ServerRequest], losing: t.Sequence[str] | None) -> Answers:
        configurations = scheduler_settings.configurations(self.action)
        read_fleet, options = inventory_fleet.reader(self.action, self.action.hosts_to_use())
        one = self.options["flavor"] is not None

        def read(tx: Transaction) -> Answers:
            answers: list[Answer] = []
            losses: list[dict[str, t.Any]] = []
            if requests:
                limit = self.options["limit"]
                answers = ledger_whatif.ask(tx, requests, read_fleet, options, limit, not one, self._networks)
            if losing is not None:
                losses = ledger_whatif.lose(tx, read_fleet, options, losing)
            facts = ledger_whatif.facts(tx, configurations, self.options["service_down_time"])
            return answers, losses, facts

        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(read)
