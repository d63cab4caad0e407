# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_evacuate."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ..module_utils.core import errors
from ..module_utils.core.instances import states
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import INSTANCES
from ..module_utils.flows.attachments import life, moving
from ..module_utils.flows.boot import builds as of_ledger
from ..module_utils.flows.boot.builds import Build
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.flows.instances.rebuild import Wanted
from ..module_utils.flows.moves import evacuate, evacuate_life
from ..module_utils.ledger.compute import history, instances
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.builds import domain_builder
from ..plugin_utils.moves.move_action import Candidates, as_it_is, hosts_to_ask, line_of, not_placed, report
from ..plugin_utils.operations import rebuild
from ..plugin_utils.operations.cleaning import clean_host, clear_lost
from ..plugin_utils.run import host_settings
from ..plugin_utils.run.inventory_hosts import all_of, reachable, refuse_left_out
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, item_errors
from ..plugin_utils.settings import scheduler_settings, variable_names
from ..plugin_utils.volumes import attached_volumes

# As playbooks/evacuate.yml registers what the controller and the hosts answered.
BEGUN, BUILT = "bootflow_evacuation_begun", "bootflow_evacuation_built"

Item = t.Dict[str, t.Any]


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": ["check", "begin", "build", "finish"], "default": "begin"},
        **INSTANCES.options(),
        **REQUEST.options("default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        phases = {"check": self._check, "begin": self._begin, "build": self._build, "finish": self._finish}
        return phases[self.options["phase"]]()

    def _wanted(self, built_as: Wanted) -> evacuate.Wanted:
        selection = Selection.from_options(self.options)
        return evacuate.Wanted(selection, built_as.secrets_of, built_as.kept, built_as.kept_in, all_of(self))

    # --- on the controller ----------------------------------------------------------------------------------------------

    def _check(self) -> dict[str, t.Any]:
        """Fail before any host is asked for anything. Names the hosts that should report before others are chosen."""
        scheduler_settings.check(self)
        variable_names.refuse(self, INSTANCES)
        ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        built_as = rebuild.wanted(self, None)
        rows = ledger.inspect(evacuate.check, self._wanted(built_as))
        rebuild.check_files(self, replace(built_as, image_of=lambda project, name: None), rows)
        away = {str(r.host) for r in rows}
        return {"changed": False, "stale_hosts": hosts_to_ask(self, ledger, away)}

    def _begin(self) -> dict[str, t.Any]:
        wanted = self._wanted(rebuild.wanted(self, None))
        candidates = Candidates(self)

        def begin(tx: Transaction) -> evacuate.Begun:
            candidates.rehearse(tx)
            begun = evacuate.begin(tx, wanted, candidates.read, candidates.options)
            asked = reachable(self, life.storage_hosts_of(tx, begun.volumes))
            refuse_left_out(asked, self.within_limit(asked))
            return begun

        begun = self.write(begin)
        storage_hosts = self._follow(begun)
        items = [
            {
                "uuid": row.uuid,
                "name": row.display_name,
                "domain": row.domain_name,
                "source": begun.sources[row.uuid],
                "destination": row.host,
                "made_for": begun.made_for[row.uuid],
                "vm_state": row.vm_state,
                "cut_off": begun.volumes.get(row.uuid),
            }
            for row in begun.rows
        ]
        failed = not_placed(begun.of_failed, begun.failed)
        return {
            "changed": bool(items or failed),
            "instances": items,
            "not_placed": failed,
            "unchanged": [as_it_is(r) for r in begun.unchanged],
            "hosts": [] if self.check_mode else sorted({str(i["destination"]) for i in items}),  # they do nothing then
            "storage_hosts": storage_hosts,
            "diff": diff(
                "instances",
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], i["source"]) for i in items),
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], i["destination"]) for i in items),
            ),
        }

    def _follow(self, begun: evacuate.Begun) -> list[str]:
        """Bind the volumes to the new hosts. Returns the storage hosts that cut the old ones off, and let the new ones in."""
        if self.check_mode or not begun.volumes:
            return []
        hosts = {str(r.host) for r in begun.rows if r.uuid in begun.volumes}
        connectors = attached_volumes.connectors_of(self.task_vars["hostvars"], hosts)
        found, _lacking = self.open_ledger().transact(moving.follow, sorted(begun.volumes), connectors)
        return reachable(self, found)

    # --- on each new host -----------------------------------------------------------------------------------------------

    def _build(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        items = [i for i in self._begun().get("instances", []) if i["destination"] == host]
        if self.check_mode or not items:
            return {"changed": False, "outcomes": {}}

        def load(tx: Transaction) -> list[Build]:
            rows = evacuate_life.built_on(tx, host, [i["uuid"] for i in items])
            return of_ledger.load(tx, [r for r in rows if instances.is_placed(r)])

        problems: dict[str, errors.BootflowError] = {}
        outcomes: dict[str, dict[str, t.Any]] = {}
        mine = [i["uuid"] for i in items]
        volumes = [i["uuid"] for i in items if i["cut_off"] is not None]
        let_in: dict[str, errors.BootflowError] = {}
        built: list[str] = []
        work: rebuild.Rebuilding | None = None
        with lease_kept(self):
            try:
                work = rebuild.Rebuilding(self, self.open_ledger().inspect(load))
                mine = built = sorted(work.builds)
                work.problems.update(self._place(host, [i for i in items if i["uuid"] in work.builds]))
                work.builds = {b.uuid: b for b in work.good(work.builds.values())}
                volumes = [u for u in volumes if u in work.builds]
                if volumes:
                    let_in = self.open_ledger().inspect(moving.still_let_in, volumes)
                    cut_off = [u for u in volumes if u not in let_in]
                    work.problems.update({**let_in, **attached_volumes.come_to_host(self, cut_off)[1]})
                    work.builds = {b.uuid: b for b in work.good(work.builds.values())}
                work.run()
                settings = host_settings.of(self)
                outcomes = {
                    u: {
                        "power_state": e.power_state,
                        "new_nvram": domain_builder.has_nvram(work.builds[u], settings),
                    }
                    for u, e in work.ended.items()
                }
                problems = {**work.problems, **work.write_domains()}
            except errors.BootflowError as e:
                problems = dict.fromkeys(mine, e)
            except Exception as e:  # the instances fail, never the play
                problems = dict.fromkeys(mine, self.unexpected(e))
            failed = [i for i in items if i["uuid"] in problems and i["uuid"] not in outcomes]
            made = [{"uuid": i["uuid"], "name": i["domain"], "made_for": i["made_for"]} for i in failed]
            starting = work.starting if work is not None else set()
            cleaned = clean_host(self, made)
            # The mark of what this evacuation made is another one since its guest was started: the host keeps it.
            left = {**cleaned.problems, **{u: problems[u] for u in cleaned.kept if u in starting}}
            clear_lost(self, built)
        self._note(problems)
        for uuid, problem in problems.items():
            may_run = uuid in left and uuid in starting
            its = outcomes.setdefault(uuid, {"cleaned": uuid not in left, "may_run": may_run, "let_in": uuid in let_in})
            its["error"] = (_where_it_may_run(problem, host) if may_run else problem).as_dict()
        return {"changed": True, "outcomes": outcomes}

    def _place(self, host: str, items: t.Sequence[Item]) -> dict[str, errors.BootflowError]:
        """Make the folders of these instances on the current host, which refuses those of which it has something already. Returns uuid -> why."""
        found = host_settings.cleanup_arguments(self)
        names = ("instances_path", "ledger_id", "volume_group", "volume_clear", "volume_clear_size_mb")
        nowhere = {
            "token": "",
            "address": "",
            "port": 0,
            "fingerprint": "",
            "files": [],
            "limits": {},
        }  # nothing is fetched
        arguments = {
            **host_settings.libvirt_arguments(self),
            **{n: found[n] for n in names},
            "instances": [{"uuid": i["uuid"], "made_for": i["made_for"], **nowhere} for i in items],
            "workers": host_settings.workers(self, len(items)),
        }
        uuids = [i["uuid"] for i in items]
        return item_errors(self.run_module("instance_disks_fetch", arguments), uuids) if items else {}

    def _note(self, problems: t.Mapping[str, errors.BootflowError]) -> None:
        frames = {u: e.details["traceback"] for u, e in problems.items() if e.details.get("traceback")}
        if frames:
            with contextlib.suppress(errors.BootflowError), contextlib.closing(self.open_ledger()) as ledger:
                ledger.transact(history.note, frames, evacuate_life.EVACUATE.name)

    # --- finish -----------------------------------------------------------------------------------------------------------

    def _begun(self) -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"]["localhost"].get(BEGUN) or {})

    def _outcome(self, item: Item) -> t.Mapping[str, t.Any]:
        """What its new host said of it."""
        answer = self.task_vars["hostvars"][item["destination"]].get(BUILT) or {}
        return t.cast("t.Mapping[str, t.Any]", (answer.get("outcomes") or {}).get(item["uuid"]) or {})

    def _keep_volumes(self, items: t.Sequence[Item]) -> None:
        """Instances that are back where they were have the volumes there that no storage host cut off."""
        if items:
            connectors = attached_volumes.connectors_of(self.task_vars["hostvars"], {i["source"] for i in items})
            ids = [each for i in items for each in i["cut_off"]]
            self.open_ledger().transact(moving.not_cut_off, ids, connectors)

    def _result(self, item: Item) -> evacuate_life.Result:
        its = self._outcome(item)
        if not its:  # what the host has of it, nobody knows
            host = str(item["destination"])
            silent = _where_it_may_run(errors.RemoteError(reason="%s returned no result" % host), host)
            return evacuate_life.Result(error=silent, cleaned=False, may_run=True)
        if its.get("error") and "power_state" not in its:
            problem = errors.from_dict(its["error"])
            return evacuate_life.Result(error=problem, cleaned=bool(its["cleaned"]), may_run=bool(its["may_run"]))
        return evacuate_life.Result(int(its["power_state"]))

    def _finish(self) -> dict[str, t.Any]:
        begun = self._begun()
        items: dict[str, Item] = {i["uuid"]: i for i in begun.get("instances", [])}
        results = {} if self.check_mode else {u: self._result(i) for u, i in items.items()}
        failed: dict[str, errors.BootflowError] = {}
        places: dict[str, tuple[str | None, str]] = {}

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            found = evacuate_life.finish(tx, results)
            rows = instances.select_live(tx, uuids=sorted(results))
            places.update({r.uuid: (r.host, r.vm_state) for r in rows})
            return found

        if results:
            failed = self.open_ledger().transact(finish)
            self._keep_volumes([i for i in items.values() if i["cut_off"] and self._outcome(i).get("let_in")])
        shown = []
        for uuid, item in items.items():
            after = states.STOPPED if item["vm_state"] == states.STOPPED else states.ACTIVE
            host, vm_state = places.get(uuid, (item["destination"], after))
            problem = failed.get(uuid)
            shown.append(
                {
                    "name": item["name"],
                    "uuid": uuid,
                    "source": item["source"],
                    "destination": item["destination"],
                    "host": host,
                    "vm_state": vm_state,
                    "power_state": results[uuid].power_state if uuid in results else states.NOSTATE,
                    "error": None if problem is None else problem.as_dict(),
                }
            )
        lost = begun.get("not_placed", [])
        more = [line_of(i, "was evacuated before") for i in begun.get("unchanged", [])]
        return report(self, evacuate_life.EVACUATE, shown, lost, self._note_of, more)

    def _note_of(self, item: Item) -> str:
        """What the guest lost with its host beside its local disks."""
        return "UEFI variables: new" if self._outcome(item).get("new_nvram") else ""


def _where_it_may_run(problem: errors.BootflowError, host: str) -> errors.BootflowError:
    """The same with what leads on from there: the instance is in error on ``host``."""
    said = problem.as_dict()
    said["remedy"] = (
        "The guest may run on %s. When that host answers, run bootflow.compute.reboot with bootflow_reboot_type: HARD, or bootflow.compute.rebuild;"
        " if it is lost, force it down and evacuate the instance from there." % host
    )
    return errors.from_dict(said)
