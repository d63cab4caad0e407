# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a file of the controller gets to a host: a small one in the SSH session that makes its folder. The "host" is a shell here."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import time
import types
import typing as t

import pytest
from ansible.plugins.loader import shell_loader

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import remove_uploads
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import image_upload

LIMITS = types.SimpleNamespace(copy_timeout=60, clear_timeout=300)  # seconds


class Host:
    """An action whose host has ``home`` as the home of its user."""

    task_vars: t.ClassVar = {"inventory_hostname": "c1"}

    def __init__(
        self, home: pathlib.Path, remote_tmp: str = "~/.ansible/tmp", transport: str = "ssh", unprivileged: bool = False
    ):
        shell = shell_loader.get("sh")
        shell.set_options(var_options={}, direct={"remote_tmp": remote_tmp})
        self.home, self.unprivileged = home, unprivileged
        self._connection = types.SimpleNamespace(_shell=shell, transport=transport)
        self._display = types.SimpleNamespace(display=lambda *_args, **_named: None)
        self.sessions: list[str] = []

    def within(self, _seconds: float, _what: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _is_become_unprivileged(self) -> bool:
        return self.unprivileged

    def _low_level_execute_command(
        self, command: str, sudoable: bool = True, in_data: bytes | None = None
    ) -> dict[str, t.Any]:
        self.sessions.append("command")
        assert not sudoable  # the folder belongs to the user that files are sent as
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False, env=environment)
        return {"rc": done.returncode, "stdout": "Welcome!\n" + done.stdout.decode(), "stderr": done.stderr.decode()}

    def _make_tmp_path(self) -> str:
        self.sessions.append("folder")
        (self.home / "made").mkdir()
        self._connection._shell.tmpdir = str(self.home / "made")
        return str(self.home / "made")

    def _transfer_file(self, source: str, target: str) -> None:
        self.sessions.append("copy")
        pathlib.Path(target).write_bytes(pathlib.Path(source).read_bytes())

    def _remove_tmp_path(self, path: str, force: bool = False) -> None:
        self.sessions.append("remove")
        self._connection._shell.tmpdir = None


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_upload.host_settings, "values", lambda *_args: LIMITS)
    monkeypatch.setattr(image_upload.tables, "say", lambda *_args: None)


def image(path: pathlib.Path, content: bytes = b"\x00image\xff\n") -> Image:
    path.write_bytes(content)
    return Image(name="tiny", id="i-1", disk_format="raw", path=str(path))


@pytest.mark.parametrize("remote_tmp", ["~/.ansible/tmp", "$HOME/a", "{home}/deep/er"])
def test_a_small_file_takes_one_session(tmp_path: pathlib.Path, remote_tmp: str) -> None:
    its = image(tmp_path / "tiny.raw")
    host = Host(tmp_path, remote_tmp.format(home=tmp_path))
    with image_upload.uploaded(host, [its]) as (uploads, refused):  # type: ignore[arg-type]
        assert host.sessions == ["command"] and not refused
        there = pathlib.Path(uploads["i-1"])
        assert there.read_bytes() == b"\x00image\xff\n" and there.name == "image-i-1"
        assert there.parent.name.startswith("ansible-tmp-") and str(there.parent) == host._connection._shell.tmpdir
        assert there.parent.stat().st_mode & 0o777 == 0o700
    assert host.sessions == ["command", "remove"]


def test_a_module_that_took_them_away_saves_a_session(tmp_path: pathlib.Path) -> None:
    host = Host(tmp_path)
    with image_upload.uploaded(host, [image(tmp_path / "tiny.raw")]) as (uploads, _refused):  # type: ignore[arg-type]
        assert remove_uploads(uploads.values())
        image_upload.forget_uploads(host)  # type: ignore[arg-type]
    assert host.sessions == ["command"]


@pytest.mark.parametrize(
    "named",
    [{"transport": "paramiko"}, {"unprivileged": True}, {"large": True}, {"content": b""}],
    ids=lambda named: next(iter(named)),
)
def test_what_is_not_sent_in_one_session(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, t.Any]
) -> None:
    if named.pop("large", False):
        monkeypatch.setattr(image_upload, "PIPED", 3)
    its = image(tmp_path / "tiny.raw", named.pop("content", b"four"))
    host = Host(tmp_path, **named)
    assert pathlib.Path(image_upload.upload(host, its)).read_bytes() == pathlib.Path(its.path).read_bytes()  # type: ignore[arg-type]
    assert host.sessions == ["command", "folder", "copy"]


@pytest.mark.parametrize("unprivileged", [False, True])
@pytest.mark.parametrize("remote_tmp", ["~/.ansible/tmp", "{home}/a b"])
def test_what_killed_runs_copied_is_removed(tmp_path: pathlib.Path, unprivileged: bool, remote_tmp: str) -> None:
    """And nothing that a run may still use: one minute to copy it, one for the module that reads it, and five for work on volumes."""
    place = pathlib.Path(remote_tmp.format(home=tmp_path).replace("~", str(tmp_path)))
    files = {
        "ansible-tmp-1/image-dead": 9,
        "ansible-tmp-1/AnsiballZ_ping.py": 9,
        "ansible-tmp-2/image-young": 6,
        "ansible-tmp-3/other-dead": 9,
        "ansible-tmp-3/deep/image-dead": 9,
        "mine/image-dead": 9,
    }
    for name, minutes in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - 60 * minutes,) * 2)
    (place / "ansible-tmp-4").symlink_to("mine")
    host = Host(tmp_path, remote_tmp.format(home=tmp_path), unprivileged=unprivileged)
    copied = image_upload.upload(host, image(tmp_path / "tiny.raw"))  # type: ignore[arg-type]
    left = {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file() and str(p) != copied}
    assert left == set(files) - {"ansible-tmp-1/image-dead"}


def test_the_second_file_goes_into_the_same_folder(tmp_path: pathlib.Path) -> None:
    host = Host(tmp_path)
    first = image_upload.upload(host, image(tmp_path / "a"))  # type: ignore[arg-type]
    second = image_upload.upload(host, Image(name="b", id="i-2", disk_format="raw", path=str(tmp_path / "a")))  # type: ignore[arg-type]
    assert os.path.dirname(first) == os.path.dirname(second) and os.path.isfile(second)


def test_the_id_of_an_image_is_a_name_for_the_shell(tmp_path: pathlib.Path) -> None:
    its = Image(
        name="t", id="$(touch {0}/odd); 'x' \"".format(tmp_path), disk_format="raw", path=image(tmp_path / "a").path
    )
    with pytest.raises(errors.ImageDownloadFailed):  # for the slash of the path
        image_upload.upload(Host(tmp_path), its)  # type: ignore[arg-type]
    assert not (tmp_path / "odd").exists()
    its = Image(name="t", id="$(exit 3); 'x' \"", disk_format="raw", path=its.path)
    assert os.path.basename(image_upload.upload(Host(tmp_path), its)) == "image-" + its.id  # type: ignore[arg-type]


def test_a_host_without_room_refuses(tmp_path: pathlib.Path) -> None:
    """Its own words; and what was made there goes with the task."""
    its = image(tmp_path / "tiny.raw")
    host = Host(tmp_path, "/dev/null")
    with pytest.raises(errors.ImageDownloadFailed, match="/dev/null"):
        image_upload.upload(host, its)  # type: ignore[arg-type]
    assert not host._connection._shell.tmpdir
    host = Host(tmp_path)
    name = "image-%s" % ("x" * 300)
    with pytest.raises(errors.ImageDownloadFailed, match="too long"):
        image_upload.upload(host, Image(name="t", id=name, disk_format="raw", path=its.path))  # type: ignore[arg-type]
    assert os.path.isdir(host._connection._shell.tmpdir)


def test_a_folder_with_something_else_stays(tmp_path: pathlib.Path) -> None:
    """Where modules are not sent by pipelining, Ansible's own file is there, and Ansible removes it."""
    for name in ("image", "AnsiballZ.py"):
        (tmp_path / name).touch()
    assert not remove_uploads([str(tmp_path / "image"), str(tmp_path / "gone")])
    assert os.listdir(tmp_path) == ["AnsiballZ.py"]
    (tmp_path / "AnsiballZ.py").unlink()
    assert remove_uploads([str(tmp_path / "image")]) and not tmp_path.exists()
    tmp_path.mkdir()


def test_room_for_a_large_image_is_asked_before_it_is_copied(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_upload, "PIPED", 4)
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    df = tmp_path / "bin" / "df"
    df.write_text(
        "#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\necho /dev/x 9 9 ${FREE:-0} 99% /\n"
    )
    df.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    host = Host(tmp_path / "home")
    with pytest.raises(errors.DiskFull, match="needs 0 MiB there on its way, and 0 MiB are free"):
        image_upload.upload(host, image(tmp_path / "image"))  # type: ignore[arg-type]
    assert host.sessions == ["command"] and list((tmp_path / "home").iterdir()) == []
    df.write_text("#!/bin/sh\nexit 1\n")
    image_upload.upload(host, image(tmp_path / "image"))  # type: ignore[arg-type]
    assert host.sessions == ["command", "command", "folder", "copy"]
