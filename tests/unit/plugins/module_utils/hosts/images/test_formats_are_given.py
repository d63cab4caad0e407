# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""qemu-img is always told the checked format of an image: its own guess is what a guest may have written."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import ImageUnacceptable
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy

from ...core.disks.test_image_checks import vmdk

PLUGINS = pathlib.Path(images.__file__).parents[3]
#: what reads an image, and so would guess its format; ``create`` writes a new one
READERS = (
    "convert",
    "info",
    "map",
    "compare",
    "resize",
    "rebase",
    "check",
    "measure",
    "commit",
    "amend",
    "dd",
    "snapshot",
)


@pytest.fixture(name="calls")
def calls_fixture(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[], list[list[str]]]:
    """The arguments of each call of a qemu-img that does nothing."""
    log = tmp_path / "calls"
    program = tmp_path / "bin" / "qemu-img"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%%s\\n" "$*" >> %s\necho "{}"\n' % log)
    program.chmod(0o755)
    for module in (images, volumes, copy):
        monkeypatch.setattr(module, "program", lambda _name, _package: str(program))
    return lambda: [line.split() for line in log.read_text().splitlines()]


def test_the_format_of_the_source_is_the_checked_one(
    tmp_path: pathlib.Path, calls: t.Callable[[], list[list[str]]]
) -> None:
    target = tmp_path / "target"
    target.touch()
    source = str(tmp_path / "source")
    for driver in ("raw", "qcow2", "vmdk"):
        images.convert(source, driver, str(target))
        copy.convert(source, driver, str(target))
    volumes.write_image(source, str(target))
    given = [words[words.index("-f") + 1] for words in calls()]
    assert given == ["raw", "raw", "qcow2", "qcow2", "vmdk", "vmdk", "raw"]
    assert all(words[0] == "convert" and words.index("-f") < words.index(source) for words in calls())


def test_no_call_lets_qemu_img_guess() -> None:
    found = []
    for path in sorted(PLUGINS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.List) or len(node.elts) < 2:
                continue
            program, verb = node.elts[:2]
            if "qemu" not in ast.unparse(program) or not isinstance(verb, ast.Constant) or verb.value not in READERS:
                continue
            options = {e.value for e in node.elts if isinstance(e, ast.Constant)}
            found.append(verb.value)
            assert options & {"-f", "--image-opts"}, "%s:%d" % (path, node.lineno)
    assert sorted(set(found)) == ["check", "compare", "convert", "info", "map", "resize"] and len(found) >= 6


def test_a_type_of_vmdk_that_is_not_allowed_is_not_converted(
    tmp_path: pathlib.Path, calls: t.Callable[[], list[list[str]]]
) -> None:
    """bootflow_vmdk_allowed_types reaches the check of the file that was fetched, before qemu-img opens it."""
    path = tmp_path / "image.vmdk"
    path.write_bytes(vmdk("monolithicSparse"))
    options = {name: option.get("default") for name, option in images.FETCH_ARGUMENTS.items()}
    limits = images.fetch_limits({**options, "vmdk_allowed_types": ["streamOptimized"]})
    source = images.ImageSource("i", "vmdk", path=str(path), allow_unverified=True, limits=limits)
    with pytest.raises(ImageUnacceptable, match="create-type specified: monolithicSparse"):
        images.ensure_image(source, str(tmp_path / "instances"))
    assert not (tmp_path / "calls").exists()
    with pytest.raises(ImageUnacceptable, match="parsing failed"):  # of a qemu-img that says nothing
        images.ensure_image(
            dataclasses.replace(source, limits=images.fetch_limits(options)), str(tmp_path / "instances")
        )
    assert [words[0] for words in calls()] == ["info"]
