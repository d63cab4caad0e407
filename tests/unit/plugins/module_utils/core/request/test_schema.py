# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import sys
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, MissingLibrary
from ansible_collections.bootflow.compute.plugins.module_utils.core.request import schema as schema_file
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.fragment_files import (
    BUILTIN_DIR,
    load_fragments,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.schema import (
    create_schema,
    entry_errors,
    request_validator,
    schema_validator,
    without_nulls,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import HONOURED


def validate(entries, schema):
    validator = schema_validator(schema)
    return [
        e for n, entry in enumerate(entries) for e in entry_errors(validator, without_nulls(entry), "instances[%d]" % n)
    ]


def fragment(name="f", **more):
    return {"name": name, "server_create": {"p": {"type": "string"}}, **more}


def test_builtin_fragments_are_one_subject_each_and_valid():
    fragments = load_fragments()
    assert len(fragments) == len([n for n in os.listdir(BUILTIN_DIR) if n.endswith(".json")])
    for item in fragments:
        assert item["name"] == os.path.basename(item["file"])[: -len(".json")]
        assert item["description"]


def test_every_property_is_read_by_the_parser():
    names = {name for item in load_fragments() for name in item["server_create"]}
    assert names == HONOURED


def test_the_builtin_fragments_make_one_schema():
    assert create_schema(load_fragments())["required"] == ["name"]


def test_a_property_given_twice():
    with pytest.raises(InvalidInput, match="already given by one"):
        create_schema([fragment("one"), fragment("two")])
    schema = create_schema(
        [fragment("one"), {**fragment("two", override=True), "server_create": {"p": {"type": "integer"}}}]
    )
    assert schema["properties"]["p"] == {"type": "integer"}


def test_required_must_be_given():
    with pytest.raises(InvalidInput, match="q is required"):
        create_schema([fragment(required=["q"])])


def test_a_schema_that_is_none_names_its_file():
    with pytest.raises(InvalidInput, match="bad is not valid"):
        create_schema([{"name": "bad", "server_create": {"p": {"type": "strange"}}}])


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"server_create": []}',
        '{"server_create": {"p": 1}}',
        '{"server_create": {}, "required": "p"}',
    ],
)
def test_bad_files(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InvalidInput):
        load_fragments([str(tmp_path)])


def test_files_without_server_create_and_other_files_are_skipped(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "a", "other": 1}')
    (tmp_path / "b.txt").write_text("{")
    (tmp_path / "c.json").write_text(json.dumps(fragment("c")))
    assert [item["name"] for item in load_fragments([str(tmp_path)])][-1] == "c"
    assert len(load_fragments([str(tmp_path)])) == len(load_fragments()) + 1
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_fragments([str(tmp_path / "none")])


def test_validate_tells_everything_with_paths():
    schema = create_schema(load_fragments())
    errors = validate(
        [{"name": "ok"}, {"name": "", "min_count": 0, "x": 1}, 7, {"networks": [{"fixed_ip": "a", "port": ""}]}],
        schema,
    )
    assert sorted((e["path"], e["code"], e["status"]) for e in errors) == [
        ("instances[1].min_count", "InvalidInput", 400),
        ("instances[1].name", "InvalidInput", 400),
        ("instances[1].x", "InvalidInput", 400),
        ("instances[2]", "MalformedRequestBody", 422),
        ("instances[3].name", "InvalidInput", 400),
        ("instances[3].networks[0].fixed_ip", "InvalidInput", 400),
        ("instances[3].networks[0].port", "InvalidInput", 400),
    ]
    assert all(e["remedy"] for e in errors)


def test_a_typo_is_recognised():
    (error,) = validate([{"name": "a", "flavour": "x"}], create_schema(load_fragments()))
    assert error["remedy"] == "Did you mean flavor?"


@pytest.mark.parametrize(
    "field, remedy",
    [
        ("server_group", "Name a group of bootflow_server_groups in scheduler_hints"),
        ("group", "Name a group of bootflow_server_groups in scheduler_hints"),
        ("anti_affinity", "Name a group of bootflow_server_groups in scheduler_hints"),
        ("volumes", "Name volumes in block_device_mapping"),
        ("disks", "Name volumes in block_device_mapping"),
        ("ip", "Write the address at the network: networks: [{network: NAME, fixed_ip"),
        ("dns", "That is part of a network's subnet"),
        ("memory", "That is part of the flavor"),
        ("keypair", "Did you mean key_name?"),
        ("ssh_key", "Did you mean key_name?"),
        ("userdata", "Did you mean user_data?"),
        ("Metadata", "Did you mean metadata?"),
        ("colour", "Remove it; docs/request.md lists the fields."),
        ("imageRef", "Did you mean image?"),
        ("image_id", "Did you mean image?"),
        ("user-data", "Did you mean user_data?"),
        ("nics", "Did you mean networks?"),
        ("server-group", "Name a group of bootflow_server_groups in scheduler_hints"),
        ("boot_from_volume", "Name volumes in block_device_mapping"),
        ("hosts", "Name a host or a node in availability_zone"),
        # What the schema knows and a request refuses is not named.
        ("hypervisorhostname", "Remove it; docs/request.md lists the fields."),
        ("trusted_image_certs", "Remove it; docs/request.md lists the fields."),
    ],
)
def test_what_people_call_a_field_leads_to_what_does_it(field: str, remedy: str) -> None:
    (error,) = validate([{"name": "a", "flavor": "x", field: "y"}], create_schema(load_fragments()))
    assert error["remedy"].startswith(remedy)


def test_fields_are_not_listed_for_each_unknown_one() -> None:
    many = {"name": "a", "flavor": "x", **dict.fromkeys(("one", "two", "three", "zzz"), 1)}
    assert all(len(e["remedy"]) < 80 for e in validate([many], create_schema(load_fragments())))
    (error,) = validate(
        [{"name": "a", "flavor": "x", "networks": [{"network": "n", "ip": "10.0.0.1"}]}],
        create_schema(load_fragments()),
    )
    assert error["remedy"] == "Did you mean fixed_ip?"


@pytest.mark.parametrize(
    "entry, refused, remedy",
    [
        ({"lock": True}, (schema_file.ALWAYS, schema_file.BY_BOOT), "Remove it; docs/request.md lists the fields."),
        ({"power_state": "x"}, (schema_file.ALWAYS,), "Did you mean state?"),
        (
            {"power_state": "x"},
            (schema_file.ALWAYS, schema_file.BY_BOOT),
            "Remove it; docs/request.md lists the fields.",
        ),
        ({"networks": [{"ports": "x"}]}, (schema_file.ALWAYS,), "Did you mean port?"),
        ({"block_device_mapping": [{"image": "x"}]}, (schema_file.IN_VERSION_2,), "Did you mean image_id?"),
        (
            {"block_device_mapping": [{"image": "x"}]},
            (schema_file.IN_VERSION_1,),
            "Known fields: delete_on_termination, device_name, no_device, snapshot_id, virtual_name, volume_id, volume_size.",
        ),
    ],
)
def test_a_field_that_is_refused_in_that_place_is_not_named(
    entry: dict[str, t.Any], refused: tuple[str, ...], remedy: str
) -> None:
    validator = schema_file.schema_validator(create_schema(load_fragments()))
    (error,) = entry_errors(validator, {"name": "a", "flavor": "x", **entry}, "instances[0]", refused)
    assert error["remedy"] == remedy


def test_without_jsonschema_the_file_imports_and_its_use_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    spec = importlib.util.spec_from_file_location(schema_file.__name__ + "_bare", schema_file.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(MissingLibrary, match="jsonschema is missing on the controller"):
        module.create_schema([fragment()])


def test_fragments_of_the_user_are_checked(tmp_path):
    """The collection's own make a schema, see above; a user's may be none."""
    (tmp_path / "rack.json").write_text('{"server_create": {"rack": {"type": "whole number"}}}')
    with pytest.raises(InvalidInput, match="schema fragment .*rack.json is not valid"):
        request_validator([str(tmp_path)])


def test_the_validator_is_made_once_as_long_as_the_fragments_stay(tmp_path):
    fragment = tmp_path / "rack.json"
    fragment.write_text('{"server_create": {"rack": {"type": "integer"}}}')
    made = request_validator([str(tmp_path)])
    assert request_validator([str(tmp_path)]) is made
    assert request_validator([]) is not made
    assert entry_errors(made, {"rack": "four"}, "instances[0]")
    fragment.write_text('{"server_create": {"rack": {"type": ["integer", "string"]}}}')
    changed = request_validator([str(tmp_path)])
    assert not [e for e in entry_errors(changed, {"rack": "four"}, "instances[0]") if "rack" in e["path"]]
    fragment.unlink()
    assert entry_errors(request_validator([str(tmp_path)]), {"rack": 4}, "instances[0]")


def test_alternatives_in_words(errors):
    assert errors(networks="zzz") == [
        ("networks", "InvalidInput", 400, "Invalid input for field networks: 'zzz' must be a list or none or auto")
    ]


def test_what_yaml_has_and_json_has_not():
    schema = create_schema([*load_fragments(), {"name": "own", "server_create": {"own": {}}}])
    entry = {
        "name": "web",
        (1, 2): "x",
        "metadata": {5: "y", "z": 7, "when": datetime.date(2026, 1, 1)},
        "own": [datetime.date(2026, 1, 1), float("nan"), {"a": b"bytes"}, {"b": {1: 2}}, 1.5, True, None],
    }
    assert sorted((e["path"], e["message"]) for e in validate([entry], schema)) == [
        ("instances[0]", "The key (1, 2) is not a text but a list"),
        ("instances[0].metadata", "The key 5 is not a text but a whole number"),
        (
            "instances[0].metadata.when",
            "Invalid input for field metadata.when: must be a text, not a value of type date",
        ),
        ("instances[0].metadata.z", "Invalid input for field metadata.z: must be a text, not a whole number"),
        ("instances[0].own[0]", "The value 2026-01-01 is not a text but a value of type date"),
        ("instances[0].own[1]", "The value nan is not a text but a number"),
        ("instances[0].own[2].a", "The value b'bytes' is not a text but a value of type bytes"),
        ("instances[0].own[3].b", "The key 1 is not a text but a whole number"),
    ]


@pytest.mark.parametrize(
    ("schema", "value", "words", "remedy"),
    [
        ({"type": "string"}, 5, "must be a text, not a whole number", "Write a text, in quotes"),
        ({"type": "string"}, True, "must be a text, not a boolean", "Write a text, in quotes"),
        ({"type": "array"}, "a", "must be a list, not a text", "Write a list: [A, B]"),
        ({"type": "object"}, ["a"], "must be a mapping, not a list", "Write a mapping"),
        ({"type": "boolean"}, "maybe", "must be true or false, not a text", "Write true or false."),
        (
            {"type": ["boolean", "string"], "format": "boolean"},
            ["x"],
            "must be true or false, not a list",
            "Write true or",
        ),
        (
            {"type": ["integer", "string"], "format": "integer"},
            {},
            "must be a whole number, not a mapping",
            "Write a whole",
        ),
        ({"enum": ["a", "b"]}, "c", "'c' must be one of a, b", "Write one of them."),
        (
            {"pattern": "^a$"},
            "b",
            "'b' must be what the regular expression ^a$ matches",
            "Correct the value; docs/request.md",
        ),
        ({"pattern": "^a$", "x-expects": "the letter a"}, "b", "'b' must be the letter a", "Write the letter a."),
        ({"maxLength": 1}, "abc", "must have at most 1 character, has 3", "Shorten it."),
        ({"minItems": 2}, ["a"], "must have at least 2 items, has 1", "Write more."),
        ({"uniqueItems": True}, ["a", "a"], "must not have the same item twice", "Write each item once."),
        ({"exclusiveMinimum": 0}, 0, "0 must be more than 0", "Correct the value; docs/request.md lists the fields."),
        ({"multipleOf": 4}, 3, "3 must be a multiple of 4", "Correct the value; docs/request.md lists the fields."),
        ({"not": {"const": "root"}}, "root", "'root' is not allowed here", "Correct the value; docs/request.md"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": "x"}, "needs b besides", "Correct the value; docs/request.md"),
    ],
)
def test_errors_are_in_plain_words_with_path_and_remedy(
    schema: dict[str, t.Any], value: t.Any, words: str, remedy: str
) -> None:
    validator = schema_file.schema_validator(
        {"type": "object", "properties": {"own": {"properties": {"deep": schema}}}}
    )
    (error,) = entry_errors(validator, {"own": {"deep": value}}, "instances[3]")
    assert error["path"] == "instances[3].own.deep"
    assert error["message"] == "Invalid input for field own.deep: " + words
    assert error["remedy"].startswith(remedy)


def test_every_pattern_of_ours_has_words() -> None:
    def patterns(node: t.Any) -> t.Iterator[t.Any]:
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from patterns(each)
        if isinstance(node, dict) and isinstance(node.get("pattern"), str):
            yield node

    found = list(patterns(create_schema(load_fragments())))
    assert len(found) > 5 and all(each.get("x-expects") for each in found)


def test_the_error_of_a_fragment_has_its_path_and_a_remedy() -> None:
    with pytest.raises(InvalidInput) as caught:
        create_schema([{"name": "bad", "server_create": {"rack": {"type": "text"}}}])
    assert "schema fragment bad is not valid: server_create.rack.type: 'text' must be " in caught.value.message
    assert caught.value.remedy == "Correct it there, by the keywords of JSON Schema 2020-12."
