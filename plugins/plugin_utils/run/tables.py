# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and texts for the person at the terminal."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible import constants
from ansible.module_utils.common.yaml import yaml_dump

from ...module_utils.core.errors import failed_item
from ...module_utils.core.instances.moves import RUNNING
from ...module_utils.core.instances.power_states import POWER_STATES
from ...module_utils.core.instances.progress import FIELDS, remaining
from ...module_utils.core.legible import legible
from ...module_utils.core.times import duration
from .results import item_lines

# Stdout callbacks (ANSIBLE_STDOUT_CALLBACK, stdout_callback in ansible.cfg) whose output is parsed.
FOR_MACHINES = ("json", "jsonl", "null")
WIDEST = 40  # characters of a last column that is underlined whole
ERROR = "Error"  # the result of a failed event
CONCISE = "concise"  # the callback of this collection that prints nothing around tables
FLOW = "flow"  # as concise; prints the tables of a task that failed after its error
NAMED = 10  # instances of a summary

_held_lines: list[str] | None = None  # of the task that this worker runs; None: nothing is held back


def table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]]) -> list[str]:
    """Lines of a plain table."""
    texts = [[("" if v is None else legible(str(v)).replace("\n", "\\n")) for v in row] for row in rows]
    widths = [max([len(h)] + [len(r[i]) for r in texts]) for i, h in enumerate(head)]
    # The last column is not underlined further than its head where it has long texts.
    dashes = [*widths[:-1], widths[-1] if widths[-1] <= WIDEST else len(head[-1])]
    lines = ["  ".join(h.ljust(w) for h, w in zip(head, widths)).rstrip(), "  ".join("-" * w for w in dashes)]
    lines += ["  ".join(v.ljust(w) for v, w in zip(row, widths)).rstrip() for row in texts]
    return lines


def instance_table(views: t.Sequence[t.Mapping[str, t.Any]], silent: t.Container[str] = ()) -> list[str]:
    """The table of instances: what boot and list end with.

    :arg silent: hosts that did not answer last time, or are forced down: what their guests do is not known.
    """
    head = ("INSTANCE", "VM_STATE", "TASK_STATE", "POWER", "HOST", "FLAVOR", "IMAGE", "ADDRESSES", "AGE", "UUID")
    rows = [
        (
            v["name"],
            v["vm_state"],
            v["task_state"] or "-",
            "UNKNOWN" if v["host"] in silent else POWER_STATES.get(v["power_state"], v["power_state"]),
            "%s (down)" % v["host"] if v["host"] in silent else v["host"] or "-",
            v["flavor"],
            v["image"] or "-",
            addresses(v) or "-",
            duration(v["age"]),
            v["uuid"],
        )
        for v in views
    ]
    return table(head, rows)


def instance_lines(
    views: t.Sequence[t.Mapping[str, t.Any]], silent: t.Collection[str], options: t.Mapping[str, t.Any]
) -> list[str]:
    """Return the lines of a list, of details or of histories of instances, with the instances and hosts that were asked for in vain.

    :arg silent: hosts that did not answer last time. :arg options: of the module instance_info
    """
    if views and options["history"]:
        return [line for view in views for line in ["", *history_table(view)]]
    if views and options["details"]:
        return [line for view in views for line in ["", *whole(view)]]
    names, uuids = set(options["names"] or ()), set(options["uuids"] or ())
    missing = ["No instance is called %s." % name for name in sorted(names - {v["name"] for v in views})]
    missing += ["No instance has the UUID %s." % uuid for uuid in sorted(uuids - {v["uuid"] for v in views})]
    if not (names or uuids):
        empty = set(options["host"] or ()) - {v["host"] for v in views}
        missing += ["No instance is on %s." % host for host in sorted(empty)]
    if not views:
        return missing or ["No instances in the ledger %s." % options["ledger_url"]]
    lines = [*instance_table(views, silent), *missing]
    if silent:
        lines.append("UNKNOWN: the host did not answer last time. bootflow.compute.hosts shows why.")
    faulty = [v for v in views if v["fault"]]
    items = [failed_item(v["name"], v["uuid"], v["fault"], host=v["fault"]["host"]) for v in faulty]
    return [*lines, "", "Faults:", *item_lines(items)] if items else lines


def change(before: str, after: str) -> str:
    """Both, where they are not the same."""
    return "%s -> %s" % (before, after) if before != after else after


def addresses(view: t.Mapping[str, t.Any]) -> str:
    """The addresses of an instance by network: servers=10.77.0.10, fd00::10; backup=10.78.0.10"""
    networks: dict[str, list[str]] = {}
    for address in view["addresses"]:
        networks.setdefault(address["network"], []).append(address["ip_address"])
    return "; ".join("%s=%s" % (network, ", ".join(ips)) for network, ips in networks.items())


def history_table(view: t.Mapping[str, t.Any]) -> list[str]:
    """Return the history of an instance, by time."""
    rows = [
        (
            a["start_time"],
            "action",
            a["action"],
            "",
            _result(a, "message"),
            "by %s, %s" % (a["user_name"], a["request_id"]),
        )
        for a in view["actions"]
    ]
    said = {_first_line(f["message"]): f["code"] for f in view["faults"]}
    rows += [
        (
            e["start_time"],
            "event",
            e["event"],
            e["host"],
            _result(e, "result"),
            _of_fault(e["details"], said) if e["result"] == ERROR else e["details"],
        )
        for e in view["events"]
    ]
    rows += [
        (
            f["created_at"],
            "fault",
            f["code"],
            f["host"],
            f["details"] if f["details"] == "rescheduled" else ERROR,
            f["message"],
        )
        for f in view["faults"]
    ]
    rows += [
        (
            n["created_at"],
            "notification",
            n["event_type"],
            "",
            "",
            _of_fault(_payload_text(n["payload"]), said) if n["payload"].get("fault") else _payload_text(n["payload"]),
        )
        for n in view["notifications"]
    ]
    begins = _beginnings(view["notifications"])
    rows += [
        (m["created_at"], "migration", m["migration_type"], m["source_compute"], m["status"], _moved(m))
        for m in view["migrations"]
    ]
    lines = [
        ("%sZ" % str(row[0])[:19], *row[1:-1], _first_line(row[-1]))
        for row in sorted(rows, key=lambda row: _order(row, begins))
    ]
    title = "%s %s, %s" % (view["name"], view["uuid"], view["vm_state"])
    return [title, *table(("TIME", "KIND", "WHAT", "HOST", "RESULT", "DETAILS"), lines)]


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def _of_fault(text: str | None, faults: t.Mapping[str, str]) -> str:
    """The error of an event or a notification: where a fault has the same text, its code, so that the table has the text once.

    :arg faults: message -> code
    """
    line = _first_line(text)
    code = next((code for message, code in faults.items() if line and line in message), None)
    return line if code is None else "see fault %s" % code


def _beginnings(notifications: t.Sequence[t.Mapping[str, t.Any]]) -> set[tuple[str, str]]:
    """Return moment and name of the notifications that came first in their moment and announce a beginning. They stand before its steps."""
    over: set[str] = set()
    beginnings: set[tuple[str, str]] = set()
    for notification in notifications:
        moment, name = str(notification["created_at"]), notification["event_type"]
        if name.endswith(".start") and moment not in over:
            beginnings.add((moment, name))
        else:
            over.add(moment)
    return beginnings


def _order(row: tuple[t.Any, ...], begins: t.Collection[tuple[str, str]]) -> tuple[str, int]:
    """By time; what was written at once, as it happened: an action, its beginning, its steps, its end."""
    kind = "start" if row[1] == "notification" and (str(row[0]), row[2]) in begins else row[1]
    return str(row[0]), ("action", "start", "event", "migration", "fault", "notification").index(kind)


def _result(step: t.Mapping[str, t.Any], name: str) -> str:
    return "at work" if step["finish_time"] is None else str(step[name] or "Success")


def _moved(move: t.Mapping[str, t.Any]) -> str:
    """Return source and target host of a move, and its old and new flavor."""
    other = move["old_flavor"] != move["new_flavor"]
    said = "to %s%s" % (move["dest_compute"], ", %(old_flavor)s -> %(new_flavor)s" % move if other else "")
    if move["status"] != RUNNING or "progress" not in move:
        return said
    remaining_text = remaining({name: move["%s_bytes" % name] for name in FIELDS})
    return "%s, %d %%%s" % (said, move["progress"], remaining_text and " (left: %s)" % remaining_text)


def _payload_text(payload: t.Mapping[str, t.Any]) -> str:
    """The payload of a notification: what it says of states, or of why."""
    if "old_state" in payload:
        states = (payload["old_state"], payload["state"]), (payload["old_task_state"], payload["new_task_state"])
        return ", ".join("%s -> %s" % pair for pair in states if pair[0] != pair[1])
    return str((payload.get("fault") or {}).get("message", ""))


def hypervisor_table(views: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The table of compute hosts, and below it what is wrong with them. FREE/TOTAL: free is what instances can still claim."""
    head = ("HOST", "STATE", "ZONE", "INSTANCES", "VCPUS", "MEMORY_MB", "DISK_GB", "LAST_REPORT", "REASON")
    rows = [
        (
            v["host"],
            _state(v) if v["status"] == "enabled" else "%s, %s" % (_state(v), v["status"]),
            v["availability_zone"] or "-",
            v["running_vms"],
            *map(functools.partial(_room, v), ("vcpus", "memory_mb", "local_gb")),
            "never" if v["report_age"] is None else "%s ago" % duration(v["report_age"]),
            v["disabled_reason"] or "-",
        )
        for v in views
    ]
    lines = [*table(head, rows), "VCPUS, MEMORY_MB, DISK_GB: free for new instances/physical total."]
    if any(" x" in cell for row in rows for cell in row[4:7]):
        lines[-1] += (
            " xN: overcommitted, N times the total is given out (bootflow_cpu_, ram_ and disk_allocation_ratio)."
        )
    problems = ["  %s: %s" % (v["host"], problem) for v in views for problem in v["problems"]]
    return [*lines, "", "Problems:", *problems] if problems else lines


def _state(view: t.Mapping[str, t.Any]) -> str:
    """Return up or down where the host or an administrator said so, unknown for a host that has not reported for long, or never."""
    return str(view["state"]) if view["state_known"] else "unknown"


def _room(view: t.Mapping[str, t.Any], name: str) -> str:
    """Return the free and the total amount of a host's resource, with the ratio where more is given out than there is."""
    ratio = view[name + "_ratio"] or 1.0
    return "%d/%d%s" % (view[name + "_free"], view[name], " x%.10g" % ratio if ratio > 1 and view[name] else "")


def amount(size: float) -> str:
    """Return bytes in the largest binary unit that is not larger than the amount: 1.4 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return "%d %s" % (size, unit) if unit == "bytes" else "%.1f %s" % (size, unit)


def whole(view: t.Mapping[str, t.Any]) -> list[str]:
    """Everything about one item, as YAML; what is empty is left out."""
    filled = _filled({**view, **_in_words(view)})
    return str(yaml_dump(filled, sort_keys=False, allow_unicode=True, width=120)).splitlines()


def _in_words(view: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Fields of an instance that are numbers for programs."""
    words: dict[str, t.Any] = {}
    if "power_state" in view:
        words["power_state"] = POWER_STATES.get(view["power_state"], view["power_state"])
    if isinstance(view.get("age"), (int, float)):
        words["age"] = duration(view["age"])
    return words


def _filled(value: t.Any) -> t.Any:
    """Without what is empty, at any depth; seconds in words."""
    if isinstance(value, t.Mapping):
        named = {
            k: duration(v) if k == "seconds" and isinstance(v, (int, float)) else _filled(v) for k, v in value.items()
        }
        return {k: v for k, v in named.items() if v is not None and v != "" and v != [] and v != {}}
    if isinstance(value, (list, tuple)):
        return [_filled(element) for element in value]
    return value


def show(display: t.Any, lines: t.Sequence[str], brief: bool = False) -> None:
    """Print lines as they are, apart from the tasks' own output where there is any. :arg brief: they are few, and need no room around them"""
    if _held_lines is not None:
        _held_lines.extend(lines)
        return
    text = legible("\n".join(lines))
    say(display, text.strip("\n") if brief or _callback() in (CONCISE, FLOW) else "\n" + text + "\n")


def say(display: t.Any, text: str) -> None:
    """Print to the person: on stdout, or on stderr where a machine reads stdout."""
    display.display(text, stderr=_callback() in FOR_MACHINES)


def instance_summary(views: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return two lines about instances in place of their table: their names by state, and their number by host."""
    names: dict[str, list[str]] = {}
    hosts: dict[str, int] = {}
    for view in views:
        names.setdefault(view["vm_state"], []).append(view["name"])
        hosts[view["host"] or "no host"] = hosts.get(view["host"] or "no host", 0) + 1
    texts = ["%s: %s" % (state, named(of_state)) for state, of_state in names.items()]
    return ["; ".join(texts), "on %s" % named(["%s: %d" % pair for pair in sorted(hosts.items())])]


def named(names: t.Sequence[str]) -> str:
    """Return names as one text, the first ones of many."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (" and %d more" % rest if rest > 0 else "")


def follows_instances(display: t.Any) -> bool:
    """Whether the stdout callback is the one that prints a line for each instance of a boot."""
    return _callback() == FLOW and not display.verbosity


@contextlib.contextmanager
def shown_after_error(display: t.Any, result: dict[str, t.Any]) -> t.Iterator[None]:
    """Hold back the lines that show() gets in the block until ``result`` is known: the callback flow prints a table after the error of its task.

    :arg result: of the task; the field ``table`` of a failed one gets the lines
    """
    global _held_lines
    if not follows_instances(display):
        yield
        return
    _held_lines = []
    try:
        yield
    finally:
        lines, _held_lines = _held_lines, None
        if lines and result.get("failed"):
            result["table"] = [legible(line) for line in lines]
        elif lines:
            show(display, lines)


def _callback() -> str:
    return str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2]
