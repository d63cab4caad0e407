# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of a request that the ledger does not keep, found again by the names of instances."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import InjectedFile
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import Names
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import (
    GuestSecrets,
    SecretsOfRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests

HELLO = base64.b64encode(b"hello").decode("ascii")


def test_user_data_files_and_password():
    entry = {
        "name": "web",
        "user_data": "#cloud-config\n",
        "injected_files": [{"path": "/etc/motd", "contents": HELLO}],
        "admin_password": "secret",
    }
    found = SecretsOfRequest([{"name": "other"}, entry], "default").guest_secrets("default", "web")
    assert found == GuestSecrets("#cloud-config\n", (InjectedFile("/etc/motd", HELLO),), "secret")


def test_empty_fields_are_left_out():
    entry = {"name": "web", "user_data": None, "injected_files": None, "admin_password": "", "user_data_base64": HELLO}
    assert SecretsOfRequest([entry], "default").guest_secrets("default", "web") == GuestSecrets(user_data="hello")


@pytest.mark.parametrize("entries", [None, "text", {}, [None, 3], [{"name": "web", "project": "other"}]])
def test_an_instance_whose_entry_is_gone(entries):
    assert SecretsOfRequest(entries, "default").guest_secrets("default", "web") is None


def test_only_the_entries_that_are_asked_for_are_read():
    entries = [{"name": "bad", "user_data_base64": "%"}, {"name": "good", "user_data": "x"}]
    secrets = SecretsOfRequest(entries, "default")
    assert secrets.guest_secrets("default", "good") == GuestSecrets("x")
    with pytest.raises(errors.InvalidRequest) as raised:
        secrets.guest_secrets("default", "bad")
    assert [e["path"] for e in raised.value.errors] == ["instances[0].user_data_base64"]


counts = st.one_of(
    st.just({}),
    st.builds(lambda n: {"count": n}, st.integers(1, 12)),
    st.builds(lambda n, text: {"min_count": 1, "max_count": str(n) if text else n}, st.integers(1, 12), st.booleans()),
    st.builds(lambda n: {"min_count": n}, st.integers(1, 12)),
)
entry_strategy = st.builds(
    lambda name, project, count: {"name": name, **project, **count},
    st.sampled_from(["a", "b", "a-1", "a-02", "b-3-1", "7"]),
    st.sampled_from([{}, {"project": "p"}, {"project": "default"}]),
    counts,
)


@given(st.lists(entry_strategy, max_size=5))
def test_instances_have_the_secrets_of_the_entry_that_named_them(catalogue, entries):
    entries = [{**e, "flavor": "small", "image": "tiny", "admin_password": str(i)} for i, e in enumerate(entries)]
    try:
        requests = parse_requests(entries, catalogue)
    except errors.InvalidRequest:
        return  # two entries would have the same name
    secrets = SecretsOfRequest(entries, "default")
    for request in requests:
        for name in Names.expand([request]).by_request[0]:
            found = secrets.guest_secrets(request.project, name)
            assert found is not None and found.admin_password == request.admin_password
        outside = "%s-%d" % (request.name, request.max_count + 1)
        named = {(project, n) for project, names in Names.expand(requests).by_project().items() for n in names}
        assert (secrets.guest_secrets(request.project, outside) is not None) == ((request.project, outside) in named)
