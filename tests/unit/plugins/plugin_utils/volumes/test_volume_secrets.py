# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import uuid

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.names import chap_of as checked
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import volume_secrets
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.volume_secrets import chap_of


def test_each_attachment_has_credentials_of_its_own_that_a_target_takes():
    ids = [str(uuid.uuid4()) for _index in range(25)]
    found = [chap_of(i, name) for i in ids for name in ("iqn.a", "iqn.b")]
    assert len({c.secret for c in found}) == len({c.user for c in found}) == 50
    for each in found:
        assert (len(each.user), len(each.secret)) == (20, 16)
        assert checked(each.user, each.secret, ids[0]) == each
        assert each.secret not in repr(each)


def test_they_are_the_same_in_every_worker_and_others_in_another_run(monkeypatch):
    one = str(uuid.uuid4())
    before = chap_of(one, "iqn.a")
    assert chap_of(one, "iqn.a") == before
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(dataclasses.astuple(chap_of(one, "iqn.a"))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100).decode() == repr(dataclasses.astuple(before))
    os.close(reader)
    os.close(writer)
    monkeypatch.setattr(volume_secrets, "RUN_SECRET", b"another run")
    assert chap_of(one, "iqn.a") != before
