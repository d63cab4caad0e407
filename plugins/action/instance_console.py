# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_console."""

from __future__ import annotations

import shlex
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.instances.power_states import POWER_STATES
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import CONSOLE
from ..module_utils.flows.instances import operation
from ..module_utils.ledger.compute.instances import Instance
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import host_settings, tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import item_errors, outcome

# As playbooks/console.yml registers what the controller and the hosts answered.
CHOSEN = "bootflow_consoles_chosen"
READ = "bootflow_consoles_read"

Items = t.List[t.Dict[str, t.Any]]
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a display on all addresses is found on its host


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **CONSOLE.options(),
        "phase": {"type": "str", "choices": ["begin", "work", "finish"], "default": "begin"},
        **RUN.options("print_table"),
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        return {"begin": self._begin, "work": self._work, "finish": self._finish}[self.options["phase"]]()

    def _begin(self) -> dict[str, t.Any]:
        """Which instances, and their hosts. The ledger is only read."""
        selection = operation.Selection.from_options(self.options)

        known = set(self.compute_hosts())

        def read(tx: Transaction) -> list[Instance]:
            rows = operation.select(tx, selection, lock=False)
            operation.refuse_unknown(tx, rows, selection, known)
            return rows

        rows = self.open_reader().inspect(read)
        chosen = [
            {
                "name": r.display_name,
                "uuid": r.uuid,
                "host": r.host,
                "vm_state": r.vm_state,
                "error": _refused(r, known),
            }
            for r in rows
        ]
        return {
            "changed": False,
            "instances": chosen,
            "hosts": sorted({i["host"] for i in chosen if i["error"] is None}),
        }

    def _work(self) -> dict[str, t.Any]:
        """The consoles of the current host."""
        host = self.task_vars["inventory_hostname"]
        uuids = [i["uuid"] for i in self._chosen() if i["host"] == host and i["error"] is None]
        try:
            problems = Problems()
            host_settings.check({host: host_settings.Variables(self)}, [host], problems)
            problems.raise_if_any()
            arguments = {**host_settings.libvirt_arguments(self), "uuids": uuids, "lines": self.options["lines"]}
            result = self.run_module("domain_console", arguments)
            outcomes = {**result["outcomes"], **_failed(item_errors(result, uuids))}
        except errors.BootflowError as e:
            outcomes = _failed(dict.fromkeys(uuids, e))
        except Exception as e:  # the consoles fail, never the play
            outcomes = _failed(dict.fromkeys(uuids, self.unexpected(e)))
        return {"changed": False, "outcomes": outcomes}

    def _finish(self) -> dict[str, t.Any]:
        instances = [self._read(item) for item in self._chosen()]
        if self.options["print_table"]:
            lines = [line for instance in instances for line in _lines(instance)]
            tables.show(self._display, lines or ["console: no instance is selected."])
        listed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i["host"]) for i in instances if i["error"]]
        error = errors.OperationFailed(listed, len(instances), operation="console")
        return outcome(error, changed=False, instances=instances)

    def _chosen(self) -> Items:
        return t.cast(Items, (self.task_vars["hostvars"]["localhost"].get(CHOSEN) or {}).get("instances") or [])

    def _read(self, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The instance with what its host answered."""
        answer: dict[str, t.Any] = {"error": item["error"]}
        if item["error"] is None:
            silent = errors.RemoteError(reason="%s returned no result" % item["host"])
            of_host = (self.task_vars["hostvars"][item["host"]].get(READ) or {}).get("outcomes", {})
            answer = of_host.get(item["uuid"]) or {"error": silent.as_dict()}
        vnc = answer.get("vnc")
        return {
            **item,
            "error": answer["error"],
            "power_state": answer.get("power_state"),
            "console": answer.get("console") or [],
            "vnc": None if vnc is None else {**vnc, "tunnel": self._tunnel(item["host"], vnc)},
        }

    def _tunnel(self, host: str, vnc: t.Mapping[str, t.Any]) -> str | None:
        """The command that brings the display to the same port of this machine; None where it is on this machine."""
        its = self.task_vars["hostvars"][host]
        if its.get("ansible_connection") == "local":
            return None
        listen = EVERYWHERE.get(vnc["listen"], vnc["listen"])
        listen = "[%s]" % listen if ":" in listen else listen
        user = its.get("ansible_user") or its.get("ansible_ssh_user")
        port = its.get("ansible_port") or its.get("ansible_ssh_port")
        address = str(its.get("ansible_host") or its.get("ansible_ssh_host") or host)
        words = ["ssh", "-N", "-L", "%d:%s:%d" % (vnc["port"], listen, vnc["port"])]
        words += ["-p", str(port)] if port else []
        return shlex.join([*words, "%s@%s" % (user, address) if user else address])


def _refused(row: Instance, known_hosts: t.Collection[str]) -> dict[str, t.Any] | None:
    """Why there is no host to ask."""
    if row.host is None:
        return errors.InstanceNotReady(instance_id=row.uuid).as_dict()
    if row.host not in known_hosts:
        return errors.ComputeHostNotFound(host=row.host, remedy="Put the host into the inventory.").as_dict()
    return None


def _failed(failed: t.Mapping[str, errors.BootflowError]) -> dict[str, dict[str, t.Any]]:
    return {uuid: {"error": error.as_dict()} for uuid, error in failed.items()}


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
