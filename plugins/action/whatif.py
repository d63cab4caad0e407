# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.whatif."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..module_utils.core import errors
from ..module_utils.core.instances.request import ServerRequest
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.scheduler import explain
from ..module_utils.core.scheduler.columns import Fleet
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import WHATIF
from ..module_utils.flows.boot import whatif as ledger_whatif
from ..module_utils.ledger.compute import fleet
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import error_result
from ..plugin_utils.settings import boot_request, scheduler_settings, variable_names

HOSTS_PRINTED = 50
ALL = "all"
NAME = "whatif"  # of the entry that is made of the options
# Options that are fields of the entry; errors of a field are reported at the option's variable.
FIELDS = ("flavor", "image", "availability_zone", "scheduler_hints", "count")
# Where no image is asked about: one that fits every flavor and every host.
ANY_IMAGE = "any image, none was asked about"
REFRESH = "Facts are those of the last report; ansible-playbook bootflow.compute.heartbeat updates them."


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        "instances": REQUEST.named("instances").but(required=False),
        **SCHEDULER.options(),
        **WHATIF.options(),
        **RUN.options("print_table"),
        **RUN_LIMIT,
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        o = self.options
        losing = self._losing()
        try:
            requests = self._requests(losing is not None)
            scheduler_settings.check(self)
            self._check_limit(requests)
            answers, lost, facts = self._read(requests, losing)
        except errors.InvalidRequest as e:
            raise self._at_variables(e) from e
        if o["print_table"]:
            parts = (_question_lines(answers), _loss_lines(lost), self._facts_lines(facts))
            tables.show(self._display, "\n\n".join("\n".join(p) for p in parts if p).split("\n"))
        result: dict[str, t.Any] = {
            "changed": False,
            "answers": [_answer_data(a) for a in answers],
            "lost": lost,
            "hosts_down": facts.down,
            "oldest_facts": facts.oldest,
        }
        problems = _problems(answers, lost)
        result["fits"] = not problems
        if o["fail"] and problems:
            remedy = "The answers list for each host why the next instance was rejected."
            return error_result(errors.NoValidHost(reason=" ".join(problems), remedy=remedy), **result)
        return result

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _losing(self) -> list[str] | None:
        """The hosts to be lost, one at a time; None where that is not asked.

        :raises ComputeHostNotFound: hosts that are not compute hosts of the inventory.
        """
        wanted = self.options["lose"] or ([ALL] if self.options["n_plus_1"] else None)
        if wanted is None:
            return None
        hosts = self.compute_hosts()
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
        o = self.options
        if o["flavor"] is not None:
            return self._one_request()
        given = sorted(n for n in (*FIELDS, "server_group") if o[n] is not None)
        if given:
            raise errors.InvalidInput(
                reason="%s without bootflow_whatif_flavor" % ", ".join("bootflow_whatif_%s" % n for n in given),
                remedy="Name the flavor that is asked about. Entries of bootflow_instances have fields of their own.",
            )
        if n_plus_1:
            return []
        if o["instances"] is None:
            raise errors.InvalidInput(
                reason="no question is asked",
                remedy="Set bootflow_whatif_flavor, or bootflow_instances, or bootflow_whatif_n_plus_1: true.",
            )
        return boot_request.BootRequest(o, scheduler_settings.reading_of(self), user=self.context().actor).requests

    def _one_request(self) -> list[ServerRequest]:
        o = dict(self.options)
        entry = {"name": NAME, "networks": "none", **{n: o[n] for n in FIELDS if o[n] is not None}}
        if o["server_group"] is not None:
            hints = dict(o["scheduler_hints"] or {})
            if hints.setdefault("group", o["server_group"]) != o["server_group"]:
                raise errors.InvalidInput(
                    reason="bootflow_whatif_server_group is %s, and the hint group is %s"
                    % (o["server_group"], hints["group"]),
                    remedy="Name one server group.",
                )
            entry["scheduler_hints"] = hints
        if o["image"] is None:
            entry["image"] = ANY_IMAGE
            if isinstance(o["images"], list):
                stand_in = {"url": "file:///none", "disk_format": "raw", "allow_unverified": True}
                o["images"] = [*o["images"], {"name": ANY_IMAGE, **stand_in}]
        o["instances"] = [entry]
        requests = boot_request.BootRequest(o, scheduler_settings.reading_of(self), user=self.context().actor).requests
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

    def _at_variables(self, error: errors.InvalidRequest) -> errors.InvalidRequest:
        """The same errors, at the variables that the one entry was made of."""
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

    # --- what there is ------------------------------------------------------------------------------------------------

    def _read(
        self, requests: t.Sequence[ServerRequest], losing: t.Sequence[str] | None
    ) -> tuple[list[ledger_whatif.Answer], list[dict[str, t.Any]], ledger_whatif.Facts]:
        configurations = scheduler_settings.configurations(self)
        aggregates, host_vars = scheduler_settings.aggregates_of(self), scheduler_settings.vars_for_filters(self)
        usable, now = self.hosts_to_use(), time.time()
        options = scheduler_settings.scheduler_options(self, now, explain=True)
        one = self.options["flavor"] is not None

        def read_fleet(tx: Transaction, needs: fleet.Needs) -> Fleet:
            found = fleet.read(tx, usable, aggregates, host_vars, needs)
            return ledger_whatif.as_configured(tx, found, configurations)

        def read(
            tx: Transaction,
        ) -> tuple[list[ledger_whatif.Answer], list[dict[str, t.Any]], ledger_whatif.Facts]:
            answers: list[ledger_whatif.Answer] = []
            lost: list[dict[str, t.Any]] = []
            if requests:
                answers = ledger_whatif.ask(tx, requests, read_fleet, options, self.options["limit"], named=not one)
            if losing is not None:
                lost = ledger_whatif.lose(tx, read_fleet, options, losing)
            facts = ledger_whatif.facts(tx, configurations, self.options["service_down_time"])
            return answers, lost, facts

        ledger = self.open_ledger()
        try:
            return ledger.inspect(read)
        finally:
            ledger.close()

    def _facts_lines(self, facts: ledger_whatif.Facts) -> list[str]:
        lines: list[str] = []
        if "ComputeFilter" in scheduler_settings.reading_of(self).filters:
            lines += ["%s counts as down: %s" % (d["host"], d["reason"]) for d in facts.down[:HOSTS_PRINTED]]
            lines += _more(facts.down, "down")
        lines.append(REFRESH + ("" if facts.oldest is None else " The oldest are of %.0f s ago." % facts.oldest))
        return lines


# --- as data ----------------------------------------------------------------------------------------------------------


def _answer_data(answer: ledger_whatif.Answer) -> dict[str, t.Any]:
    """The answer as data: of the explanation, what turned each host down and the nearest miss."""
    stopped = None
    if answer.stopped_by is not None:
        decision = answer.stopped_by["decision"]
        stopped = {
            "reason": answer.stopped_by["reason"],
            "filters": answer.stopped_by["filters"],
            "turned_down": [
                {"host": h["host"], "node": h["node"], **(h["rejected_by"] or {})} for h in decision["hosts"]
            ],
            "nearest_miss": decision["nearest_miss"],
        }
    return {
        "name": answer.name,
        "flavor": answer.flavor,
        "project": answer.project,
        "count": answer.count,
        "there": answer.there,
        "total": answer.total,
        "left": answer.left,
        "fits": answer.fits,
        "by_host": answer.by_host,
        "placed": answer.placed,
        "stopped_by": stopped,
    }


def _problems(answers: t.Sequence[ledger_whatif.Answer], lost: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """What does not fit, in words."""
    found = [
        "%s: %d of flavor %s requested, %d fit." % (a.name, a.count, a.flavor, a.total) for a in answers if not a.fits
    ]
    found += [
        "%s: %d of its %d instances would find no host."
        % (h["host"], len(h["stuck"]), len(h["stuck"]) + len(h["moved"]))
        for h in lost
        if not h["fits"]
    ]
    return found


# --- for people -------------------------------------------------------------------------------------------------------


def _question_lines(answers: t.Sequence[ledger_whatif.Answer]) -> list[str]:
    if not answers:
        return []
    lines = ["What if (nothing is changed):"]
    head = ("REQUEST", "FLAVOR", "COUNT", "FIT", "FITS", "LEFT AFTER IT")
    lines += tables.table(
        head,
        [(a.name, a.flavor, a.count, _number(a, a.total), "yes" if a.fits else "no", a.left) for a in answers],
    )
    for answer in answers:
        lines += _answer_lines(answer)
    return lines


def _answer_lines(answer: ledger_whatif.Answer) -> list[str]:
    lines = ["", "%s (%s): %s more fit" % (answer.name, answer.flavor, _number(answer, answer.total))]
    if answer.there:
        lines.append("  %d of the requested instances already have a host" % answer.there)
    if answer.by_host:
        its = {(p["host"], p["node"]): p["count"] for p in answer.placed}
        shown = sorted(answer.by_host, key=lambda h: (-h["count"], h["host"], h["node"]))
        rows = [(_place(h), h["count"], its.get((h["host"], h["node"])) or "-") for h in shown[:HOSTS_PRINTED]]
        lines += ["  " + line for line in tables.table(("HOST", "FIT", "WOULD TAKE"), rows)]
        lines += _more(shown, "with room")
    if answer.stopped_by is not None:
        # The filters' own line says it better, where any was asked.
        reason = "" if answer.stopped_by["filters"] else " " + answer.stopped_by["reason"]
        lines.append("  what stops the next one:" + reason)
        lines += explain.explanation_text(answer.stopped_by["decision"], HOSTS_PRINTED)[1:]
    return lines


def _number(answer: ledger_whatif.Answer, number: int) -> str:
    return str(number) if answer.stopped_by is not None else "%d (the limit)" % number


def _loss_lines(lost: t.Sequence[dict[str, t.Any]]) -> list[str]:
    if not lost:
        return []
    lines = ["If one of these hosts were lost (nothing is touched):"]
    rows = [
        (h["host"], len(h["moved"]) + len(h["stuck"]), "yes" if h["fits"] else "no, %d stuck" % len(h["stuck"]))
        for h in lost
    ]
    lines += tables.table(("HOST", "INSTANCES", "ROOM ELSEWHERE"), rows)
    for host in lost:
        stuck = host["stuck"]
        if stuck:
            lines += ["", "%s:" % host["host"]]
            lines += ["  %s: %s" % (s["name"], _why(s)) for s in stuck[:HOSTS_PRINTED]]
            lines += _more(stuck, "stuck")
    return lines


def _why(stuck: t.Mapping[str, t.Any]) -> str:
    """How many hosts were left after each filter that turned some down; the whole reason where none did."""
    some = any(f["start"] != f["end"] for f in stuck["filters"])
    return explain.filter_counts(stuck["filters"], "other hosts") if some else str(stuck["reason"])


def _place(place: t.Mapping[str, t.Any]) -> str:
    return str(place["host"]) if place["node"] == place["host"] else "%s (%s)" % (place["host"], place["node"])


def _more(shown: t.Sequence[t.Any], what: str) -> list[str]:
    hidden = len(shown) - HOSTS_PRINTED
    return ["  ... and %d more %s" % (hidden, what)] if hidden > 0 else []
