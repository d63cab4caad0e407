# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of the current host that lose their power and start by domains that are written again from the ledger.

source: Nova's _hard_reboot
"""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.operation_outcomes import Answers, Item
from ...module_utils.flows.boot import builds as of_ledger
from ...module_utils.flows.boot.builds import Build
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, pool_disks
from ..builds.dhcp import restore
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..volumes import attached_volumes
from ..volumes.attached_volumes import Attached
from . import guest_handover
from .guest_handover import Guests
from .work import Items, Work, uuids_of


class HardReboot(Work):
    """Restarts guests by domains that are written again from the ledger."""

    starts_any = True
    needs_guests = True

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        given = None if fresh else guest_handover.find(self.action, uuids_of(items))
        return reboot(self.action, uuids_of(items), fresh=fresh, given=given)

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> build_parts.Problems:
        """Write the names that domains got where another one has theirs."""
        names = {u: str(a["name"]) for u, a in answers.items() if a.get("name") and u not in failed}
        instances.rename_domains(tx, {u: name for u, name in names.items() if name != items[u]["domain"]})
        return {}


def reboot(
    action: LedgerAction,
    uuids: t.Sequence[str],
    off: t.Collection[str] = (),
    fresh: t.Collection[str] = (),
    given: Guests | None = None,
) -> tuple[Answers, build_parts.Problems]:
    """Reboot these. A guest loses its power only when its networks and volumes are there and libvirt has taken its definition.

        :arg off: guests that are only defined, and not started. :arg fresh: attachments that this run has connected with new credentials
    :arg given: the guests as the controller's task read them, which also writes the names that their domains get
        Returns the outcomes of the module domain, and why instances failed.
    """
    if given is not None:
        return _reboot(action, given, {}, off, fresh)
    with contextlib.closing(action.open_ledger()) as ledger:
        builds, volumes, problems = ledger.inspect(guests, uuids)
        outcomes, problems = _reboot(action, Guests(builds, volumes), problems, off, fresh)
        names = {b.uuid: (outcomes.get(b.uuid) or {}).get("name") or b.row.domain_name for b in builds}
        renamed = {b.uuid: names[b.uuid] for b in builds if names[b.uuid] != b.row.domain_name}
        if renamed and not action.check_mode:
            ledger.transact(instances.rename_domains, renamed)
        return outcomes, problems


def _reboot(
    action: LedgerAction,
    reread: Guests,
    problems: build_parts.Problems,
    off: t.Collection[str],
    fresh: t.Collection[str],
) -> tuple[Answers, build_parts.Problems]:
    builds, volumes = reread
    if not action.check_mode:
        problems.update(connect(action, [a for u, group in volumes.items() if u not in problems for a in group]))
        problems.update(pool_disks.open_disks(action, [b.uuid for b in builds if b.uuid not in problems]))
    domains = _domains(action, builds, volumes, off, problems, fresh)
    if not domains:
        return {}, problems
    builds = [b for b in builds if b.uuid not in problems]
    parts = _on_host(action, builds, domains, problems)
    problems.update(item_errors(parts["domains"], [b.uuid for b in builds if b.uuid not in problems]))
    return parts["domains"]["outcomes"], problems


def guests_on_host(
    action: LedgerAction, uuids: t.Sequence[str], fresh: t.Collection[str] = ()
) -> tuple[list[Build], dict[str, list[Attached]], build_parts.Problems]:
    """Return what guests() does, of guests of the current host: as the controller's task handed it over, else from the ledger.

    :arg fresh: attachments that changed since
    """
    given = None if fresh else guest_handover.find(action, uuids)
    if given is not None:
        return given.builds, given.volumes, {}
    with contextlib.closing(action.open_ledger()) as ledger:
        return ledger.inspect(guests, uuids)


def guests_to_give(tx: Transaction, uuids: t.Sequence[str]) -> Guests:
    """Read the guests for their hosts' tasks, without the guests that are left alone: their hosts ask what became of these."""
    builds, volumes, problems = guests(tx, uuids)
    return Guests(
        [b for b in builds if b.uuid not in problems], {u: g for u, g in volumes.items() if u not in problems}
    )


def guests(
    tx: Transaction, uuids: t.Sequence[str]
) -> tuple[list[Build], dict[str, list[Attached]], build_parts.Problems]:
    """These instances as builds, with what their guests have; their attachments; and why some are gone, or left alone: another run attaches
    or detaches one of their volumes. Volumes that a dead run left half attached are left out.
    """
    rows = [r for r in instances.select_live(tx, uuids=uuids) if instances.is_placed(r)]
    volumes, without, problems = attached_volumes.of_guests(tx, uuids)
    left_out = {(a.row.instance_uuid, a.volume_id) for group in volumes.values() for a in group if a.id in without}
    builds = of_ledger.load(tx, rows)
    for build in builds:
        build.disks = [d for d in build.disks if (build.uuid, d.get("volume_id")) not in left_out]
    missing_instances = {
        uuid: errors.InstanceNotFound(instance_id=uuid) for uuid in set(uuids) - {b.uuid for b in builds}
    }
    return builds, volumes, {**problems, **missing_instances}


def connect(action: LedgerAction, attachments: t.Sequence[Attached]) -> build_parts.Problems:
    """Log the host in to volumes where it is not. Returns why instances lack theirs."""
    problems = attached_volumes.reconnect(action, attachments)
    return {a.row.instance_uuid: problems[a.id] for a in attachments if a.id in problems}


def _domains(
    action: LedgerAction,
    builds: t.Iterable[Build],
    volumes: t.Mapping[str, t.Sequence[Attached]],
    off: t.Collection[str],
    problems: build_parts.Problems,
    fresh: t.Collection[str],
) -> list[dict[str, t.Any]]:
    settings = host_settings.read_current_host(action)
    domains = []
    for build in builds:
        if build.uuid not in problems:
            try:
                wanted = build_parts.definition(build, settings, volumes.get(build.uuid, ()))
            except errors.BootflowError as e:
                problems[build.uuid] = e
            else:
                how = {"state": "defined"} if build.uuid in off else {"restart": True}
                new = [str(a.row.iqn) for a in volumes.get(build.uuid, ()) if a.id in fresh and a.row.iqn]
                domains.append({**wanted, **how, "keep_disks": True, **({"new_logins": new} if new else {})})
    return domains


def _on_host(
    action: LedgerAction,
    builds: t.Sequence[Build],
    domains: t.Sequence[t.Mapping[str, t.Any]],
    problems: build_parts.Problems,
) -> dict[str, t.Any]:
    """The parts of the module instance_build, which leaves alone guests whose networks are not there: ``problems`` gets these."""
    networks = build_parts.networks_of(builds)
    networks_of = {b.uuid: sorted({n.name for _port, n in b.ports}) for b in builds}
    result = action.run_module(
        "instance_build",
        {
            **build_parts.network_arguments(action, networks.values()),
            **build_parts.domain_arguments(action, domains),
            "max_builds": 0,  # it waits for no place among the builds of its host
            "instances": [],
            "drives": [],
            "networks_of": networks_of,
        },
    )
    parts: dict[str, t.Any] = result["parts"]
    if not action.check_mode:
        restore(action, networks, parts["networks"])
    without = item_errors(parts["networks"], networks)
    problems.update({u: without[n] for u, names in networks_of.items() for n in names if n in without})
    return parts
