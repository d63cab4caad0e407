# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builds of one host: their networks, disks, config drives and domains, and where each of them failed.

Where nothing has to be waited for, one module does all of a build, with a small image that is copied to the host before. A large image that is
not on the host, volumes, tagged devices and guests that are waited for take time: what follows is a separate stage, which reach() reports
before it begins.
"""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.stores.registry import STORE_TYPES
from ...module_utils.core.model import Image
from ...module_utils.core.volumes.connectors.registry import CONNECTOR_TYPES
from ...module_utils.flows.boot.builds import BLOCK_DEVICE_MAPPING, NETWORKING, SPAWNING, STAGES, Build, Ended, Stage
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..settings.image_upload import forget_uploads, is_small, uploaded
from ..volumes import attached_volumes
from . import build_parts, domain_builder, pool_disks, ssh_host_keys
from .dhcp import restore

STAGE_OF = {"networks": NETWORKING, "disks": BLOCK_DEVICE_MAPPING, "drives": SPAWNING, "domains": SPAWNING}


class BuildWork:
    """The work for some builds on the current host. A build that fails never fails its neighbours.

    ``ended`` has the builds whose guests run, ``problems`` why others failed, ``stage_of`` how far each came, ``lost`` the builds that this
    run no longer owns, and ``starting`` the builds whose guests a module was ordered to start: if it gave no answer, it is unknown whether they run.
    """

    def __init__(
        self, action: LedgerAction, builds: t.Iterable[Build], images: t.Any, secrets_of: build_parts.SecretsOf
    ):
        """:arg images: bootflow_images. :arg secrets_of: what the ledger does not keep of an instance, by project and name"""
        self.action = action
        self.host: str = action.task_vars["inventory_hostname"]
        self.images = images
        self.secrets_of = secrets_of
        self.builds = {b.uuid: b for b in builds}
        self.problems: build_parts.Problems = {}
        self.stage_of = dict.fromkeys(self.builds, NETWORKING)  # where each is, or failed
        self.passed: dict[str, dict[str, tuple[float, float]]] = {uuid: {} for uuid in self.builds}
        self._begins: dict[str, list[tuple[str, float]]] = {}  # name of a stage, and when a build came to it
        self._over: dict[str, float] = {}  # when its guest ran
        self.ended: dict[str, Ended] = {}
        self.lost_uuids: set[str] = set()
        self.starting: set[str] = set()
        self.stay_off: t.Collection[str] = ()  # builds whose guests are defined, and not started

    def reach(self, stage: Stage, uuids: t.Collection[str]) -> t.Collection[str]:
        """Report that these builds begin a stage. Returns the builds that are still this run's."""
        return uuids

    def connect(
        self, builds: list[Build], attachments_by_uuid: t.Mapping[str, t.Sequence[attached_volumes.Attached]]
    ) -> build_parts.Problems:
        """Connect the host to the volumes of these builds. Returns an attachment's id -> why that failed. :arg attachments_by_uuid: of the builds"""
        problems: build_parts.Problems = {}
        ledger = self.action.open_ledger()
        for facts, group in _by_node(builds):
            attachments = [a for b in group for a in attachments_by_uuid.get(b.uuid, ())]
            problems.update(attached_volumes.connect(self.action, ledger, attachments, facts))
        return problems

    # --- the work -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Build all of them that are this run's."""
        builds = [b for b in self.good(self.builds.values()) if b.uuid not in self.lost_uuids]
        self._note_begin(NETWORKING, [b.uuid for b in builds])
        self._fail(self._open_disks(builds))
        builds = self.good(builds)
        settings = host_settings.read_current_host(self.action)
        waits = any(getattr(settings, "wait_" + kind) for kind in ("console", "address", "port", "agent", "cloud_init"))
        apart = {b.uuid for b in builds if waits or domain_builder.has_volumes(b) or domain_builder.has_tags(b)}
        at_once = [b for b in builds if b.uuid not in apart]
        self.without_image: list[Build] = []
        if at_once:
            with self.guarded(at_once):
                self._all_parts(at_once)
        late = self._into(BLOCK_DEVICE_MAPPING, self._with_small_images(self.without_image))
        if late:
            with self.guarded(late):
                self._with_images(late)
        remaining = [b for b in builds if b.uuid in apart]
        if remaining:
            with self.guarded(remaining):
                self._networks(remaining)
        remaining = self._into(BLOCK_DEVICE_MAPPING, remaining)
        if remaining:
            with self.guarded(remaining):
                self._disks(remaining)
        remaining = self._into(SPAWNING, remaining)
        if remaining:
            with self.guarded(remaining):
                self._spawn(remaining)

    def _open_disks(self, builds: t.Sequence[Build]) -> build_parts.Problems:
        """Have the host reach the pool of local disks where it has one. Returns uuid -> why not."""
        connector = STORE_TYPES[host_settings.read_current_host(self.action).disk_backend].connector
        if not connector:
            return {}
        problems: build_parts.Problems = {}
        for build in builds:
            try:
                CONNECTOR_TYPES[connector].check_host(self.host, build.facts)
            except errors.BootflowError as e:
                problems[build.uuid] = e
        return {**pool_disks.open_disks(self.action, [b.uuid for b in builds if b.uuid not in problems]), **problems}

    def stage_seconds(self, uuid: str) -> dict[str, float]:
        """Return the seconds of a build in each stage that it came to, by the name of the stage. The last one lasts until now, or until its guest ran."""
        passed = self.passed[uuid]
        if not passed:
            begins = self._begins.get(uuid, [])
            ends = [*(begin for _name, begin in begins[1:]), self._over.get(uuid, self.action.context().now)]
            passed = {name: (begin, end) for (name, begin), end in zip(begins, ends)}
        return {name: round(max(0.0, end - begin), 1) for name, (begin, end) in passed.items()}

    def _note_begin(self, stage: Stage, uuids: t.Iterable[str]) -> None:
        for uuid in uuids:
            self._begins.setdefault(uuid, []).append((stage.name, self.action.context().now))

    def adapted(self, domain: dict[str, t.Any]) -> dict[str, t.Any]:
        """An element of the option ``domains`` as this work needs it."""
        return domain

    @contextlib.contextmanager
    def guarded(self, builds: t.Sequence[Build]) -> t.Iterator[None]:
        """An exception fails these builds, and nothing else."""
        try:
            yield
        except errors.BootflowError as e:
            self._fail({b.uuid: e for b in builds})
        except Exception as e:  # any other exception: the next host, and never a failed play
            self._fail(dict.fromkeys((b.uuid for b in builds), self.action.unexpected(e)))

    def _fail(self, problems: build_parts.Problems, stage: Stage | None = None) -> None:
        for uuid, problem in problems.items():
            if uuid not in self.problems and uuid not in self.ended:
                self.problems[uuid] = problem
                if stage is not None:
                    self.stage_of[uuid] = max(stage, self.stage_of[uuid], key=STAGES.index)

    def good(self, builds: t.Iterable[Build]) -> list[Build]:
        """Return the builds that have not failed."""
        return [b for b in builds if b.uuid not in self.problems]

    def _into(self, stage: Stage, builds: list[Build]) -> list[Build]:
        """Take the good ones of these builds into a stage. Returns the builds that are still this run's."""
        good = self.good(builds)
        if not good:
            return []
        uuids = {b.uuid for b in good}
        reached = set(self.reach(stage, uuids))
        self.lost_uuids |= uuids - reached
        self.stage_of.update(dict.fromkeys(reached, stage))
        self._note_begin(stage, reached)
        return [b for b in good if b.uuid in reached]

    def _all_parts(self, builds: list[Build]) -> None:
        """Everything in one module; without_image gets the builds whose image is not on the host."""
        images = {b.uuid: build_parts.image_marker(self.action, b) for b in builds if build_parts.has_image(b)}
        present_markers = self.action.probe(sorted(set(images.values())))
        lacks = {uuid for uuid, marker in images.items() if marker not in present_markers}
        self.without_image = [b for b in builds if b.uuid in lacks]
        builds = [b for b in builds if b.uuid not in lacks]
        if builds:
            result = self._parts_of(builds, fetch=False)
            # The file of a catalogue image may have changed, or that on the host.
            self.without_image += [b for b in self.good(builds) if _lacks(result, b)]

    def _with_small_images(self, builds: list[Build]) -> list[Build]:
        """Build the builds whose image is a small file of the controller. Returns the others."""
        small: set[str] = set()
        with self.guarded(builds):
            images = build_parts.images_of(builds, self.images)
            small = {i.id for i in images.values() if not build_parts.host_can_fetch(self.action, i) and is_small(i)}
        soon = [b for b in self.good(builds) if b.image["id"] in small]
        if soon:
            with self.guarded(soon):
                self._with_images(soon)
        done = {b.uuid for b in soon}
        return [b for b in builds if b.uuid not in done]

    def _with_images(self, builds: list[Build]) -> None:
        """The same of builds whose images come to the host first."""
        images = build_parts.images_of(builds, self.images)
        lacking = [i for i in images.values() if not build_parts.host_can_fetch(self.action, i)]
        with self.uploaded(lacking) as (uploads, refused):
            for build in builds:
                of_its = refused.get(build.image.get("id", ""))
                if of_its is not None:
                    self._fail({build.uuid: of_its})
            builds = self.good(builds)
            result = self._parts_of(builds, fetch=True, uploads=uploads)
        for build in self.good(builds):
            if _lacks(result, build):
                self._fail({build.uuid: build_parts.not_copied(build.image["name"])})

    def _parts_of(self, builds: list[Build], fetch: bool, uploads: t.Mapping[str, str] | None = None) -> t.Any:
        """The parts of these builds, in one module. Returns the result of the part disks, if there was something to do."""
        problems: build_parts.Problems = {}
        drives, domains = build_parts.drives_and_domains(
            self.action, builds, {}, {}, self.secrets_of, problems, self.stay_off
        )
        self._fail(problems, SPAWNING)
        domains = [self.adapted(d) for d in domains]
        builds = self.good(builds)
        if not builds:
            return {"outcomes": {}}
        networks = build_parts.networks_of(builds)
        images = build_parts.images_of(builds, self.images)
        began = self.action.context().now
        self._note_starting(domains)
        answer = self.action.run_module(
            "instance_build",
            {
                **build_parts.network_arguments(self.action, networks.values()),
                **build_parts.disk_arguments(self.action, builds, images),
                **build_parts.domain_arguments(self.action, domains),
                "fetch": fetch,
                "uploads": uploads or {},
                "drives": drives,
                "networks_of": {b.uuid: sorted({n.name for _p, n in b.ports}) for b in builds},
                "remove_uploads": bool(uploads),
            },
        )
        if answer.get("uploads_removed"):
            forget_uploads(self.action)
        parts = answer["parts"]
        self._note_passed(parts, [b.uuid for b in builds], began)
        restore(self.action, networks, parts["networks"])
        self._fail_without(builds, item_errors(parts["networks"], networks))
        made = [b for b in self.good(builds) if not _lacks(parts["disks"], b)]
        with_drive = {d["uuid"] for d in drives}
        for part in ("disks", "drives", "domains"):
            keys = [b.uuid for b in self.good(made) if part != "drives" or b.uuid in with_drive]
            self._fail(item_errors(parts[part], keys), STAGE_OF[part])
        self._end(self.good(made), parts["domains"], parts["drives"])
        return parts["disks"]

    def _note_starting(self, domains: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        """A module gets these domains now. Guests that stay off cannot run there."""
        self.starting.update(d["uuid"] for d in domains if d["uuid"] not in self.stay_off)

    def uploaded(
        self, images: t.Iterable[Image]
    ) -> contextlib.AbstractContextManager[tuple[dict[str, str], build_parts.Problems]]:
        """See image_upload.uploaded()."""
        return uploaded(self.action, images)

    def _note_passed(self, parts: t.Mapping[str, t.Mapping[str, t.Any]], uuids: t.Iterable[str], began: float) -> None:
        """The stages of the parts, one after the other until now, by the clock of the controller. :arg began: the module"""
        now = self.action.context().now
        begin = max(began, now - sum(part.get("seconds", 0.0) for part in parts.values()))
        spans: dict[str, tuple[float, float]] = {}
        for part, stage in STAGE_OF.items():
            end = min(now, begin + parts[part].get("seconds", 0.0))
            spans[stage.name] = (spans.get(stage.name, (begin, end))[0], end)
            begin = end
        self.passed.update({uuid: dict(spans) for uuid in uuids})

    def _end(self, builds: t.Iterable[Build], result: t.Mapping[str, t.Any], drives: t.Mapping[str, t.Any]) -> None:
        """The guests of these builds run. :arg drives: the result of the part that wrote their config drives"""
        settings = host_settings.read_current_host(self.action)
        for build in builds:
            outcome = result["outcomes"][build.uuid]
            name = outcome.get("name") or build.row.domain_name
            self._over[build.uuid] = self.action.context().now
            self.ended[build.uuid] = Ended(
                build.uuid,
                self.host,
                outcome["power_state"],
                name if name != build.row.domain_name else None,
                bool(build.volumes),
                self.passed[build.uuid],
                domain_builder.machine_type(build, settings),
                self._ssh_host_key(build, drives),
            )

    def _ssh_host_key(self, build: Build, drives: t.Mapping[str, t.Any]) -> str | None:
        """The public host key on the config drive of a build; None: it has none, or a dead run wrote the drive."""
        if not domain_builder.has_ssh_host_key(build, host_settings.read_current_host(self.action)):
            return None
        outcome = drives.get("outcomes", {}).get(build.uuid) or {}
        return None if build.resumed and not outcome.get("changed") else ssh_host_keys.key_pair(build.uuid)[1]

    # --- stage by stage -----------------------------------------------------------------------------------------------

    def _networks(self, builds: list[Build]) -> None:
        networks = build_parts.networks_of(builds)
        if networks:
            result = self.action.run_module(
                "virtual_network", build_parts.network_arguments(self.action, networks.values())
            )
            restore(self.action, networks, result)
            self._fail_without(builds, item_errors(result, networks))

    def _fail_without(self, builds: t.Iterable[Build], problems: t.Mapping[str, errors.BootflowError]) -> None:
        """:arg problems: of networks, by their names"""
        for build in builds:
            of_its = next((problems[n.name] for _p, n in build.ports if n.name in problems), None)
            if of_its is not None:
                self._fail({build.uuid: of_its}, NETWORKING)

    def _disks(self, builds: list[Build]) -> None:
        self._local_disks(builds)
        with_volumes = [b for b in self.good(builds) if domain_builder.has_volumes(b)]
        if with_volumes:
            self._volumes(with_volumes)

    def _volumes(self, builds: list[Build]) -> None:
        """Connect the builds' volumes, after their local disks: what fails there needs no session."""
        attachments_by_uuid = self.action.open_ledger().inspect(attached_volumes.load, [b.uuid for b in builds])
        problems = self.connect(builds, attachments_by_uuid)
        problem_by_uuid = {
            b.uuid: next((problems[a.id] for a in attachments_by_uuid.get(b.uuid, ()) if a.id in problems), None)
            for b in builds
        }
        self._fail({uuid: problem for uuid, problem in problem_by_uuid.items() if problem is not None})

    def _local_disks(self, builds: list[Build]) -> None:
        images = build_parts.images_of(builds, self.images)
        arguments = build_parts.disk_arguments(self.action, builds, images)
        result = self.action.run_module("instance_disks", arguments)
        missing = [images[i] for i in result.get("missing_images") or [] if i in images]
        refused: build_parts.Problems = {}
        if missing:
            # Found out by asking: the cache usually has the image, and the usual case costs one call.
            with self.uploaded(missing) as (uploads, refused):
                result = self.action.run_module("instance_disks", {**arguments, "uploads": uploads})
        problems = item_errors(result, [b.uuid for b in builds])
        for uuid, outcome in result["outcomes"].items():
            for image_id in outcome.get("pending") or []:
                problems[uuid] = refused.get(image_id) or build_parts.not_copied(images[image_id].name)
        self._fail(problems)

    def _spawn(self, builds: list[Build]) -> None:
        with_volumes = [b.uuid for b in builds if domain_builder.has_volumes(b)]
        volumes = self.action.open_ledger().inspect(attached_volumes.load, with_volumes) if with_volumes else {}
        places = self._define_tagged(builds, volumes)
        problems: build_parts.Problems = {}
        drives, domains = build_parts.drives_and_domains(
            self.action, self.good(builds), volumes, places, self.secrets_of, problems, self.stay_off
        )
        self._fail(problems)
        domains = [self.adapted(d) for d in domains]
        if not domains:
            return
        arguments = build_parts.domain_arguments(self.action, domains)
        self._note_starting(domains)
        parts = self.action.run_module(
            "instance_build", {**arguments, "drives": drives, "networks": [], "instances": []}
        )["parts"]
        for part, items in (("drives", drives), ("domains", domains)):
            self._fail(item_errors(parts[part], [i["uuid"] for i in items if i["uuid"] not in self.problems]))
        self._end(self.good(builds), parts["domains"], parts["drives"])

    def _define_tagged(
        self, builds: t.Sequence[Build], volumes: t.Mapping[str, t.Sequence[attached_volumes.Attached]]
    ) -> dict[str, t.Any]:
        """Define the guests that find the places of their tagged devices on the config drive. Returns the places of each one's devices.

        libvirt gives the devices their addresses, and the config drive, which has them, is written before the guest starts.
        """
        domains = []
        for build in builds:
            if build.row.config_drive and domain_builder.has_tags(build):
                try:
                    domain = build_parts.domain(
                        build, host_settings.read_current_host(self.action), volumes.get(build.uuid, ())
                    )
                except errors.BootflowError as e:
                    self._fail({build.uuid: e})
                else:
                    wanted = {k: domain[k] for k in ("uuid", "name", "spare_names", "xml")}
                    domains.append(self.adapted({**wanted, "state": "defined", "ends_build": False}))
        if not domains:
            return {}
        result = self.action.run_module("domain", build_parts.domain_arguments(self.action, domains))
        self._fail(item_errors(result, [d["uuid"] for d in domains]))
        return {uuid: outcome.get("devices") or () for uuid, outcome in result["outcomes"].items()}


def _lacks(result: t.Mapping[str, t.Any], build: Build) -> bool:
    """Whether the result of the part disks says that the build's image is not on the host."""
    return bool((result["outcomes"].get(build.uuid) or {}).get("pending"))


def _by_node(builds: list[Build]) -> list[tuple[dict[str, t.Any], list[Build]]]:
    """(facts of a node, its builds): a host may report as several nodes."""
    groups: dict[str, tuple[dict[str, t.Any], list[Build]]] = {}
    for build in builds:
        groups.setdefault(build.row.node, (build.facts, []))[1].append(build)
    return list(groups.values())
