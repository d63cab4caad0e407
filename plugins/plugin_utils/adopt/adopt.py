# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains of other software become instances: hosts describe them, one transaction judges and writes them, hosts mark them."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.adopt.verdict import ADOPT, REFUSED, Wishes
from ...module_utils.core.reading.setting import canonical
from ...module_utils.core.request.catalogue import parse_catalogue
from ...module_utils.flows.adopt import adoption
from ...module_utils.flows.adopt.adoption import Adopter
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.results import diff, item_errors, outcome
from ..run.stages import Failed, Outcomes, Result, Stages
from .adopt_texts import adoption_lines

UNMARKED = "The ledger has the instance; its domain has no mark yet. Run the same playbook again, which adds it. %s"


class Adoption(Stages):
    """All stages."""

    called = "adopt"
    event = "adopt"
    returns = ("finish",)
    rehearses_on_hosts = True
    keeps_lease = False

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "decide": self._decide, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"ask": self._ask, "mark": self._mark}

    def _begin(self) -> Result:
        """Read what is wanted, before any host is asked. Returns the hosts to ask."""
        options = self.options
        if not (options["domains"] or options["all"] or self.action.check_mode):
            raise errors.InvalidInput(
                reason="no domain is selected",
                remedy="Run it with --check, which shows what is adoptable; then give bootflow_adopt_domains, or bootflow_adopt_all: true.",
            )
        self._adopter()
        return {"changed": False, "compute": self.action.hosts_to_use()}

    def _adopter(self) -> Adopter:
        options = self.options
        catalogue = parse_catalogue(None, None, options["networks"], None)
        names = {canonical(str(word)): str(name) for word, name in options["names"].items()}
        networks = tuple(catalogue.networks.values())
        wishes = Wishes(options["project"], networks, names, options["other_interfaces"])
        return Adopter(wishes, options["user"] or "", frozenset(self._words() or ()))

    def _words(self) -> list[str] | None:
        """Return names and UUIDs of the domains to adopt; None: all."""
        return [canonical(word) for word in self.options["domains"]] if self.options["domains"] else None

    def _ask(self, host: str) -> Result:
        """Have the host describe its domains. A host that does not answer is left out, with a warning."""
        settings = host_settings.read_current_host(self.action)
        arguments: dict[str, t.Any] = {
            **host_settings.libvirt_arguments(self.action),
            "instances_path": settings.instances_path,
            "volume_group": host_settings.volume_group(settings),
            "names": self._words(),
        }
        try:
            domains = self.action.run_module("domain_adoption", arguments)["domains"]
        except errors.BootflowError as error:
            self.action.ports.display.warning("%s did not answer and is left out: %s" % (host, error.paragraph))
            return {"changed": False, "answered": False, "error": error.as_dict()}
        if host_settings.disk_pool(
            settings
        ):  # the room that the host gives out is that of the pool, which none of these disks is in
            for disk in (disk for domain in domains for disk in domain.get("disks") or ()):
                disk["local"] = False
        return {"changed": False, "answered": True, "domains": domains}

    def _decide(self) -> Result:
        """Judge the domains, and write the adoptable ones. Returns the hosts that are to mark theirs; none in check mode."""
        asked = {host: self.result("ask", host) for host in self.result("begin").get("compute", [])}
        domains = [(host, domain) for host, said in asked.items() for domain in said.get("domains") or ()]
        self._refuse_unknown([domain for _host, domain in domains])
        adopter = self._adopter()

        def write(tx: Transaction) -> list[dict[str, t.Any]]:
            return [adoption.view(verdict) for verdict in adoption.adopt(tx, domains, adopter)]

        views = self.action.write(write, collisions=3)
        if self.action.check_mode:
            self._print(views)
        marked = sorted({v["host"] for v in views if v["state"] != REFUSED})
        return {
            "changed": any(v["state"] == ADOPT for v in views),
            "domains": views,
            "silent": sorted(host for host, said in asked.items() if not said.get("answered")),
            "compute": [] if self.action.check_mode else marked,
        }

    def _refuse_unknown(self, domains: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        known = {word for domain in domains for word in (domain["uuid"], domain["name"])}
        unknown = [word for word in self._words() or () if word not in known]
        if unknown:
            raise errors.DomainNotFound(domains=", ".join(unknown))

    def _print(self, views: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        if self.options["print_table"]:
            tables.show(self.action.ports.display, adoption_lines(views, self.action.check_mode))

    def _mark(self, host: str) -> Result:
        """Have the host mark its adopted domains as this ledger's."""
        uuids = [v["uuid"] for v in self.result("decide")["domains"] if v["host"] == host and v["state"] != REFUSED]

        def mark() -> tuple[Outcomes, Failed]:
            arguments = {"state": "adopted", "uuids": uuids, "ledger_id": self.action.ledger_id()}
            result = self.action.run_module(
                "domain_adoption", {**host_settings.libvirt_arguments(self.action), **arguments}
            )
            return result["outcomes"], item_errors(result, uuids)

        outcomes = self.guarded(uuids, mark)
        return {"changed": any(o.get("changed") for o in outcomes.values()), "outcomes": outcomes}

    def _finish(self) -> Result:
        decided = self.result("decide")
        views: list[dict[str, t.Any]] = decided["domains"]
        failed: list[dict[str, t.Any]] = []
        changed = bool(decided["changed"])
        if not self.action.check_mode:
            self._print(views)
            for view in (v for v in views if v["state"] != REFUSED):
                answer = (self.result("mark", view["host"]).get("outcomes") or {}).get(view["uuid"])
                error = errors.HostUnreachable(host=view["host"], reason="it did not mark the domain").as_dict()
                error = error if answer is None else answer["error"]
                changed = changed or bool(answer and answer.get("changed"))
                if error:
                    error = {**error, "remedy": UNMARKED % (error["remedy"] or "")}
                    failed.append(errors.failed_item(view["name"], view["uuid"], error, host=view["host"]))
        problem = errors.OperationFailed(failed, len(views), operation=self.called)
        after = "".join("%s %s on %s\n" % (v["name"], v["uuid"], v["host"]) for v in views if v["state"] == ADOPT)
        return outcome(
            problem, changed=changed, domains=views, silent=decided["silent"], diff=diff("instances", "", after)
        )
