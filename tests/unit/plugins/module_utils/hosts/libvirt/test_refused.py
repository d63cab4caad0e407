# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definition of a guest that libvirt refused is there for whoever looks for the cause."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InstanceExists, LibvirtError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domain_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import DomainSpec


def spec(number: int = 0) -> DomainSpec:
    uuid = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b%04x" % number
    graphics = "<graphics type='vnc' passwd='swordfish'/>"
    return DomainSpec(uuid, "web", "<domain><name>web</name><devices>%s</devices></domain>" % graphics)


def refuse(folder: pathlib.Path, number: int = 0, remedy: str = "") -> tuple[str, LibvirtError]:
    with pytest.raises(LibvirtError) as caught, domain_batch.refused_kept(str(folder), spec(number)):
        raise LibvirtError(reason="unsupported configuration", remedy=remedy)
    return str(folder / "_refused" / (spec(number).uuid + ".xml")), caught.value


def test_the_error_says_where_the_definition_is(tmp_path: pathlib.Path) -> None:
    path, error = refuse(tmp_path, remedy="See the log.")
    assert error.as_dict()["remedy"].startswith("See the log. The definition of the guest is in %s on " % path)
    text = pathlib.Path(path).read_text()
    assert "<name>web</name>" in text and "swordfish" not in text
    assert [stat.S_IMODE(os.stat(name).st_mode) for name in (path, os.path.dirname(path))] == [0o600, 0o700]
    assert refuse(tmp_path)[1].remedy.startswith("The definition")


def test_the_newest_are_kept(tmp_path: pathlib.Path) -> None:
    paths = [refuse(tmp_path, number)[0] for number in range(domain_batch.MOST_REFUSED)]
    for age, path in enumerate(reversed(paths)):
        os.utime(path, (1e9 - age, 1e9 - age))
    newest, _error = refuse(tmp_path, domain_batch.MOST_REFUSED)
    assert sorted(os.listdir(tmp_path / "_refused")) == sorted(os.path.basename(p) for p in (*paths[1:], newest))


def test_other_errors_keep_nothing_and_a_folder_that_cannot_be_written_hides_no_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InstanceExists), domain_batch.refused_kept(str(tmp_path), spec()):
        raise InstanceExists(name="web", reason="another one")
    assert os.listdir(tmp_path) == []
    (tmp_path / "_refused").write_text("")
    assert refuse(tmp_path, remedy="See the log.")[1].remedy == "See the log."
