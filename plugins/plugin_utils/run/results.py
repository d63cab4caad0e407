# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors as failed results of tasks, and failed results of modules as errors."""

from __future__ import annotations

import contextlib
import re
import signal
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.legible import legible

STATISTICS: t.Mapping[str, t.Mapping[str, t.Any]] = {"set_stats": {"type": "bool", "default": False}}
ITEMS_NAMED = 10
ERRORS_SHOWN = 20  # of a request; of more the first ITEMS_NAMED
_NO_PROGRAM = re.compile(r"python[\w.]*: (command )?not found|python[\w.]*['\"\u2019]?: No such file or directory")
LAST_WORDS = 300  # characters
OF_A_GUEST = ("name", "uuid", "project", "host", "vm_state", "addresses")


def statistics(instances: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """Return the instances as a custom statistic of the run, which the strategy reads from a result as it reads statistics of set_stats."""
    guests = [{name: view[name] for name in OF_A_GUEST} for view in instances]
    return {"ansible_stats": {"data": {"bootflow_guests": guests}, "per_host": False, "aggregate": False}}


def module_error(name: str, host: str, result: t.Mapping[str, t.Any]) -> errors.BootflowError:
    """The error behind a failed module's result."""
    if result.get("error_code"):
        return errors.from_dict({**result, "code": result["error_code"], "message": result.get("msg", "")})
    text = str(result.get("msg") or "").strip()
    number = _signal_of(result)
    if number is not None:
        remedy = errors.OUT_OF_MEMORY if number == signal.SIGKILL else None
        return errors.ModuleKilled(remedy=remedy, module=name, host=host, signal=number.name)
    if _has_no_python(result):
        return errors.MissingLibrary(
            message="Python could not be started on %s: %s" % (host, _last_words(result)),
            remedy="Install python3 there, or correct ansible_python_interpreter of that host in the inventory; without it, Ansible looks for one.",
        )
    if "module_stdout" in result:  # it gave no answer
        text = "%s (%s)" % (text, _last_words(result))
    elif not text:
        text = (traceback_of(result).strip().splitlines() or [""])[-1]
    return errors.RemoteError(reason=legible("%s on %s: %s" % (name, host, text or "the module failed")))


def _signal_of(result: t.Mapping[str, t.Any]) -> signal.Signals | None:
    """Return the signal that ended a module without a whole answer. Shells say 128 + its number, Python the negative number."""
    rc = result.get("rc") if "module_stdout" in result else None
    if not isinstance(rc, int):
        return None
    with contextlib.suppress(ValueError):
        return signal.Signals(-rc if rc < 0 else rc - 128)
    return None


def _has_no_python(result: t.Mapping[str, t.Any]) -> bool:
    """Whether the host has no program, or none that can be run, at the path of its interpreter: what a shell, env and sudo say of that."""
    if "module_stdout" not in result or "Traceback" in str(result.get("module_stderr")):
        return False
    return result.get("rc") in (126, 127) or bool(_NO_PROGRAM.search(_last_words(result)))


def traceback_of(result: t.Mapping[str, t.Any]) -> str:
    """Return the traceback of a module that ended with an exception: Ansible has it in an object, with the traceback in its event."""
    exception = result.get("exception")
    return str(getattr(getattr(exception, "event", None), "formatted_traceback", None) or "")


def _last_words(result: t.Mapping[str, t.Any]) -> str:
    """Return the last output of Python or the shell instead of an answer. SSH writes its own message last of all."""
    for stream in ("module_stderr", "module_stdout"):
        lines = [line.strip() for line in str(result.get(stream) or "").splitlines()]
        said = [line for line in lines if line and not re.fullmatch("(Shared c|C)onnection to .* closed[.]", line)]
        if said:
            return said[-1][:LAST_WORDS]
    return "exit code %s" % result.get("rc")


def item_errors(result: t.Mapping[str, t.Any], keys: t.Iterable[str]) -> dict[str, errors.BootflowError]:
    """The failed items of a batch module's result."""
    errors_by_key: dict[str, errors.BootflowError] = {}
    for key in keys:
        item = result.get("outcomes", {}).get(key)
        if item is None:
            errors_by_key[key] = errors.RemoteError(reason="the module gave no answer for %s" % key)
        elif item.get("error"):
            errors_by_key[key] = errors.from_dict(item["error"])
    return errors_by_key


def error_result(error: errors.BootflowError, *, reasons: bool = True, **result: t.Any) -> dict[str, t.Any]:
    """``result`` of a task that failed with ``error``: the same fields from every action (docs/errors.md).

    :arg reasons: whether the message says why each item failed; false where that was printed before.
    """
    data = error.as_dict()
    lines = ["%s: %s" % (error.code, error.message)]
    if isinstance(error, errors.InvalidRequest):
        lines = ["The request has %d error%s." % (len(error.errors), "" if len(error.errors) == 1 else "s")]
        shown = error.errors if len(error.errors) <= ERRORS_SHOWN else error.errors[:ITEMS_NAMED]
        for entry in shown:
            lines += ["%s: %s: %s" % (entry.get("path") or "request", entry["code"], entry["message"])]
            lines += ["  Remedy: " + entry["remedy"]] if entry.get("remedy") else []
        rest = len(error.errors) - len(shown)
        lines += ["And %d more: the field errors of the result has all; -v prints it." % rest] if rest > 0 else []
    elif isinstance(error, errors.Incomplete):
        lines += item_lines(error.items, reasons)
        lines += ["Remedy: " + error.remedy] if error.remedy else []
    elif error.remedy:
        lines += ["  Remedy: " + error.remedy]
    answer = {
        "changed": False,
        **result,
        "failed": True,
        "error_code": data.pop("code"),
        "msg": legible("\n".join(lines)),
    }
    del data["message"]
    return {**answer, **data}


def outcome(error: errors.Incomplete, *, reasons: bool = True, **result: t.Any) -> dict[str, t.Any]:
    """``result`` of a task, which failed if ``error`` has items. :arg reasons: see error_result()"""
    return error_result(error, reasons=reasons, **result) if error.items else result


def diff(subject: str, before: str, after: str) -> dict[str, str]:
    """The diff of a task. :arg subject: what the lines are about, for the headers."""
    return {"before": before, "after": after, "before_header": subject, "after_header": subject}


def item_lines(items: t.Iterable[t.Mapping[str, t.Any]], reasons: bool = True) -> list[str]:
    """Return lines with the fate of items, the hosts they were tried on before, and the remedy: once for all with the same fate.

    :arg reasons: false: only the code of each error.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for item in items:
        name = "%s on %s" % (item["name"], item["host"]) if item["host"] else str(item["name"])
        fate = _fate(item) if reasons or not item["error"] else (str(item["error"]["code"]),)
        alike.setdefault(fate, []).append(name)
    lines = []
    for (what, *more), names in alike.items():
        rest = len(names) - ITEMS_NAMED
        named = ", ".join(names[:ITEMS_NAMED]) + (" and %d more" % rest if rest > 0 else "")
        lines += ["  %s: %s" % (named, what), *more]
    return lines


def _fate(item: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    error = item["error"]
    if not error:
        return (str(item["state"]),)
    lines = ["%s: %s" % (error["code"], error["message"])]
    attempts: dict[tuple[str, str], dict[str, None]] = {}
    for tried in item["tried"]:
        attempts.setdefault((tried["code"], tried["message"]), {})[tried["host"]] = None
    lines += ["    on %s: %s: %s" % (", ".join(hosts), *said) for said, hosts in attempts.items()]
    # The remedies of the attempts are closer to the cause than that of an error that says no host is left.
    remedies = dict.fromkeys(attempt["remedy"] for attempt in item["tried"] if attempt.get("remedy"))
    if not remedies and error.get("remedy"):
        remedies = {error["remedy"]: None}
    return (*lines, *("    Remedy: " + remedy for remedy in remedies))


def unfit(count: int, total: int, plans: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """The message of a plan that does not fit. :arg plans: of boots that do not"""
    what = ", or their volumes on any backend" if any(p["host"] for p in plans) else ""
    return "%d of %d instances cannot be placed on any host%s." % (count, total, what)
