# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages in which an image comes to several hosts: real processes, each host a folder of this machine, reached by a local shell."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.image_urls import url_on_host
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.pieces import PIECE
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_images
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_images import image_data
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import server
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks, program
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import offers, relay
from ansible_collections.bootflow.compute.plugins.modules import image_relay
from ansible_collections.bootflow.compute.plugins.plugin_utils.relay import (
    boot_images,
    file_pieces,
    large_images,
    precache,
    rounds,
    sending,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.relay.round_files import RoundFiles, Wanted, plan_of
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import time_limits
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import image_upload

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
HOSTS = ("h1", "h2", "h3")


class Fleet:
    """Hosts, and the controller with one image."""

    def __init__(self, folder: Path, **more: t.Any):
        self.folder = folder
        self.data = random.Random(3).randbytes(5 * PIECE + 17)
        self.path = folder / "debian.raw"
        self.path.write_bytes(self.data)
        checksum = hashlib.sha256(self.data).hexdigest()
        self.catalogue = [
            {
                "name": "debian",
                "id": "image",
                "path": str(self.path),
                "disk_format": "raw",
                "checksum": checksum,
                **more,
            }
        ]
        for name in HOSTS:
            (folder / name).mkdir()
        self.variables: dict[str, dict[str, t.Any]] = {
            name: {
                "bootflow_instances_path": str(folder / name),
                "bootflow_copy_address": "127.0.0.1",
                "bootflow_copy_ports": "49700-49890",
                "ansible_connection": "local",
            }
            for name in (*HOSTS, "localhost")
        }
        self.warnings: list[str] = []
        self.lines: list[str] = []
        self.modules: list[tuple[str, str]] = []

    def action(self, host: str, **options: t.Any) -> t.Any:
        """An action whose current host is ``host``."""
        display = types.SimpleNamespace(
            warning=self.warnings.append, display=lambda text, **_o: self.lines.append(text)
        )
        found = types.SimpleNamespace(
            task_vars={
                "inventory_hostname": host,
                "hostvars": self.variables,
                "groups": {"all": list(self.variables)},
                **self.variables[host],
            },
            options=options,
            check_mode=False,
            _display=display,
            _connection=types.SimpleNamespace(transport="ssh"),
            ports=types.SimpleNamespace(folder=lambda: self.folder / "run"),
            variable=lambda name, default=None: {"bootflow_images": self.catalogue, **self.variables[host]}.get(
                name, default
            ),
        )
        found.open_ledger = lambda: types.SimpleNamespace(inspect=lambda *_arguments: [])
        found.run_module = lambda name, arguments: self.run_module(host, name, arguments)
        return found

    def run_module(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.modules.append((host, arguments["state"]))
        read = program.read_arguments(image_relay.argument_spec(), arguments, set(), {})
        one = image_relay.work(read)
        outcomes = {i["id"]: image_relay.attempt(one, i) for i in read["images"]}
        result = {"changed": True, "outcomes": outcomes}
        answer.check(name, host, result)
        return result

    def begin(self, hosts: t.Sequence[str] = HOSTS, image: dict[str, t.Any] | None = None) -> list[str]:
        """:arg image: as the ledger has it; by default the catalogue's"""
        image = image or image_data(parse_images(self.catalogue)["debian"])
        build = types.SimpleNamespace(
            row=types.SimpleNamespace(spec={"image": image}), disks=[{"kind": "image"}], facts={"host_ip": "192.0.2.1"}
        )
        return boot_images.begin(self.action("localhost"), {name: [build] for name in hosts}, self.catalogue)  # type: ignore[list-item,misc]

    def run(self, hosts: t.Sequence[str] = HOSTS) -> None:
        """All stages but the last."""
        for phase in ("offer", "serve", "connect", "send"):
            for name in hosts:
                rounds.ImageRound(self.action(name, phase=phase)).run()

    def collect(self, host: str) -> dict[str, errors.BootflowError]:
        return boot_images.collect(self.action(host))

    def content(self, host: str) -> bytes:
        (path,) = (self.folder / host / "_base").glob("*.raw")
        return path.read_bytes()

    def source(self, host: str) -> str:
        return str(RoundFiles(self.action(host)).outcomes_of(host)["image"]["source"])

    def end(self) -> None:
        files = RoundFiles(self.action("localhost"))
        for name, of_host in files.all_offers().items():
            for offer in of_host.values():
                if offer["port"]:
                    place = server.Place("127.0.0.1", offer["port"], offer["fingerprint"])
                    server.stop(place, rounds._token("end on %s" % name))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Fleet]:
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(large_images, "SMALL", PIECE)
    monkeypatch.setattr(rounds, "lease_kept", lambda _action: contextlib.nullcontext())
    monkeypatch.setattr(file_pieces.constants.config, "get_config_value", lambda _name: str(tmp_path / "home"))
    (tmp_path / "run").mkdir()
    made = Fleet(tmp_path)
    yield made
    made.end()


def test_the_controller_sends_an_image_to_one_host_and_the_others_get_it_there(fleet: Fleet) -> None:
    assert fleet.begin() == list(HOSTS)
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert {fleet.content(name) for name in HOSTS} == {fleet.data}
    assert [fleet.source(name) for name in HOSTS] == ["the controller", "h1", "h2"]
    assert fleet.lines == ["h1: copying image debian (2 MiB), which gives it to 2 others"]
    assert fleet.warnings == [] and fleet.collect("h1") == {}  # nobody waits twice


def test_a_host_that_has_it_gives_it_and_the_controller_sends_nothing(fleet: Fleet) -> None:
    fleet.begin(["h2"])
    fleet.run(["h2"])
    fleet.collect("h2")
    fleet.end()
    fleet.lines.clear()
    assert fleet.begin() == list(HOSTS)
    fleet.run()
    for name in HOSTS:
        fleet.collect(name)
    assert fleet.lines == [] and fleet.warnings == []
    assert {fleet.content(name) for name in HOSTS} == {fleet.data}
    assert [fleet.source(name) for name in ("h1", "h3")] == ["h2", "h1"]


def test_hosts_that_all_have_it_do_nothing_more(fleet: Fleet) -> None:
    fleet.begin(["h1"])
    fleet.run(["h1"])
    fleet.collect("h1")
    fleet.end()
    fleet.modules.clear()
    fleet.begin(["h1"])
    fleet.run(["h1"])
    assert fleet.modules == [("h1", "offered")] and fleet.collect("h1") == {}


def test_no_host_lacks_an_image_that_all_have(fleet: Fleet) -> None:
    lacking = large_images.lacking_file(fleet.action("localhost"))
    fleet.begin(["h1"])
    fleet.run(["h1"])
    assert lacking.exists()
    fleet.collect("h1")
    fleet.end()
    fleet.begin(["h1"])
    assert not lacking.exists()
    rounds.ImageRound(fleet.action("h1", phase="offer")).run()
    assert not lacking.exists() and fleet.collect("h1") == {}


def test_images_of_the_ledger_come_as_those_of_the_inventory(fleet: Fleet) -> None:
    image = image_data(parse_images(fleet.catalogue)["debian"])
    fleet.catalogue.clear()
    assert fleet.begin(image=image) == list(HOSTS)
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert {fleet.content(name) for name in HOSTS} == {fleet.data}
    assert [fleet.source(name) for name in HOSTS] == ["the controller", "h1", "h2"]


def test_one_host_reads_a_file_that_hosts_share(fleet: Fleet) -> None:
    action = fleet.action("localhost")
    image = parse_images(
        [{**{n: v for n, v in fleet.catalogue[0].items() if n != "path"}, "url": "file://%s" % fleet.path}]
    )["debian"]
    RoundFiles(action).begin([Wanted(host, "127.0.0.1", "", ["image"]) for host in HOSTS], [image])
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert fleet.warnings == [] and {fleet.content(name) for name in HOSTS} == {fleet.data}
    assert [fleet.source(name) for name in HOSTS] == ["file://%s" % fleet.path, "h1", "h2"]


def test_a_password_of_a_web_server_is_read_from_the_catalogue(fleet: Fleet) -> None:
    fleet.catalogue[0].pop("path")
    fleet.catalogue[0].update(url="https://images.example/x", url_username="reader", url_password="for nobody else")
    assert fleet.begin() == list(HOSTS)
    files = RoundFiles(fleet.action("h1"))
    assert all("for nobody else" not in path.read_text() for path in files.folder.iterdir())
    (image,) = rounds.images_of(fleet.action("h1"), files, ["image"])
    assert image.access.url_password == "for nobody else" and image.url == "https://images.example/x"
    fleet.catalogue.clear()  # as the ledger has it, where the catalogue has it no more
    (image,) = rounds.images_of(fleet.action("h1"), files, ["image"])
    assert image.access.url_password == "" and image.url == "https://images.example/x"


def test_the_task_of_the_first_host_of_an_order_sends_the_image(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        sending, "send", lambda words, path, _pieces, **_more: sent.append("%s to %s" % (path, words)) or ""
    )
    monkeypatch.setattr(sending, "program", lambda host, *_arguments: host)
    action = fleet.action("localhost")
    images = [Image(name, name, "raw", path=str(fleet.path)) for name in ("one", "two")]
    wanted = {"h1": ["one"], "h2": ["one", "two"], "h3": ["two"]}
    RoundFiles(action).begin([Wanted(host, "127.0.0.1", "", ids) for host, ids in wanted.items()], images)
    for phase, after in (("offer", []), ("serve", []), ("connect", [])):
        for name in HOSTS:
            rounds.ImageRound(fleet.action(name, phase=phase)).run()
            assert sent == after
    assert rounds.ImageRound(fleet.action("h3", phase="send")).run() == {"changed": False} and sent == []
    for name in ("h1", "h2"):
        assert rounds.ImageRound(fleet.action(name, phase="send")).run() == {"changed": True}
    assert sent == ["%s to %s" % (fleet.path, name) for name in ("h1", "h2")]


def test_a_file_that_is_not_the_catalogues_never_leaves_the_controller(fleet: Fleet) -> None:
    fleet.catalogue[0]["checksum"] = "0" * 64
    fleet.begin()
    fleet.run()
    for name in HOSTS:
        assert isinstance(fleet.collect(name)["image"], errors.ImageChecksumMismatch)
        assert os.listdir(fleet.folder / name / "_base") == ["image.part"]
        assert (fleet.folder / name / "_base" / "image.part").stat().st_size == 0
    assert fleet.lines == []


def test_a_host_that_cannot_be_sent_anything_gets_the_image_by_itself(fleet: Fleet) -> None:
    for name in HOSTS:
        fleet.variables[name]["ansible_connection"] = "community.docker.docker"
    fleet.begin()
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]  # the build gets it
    assert len(fleet.warnings) == 3 and all("need the connection ssh" in w for w in fleet.warnings)


def test_the_next_host_is_sent_the_rest_where_the_first_one_takes_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SILENCE", 0.5)
    monkeypatch.setattr(relay, "SILENCE", 1.0)
    monkeypatch.setattr(relay, "ADRIFT", 2.0)
    right = sending.program

    def program_of(host: str, *arguments: t.Any) -> list[str]:
        return ["/bin/sh", "-c", "echo '{\"bytes\": 0}'; exec sleep 60"] if host == "h1" else right(host, *arguments)

    monkeypatch.setattr(sending, "program", program_of)
    fleet.data = random.Random(4).randbytes(20 * PIECE)  # more than a pipe takes
    fleet.path.write_bytes(fleet.data)
    fleet.catalogue[0]["checksum"] = hashlib.sha256(fleet.data).hexdigest()
    fleet.begin()
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert {fleet.content(name) for name in HOSTS} == {fleet.data}
    assert fleet.warnings == ["h1: image debian is sent to the next host: it took nothing for 0 s"]
    assert [fleet.source(name) for name in HOSTS] == ["h3", "the controller", "h2"]


def test_a_host_without_room_says_so_and_the_others_get_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    right = os.statvfs

    def statvfs(path: t.Any) -> t.Any:
        found = right(path)
        small = {"f_bavail": 1, "f_frsize": 4096, "f_blocks": 100}
        return types.SimpleNamespace(**small) if "/h2/" in str(path) + "/" else found

    monkeypatch.setattr(os, "statvfs", statvfs)
    fleet.begin()
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert len(fleet.warnings) == 1 and "h2: image debian: " in fleet.warnings[0]
    assert os.listdir(fleet.folder / "h2" / "_base") == []
    assert [fleet.source(name) for name in ("h1", "h3")] == ["the controller", "h1"]


def test_a_host_that_says_nothing_of_an_image_that_was_to_come_gets_it_by_itself(fleet: Fleet) -> None:
    fleet.begin(["h1"])
    action = fleet.action("h1")
    RoundFiles(action).connected("h1", ["image"])
    action.run_module = lambda _name, _arguments: {"changed": False, "outcomes": {}}
    assert boot_images.collect(action) == {}
    (warning,) = fleet.warnings
    assert "h1: image debian did not come from other hosts: the module gave no answer" in warning


def test_small_images_and_lone_hosts_are_left_to_builds(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fleet.begin(["h1"]) == ["h1"]  # a file of the controller goes where it is to be, not to the home of a user
    fleet.catalogue[0].update(path=None, url="http://images.example/debian.raw")
    del fleet.catalogue[0]["path"]
    assert fleet.begin(["h1"]) == [] and fleet.begin() == list(HOSTS)
    fleet.catalogue[0]["size"] = 1000
    assert fleet.begin() == []
    fleet.catalogue[0]["size"] = 10 * PIECE
    fleet.variables["localhost"]["bootflow_image_relay"] = False
    assert fleet.begin() == [] and RoundFiles(fleet.action("localhost")).hosts() == {}


def test_a_file_that_changes_after_hosts_were_told_of_it_is_sent_to_nobody(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        sending, "send", lambda words, path, _pieces, **_more: sent.append(path) or "the connection ended"
    )
    fleet.begin()
    for phase in ("offer", "serve", "connect"):
        for name in HOSTS:
            rounds.ImageRound(fleet.action(name, phase=phase)).run()
    fleet.path.write_bytes(fleet.data + b"more")
    del fleet.catalogue[0]["checksum"]
    for name in HOSTS:
        rounds.ImageRound(fleet.action(name, phase="send")).run()
    assert sent == [] and fleet.lines == []


def test_a_copy_that_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 4.0, 10.0, 12.0, 20.0, 30.0])
    monkeypatch.setattr(sending.time, "monotonic", lambda: next(clock))
    lines: list[str] = []
    report = sending.reporter("h1: copying image debian", 100 << 20, lines.append)
    for mib in (10, 20, 21, 40, 100):
        report(mib << 20)
    assert lines == [
        "h1: copying image debian: 20 % after 10 s (left: 80 of 100 MiB)",
        "h1: copying image debian: 40 % after 20 s (left: 60 of 100 MiB, 2.0 MiB/s)",
        "h1: copying image debian: 100 % after 30 s (left: 0 of 100 MiB, 6.0 MiB/s)",
    ]


def test_a_file_that_is_removed_while_it_is_sent_fails_no_task(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "send", lambda _words, _path, _pieces, **_more: fleet.path.unlink() or "")
    fleet.begin()
    fleet.run()
    assert fleet.warnings == ["image debian: %s: No such file or directory" % fleet.path]


def test_a_file_that_is_cut_off_while_it_is_sent_is_told(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "send", lambda _words, _path, _pieces, **_more: fleet.path.write_bytes(b"x") and "")
    fleet.begin()
    fleet.run()
    assert fleet.warnings == ["image debian: %s changed while it was sent" % fleet.path]


def test_an_image_is_sent_to_the_next_host_where_no_program_leads_to_the_first(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.variables["h1"]["ansible_connection"] = "community.docker.docker"
    fleet.begin()
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert fleet.source("h2") == "the controller" and fleet.source("h3") == "h2"
    (warning,) = fleet.warnings
    assert warning.startswith("h1: image debian did not come from other hosts")


def test_a_task_of_a_host_reads_no_files_of_others(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand hosts would read a million files."""
    fleet.begin()
    reads: dict[str, list[str]] = {}
    right = RoundFiles._read
    now = [""]

    def read(path: Path) -> t.Any:
        reads.setdefault(now[0], []).append(path.name)
        return right(path)

    monkeypatch.setattr(RoundFiles, "_read", staticmethod(read))
    for phase in ("offer", "serve", "connect", "send"):
        for name in HOSTS:
            now[0] = "%s %s" % (phase, name)
            rounds.ImageRound(fleet.action(name, phase=phase)).run()
    all_of = {
        stage
        for stage, names in reads.items()
        if "hosts" in names or any(n.endswith("offers") and not n.startswith(stage[-2:]) for n in names)
    }
    assert all_of == {"serve h1", "connect h1", "send h1"}


def test_a_holder_that_is_wrong_does_not_fail_builds(fleet: Fleet) -> None:
    fleet.begin(["h2"])
    fleet.run(["h2"])
    fleet.collect("h2")
    fleet.end()
    (cached,) = (fleet.folder / "h2" / "_base").glob("*.raw")
    times = os.stat(cached)
    with cached.open("r+b") as file:
        file.write(b"rot")
    os.utime(cached, ns=(times.st_atime_ns, times.st_mtime_ns))
    fleet.begin()
    fleet.run()
    assert fleet.collect("h1") == {} and fleet.collect("h3") == {}  # each build gets it by itself
    assert all("sha256 is" in warning for warning in fleet.warnings) and len(fleet.warnings) == 2


# --- precache --------------------------------------------------------------------------------------------------------------


def test_an_image_without_bytes_goes_to_no_host(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = {"block_device_mapping": '[{"snapshot_id": "s"}]', "bdm_v2": "True"}
    mapped = StoredImage(
        "i", "mapped", "default", life.ACTIVE, size=0, checksum="a" * 64, properties=mapping, instance_uuid="u"
    )
    monkeypatch.setattr(precache.ledger_images, "images_of", lambda _action: LedgerImages([mapped]))
    begin = fleet.action("localhost", phase="begin", print_table=False, images=None, names=["mapped"])
    with pytest.raises(errors.ImageUnacceptable, match="has no bytes"):
        precache.Precache(begin).run()


def finished(fleet: Fleet) -> dict[str, t.Any]:
    return precache.Precache(fleet.action("localhost", phase="finish", print_table=False, images=None, names=[])).run()


def test_a_host_that_refuses_an_image_is_reported_with_its_reason(fleet: Fleet) -> None:
    fleet.begin()
    full = errors.DiskFull(host="h2", path="/x", reason="image debian needs 2 MiB")
    right = fleet.run_module

    def run_module(host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if host == "h2":
            return {"changed": False, "outcomes": {"image": {"changed": False, "error": full.as_dict()}}}
        return right(host, name, arguments)

    fleet.run_module = run_module  # type: ignore[method-assign]
    fleet.run()
    for name in HOSTS:
        fleet.collect(name)
    result = finished(fleet)
    assert [(i["host"], i["error"]["code"]) for i in result["failed_items"]] == [("h2", "DiskFull")]


def test_the_controller_as_a_host_reads_its_own_file(fleet: Fleet) -> None:
    fleet.begin()
    right = fleet.action

    def action(host: str, **options: t.Any) -> t.Any:
        found = right(host, **options)
        found._connection.transport = "local" if host == "h2" else "ssh"
        return found

    fleet.action = action  # type: ignore[method-assign]
    fleet.run()
    for name in HOSTS:
        fleet.collect(name)
    result = finished(fleet)
    assert "failed_items" not in result
    assert [i["result"] for i in result["images"]] == [
        "from the controller",
        "reads the file of the controller",
        "from h1",
    ]


# --- the file of the controller ------------------------------------------------------------------------------------------------


def test_a_file_is_read_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = time.time() - 100
    os.utime(fleet.path, (long_ago, long_ago))
    reads: list[str] = []
    right = file_pieces._read
    monkeypatch.setattr(file_pieces, "_read", lambda path: reads.append(path) or right(path))  # type: ignore[func-returns-value]
    first = file_pieces.of_file(str(fleet.path), fleet.folder / "run")
    again = file_pieces.of_file(str(fleet.path), fleet.folder / "run")
    assert len(reads) == 1 and first.pieces.root() == again.pieces.root() and first.sha256 == again.sha256
    fleet.path.write_bytes(b"another file")
    assert file_pieces.of_file(str(fleet.path), fleet.folder / "run").pieces.size == 12 and len(reads) == 2


def test_a_file_that_changes_while_it_is_read_has_no_pieces(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be kept as those of the file that it became."""
    right = file_pieces.read_pieces

    def read(*arguments: t.Any) -> t.Any:
        found = right(*arguments)
        fleet.path.write_bytes(fleet.data[:-1] + b"x")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(file_pieces, "read_pieces", read)
        with pytest.raises(OSError, match="changed while it was read"):
            file_pieces.of_file(str(fleet.path), fleet.folder / "run")
    known = file_pieces.of_file(str(fleet.path), fleet.folder / "run")
    assert known.sha256 == hashlib.sha256(fleet.path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("answered", "reached"),
    [
        (b'Welcome!\n{"bytes": 7}\n', 7),
        (b'{"bytes": -1}\n', None),
        (b"", None),
        (b"[1]\nnonsense}\n", None),
        (b'{"bytes": "x"}\n', None),
    ],
)
def test_what_a_host_has_is_read_from_what_it_says(answered: bytes, reached: int | None) -> None:
    process = subprocess.Popen([sys.executable, "-c", "print(end=%r)" % answered.decode()], stdout=subprocess.PIPE)
    with process:
        assert sending._reached(t.cast(t.IO[bytes], process.stdout)) == reached


def test_a_password_for_sudo_is_not_typed() -> None:
    with pytest.raises(errors.HostUnreachable, match="without a password"):
        sending.program("h", {"ansible_become": True, "ansible_become_password": "x"}, "/i", "image")
    words = sending.program("h", {"ansible_become": True, "ansible_connection": "local"}, "/in st", "image")
    assert words[2].startswith("sudo -n -- /bin/sh -c ")


def test_hosts_that_did_not_answer_take_no_part(fleet: Fleet) -> None:
    fleet.begin()
    files = RoundFiles(fleet.action("localhost"))
    files.offered("h1", {"image": {"state": "lacks", "port": 1, "bytes": 0, "fingerprint": ""}})
    files.offered("h2", {"image": {"state": "busy", "port": 0, "bytes": 0, "fingerprint": ""}})
    assert plan_of("image", files.hosts(), files.all_offers()).names == ("h1",)
    for name in HOSTS:
        files.offered(name, {})


@pytest.mark.parametrize(("state", "kind"), [("offered", 5.0), ("connected", 5.0), ("collected", 77.0)])
def test_who_waits_for_an_image_has_the_time_of_copies(state: str, kind: float) -> None:
    action = types.SimpleNamespace(
        task_vars={}, variable=lambda name, _d=None: {"bootflow_work_timeout": 5, "bootflow_copy_timeout": 77}.get(name)
    )
    assert time_limits.limit_of(action, "image_relay", {"state": state}) == kind


# --- images of the stores of hosts ----------------------------------------------------------------------------------------


@pytest.fixture
def stored(fleet: Fleet) -> dict[str, t.Any]:
    """An image of the ledger that only a store of h3 has."""
    folder = fleet.folder / "store"
    folder.mkdir()
    (folder / "one").write_bytes(fleet.data)
    fleet.catalogue = []
    return {
        "name": "web",
        "id": "one",
        "url": url_on_host("h3", str(folder / "one")),
        "disk_format": "raw",
        "checksum": "sha256:" + hashlib.sha256(fleet.data).hexdigest(),
        "size": len(fleet.data),
    }


def test_the_host_whose_store_has_an_image_gives_it_to_the_others(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    assert fleet.begin(["h1", "h2"], stored) == ["h1", "h2", "h3"]
    fleet.run()
    assert [fleet.collect(name) for name in HOSTS] == [{}, {}, {}]
    assert {fleet.content(name) for name in ("h1", "h2")} == {fleet.data}
    files = RoundFiles(fleet.action("h1"))
    assert [files.outcomes_of(name)["one"]["source"] for name in ("h1", "h2")] == ["h3", "h1"]
    assert not (fleet.folder / "h3" / "_base").exists() and fleet.warnings == [] and fleet.lines == []


def test_an_image_of_a_store_of_a_host_comes_whatever_its_size_and_the_setting(
    fleet: Fleet, stored: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_images, "SMALL", 10**12)
    for variables in fleet.variables.values():
        variables["bootflow_image_relay"] = False
    assert fleet.begin(["h2"], stored) == ["h2", "h3"]
    fleet.run()
    assert fleet.collect("h2") == {} and fleet.content("h2") == fleet.data
    assert fleet.begin(["h3"], stored) == [], "it reads the file there"


def test_a_host_reads_the_file_of_its_own_store_and_gives_it(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    assert fleet.begin(["h3", "h1"], stored) == ["h3", "h1"]
    fleet.run(["h3", "h1"])
    assert fleet.collect("h3") == fleet.collect("h1") == {} and fleet.content("h1") == fleet.data
    (image,) = rounds.images_of(fleet.action("h3"), RoundFiles(fleet.action("h3")), ["one"])
    assert image_upload.module_image(image, False, "h3")["url"] == "file://%s/store/one" % fleet.folder
    assert image_upload.module_image(image, False, "h1")["url"] == stored["url"]


def test_nothing_is_asked_of_the_store_where_no_host_lacks_the_image(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    fleet.begin(["h1"], stored)
    fleet.run()
    fleet.collect("h1")
    fleet.end()
    fleet.modules.clear()
    fleet.begin(["h1"], stored)
    fleet.run()
    assert fleet.modules == [("h1", "offered")] and not large_images.lacking_file(fleet.action("h1")).exists()


def test_who_has_it_gives_it_when_the_host_of_the_store_is_silent(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    fleet.begin(["h1"], stored)
    fleet.run()
    fleet.collect("h1")
    fleet.end()
    fleet.begin(["h1", "h2"], stored)
    fleet.run(["h1", "h2"])
    assert fleet.collect("h2") == {} and fleet.content("h2") == fleet.data


def test_a_store_that_is_silent_is_named_to_who_lacks_the_image(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    fleet.begin(["h1", "h2"], stored)
    fleet.run(["h1", "h2"])
    for name in ("h1", "h2"):
        (error,) = fleet.collect(name).values()
        assert isinstance(error, errors.ImageNotReadable) and "h3" in error.message and "h3" in str(error.remedy)
        assert not any(path.stat().st_size for path in (fleet.folder / name / "_base").iterdir())
    del fleet.variables["h3"]
    assert fleet.begin(["h1"], stored) == ["h1"]
    fleet.run(["h1"])
    assert [type(e) for e in fleet.collect("h1").values()] == [errors.ImageNotReadable]


@pytest.mark.parametrize("content", [None, b"short"])
def test_a_store_that_lost_its_file_is_named(fleet: Fleet, stored: dict[str, t.Any], content: bytes | None) -> None:
    file = fleet.folder / "store" / "one"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    fleet.begin(["h1"], stored)
    fleet.run()
    (error,) = fleet.collect("h1").values()
    assert isinstance(error, errors.ImageNotReadable) and str(file) in error.message
    assert ("no such file" if content is None else "5 bytes") in error.message


def test_a_link_in_a_store_is_not_followed(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    file = fleet.folder / "store" / "one"
    file.rename(file.with_name("other"))
    file.symlink_to(file.with_name("other"))
    fleet.begin(["h1"], stored)
    fleet.run()
    assert [type(e) for e in fleet.collect("h1").values()] == [errors.ImageNotReadable]


def test_a_store_with_other_bytes_makes_no_image(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    (fleet.folder / "store" / "one").write_bytes(fleet.data[:-1] + b"!")
    fleet.begin(["h1"], stored)
    fleet.run()
    (error,) = fleet.collect("h1").values()
    assert isinstance(error, errors.ImageChecksumMismatch) and "h3" in str(error.remedy)
    assert list((fleet.folder / "h1" / "_base").iterdir()) == []


def test_a_host_without_room_says_so_instead_of_getting_the_image_by_itself(
    fleet: Fleet, stored: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(image: t.Any, instances_path: str, size: int, present: int) -> None:
        assert size == len(fleet.data)
        raise errors.DiskFull(host="h1", path=instances_path, reason="full")

    monkeypatch.setattr(offers, "_check_room", full)
    fleet.begin(["h1"], stored)
    fleet.run()
    assert [type(e) for e in fleet.collect("h1").values()] == [errors.DiskFull]


def test_an_operation_brings_only_images_of_other_hosts(fleet: Fleet, stored: dict[str, t.Any]) -> None:
    action = fleet.action("localhost")
    rows: list[t.Any] = [types.SimpleNamespace(uuid=u, host=h) for u, h in (("1", "h1"), ("2", "h2"), ("3", None))]
    web, debian = Image(**stored), Image("debian", "image", "raw", url="http://images.example/x", checksum="x")
    begun = rounds.begin_for(action, rows, {"1": web, "2": debian, "3": web})
    assert begun == {"images": ["h1", "h3"], "lacking": str(large_images.lacking_file(action))}
    assert rounds.begin_for(action, rows, {"2": debian}) == {} and not RoundFiles(action).hosts()
