# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is surely valid is so for jsonschema, too; and what people ask for is found to be without it."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.formats import FORMATS
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.surely_valid import surely_valid
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.schema import (
    Validator,
    entry_errors,
    request_validator,
    without_nulls,
)

TEXTS = [
    "",
    "a",
    "web-1",
    "1",
    "0",
    "-1",
    "true",
    "no",
    " x",
    "a\n",
    "10.0.0.4",
    "fd00::1",
    "/etc/motd",
    "YQ==",
    "auto",
    "none",
    "é" * 3,
]
SCALARS = st.one_of(
    st.sampled_from(TEXTS),
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.text(max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "network", "zz"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])


def schemas(inner: st.SearchStrategy[t.Any]) -> st.SearchStrategy[dict[str, t.Any]]:
    """Schemas of all keywords that are known to surely_valid(), and a few that are not."""
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=4),
            "format": st.sampled_from([*FORMATS, "unheard-of"]),
            "pattern": st.sampled_from(["^a", "[0-9]", r"\A\Z"]),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "items": inner,
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^z", "b"]), inner, max_size=2),
            "additionalProperties": inner,
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "description": st.just("text"),
            "x-remedy": st.just("text"),
            "minimum": st.integers(0, 2),
            "not": inner,
            "const": SCALARS,
        },
    )


SCHEMAS = st.recursive(st.booleans() | schemas(st.booleans()), schemas, max_leaves=4)


@given(VALUES, SCHEMAS)
def test_jsonschema_finds_no_error_in_it(value: t.Any, schema: t.Any) -> None:
    if surely_valid(value, schema):
        assert not list(Validator(schema)._whole.iter_errors(value))


ENTRY: dict[str, t.Any] = {
    "name": "web",
    "flavor": "small",
    "image": "debian",
    "min_count": "2",
    "max_count": 4,
    "networks": [{"network": "lan", "fixed_ip": "10.0.0.4"}, "dmz"],
    "metadata": {"role": "web"},
    "scheduler_hints": {"group": "b3f1c6a2-94a6-4f9b-a3a4-56a2fb1b66b1"},
    "block_device_mapping": [
        {"source_type": "image", "destination_type": "volume", "boot_index": 0, "volume_size": 10}
    ],
    "injected_files": [{"path": "/etc/motd", "contents": "aGVsbG8="}],
    "security_groups": ["default"],
    "config_drive": True,
    "tags": ["a", "b"],
    "user_data": "#cloud-config\n",
    "state": "stopped",
    "locked": False,
}


@given(st.fixed_dictionaries({}, optional={name: st.just(value) | VALUES for name, value in ENTRY.items()}))
def test_the_same_of_requests(entry: dict[str, t.Any]) -> None:
    validator = request_validator([])
    if surely_valid(without_nulls(entry), validator.schema):
        assert not list(validator._whole.iter_errors(without_nulls(entry)))


@pytest.mark.parametrize("leave", [None, *ENTRY])
def test_requests_as_people_write_them_need_no_jsonschema(leave: str | None) -> None:
    entry = {name: value for name, value in copy.deepcopy(ENTRY).items() if name != leave or name == "name"}
    validator = Validator(request_validator([]).schema)
    assert entry_errors(validator, entry, "instances[0]") == []
    assert "_whole" not in vars(validator)


@pytest.mark.parametrize(
    "bad", [{"name": ""}, {"flavour": "small"}, {"max_count": 0}, {"networks": "zzz"}, {"tags": [1]}]
)
def test_errors_are_jsonschemas(bad: dict[str, t.Any]) -> None:
    validator = Validator(request_validator([]).schema)
    assert entry_errors(validator, {**ENTRY, **bad}, "instances[0]")
    assert "_whole" in vars(validator)
