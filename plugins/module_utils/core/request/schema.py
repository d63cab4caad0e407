# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assembles the schema of a create request and validates requests, reporting all errors at once."""

from __future__ import annotations

import functools
import math
import re
import typing as t

from .. import errors as error_classes
from ..errors import BootflowError, InvalidInput, MalformedRequestBody
from ..optional import Lazy, installed, require
from ..reading.formats import FORMATS
from ..reading.nearest import field_suggestion
from ..reading.surely_valid import surely_valid
from .fragment_files import load_fragments, state_of_files

if t.TYPE_CHECKING:
    import jsonschema
else:
    jsonschema = Lazy("jsonschema")


#: paths where null may be intended: it is kept there, and rejected
_KEEP_NULLS = ("metadata", "scheduler_hints")

#: JSON's types in words
_TYPES = {
    "array": "a list",
    "object": "a mapping",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
#: Python's types, as they are called here.
_KINDS: tuple[tuple[t.Any, str], ...] = (
    (bool, "a boolean"),
    (str, "a text"),
    (int, "a whole number"),
    (float, "a number"),
    (t.Mapping, "a mapping"),
    ((list, tuple), "a list"),
)
#: What to write for one of JSON's types.
_FORMS = {
    "array": "Write a list: [A, B], or a line with a dash for each item.",
    "object": "Write a mapping: NAME: VALUE, one a line, below the field.",
    "string": "Write a text, in quotes where YAML would read it as something else.",
    "integer": "Write a whole number.",
    "number": "Write a number.",
    "boolean": "Write true or false.",
}
#: Keywords with a limit -> the message; the unit that is counted for limits of texts, lists and mappings.
_LIMITS = {
    "minimum": "must be %s or more",
    "maximum": "must be %s or less",
    "exclusiveMinimum": "must be more than %s",
    "exclusiveMaximum": "must be less than %s",
    "multipleOf": "must be a multiple of %s",
    "const": "must be %s",
}
_SIZES = {
    "minLength": ("at least", "characters"),
    "maxLength": ("at most", "characters"),
    "minItems": ("at least", "items"),
    "maxItems": ("at most", "items"),
    "minProperties": ("at least", "keys"),
    "maxProperties": ("at most", "keys"),
}

_GROUP = "Name a group of bootflow_server_groups in scheduler_hints: {group: NAME}."
_FLAVOR = "That is part of the flavor: name one of bootflow_flavors in flavor."
_SUBNET = "That is part of a network's subnet: see bootflow_networks."
_VOLUMES = "Name volumes in block_device_mapping (docs/request.md), or attach them with bootflow.compute.attach_volume."
#: What people call a field that an instance does not have -> what to do instead.
_MEANT = {
    **dict.fromkeys(
        ("group", "groups", "server_group", "server_groups", "affinity", "anti_affinity", "policy"), _GROUP
    ),
    **dict.fromkeys(
        (
            "ram",
            "memory",
            "memory_mb",
            "cpu",
            "cpus",
            "vcpus",
            "cores",
            "disk",
            "disk_gb",
            "root_gb",
            "root_disk",
            "swap",
        ),
        _FLAVOR,
    ),
    **dict.fromkeys(("volume", "volumes", "disks", "attach", "snapshot"), _VOLUMES),
    **dict.fromkeys(("boot_from_volume", "boot_volume", "root_volume", "volume_size", "terminate_volume"), _VOLUMES),
    **dict.fromkeys(
        ("host", "hosts", "node", "hypervisor", "hypervisor_host", "on_host", "compute_host"),
        "Name a host or a node in availability_zone: zone:host, or zone::node (docs/request.md).",
    ),
    **dict.fromkeys(("dns", "dns_nameservers", "gateway", "gateway_ip", "nameservers", "netmask", "subnet"), _SUBNET),
    **dict.fromkeys(
        ("ip", "ips", "ip_address", "address", "addresses", "fixed_ip", "fixed_ips", "ipv4", "ipv6"),
        "Write the address at the network: networks: [{network: NAME, fixed_ip: ADDRESS}].",
    ),
    **dict.fromkeys(("mac", "mac_address"), "MAC addresses are chosen; bootflow_base_mac sets how they begin."),
    **dict.fromkeys(
        ("aggregate", "zone_name"),
        "Name a zone in availability_zone. Aggregates are chosen by the flavor's extra_specs (docs/scheduler.md).",
    ),
}

#: Where a field is accepted by the schema and refused behind it: "x-refused" of its schema has one of these, or a list.
#: A remedy names no field that is refused.
ALWAYS, BY_BOOT, IN_VERSION_1, IN_VERSION_2 = "always", "boot", "block_device_mapping_v1", "block_device_mapping_v2"

_REMEDY = "Correct the value; docs/request.md lists the fields."


def create_schema(fragments: t.Iterable[t.Mapping[str, t.Any]], check: bool = True) -> dict[str, t.Any]:
    """The JSON schema of one instance.

    If two fragments give the same property, the later one must have ``override: true``.

    :arg check: whether each is a schema; of the collection's own that is known, and finding it out takes longer than most requests.
    :raises InvalidInput: a property given twice, a required one that no fragment gives, an invalid schema.
    """
    properties: dict[str, t.Any] = {}
    givers: dict[str, str] = {}
    required: list[str] = []
    for fragment in fragments:
        where = str(fragment.get("file") or fragment.get("name") or "fragment")
        for name, schema in fragment["server_create"].items():
            if name in properties and not fragment.get("override", False):
                raise InvalidInput(
                    reason="property %s of schema fragment %s is already given by %s" % (name, where, givers[name]),
                    remedy='Rename the property, or write "override": true in the fragment.',
                )
            properties[name] = schema
            givers[name] = where
        required += [name for name in fragment.get("required", []) if name not in required]
    for name in required:
        if name not in properties:
            raise InvalidInput(reason="property %s is required, but no schema fragment gives it" % name)
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if not check:
        return schema
    require(jsonschema, "jsonschema", "jsonschema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        culprit = (
            givers.get(str(error.absolute_path[1]), "a fragment") if len(error.absolute_path) > 1 else "a fragment"
        )
        raise InvalidInput(
            reason="schema fragment %s is not valid: %s: %s"
            % (
                culprit,
                _path("server_create", list(error.absolute_path)[1:]),
                _words(error, _cut(error.instance) + " "),
            ),
            remedy="Correct it there, by the keywords of JSON Schema 2020-12.",
        ) from None
    return schema


def request_validator(dirs: t.Iterable[str]) -> Validator:
    """The validator of create requests, made once per process while the additional fragments do not change.

    :arg dirs: folders with such fragments.
    :raises InvalidInput: as load_fragments() and create_schema().
    """
    folders = tuple(dirs)
    return _validator(state_of_files(folders) if folders else (), folders)


@functools.lru_cache(maxsize=4)
def _validator(_files: t.Hashable, dirs: tuple[str, ...]) -> Validator:
    return schema_validator(create_schema(load_fragments(dirs), check=bool(dirs)))


def schema_validator(schema: t.Mapping[str, t.Any]) -> Validator:
    """A validator for many entries.

    :raises MissingLibrary: jsonschema is not installed on the controller.
    """
    require(installed("jsonschema"), "jsonschema", "jsonschema")
    return Validator(schema)


class Validator:
    """Finds the errors of values by one schema."""

    def __init__(self, schema: t.Mapping[str, t.Any]):
        self.schema = schema

    def errors(self, value: t.Any) -> t.Iterable[t.Any]:
        """jsonschema's errors. :arg value: plain dicts and lists"""
        return () if surely_valid(value, self.schema) else self._whole.iter_errors(value)

    @functools.cached_property
    def _whole(self) -> t.Any:
        checker = jsonschema.FormatChecker(formats=())
        for name, (test, types) in FORMATS.items():
            checker.checks(name, raises=ValueError)(_format_test(test, types))
        return jsonschema.Draft202012Validator(self.schema, format_checker=checker)


def _format_test(test: t.Callable[[t.Any], t.Any], types: tuple[type, ...]) -> t.Callable[[object], bool]:
    def check(value: object) -> bool:
        if isinstance(value, types) and not isinstance(value, bool):
            test(value)
        return True

    return check


def entry_errors(
    validator: Validator, entry: t.Any, path: str, refused: t.Collection[str] = (ALWAYS,)
) -> list[dict[str, t.Any]]:
    """The errors of one entry returned by without_nulls().

    :arg refused: words of x-refused: remedies do not name such fields.
    """
    if not isinstance(entry, t.Mapping):
        return [_error(path, MalformedRequestBody(reason="an instance must be a mapping, not %s" % _kind(entry)))]
    odd = list(_odd(entry, path))
    entry_problems = []
    for error in validator.errors(_with_text_keys(entry) if odd else entry):
        entry_problems += _explain(error, validator.schema, path, refused)
    reported_paths = {problem["path"] for problem in entry_problems}
    return entry_problems + [_error(where, error) for where, error in odd if where not in reported_paths]


def _odd(value: t.Any, path: str) -> t.Iterator[tuple[str, BootflowError]]:
    """Yield the values that YAML has and JSON has not; Nova's requests are JSON, and the ledger keeps them as JSON."""
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _odd(item, _join(path, key))
            else:
                yield path, _not_json("key", key)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _odd(item, "%s[%d]" % (path, index))
    elif not _is_json(value):
        yield path, _not_json("value", value)


def _is_json(value: t.Any) -> bool:
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


def _not_json(what: str, value: t.Any) -> InvalidInput:
    return InvalidInput(
        message="The %s %s is not a text but %s" % (what, _cut(value), _kind(value)), remedy="Put it in quotes."
    )


def _with_text_keys(value: t.Any) -> t.Any:
    if isinstance(value, t.Mapping):
        return {key: _with_text_keys(item) for key, item in value.items() if isinstance(key, str)}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(item) for item in value]
    return value


def without_nulls(value: t.Any) -> t.Any:
    """A copy in plain dicts and lists without the keys whose value is null."""
    if isinstance(value, t.Mapping):
        return {
            key: (item if key in _KEEP_NULLS else without_nulls(item))
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, (list, tuple)):
        return [without_nulls(item) for item in value]
    return value


def _explain(
    error: t.Any, root: t.Mapping[str, t.Any], prefix: str, refused: t.Collection[str]
) -> list[dict[str, t.Any]]:
    """Messages for one error of jsonschema; of alternatives, the errors of the intended one."""
    if error.validator in ("anyOf", "oneOf") and error.context:
        meant = [child for child in error.context if _branch_fits(child, error)]
        if meant:
            return [item for child in meant for item in _explain(child, root, prefix, refused)]
    path = _path(prefix, error.absolute_path)
    schema = error.schema if isinstance(error.schema, t.Mapping) else {}
    if error.validator == "additionalProperties":
        return [_unknown(path, name, schema, refused) for name in sorted(map(str, _extras(error)))]
    if error.validator == "required":
        return [_missing(path, name, schema) for name in error.validator_value if name not in error.instance]
    text = _words(error, _shown(error, root))
    return [_coded(path, schema, "Invalid input for field %s: %s" % (_field(path), text), _form(error))]


def _branch_fits(child: t.Any, parent: t.Any) -> bool:
    """Whether the alternative of ``child`` has the value's type."""
    branch = child.schema_path[0]
    return not any(
        other.validator in ("type", "enum") and len(other.path) == 0 and other.schema_path[0] == branch
        for other in parent.context
    )


def _extras(error: t.Any) -> list[t.Any]:
    known = error.schema.get("properties", {})
    patterns = error.schema.get("patternProperties", {})
    return [key for key in error.instance if key not in known and not any(re.search(p, str(key)) for p in patterns)]


def _unknown(path: str, name: str, schema: t.Mapping[str, t.Any], refused: t.Collection[str]) -> dict[str, t.Any]:
    known = sorted(n for n, subschema in schema.get("properties", {}).items() if not _is_refused(subschema, refused))
    where = _join(path, name)
    if "x-code" in schema:
        return _coded(where, schema, "%s is not a valid key" % _cut(name))
    remedy = ""
    if "scheduler_hints" in known:  # an instance
        remedy = _MEANT.get(re.sub(r"[-. ]", "_", name.lower()), "")
    remedy = remedy or field_suggestion(name, known, "docs/request.md")
    return _error(where, InvalidInput(message="Unknown field %s" % _cut(name), remedy=remedy))


def _is_refused(schema: t.Any, refused: t.Collection[str]) -> bool:
    where = schema.get("x-refused", ()) if isinstance(schema, t.Mapping) else ()
    return any(word in refused for word in ((where,) if isinstance(where, str) else where))


def _missing(path: str, name: str, schema: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    wanted = schema.get("properties", {}).get(name, {})
    return _error(
        _join(path, name),
        InvalidInput(message=wanted.get("x-missing", "Field %s is missing" % name), remedy="Add %s." % name),
    )


def _coded(path: str, schema: t.Mapping[str, t.Any], message: str, remedy: str = _REMEDY) -> dict[str, t.Any]:
    """An error of the class in the schema's x-code, with its x-remedy, else the class's remedy, else ``remedy``."""
    cls = getattr(error_classes, str(schema.get("x-code", "InvalidInput")), InvalidInput)
    if not (isinstance(cls, type) and issubclass(cls, BootflowError)):
        cls = InvalidInput
    return _error(path, cls(message=message, remedy=schema.get("x-remedy") or cls.remedy or remedy))


def _words(error: t.Any, value: str) -> str:
    """Return the error of a value, without the words of JSON Schema. :arg value: with a blank behind it, "" if it is not shown"""
    limit, keyword = error.validator_value, error.validator
    schema = error.schema if isinstance(error.schema, t.Mapping) else {}
    if keyword == "type":
        return "%smust be %s, not %s" % (
            value,
            " or ".join(_TYPES.get(n, n) for n in _wanted(limit, schema)),
            _kind(error.instance),
        )
    if keyword == "format":
        return "%s%s" % (value, error.cause or "is not of the form %s" % limit)
    if keyword == "enum":
        return "%smust be one of %s" % (value, ", ".join(map(str, limit)))
    if keyword == "pattern":
        form = schema.get("x-expects") or "what the regular expression %s matches" % limit
        return "%smust be %s" % (value, form)
    if keyword in _SIZES:
        least, what = _SIZES[keyword]
        return "must have %s %s %s, has %d" % (least, limit, what if limit != 1 else what[:-1], len(error.instance))
    if keyword in _LIMITS:
        return "%s%s" % (value, _LIMITS[keyword] % limit)
    if keyword == "uniqueItems":
        return "must not have the same item twice"
    if keyword in ("anyOf", "oneOf"):
        return "%smust be %s" % (value, " or ".join(dict.fromkeys(_alternative(schema_part) for schema_part in limit)))
    if keyword == "not":
        return "%sis not allowed here" % value
    if keyword == "dependentRequired":
        absent = sorted(
            {n for name, names in limit.items() if name in error.instance for n in names if n not in error.instance}
        )
        return "needs %s besides" % ", ".join(absent)
    return "%sdoes not fit the rule %s of its schema" % (value, keyword)


def _wanted(types: t.Any, schema: t.Mapping[str, t.Any]) -> list[str]:
    """Return the types of a value. A text that is read as a number or a boolean counts as that."""
    wanted = [types] if isinstance(types, str) else list(types)
    read = [name for name in wanted if name in ("integer", "number", "boolean")]
    return read if "format" in schema and {*read, "string"} == set(wanted) and read else wanted


def _form(error: t.Any) -> str:
    """Return the remedy where the schema has none: the form to write."""
    limit, keyword = error.validator_value, error.validator
    schema = error.schema if isinstance(error.schema, t.Mapping) else {}
    if keyword == "type":
        return _FORMS.get(_wanted(limit, schema)[0], _REMEDY)
    if keyword == "enum":
        return "Write one of them."
    if keyword == "pattern" and "x-expects" in schema:
        return "Write %s." % schema["x-expects"]
    if keyword in _SIZES:
        return "Shorten it." if keyword.startswith("max") else "Write more."
    if keyword == "uniqueItems":
        return "Write each item once."
    return _REMEDY


def _alternative(schema: t.Mapping[str, t.Any]) -> str:
    """An alternative of a value in words."""
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    types = schema.get("type", "another value")
    return " or ".join(_TYPES.get(kind, kind) for kind in ([types] if isinstance(types, str) else types))


def _shown(error: t.Any, root: t.Mapping[str, t.Any]) -> str:
    """The value for the message; "" if it is long, structured or in a writeOnly (secret) property."""
    top = error.absolute_path[0] if error.absolute_path else None
    if root.get("properties", {}).get(top, {}).get("writeOnly") or isinstance(error.instance, (dict, list)):
        return ""
    return "%s " % _cut(error.instance) if error.validator != "type" else ""


def _cut(value: t.Any) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _kind(value: t.Any) -> str:
    if value is None:
        return "null"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "a value of type %s" % type(value).__name__)


def _path(prefix: str, parts: t.Iterable[t.Any]) -> str:
    path = prefix
    for part in parts:
        path = "%s[%d]" % (path, part) if isinstance(part, int) else _join(path, part)
    return path


def _join(path: str, name: t.Any) -> str:
    return "%s.%s" % (path, name) if str(name).isidentifier() else "%s[%s]" % (path, _cut(str(name)))


def _field(path: str) -> str:
    return path.partition(".")[2] or path


def _error(path: str, error: BootflowError) -> dict[str, t.Any]:
    return {
        "path": path,
        "message": error.message,
        "code": error.code,
        "status": error.status,
        "remedy": error.remedy,
    }
