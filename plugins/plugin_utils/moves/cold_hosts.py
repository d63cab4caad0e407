# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of hosts in a resize, a cold migration, or the revert of one: sources shut guests down and offer their disks, destinations fetch them
and start the guests, and sources start the guests that stay or come back.

No result has a secret: each stage derives the tokens of the copies from the secret of this run.
"""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.core.instances.verdicts.answer import Answer
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.flows.moves import cold_life
from ...module_utils.ledger.db.transaction import Transaction
from ..builds.domain_builder import blank_disk
from ..builds.pool_disks import FENCED, open_disks
from ..operations import hard_reboot
from ..operations.cleaning import LEFT, clean_host, clear_lost, resize_arguments
from ..run import host_settings
from ..run.results import item_errors
from ..run.stages import Failed, Item, Outcomes, Result, Stages
from ..settings import host_reports
from ..volumes.attached_volumes import come_to_host, leave_host, sources_on
from .guest_networks import ensure_networks

_NOWHERE = {"address": "", "port": 0, "fingerprint": ""}  # nothing is fetched
# Where disks that are logical volumes come to, and others are.
_GROUP = ("volume_group", "volume_clear", "volume_clear_size_mb", "disk_pool")


def on_one_host(item: Item) -> bool:
    """Whether the instance is resized on its own host."""
    return bool(item["source"] == item["destination"])


def silence_in(host: str, report: t.Mapping[str, t.Any]) -> errors.BootflowError | None:
    """Return why nothing goes to ``host``; None: it has reported in this run."""
    if report.get("reported"):
        return None
    if report.get("error"):
        return errors.from_dict(report["error"])
    return errors.HostUnreachable(host=host, reason="it was not asked")


class ColdHosts(Stages):
    """The stages of hosts."""

    reverts = False
    answered_by = {"depart": "source", "arrive": "destination", "settle": "destination", "return": "source"}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {
            "depart": self._depart,
            "arrive": self._arrive,
            "settle": self._settle_destination,
            "return": self._return,
        }

    def lost_in(self, tx: Transaction, uuids: t.Collection[str]) -> Failed:
        owned = {m.uuid for m in cold_life.load(tx, sorted(uuids))}
        return cold_life.ownership_errors(tx, set(uuids) - owned)

    def _lost_on(self, host: str) -> Failed:
        """Return why instances that come to this host or leave it are no longer this run's."""
        return self.find_lost(u for u, i in self.items().items() if host in (i["source"], i["destination"]))

    def _report_of(self, host: str) -> t.Mapping[str, t.Any]:
        """Return what the host reported in this run."""
        return host_reports.report_of(self.action, host)

    def _power(self, domains: t.Sequence[t.Mapping[str, t.Any]], state: str) -> tuple[Outcomes, Failed]:
        settings = host_settings.read_current_host(self.action)
        result = self.action.run_module(
            "domain_power",
            {
                **host_settings.libvirt_arguments(self.action),
                "instances_path": settings.instances_path,
                "domains": domains,
                "state": state,
                "shutdown_timeout": settings.shutdown_timeout,
                "wait_timeout": settings.wait_timeout,
                "vif_plugging_timeout": settings.vif_plugging_timeout,
                "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
                "workers": host_settings.workers(self.action, len(domains)),
            },
        )
        return result["outcomes"], item_errors(result, [d["uuid"] for d in domains])

    # --- depart ---------------------------------------------------------------------------------------------------------

    def _depart(self, host: str) -> Result:
        """Shut the guests down, disconnect the host from their volumes, and offer their disks. A guest whose destination does not answer runs on."""
        items = self.items_on(host, "source")
        lost_instances = self._lost_on(host)
        failed = {i["uuid"]: e for i in items if (e := lost_instances.get(i["uuid"]) or self._refusal(i)) is not None}
        items = [i for i in items if i["uuid"] not in failed]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            volumes = ledger.inspect(sources_on, host, [i["uuid"] for i in items])
        domains = [
            {"uuid": i["uuid"], "leaves": True, "volumes": volumes.get(i["uuid"], {}), **i["details"]} for i in items
        ]
        outcomes = self.guarded([i["uuid"] for i in items], lambda: self._power(domains, "shutdown"))
        was_off = [u for u, o in outcomes.items() if not o.get("error") and not o.get("changed")]
        at_rest = [u for u, o in outcomes.items() if not o.get("error")]
        disconnected = self.guarded(
            at_rest, lambda: ({u: outcomes[u] for u in at_rest}, leave_host(self.action, at_rest))
        )
        outcomes.update(disconnected)
        # An instance without disks here may have UEFI variables.
        off = [i for i in items if not outcomes[i["uuid"]].get("error") and not on_one_host(i)]
        place: dict[str, t.Any] = {}
        offered = self.guarded([i["uuid"] for i in off], lambda: self._offer(host, off, place))
        refused = {u: {"error": e.as_dict()} for u, e in failed.items()}
        return {"outcomes": {**refused, **outcomes, **offered}, "place": place, "was_off": was_off}

    def _refusal(self, item: Item) -> errors.BootflowError | None:
        """Return why the guest is not shut down: its destination did not answer, or has the instance already."""
        source, destination = item["source"], item["destination"]
        if destination in (self.result("begin").get("ask") or ()):
            silent = silence_in(destination, self._report_of(destination))
            if silent is not None:
                return silent
        if on_one_host(item) or item["uuid"] not in host_reports.instances_in(self._report_of(destination)):
            return None
        return errors.InstanceElsewhere(instance_uuid=item["uuid"], host=source, found="%s has it" % destination)

    def _offer(self, host: str, items: t.Sequence[Item], place: dict[str, t.Any]) -> tuple[Outcomes, Failed]:
        """Offer the disks of instances. :arg place: gets where they are offered"""
        settings = host_settings.read_current_host(self.action)
        first, last = map(int, settings.copy_ports.split("-"))
        result = self.action.run_module(
            "instance_disks_offer",
            {
                "instances_path": settings.instances_path,
                "instances": [
                    {
                        "uuid": i["uuid"],
                        "token": self.token(i["uuid"]),
                        "left": i["disks"]["left_behind"],
                        "has_disks": i["files"],
                    }
                    for i in items
                ],
                "first_port": first,
                "last_port": last,
                "stop_token": self.token(host),
                # The plays of this stage may wait for other hosts, each for its limit.
                "lifetime": 2.0 * host_settings.values(self.action, TIME_LIMITS).copy_timeout,
                "workers": host_settings.workers(self.action, len(items)),
            },
        )
        place.update(address=items[0]["address"], port=result["port"], fingerprint=result["fingerprint"])
        return result["outcomes"], item_errors(result, [i["uuid"] for i in items])

    # --- arrive ---------------------------------------------------------------------------------------------------------

    def _arrive(self, host: str) -> Result:
        """Fetch the disks from where they are offered, and copy the disks of instances that are resized here."""
        items, lost_instances = self.items_on(host, "destination"), self._lost_on(host)
        departed = {u: a for u, a in self.answers("depart").items() if not a.get("error") and u not in lost_instances}
        coming = [i for i in items if i["uuid"] in departed]
        offered = [i for i in coming if not on_one_host(i) and (departed[i["uuid"]].get("files") or not i["files"])]
        fetched = self.guarded([i["uuid"] for i in offered], lambda: self._fetch(offered, departed))
        resized = [{**self._to_have(i), "left": i["disks"]["left_behind"]} for i in coming if on_one_host(i)]
        copied = self._resize_disks("prepared", resized)
        refused = {
            i["uuid"]: {"error": lost_instances[i["uuid"]].as_dict()} for i in items if i["uuid"] in lost_instances
        }
        return {"outcomes": {**refused, **fetched, **copied}}

    def _fetch(self, items: t.Sequence[Item], departed: t.Mapping[str, Answer]) -> tuple[Outcomes, Failed]:
        """Fetch the disks of instances. :arg departed: the answers of their sources"""
        wanted = []
        for item in items:
            files = departed[item["uuid"]].get("files") or []
            place = self.result("depart", item["source"])["place"] if files else _NOWHERE
            known = {"token": self.token(item["uuid"]), "made_for": item["made_for"]}
            copied = {"files": files, "limits": item["disks"]["limits"]}
            wanted.append({**known, **copied, **self._to_have(item), **place})
        settings = host_settings.cleanup_arguments(self.action)
        arguments = {
            **host_settings.libvirt_arguments(self.action),
            **{n: settings[n] for n in ("instances_path", "ledger_id", *_GROUP)},
            "instances": wanted,
            "workers": host_settings.workers(self.action, len(wanted)),
        }
        result = self.action.run_module("instance_disks_fetch", arguments)
        return result["outcomes"], item_errors(result, [i["uuid"] for i in items])

    def _to_have(self, item: Item) -> Item:
        """Return the disks that an instance gets on the current host, besides copied ones."""
        settings = host_settings.read_current_host(self.action)
        made = [blank_disk(d, settings) for d in item["disks"]["made"]]
        return {"uuid": item["uuid"], "sizes": item["disks"]["sizes"], "made": made}

    def _resize_disks(self, state: str, instances: t.Sequence[Item]) -> Outcomes:
        """Run the module instance_disks_resize on the current host."""
        uuids = [i["uuid"] for i in instances]

        def resize() -> tuple[Outcomes, Failed]:
            result = self.action.run_module("instance_disks_resize", resize_arguments(self.action, state, instances))
            return result["outcomes"], item_errors(result, uuids)

        return self.guarded(uuids, resize)

    # --- settle ---------------------------------------------------------------------------------------------------------

    def _settle_destination(self, host: str) -> Result:
        """Start the guests whose disks have arrived; remove the other instances."""
        lost_instances, switched = self._lost_on(host), self.result("switch")
        items = [i for i in self.items_on(host, "destination") if i["uuid"] in switched["to_settle"]]
        arrived = [i for i in items if i["uuid"] in switched["switched"]]
        outcomes, ready = self._start_arrived(host, arrived)
        to_clean = [i for i in items if (outcomes.get(i["uuid"]) or {"error": True}).get("error")]
        problems = self._clean(host, to_clean, ready, lost_instances)
        for item in to_clean:
            outcome = outcomes.setdefault(item["uuid"], {})
            problem = problems.get(item["uuid"])
            outcome["cleaned"] = problem is None
            if problem is not None and not outcome.get("error"):
                outcome["error"] = problem.as_dict()
        clear_lost(self.action, ready)
        return {"outcomes": outcomes}

    def _start_arrived(self, host: str, items: t.Sequence[Item]) -> tuple[Outcomes, list[str]]:
        """Start the guests of instances that have arrived. Returns their outcomes, and the UUIDs of the instances whose start was tried."""
        off = [i["uuid"] for i in items if not i["runs"]]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            uuids = ledger.inspect(cold_life.arrivals_on, host, [i["uuid"] for i in items])
        resized = self._resize_disks(
            "resized", [{"uuid": i["uuid"]} for i in items if i["uuid"] in uuids and on_one_host(i)]
        )
        ready = [u for u in uuids if not resized.get(u, {}).get("error")]
        return {**resized, **self.guarded(ready, lambda: self._with_volumes(ready, off))}, ready

    def _clean(self, host: str, items: t.Sequence[Item], ready: t.Collection[str], lost_instances: Failed) -> Failed:
        """Remove instances that do not stay here. Returns why that failed, by UUID.

        :arg ready: the instances whose start was tried. :arg lost_instances: see find_lost()
        """
        cleaned = clean_host(self.action, [self._to_remove(i) for i in items if not on_one_host(i)])
        # The start of its guest has changed the mark of what this move made: the host keeps it.
        problems = {**cleaned.problems, **{u: _started(u, host) for u in cleaned.preexisting_uuids.intersection(ready)}}
        # An instance that another run has taken over is settled by that run.
        failed = [{"uuid": i["uuid"]} for i in items if on_one_host(i) and i["uuid"] not in lost_instances]
        undone = self._resize_disks("undone", failed)
        able = [u for u, r in undone.items() if not r.get("error")]
        disconnected = self.guarded(able, lambda: ({}, leave_host(self.action, able)))
        for outcomes in (undone, disconnected):
            problems.update({u: errors.from_dict(r["error"]) for u, r in outcomes.items() if r.get("error")})
        return problems

    def _to_remove(self, item: Item) -> Item:
        """Return the parts of an instance that the current host removes: all in a revert; else what was made for this move, as only the host knows
        whether it had something before.
        """
        named = {"uuid": item["uuid"], "name": item["domain"]}
        if self.reverts:
            return {**named, "images": LEFT}
        return {**named, "made_for": item["made_for"]}

    # --- return ---------------------------------------------------------------------------------------------------------

    def _return(self, host: str) -> Result:
        """End the offer of disks, and start the guests that did not move or came back."""
        lost_instances = self._lost_on(host)
        place = self.result("depart", host).get("place") or {}
        if place.get("port"):
            known = {n: place[n] for n in ("port", "fingerprint")}
            arguments = {**known, "state": "absent", "stop_token": self.token(host)}
            with contextlib.suppress(errors.BootflowError):  # it ends by itself
                self.action.run_module("instance_disks_offer", arguments)
        return_work = self.result("back")
        start, undone, reconnect, stay = (
            [u for u in return_work.get(n, {}).get(host, []) if u not in lost_instances]
            for n in ("start", "undone", "reconnect", "stay")
        )
        outcomes = self._resize_disks("reverted", [{"uuid": u} for u in undone])
        outcomes.update(self.guarded(stay, lambda: ({}, self._bring_disks_back(stay))))
        able = [u for u in start if not outcomes.get(u, {}).get("error")]
        lacking = [u for u in reconnect if not outcomes.get(u, {}).get("error")]
        off = [u for u in lacking if u not in able]
        outcomes.update(self.guarded(lacking, lambda: self._with_volumes(lacking, off)))
        whole = [u for u in able if u not in lacking]
        if self.reverts:  # new hosts, or devices that were removed, while the guests were away
            outcomes.update(self.guarded(whole, lambda: ({}, ensure_networks(self.action, whole, only_joining=True))))
            whole = [u for u in whole if not outcomes.get(u, {}).get("error")]
        outcomes.update(self.guarded(whole, lambda: self._start(whole)))
        clear_lost(self.action, [*lacking, *whole])
        return {"outcomes": outcomes}

    def _bring_disks_back(self, uuids: t.Sequence[str]) -> Failed:
        """Have disks in a pool be what they were before the move. Returns why instances failed.

        A destination that is lost is fenced first: it may still run their guests.
        """
        items = self.items()
        failed = open_disks(self.action, [u for u in uuids if items[u]["lost"]], FENCED)
        remaining = [u for u in uuids if u not in failed]
        return {**failed, **open_disks(self.action, remaining, rolls_back={u: items[u]["made_for"] for u in remaining})}

    def _start(self, uuids: t.Sequence[str]) -> tuple[Outcomes, Failed]:
        """Start guests that have all that they had."""
        closed = open_disks(self.action, uuids)
        able = [u for u in uuids if u not in closed]
        outcomes, failed = self._power([{"uuid": uuid} for uuid in able], "running") if able else ({}, {})
        return outcomes, {**failed, **closed}

    def _with_volumes(self, uuids: t.Sequence[str], off: t.Collection[str]) -> tuple[Outcomes, Failed]:
        """Define the guests as the ledger has them, connected to their volumes, and start them. :arg off: instances whose guests are not started"""
        fresh, problems = come_to_host(self.action, uuids)
        able = [u for u in uuids if u not in problems]
        outcomes: t.Mapping[str, t.Any] = {}
        failed: Failed = {}
        if able:
            outcomes, failed = hard_reboot.reboot(self.action, able, [u for u in off if u in able], fresh)
        unconnected: Outcomes = {u: {"power_state": states.SHUTDOWN} for u in problems}
        return {**unconnected, **outcomes}, {**problems, **failed}


def _started(uuid: str, host: str) -> errors.BootflowError:
    """Return why the destination is not cleaned of an instance whose guest was started there, even if a later step failed."""
    return errors.Conflict(
        message="The guest of instance %s was started on %s, and may run there" % (uuid, host),
        remedy="Look at the guest there. bootflow.compute.revert_resize brings the instance back.",
    )
