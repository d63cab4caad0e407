# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Output of guests on their serial consoles, and addresses of their displays. The ledger is only read."""

from __future__ import annotations

import shlex
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.power_states import POWER_STATES
from ...module_utils.core.reading.problems import Problems
from ...module_utils.flows.instances import operation
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.results import item_errors
from ..run.stages import Failed, Item, Outcomes, Result, Stages

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a display on all addresses is found on its host


class Consoles(Stages):
    """All stages."""

    called = "console"
    answered_by = {"work": "host"}
    rehearses_on_hosts = True
    keeps_lease = False

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work}

    def _begin(self) -> Result:
        """Select the instances. Returns them, and their hosts."""
        selection = operation.Selection.from_options(self.options)
        known = set(self.action.compute_hosts())

        def read(tx: Transaction) -> list[Instance]:
            rows = operation.select(tx, selection, lock=False)
            operation.refuse_unknown(tx, rows, selection, known)
            return rows

        items = [
            {
                "name": r.display_name,
                "uuid": r.uuid,
                "host": r.host,
                "vm_state": r.vm_state,
                "error": _refusal(r, known),
            }
            for r in self.action.open_reader().inspect(read)
        ]
        hosts = sorted({str(i["host"]) for i in items if i["error"] is None})
        return {"changed": False, "instances": items, "compute": hosts}

    def run(self) -> Result:
        """Run the stage that the task is for. Text of guests, which may have their secrets, is in no file after the last stage."""
        result = super().run()
        if self.options["phase"] == "finish":
            self.results.clear()
        return result

    def _work(self, host: str) -> Result:
        """Read the consoles of a host."""
        uuids = [i["uuid"] for i in self.items_on(host, "host") if i["error"] is None]

        def read() -> tuple[Outcomes, Failed]:
            problems = Problems()
            host_settings.check({host: host_settings.Variables(self.action)}, [host], problems)
            problems.raise_if_any()
            arguments = {"uuids": uuids, "lines": self.options["lines"]}
            result = self.action.run_module(
                "domain_console", {**host_settings.libvirt_arguments(self.action), **arguments}
            )
            return result["outcomes"], item_errors(result, uuids)

        return {"changed": False, "outcomes": self.guarded(uuids, read)}

    def _finish(self) -> Result:
        answers = self.answers("work")
        instances = [self._instance(item, answers[uuid]) for uuid, item in self.items().items()]
        if self.options["print_table"]:
            lines = [line for instance in instances for line in _lines(instance)]
            tables.show(self.action.ports.display, lines or ["console: no instance is selected."])
        return self.finish(instances, changed=False)

    def _instance(self, item: Item, answer: t.Mapping[str, t.Any]) -> Item:
        """Return an instance with what its host answered."""
        if item["error"]:
            answer = {"error": item["error"]}
        vnc = answer.get("vnc")
        return {
            **item,
            "error": answer["error"],
            "power_state": answer.get("power_state"),
            "console": answer.get("console") or [],
            "vnc": None if vnc is None else {**vnc, "tunnel": self._tunnel(item["host"], vnc)},
        }

    def _tunnel(self, host: str, vnc: t.Mapping[str, t.Any]) -> str | None:
        """Return the command that brings the display to the same port of this machine; None where it is on this machine."""
        variables = self.action.task_vars["hostvars"][host]
        if variables.get("ansible_connection") == "local":
            return None
        listen = EVERYWHERE.get(vnc["listen"], vnc["listen"])
        listen = "[%s]" % listen if ":" in listen else listen
        user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
        port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
        address = str(variables.get("ansible_host") or variables.get("ansible_ssh_host") or host)
        words = ["ssh", "-N", "-L", "%d:%s:%d" % (vnc["port"], listen, vnc["port"])]
        words += ["-p", str(port)] if port else []
        return shlex.join([*words, "%s@%s" % (user, address) if user else address])


def _refusal(row: Instance, known_hosts: t.Collection[str]) -> dict[str, t.Any] | None:
    """Return why there is no host to ask."""
    if row.host is None:
        return errors.InstanceNotReady(instance_id=row.uuid).as_dict()
    if row.host not in known_hosts:
        return errors.ComputeHostNotFound(host=row.host, remedy="Put the host into the inventory.").as_dict()
    return None


def _lines(instance: t.Mapping[str, t.Any]) -> list[str]:
    power = POWER_STATES.get(instance["power_state"] or 0)
    lines = ["", "%s on %s: %s, %s" % (instance["name"], instance["host"], instance["vm_state"], power)]
    if instance["error"]:
        return [*lines[:1], "%s: %s" % (instance["name"], instance["error"]["code"])]
    vnc = instance["vnc"]
    if vnc is not None:
        where = "%(listen)s:%(port)d" % vnc
        lines.append("  VNC %s%s" % (where, " of the host; %(tunnel)s" % vnc if vnc["tunnel"] else ""))
    printed = ["  | " + line for line in instance["console"]]
    return [*lines, *(printed or ["  The log of its serial console is empty."])]
