# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a host-side module of the collection as a separate program, without Ansible's library for modules.

To unpack an AnsiballZ and to load AnsibleModule takes a host 70 ms of its processor, as long as all of ours. The actions of the collection
know what they give to its modules, so that a small stand-in for AnsibleModule does: it reads arguments that fit as they are, and adds the defaults.
Whatever it does not know, it leaves to Ansible, before anything was done: the answer NEEDS_ANSIBLE has the action run the module
as Ansible runs modules (plugin_utils/transport/host_programs.py).
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import locale
import os
import sys
import syslog
import types
import typing as t
from importlib.machinery import ModuleSpec

NEEDS_ANSIBLE = "needs_ansible_module"  # the field of a result that says why the program did nothing
HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"  # as Ansible writes it

Spec = t.Mapping[str, t.Mapping[str, t.Any]]
KNOWN = frozenset(
    (
        "type",
        "default",
        "required",
        "choices",
        "elements",
        "no_log",
        "options",
        "mutually_exclusive",
        "required_if",
        "required_together",
    )
)


class NeedsAnsible(Exception):
    """Something that only AnsibleModule does."""


# --- modules ------------------------------------------------------------------------------------------------------------


class Files:
    """Finds and loads modules in memory. What importlib asks for is here; its abstract classes (importlib.abc) take 5 ms to load.

    :arg codes: path in the collections' tree (``ansible_collections/…/x.py``) -> byte code (marshal), for the Python of ``magic``.
    :arg sources: path -> source. Both have the same paths.
    """

    def __init__(self, codes: t.Mapping[str, bytes], sources: t.Callable[[], t.Mapping[str, bytes]], magic: bytes):
        self._codes = codes
        self._sources = sources
        self._compiled = magic == importlib.util.MAGIC_NUMBER
        self._packages = {"/".join(path.split("/")[:n]) for path in codes for n in range(1, path.count("/") + 1)}

    def _path(self, name: str) -> str | None:
        path = name.replace(".", "/")
        places = [path + "/__init__.py"] if path in self._packages else [path + ".py"]
        return next((p for p in places if p in self._codes), None)

    def find_spec(self, fullname: str, path: t.Any, target: t.Any = None) -> ModuleSpec | None:
        package = fullname.replace(".", "/") in self._packages
        if not package and self._path(fullname) is None:
            return None
        return ModuleSpec(fullname, t.cast(t.Any, self), origin=self._path(fullname), is_package=package)

    def is_package(self, fullname: str) -> bool:
        return fullname.replace(".", "/") in self._packages

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create an ordinary module."""

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_source(self, fullname: str) -> str:
        """Return the source, for the lines of a traceback, too."""
        path = self._path(fullname)
        return "" if path is None else self._sources()[path].decode()

    def get_code(self, fullname: str) -> types.CodeType:
        path = self._path(fullname)
        if path is not None and self._compiled:
            import marshal

            return t.cast(types.CodeType, marshal.loads(self._codes[path]))
        return compile(self.get_source(fullname), path or fullname, "exec", dont_inherit=True)


# --- AnsibleModule ------------------------------------------------------------------------------------------------------


def read_arguments(
    spec: Spec, given: t.Mapping[str, t.Any], secrets: set[str], rules: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """Return the parameters of a module: ``given`` with the defaults of ``spec``.

    :arg secrets: gets the texts of options with no_log. :arg rules: mutually_exclusive, required_if, required_together of these options.
    :raises NeedsAnsible: a value is not of its type as it is, or the specification has what is not known here.
    """
    if not given.keys() <= spec.keys():
        raise NeedsAnsible("options %s" % sorted(given.keys() - spec.keys()))
    parameters = {name: _option(name, option, given, secrets) for name, option in spec.items()}
    rules = rules or {}
    set_names = {name for name, value in parameters.items() if value is not None}
    for names in rules.get("mutually_exclusive") or ():
        if len(given.keys() & names) > 1:
            raise NeedsAnsible("%s exclude each other" % (names,))
    for names in rules.get("required_together") or ():
        names_given = (set_names | given.keys()) & set(names)
        if names_given and len(names_given) < len(names):
            raise NeedsAnsible("%s belong together" % (names,))
    for name, value, names, *more in rules.get("required_if") or ():
        if more or (parameters.get(name) == value and not set_names >= set(names)):
            raise NeedsAnsible("%s=%s needs %s" % (name, value, names))
    return parameters


def _option(name: str, option: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any], secrets: set[str]) -> t.Any:
    if not option.keys() <= KNOWN:
        raise NeedsAnsible("option %s has %s" % (name, sorted(option.keys() - KNOWN)))
    kind = option.get("type", "str")
    value = given[name] if name in given else option.get("default")
    if value is None and (option.get("required") or option.get("default") is not None):
        if name not in given or kind not in ("str", "path"):
            raise NeedsAnsible("option %s is missing" % name)
        value = ""  # which Ansible makes of null
    if value is None:
        if name in given and option.get("choices"):
            raise NeedsAnsible("option %s is null" % name)
        return None
    if option.get("no_log"):
        secrets.update(_texts(value))
    if kind != "list":
        return _value(name, kind, value, option, secrets)
    if not isinstance(value, list):
        raise NeedsAnsible("option %s is not a list" % name)
    if "elements" not in option:
        if "options" in option or "choices" in option:
            raise NeedsAnsible("option %s is a list whose elements have no type" % name)
        return value
    return [_value(name, option["elements"], element, option, secrets) for element in value]


def _value(name: str, kind: str, value: t.Any, option: t.Mapping[str, t.Any], secrets: set[str]) -> t.Any:
    if kind in ("str", "path", "json"):
        fits = isinstance(value, str)
    elif kind == "bool":
        fits = isinstance(value, bool)
    elif kind in ("int", "float"):
        fits = isinstance(value, (int, float) if kind == "float" else int) and not isinstance(value, bool)
    else:
        fits = kind == "raw" or (kind == "dict" and isinstance(value, dict))
    if not fits or (option.get("choices") and value not in option["choices"]):
        raise NeedsAnsible("option %s has a value that is not of type %s" % (name, kind))
    if kind == "path":
        return os.path.expanduser(os.path.expandvars(value))
    if kind == "json":
        return value.strip()
    if kind == "float":
        return float(value)
    if kind == "dict" and option.get("options") is not None:
        return read_arguments(option["options"], value, secrets, option)
    return value


def _texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set)):
        for element in value:
            yield from _texts(element)
    elif value is not None and not isinstance(value, bool) and str(value):
        yield str(value)


def without(value: t.Any, secrets: t.Collection[str]) -> t.Any:
    """Return ``value`` as JSON can have it, without these texts, as Ansible hides the values of options with no_log."""
    if isinstance(value, dict):
        return {key: without(element, secrets) for key, element in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [without(element, secrets) for element in value]
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    if isinstance(value, str):
        if value in secrets:
            return HIDDEN
        for secret in secrets:
            value = value.replace(secret, "*" * 8)
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and any(s in str(value) for s in secrets):
        return HIDDEN
    return value


class PlainModule:
    """The parts of AnsibleModule that the modules of the collection use: its name, parameters and check mode, and the end of the module."""

    given: t.ClassVar[t.Mapping[str, t.Any]] = {}  # the arguments, with Ansible's own

    def __init__(self, argument_spec: Spec, supports_check_mode: bool = False, **rules: t.Any):
        if not rules.keys() <= KNOWN:
            raise NeedsAnsible("%s of a module" % sorted(rules.keys() - KNOWN))
        arguments = {k: v for k, v in self.given.items() if not k.startswith("_ansible_")}
        self.check_mode = bool(self.given.get("_ansible_check_mode"))
        if self.check_mode and not supports_check_mode:
            raise NeedsAnsible("no check mode")
        self.no_log_values: set[str] = set()
        self.params = read_arguments(argument_spec, arguments, self.no_log_values, rules)
        self._name = str(self.given.get("_ansible_module_name"))
        self._warnings: list[str] = []
        _check_locale()
        _check_folder()
        if not self.given.get("_ansible_no_log"):
            self._log(sorted(arguments))

    def _log(self, names: t.Sequence[str]) -> None:
        """Log the module on the host, as AnsibleModule does, without the values."""
        facility = getattr(syslog, str(self.given.get("_ansible_syslog_facility")), syslog.LOG_USER)
        with contextlib.suppress(OSError, TypeError, ValueError):
            syslog.openlog("ansible-%s" % self._name, 0, facility)
            target = self.given.get("_ansible_target_log_info")
            text = "Invoked with %s" % ", ".join(names)
            syslog.syslog(syslog.LOG_INFO, "%s %s" % (target, text) if target else text)

    def warn(self, warning: str) -> None:
        self._warnings.append(warning)

    def exit_json(self, **result: t.Any) -> t.NoReturn:
        self._end({"changed": False, **result})
        raise SystemExit(0)

    def fail_json(self, msg: str, **result: t.Any) -> t.NoReturn:
        self._end({"failed": True, "msg": msg, **result})
        raise SystemExit(1)

    def _end(self, result: dict[str, t.Any]) -> None:
        if self._warnings:
            result["warnings"] = [*result.get("warnings", ()), *self._warnings]
        # The longest first: one may be a part of another.
        answer(without(result, sorted(self.no_log_values, key=len, reverse=True)))


def _check_locale() -> None:
    """Check the locale: with one that the host does not have, each started program would complain."""
    for name in ("", "C.UTF-8", "C"):
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            if name:
                os.environ.update(LANG=name, LC_ALL=name, LC_MESSAGES=name)
            return


def _check_folder() -> None:
    """Check the current folder, which started programs look at: it may be closed to the user that one became, or gone."""
    for find in (os.getcwd, lambda: os.path.expandvars("$HOME"), lambda: "/tmp", lambda: "/"):
        with contextlib.suppress(OSError):
            folder = find()
            if os.access(folder, os.R_OK | os.X_OK):
                os.chdir(folder)
                return


def answer(result: t.Mapping[str, t.Any]) -> None:
    sys.stdout.write("\n%s\n" % json.dumps(result))
    sys.stdout.flush()


# --- the program --------------------------------------------------------------------------------------------------------


def run(files: Files, module: str, arguments: bytes) -> None:
    """Run a module of the collection.

    :arg module: its full name in Python. :arg arguments: JSON, as for AnsibleModule.
    """
    gc.disable()  # nothing of what is loaded becomes garbage
    try:
        main = _main_of(files, module)
        gc.freeze()
        gc.enable()
        PlainModule.given = json.loads(arguments)
        main()
    except NeedsAnsible as e:
        answer({NEEDS_ANSIBLE: str(e)})
    except Exception as e:  # as Ansible ends a module that failed without a word
        import traceback  # of few runs

        answer({"failed": True, "msg": "%s: %s" % (type(e).__name__, e), "exception": traceback.format_exc()})
        raise SystemExit(1) from None


def _main_of(files: Files, module: str) -> t.Callable[[], None]:
    names = ("ansible", "ansible.module_utils", "ansible.module_utils.basic")
    stand_ins = {name: types.ModuleType(name) for name in names}
    stand_ins[names[-1]].AnsibleModule = PlainModule  # type: ignore[attr-defined]
    for stand_in in stand_ins.values():
        stand_in.__path__ = []
    # What is in the current folder, or where a file of the program lies, is not ours.
    program_folder = os.path.dirname(os.path.realpath(sys.argv[0])) if sys.argv[0] else ""
    sys.path[:] = [p for p in sys.path if p and p != program_folder]
    sys.meta_path.insert(0, files)
    sys.modules.update(stand_ins)
    try:
        __import__(module)
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] == "ansible":
            raise NeedsAnsible("%s" % e.name) from e
        raise
    return t.cast("t.Callable[[], None]", sys.modules[module].main)
