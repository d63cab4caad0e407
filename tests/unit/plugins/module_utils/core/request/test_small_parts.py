# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.formats import (
    printable,
    to_boolean,
    to_integer,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.identifiers import (
    PASSWORD_SYMBOLS,
    generate_password,
    reservation_id,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.fragment_files import load_fragments
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.hostname import (
    instance_hostname,
    sanitize_hostname,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.schema import create_schema

HOSTNAME = create_schema(load_fragments())["properties"]["hostname"]


@pytest.mark.parametrize(
    "name, hostname",
    [
        ("web", "web"),
        ("My Server_1", "my-server-1"),
        ("a.b.example.com", "a-b-example-com"),
        ("<script>&/..", "script"),
        ("../../etc/passwd", "etcpasswd"),
        ("-.x.-", "x"),
        ("日本web", "web"),
        ("M\u00fcller-db", "mller-db"),
        ("\u00c4", "Server-UUID"),
        ("a\u00b2", "a"),
        ("日本", "Server-UUID"),
        ("...", "Server-UUID"),
        ("a" * 80, "a" * 63),
        ("a" * 62 + "_b", "a" * 62),
    ],
)
def test_sanitize_hostname(name, hostname):
    assert sanitize_hostname(name, "UUID") == hostname


def test_sanitize_hostname_without_uuid():
    assert sanitize_hostname("日本") == ""


@given(st.text())
def test_a_hostname_is_never_a_path_nor_two_lines(name):
    hostname = sanitize_hostname(name, "u")
    assert 0 < len(hostname) <= 63
    assert not set(hostname) & set("/\\ \n\t<>&.:")
    assert hostname.isascii()
    assert hostname.strip("-") == hostname
    assert re.match(HOSTNAME["pattern"], hostname), "it can be requested"
    assert HOSTNAME["minLength"] <= len(hostname) <= HOSTNAME["maxLength"]


@given(st.integers(55, 80), st.sampled_from("a-_b"), st.integers(2, 2000))
def test_guests_of_one_request_have_hostnames_of_their_own(length, last, count):
    """Names of 62 characters and more keep their number."""
    name = "a" * (length - 1) + last
    hostnames = [instance_hostname(name, "%s-%d" % (name, number), "u") for number in (1, 2, count + 1)]
    assert len(set(hostnames)) == 3
    assert all(len(hostname) <= 63 and "--" not in hostname for hostname in hostnames)
    assert hostnames[0].endswith("-1") and instance_hostname(name, name, "u") == sanitize_hostname(name)


def test_instance_hostname():
    assert instance_hostname("web", "web-2", "u") == "web-2"
    assert instance_hostname("web-", "web--2", "u") == "web-2"
    assert instance_hostname("web", "web", "u") == "web"
    assert instance_hostname("日本", "日本-2", "u") == "Server-u"
    assert instance_hostname("web", "web", "u", "db.example.com") == "db.example.com"


def test_identifiers():
    rng = random.Random(1)
    ids = {reservation_id(rng) for _each in range(100)}
    assert len(ids) == 100
    assert all(
        len(i) == 10 and i.startswith("r-") and not set(i[2:]) - set(string.digits + string.ascii_lowercase)
        for i in ids
    )
    passwords = {generate_password(rng) for _each in range(100)}
    assert len(passwords) == 100
    for password in passwords:
        assert len(password) == 12
        assert all(set(group) & set(password) for group in PASSWORD_SYMBOLS)
        assert not set(password) & set("0O1Il")
    assert len(generate_password(rng, 2)) == 2


@pytest.mark.parametrize(
    "char, expected",
    [("a", True), (" ", True), ("\u00a0", True), ("\u2028", False), ("\x00", False), ("\u200b", False), ("😀", False)],
)
def test_printable(char, expected):
    assert printable(char) is expected


@pytest.mark.parametrize(
    "word, value", [(True, True), ("Yes", True), ("1", True), ("off", False), (False, False), ("NO", False)]
)
def test_to_boolean(word, value):
    assert to_boolean(word) is value


@pytest.mark.parametrize("word", ["", "maybe", 1, None])
def test_to_boolean_refuses(word):
    with pytest.raises(ValueError):
        to_boolean(word)


@pytest.mark.parametrize("word", [True, "1.0", "", " 1", "1\n", "٣", 1.5, None])
def test_to_integer_refuses(word):
    with pytest.raises(ValueError):
        to_integer(word)
