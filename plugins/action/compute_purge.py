# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.compute_purge."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.amounts import counted
from ..module_utils.core.networks.network import Network
from ..module_utils.core.request.catalogue import parse_catalogue
from ..module_utils.core.settings.request import CATALOGUE
from ..module_utils.core.settings.run import PURGE, RUN
from ..module_utils.core.times import duration
from ..module_utils.ledger.compute import instances, ports
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import host_settings, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import error_result

NOTHING: t.Mapping[str, t.Any] = {"changed": False, "images": [], "networks": [], "diff": []}


class ActionModule(LedgerAction):
    ARGUMENTS = {**PURGE.options(), **CATALOGUE.options("networks"), **RUN.options("print_table")}

    def act(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        images, networks = self.rehearsal_ledger().inspect(_needed, host)
        if self.options["remove_unused_networks"] == "undeclared":
            networks |= _on_host(parse_catalogue([], [], self.options["networks"], []).networks.values())
        done: t.Mapping[str, t.Any]
        problem: errors.BootflowError | None = None
        try:
            done = self.run_module(
                "compute_unused",
                {
                    **host_settings.libvirt_arguments(self),
                    "instances_path": host_settings.read_current_host(self).instances_path,
                    "images": self.options["remove_unused_base_images"],
                    "networks": self.options["remove_unused_networks"] != "none",
                    "minimum_age": self.options["remove_unused_original_minimum_age_seconds"],
                    "keep_images": sorted(images),
                    "keep_networks": sorted(networks),
                },
            )
        except errors.BootflowError as e:
            done, problem = {**NOTHING, **e.details.get("answer", {})}, e
        if isinstance(problem, (errors.HostUnreachable, errors.HypervisorUnavailable)) and not done["changed"]:
            self._display.warning("The purge of %s did not end: %s" % (host, problem.paragraph))
            return {"changed": False, "answered": False, "error": problem.as_dict()}
        failed = 0
        if isinstance(problem, errors.PurgeIncomplete):
            problem.items = [_failed_item(host, item) for item in problem.items]
            failed = len(problem.items)
        if self.options["print_table"]:
            tables.show(self._display, _report(host, done["images"], done["networks"], failed, self.check_mode))
        result = {"answered": True, **{name: done[name] for name in NOTHING}}
        return result if problem is None else error_result(problem, **result)


def _needed(tx: Transaction, host: str) -> tuple[set[str], set[str]]:
    """Return the images and the libvirt networks of the instances on the host, also of instances that it still builds."""
    uuids = [row.uuid for row in instances.on_hosts(tx, [host])]
    images = {d["image_id"] for disks in instances.disks_of(tx, uuids).values() for d in disks if d.get("image_id")}
    return images, _on_host(n for port_list in ports.ports_of(tx, uuids).values() for _port, n in port_list)


def _on_host(networks: t.Iterable[Network]) -> set[str]:
    return {n.source or n.name for n in networks}


def _failed_item(host: str, item: t.Mapping[str, t.Any]) -> errors.Item:
    return errors.failed_item(item["name"], item["name"], errors.from_dict(item["error"]).as_dict(), host=host)


def _report(
    host: str, images: t.Sequence[t.Mapping[str, t.Any]], networks: t.Sequence[str], failed: int, check_mode: bool
) -> list[str]:
    parts = []
    if images:
        parts.append(counted(len(images), "base images") + ", " + tables.amount(sum(image["size"] for image in images)))
    if networks:
        parts.append(counted(len(networks), "networks"))
    done = "would remove" if check_mode else "removed"
    rest = "; " + counted(failed, "removals") + " failed" if failed else ""
    return [
        "%s: %s %s%s" % (host, done, "; ".join(parts) or "nothing", rest),
        *(
            "  %s (%s, unused for %s)" % (i["path"], tables.amount(i["size"]), duration(round(i["age"])))
            for i in images
        ),
        *("  network %s" % name for name in networks),
    ]
