# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An evacuation: instances of hosts that are forced down are built on other hosts."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.core.instances.verdicts import evacuation as verdicts
from ...module_utils.core.model import Image
from ...module_utils.core.settings.selection import INSTANCES
from ...module_utils.flows.attachments import life, moving
from ...module_utils.flows.boot import builds as of_ledger
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.instances.rebuild import Wanted
from ...module_utils.flows.moves import evacuate, evacuate_life
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import domain_builder
from ..builds.pool_disks import FENCED, open_disks
from ..operations.cleaning import clean_host, clear_lost
from ..operations.rebuilds import rebuild
from ..relay import rounds
from ..run import host_settings
from ..run.inventory_hosts import all_of, reachable, refuse_left_out
from ..run.results import diff, item_errors
from ..run.stages import Failed, Item, Outcomes, Result, Stages
from ..scheduling import shared_disks
from ..scheduling.candidates import Candidates, hosts_to_ask
from ..settings import scheduler_settings, variable_names
from ..volumes import attached_volumes
from .report import as_it_is, line_of, not_placed, report

_NOWHERE = {"token": "", "address": "", "port": 0, "fingerprint": "", "files": [], "limits": {}}  # nothing is fetched
# Where disks that are logical volumes come to, and others are still.
_GROUP = ("volume_group", "volume_clear", "volume_clear_size_mb", "disk_pool")


class Evacuation(Stages):
    """All stages."""

    called = event = evacuate_life.EVACUATE.name
    answered_by = {"build": "destination"}
    starts = {"begin": "compute"}

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"check": self._check, "begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"build": self._build}

    # --- check and begin ------------------------------------------------------------------------------------------------

    def _wanted(self, built_as: Wanted) -> evacuate.Wanted:
        selection, inventory = Selection.from_options(self.options), all_of(self.action)
        secrets = (built_as.secrets_of, built_as.kept_secrets_of, built_as.kept_in)
        return evacuate.Wanted(selection, *secrets, inventory, shared_disks.places(self.action))

    def _check(self) -> Result:
        """Fail before any host is contacted. Returns the hosts that should report before others are chosen."""
        action = self.action
        scheduler_settings.check(action)
        variable_names.refuse(action, INSTANCES)
        ledger = action.rehearsal_ledger() if action.check_mode else action.open_ledger()
        built_as = rebuild.wanted(action, None)
        rows = ledger.inspect(evacuate.check, self._wanted(built_as))
        rebuild.check_files(self._images_of(built_as, rows).values())
        return {"changed": False, "ask": hosts_to_ask(action, ledger, {str(r.host) for r in rows})}

    def _images_of(self, built_as: Wanted, rows: t.Iterable[Instance]) -> dict[str, Image]:
        """Return the instances' own images, by UUID."""
        return rebuild.images_of(self.action, replace(built_as, image_of=lambda project, name: None), rows)

    def _begin(self) -> Result:
        built_as = rebuild.wanted(self.action, None)
        wanted = self._wanted(built_as)
        candidates = Candidates(self.action)

        def begin(tx: Transaction) -> evacuate.Begun:
            candidates.rehearse(tx)
            begun = evacuate.begin(tx, wanted, candidates.read, candidates.options)
            asked = reachable(self.action, life.storage_hosts_of(tx, begun.volumes))
            refuse_left_out(asked, self.action.within_limit(asked))
            return begun

        begun = self.action.write(begin)
        storage_hosts = self._rebind_volumes(begun)
        images: Result = {}
        if not self.action.check_mode:
            images = rounds.begin_for(self.action, begun.rows, self._images_of(built_as, begun.rows))
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
        before, after = (
            "".join("%s %s: %s\n" % (i["name"], i["uuid"], i[key]) for i in items) for key in ("source", "destination")
        )
        return {
            "changed": bool(items or failed),
            "instances": items,
            "not_placed": failed,
            "unchanged": [as_it_is(r) for r in begun.unchanged],
            # Hosts do nothing in check mode: no task goes to them.
            "uuids": [i["uuid"] for i in items],
            "compute": [] if self.action.check_mode else sorted({str(i["destination"]) for i in items}),
            "storage": storage_hosts,
            **images,
            "diff": diff("instances", before, after),
        }

    def _rebind_volumes(self, begun: evacuate.Begun) -> list[str]:
        """Bind the volumes to the destinations. Returns the storage hosts that end the exports to the sources, and export to the destinations."""
        if self.action.check_mode or not begun.volumes:
            return []
        hosts = {str(r.host) for r in begun.rows if r.uuid in begun.volumes}
        connectors = attached_volumes.connectors_of(self.action.task_vars["hostvars"], hosts)
        hosts_to_export, _lacking = self.action.open_ledger().transact(
            moving.rebind_to_current_host, sorted(begun.volumes), connectors
        )
        return reachable(self.action, hosts_to_export)

    # --- build ----------------------------------------------------------------------------------------------------------

    def _build(self, host: str) -> Result:
        """Build the instances on their destination, and remove the instances that failed."""
        items = self.items_on(host, "destination")
        if not items:
            return {"changed": False, "outcomes": {}}
        work: list[rebuild.Rebuilding] = []
        let_in: dict[str, errors.BootflowError] = {}
        outcomes = self.guarded([i["uuid"] for i in items], lambda: self._load(host, items, work))
        owned = sorted(work[0].builds) if work else []
        outcomes.update(self.guarded(owned, lambda: self._run(work[0], host, items, let_in)))
        ended = {u: o for u, o in outcomes.items() if "power_state" in o}
        late = self.guarded(list(ended), lambda: ({}, work[0].write_domains()))
        outcomes.update({u: {**ended[u], **outcome} for u, outcome in late.items()})  # the guest runs all the same
        failed = {u: o["error"] for u, o in outcomes.items() if u not in ended and o.get("error")}
        starting = work[0].starting if work else set()
        made = [
            {"uuid": i["uuid"], "name": i["domain"], "made_for": i["made_for"]} for i in items if i["uuid"] in failed
        ]
        cleaned = clean_host(self.action, made)
        # The start of its guest has changed the mark of what this evacuation made: the host keeps it.
        not_cleaned = {*cleaned.problems, *cleaned.preexisting_uuids.intersection(starting)}
        clear_lost(self.action, owned)
        for uuid, error in failed.items():
            answer = verdicts.failure(errors.from_dict(error), host, uuid not in not_cleaned, uuid in starting)
            outcomes[uuid] = {**answer, "let_in": uuid in let_in}
        return {"outcomes": outcomes}

    def _load(self, host: str, items: t.Sequence[Item], work: list[rebuild.Rebuilding]) -> tuple[Outcomes, Failed]:
        """Read the instances that this run still builds here. :arg work: gets the work to do"""

        def load(tx: Transaction) -> list[Build]:
            rows = evacuate_life.instances_built_on(tx, host, [i["uuid"] for i in items])
            return of_ledger.load(tx, [r for r in rows if instances.is_placed(r)])

        work.append(rebuild.Rebuilding(self.action, self.action.open_ledger().inspect(load)))
        return {}, {}

    def _run(
        self,
        work: rebuild.Rebuilding,
        host: str,
        items: t.Sequence[Item],
        let_in: dict[str, errors.BootflowError],
    ) -> tuple[Outcomes, Failed]:
        """Build the guests. :arg let_in: gets the instances whose volumes are still exported to their sources"""
        # Before this host has something of them: their lost host may write still.
        work.problems.update(open_disks(self.action, sorted(work.builds), FENCED))
        work.builds = {b.uuid: b for b in work.good(work.builds.values())}
        work.problems.update(self._make_folders([i for i in items if i["uuid"] in work.builds], work.builds))
        work.builds = {b.uuid: b for b in work.good(work.builds.values())}
        volumes = [i["uuid"] for i in items if i["cut_off"] is not None and i["uuid"] in work.builds]
        if volumes:
            let_in.update(self.action.open_ledger().inspect(moving.open_exports, volumes))
            cut_off = [u for u in volumes if u not in let_in]
            work.problems.update({**let_in, **attached_volumes.come_to_host(self.action, cut_off)[1]})
            work.builds = {b.uuid: b for b in work.good(work.builds.values())}
        work.collect_images()
        work.builds = {b.uuid: b for b in work.good(work.builds.values())}
        work.run()
        settings = host_settings.read_current_host(self.action)
        outcomes: Outcomes = {
            u: {"power_state": e.power_state, "new_nvram": domain_builder.has_nvram(work.builds[u], settings)}
            for u, e in work.ended.items()
        }
        return outcomes, work.problems

    def _make_folders(self, items: t.Sequence[Item], builds: t.Mapping[str, Build]) -> Failed:
        """Make the folders of instances on the current host, which refuses an instance that it has something of already. Returns why, by UUID.

        Disks that are in the pool of the host still are recorded there.
        """
        if not items:
            return {}
        settings = host_settings.cleanup_arguments(self.action)
        host = host_settings.read_current_host(self.action)

        def pool_disks(uuid: str) -> list[dict[str, t.Any]]:
            if settings["disk_pool"] is None:
                return []
            build = builds[uuid]
            return [
                domain_builder.module_disk(d, build, host) for d in build.disks if d["kind"] != domain_builder.VOLUME
            ]

        arguments = {
            **host_settings.libvirt_arguments(self.action),
            **{n: settings[n] for n in ("instances_path", "ledger_id", *_GROUP)},
            "instances": [
                {"uuid": i["uuid"], "made_for": i["made_for"], "pool_disks": pool_disks(i["uuid"]), **_NOWHERE}
                for i in items
            ],
            "workers": host_settings.workers(self.action, len(items)),
        }
        result = self.action.run_module("instance_disks_fetch", arguments)
        return item_errors(result, [i["uuid"] for i in items])

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _keep_volumes(self, items: t.Sequence[Item]) -> None:
        """Let instances that are back on their sources have the volumes there that no storage host cut off."""
        if items:
            hosts = {i["source"] for i in items}
            connectors = attached_volumes.connectors_of(self.action.task_vars["hostvars"], hosts)
            ids = [attachment_id for i in items for attachment_id in i["cut_off"]]
            self.action.open_ledger().transact(moving.restore_to_source_host, ids, connectors)

    def _finish(self) -> Result:
        begun, items, answers = self.result("begin"), self.items(), self.answers("build")
        endings: dict[str, verdicts.Ending] = {}
        if not self.action.check_mode:
            endings = {u: verdicts.ending(i["destination"], answers[u]) for u, i in items.items()}
        failed: dict[str, errors.BootflowError] = {}
        places: dict[str, tuple[str | None, str]] = {}

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            problems = evacuate_life.finish(tx, {u: evacuate_life.Result(*end) for u, end in endings.items()})
            rows = instances.select_live(tx, uuids=sorted(endings))
            places.update({r.uuid: (r.host, r.vm_state) for r in rows})
            return problems

        if endings:
            failed = self.action.open_ledger().transact(finish)
            self._keep_volumes([i for u, i in items.items() if i["cut_off"] and answers[u].get("let_in")])
        shown = []
        for uuid, item in items.items():
            host, vm_state = places.get(uuid, (item["destination"], verdicts.vm_state(item["vm_state"])))
            problem = failed.get(uuid)
            shown.append(
                {
                    **{n: item[n] for n in ("name", "uuid", "source", "destination")},
                    "host": host,
                    "vm_state": vm_state,
                    "power_state": endings[uuid].power_state if uuid in endings else states.NOSTATE,
                    "error": None if problem is None else problem.as_dict(),
                }
            )

        def note(item: Item) -> str:
            """Return what the guest lost with its host besides its local disks."""
            return "UEFI variables: new" if answers[item["uuid"]].get("new_nvram") else ""

        more = [line_of(i, "was evacuated before") for i in begun.get("unchanged", [])]
        return report(self, shown, begun.get("not_placed", []), note, more)
