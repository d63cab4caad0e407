# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that hosts lack, from the controller to all of them, over links of a limited rate.

Each host is a network namespace with an sshd and a folder; HTB limits its link in both directions, and that of the controller. The image does not
compress. "wire" is a chain of plain sockets in the same run: each host writes and hashes what it gets, and sends it on. "ours" begins when the processes
of the hosts run, and ends when the last host has published the image; "died", "silent" and "lied" are the same with one host that fails after a third.
"playbook" is the whole playbook image_precache, and "copy" ansible.builtin.copy, both with as many forks as hosts. Ratios are to the wire; the link is what
has left the controller, in images; the processor is that of all hosts and of the controller, for each GB and host.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.bootflow.compute.plugins.module_utils.core.relay import talk
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.pieces import PIECE, read_pieces
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.plan import Peer, plan

LINK, COPY, PROCESSOR, SILENCE = (
    1.1,
    6.0,
    9.0,
    7.0,
)  # images; times as fast as copy; seconds a GB and host; seconds that a silent host may cost
BOUNDS = {"ours": 1.15, "died": 1.2, "silent": 1.2, "lied": 1.8}  # times the wire
PREFIX = "bfim"
BRIDGE = PREFIX + "br"
PORT = 7022  # of the chain
IMAGE = "image"
TOKEN, STOP = "t" * 64, "s" * 64
CONTROLLER = "198.18.250.1"

CHAIN = """
import hashlib, os, socket, sys
port, path, to = int(sys.argv[1]), sys.argv[2], sys.argv[3]
server = socket.create_server(("", port), family=socket.AF_INET)
print("ready", flush=True)
source = server.accept()[0]
following = socket.create_connection((to, port)) if to else None
digest, buffer = hashlib.sha256(), bytearray(262144)
with open(path, "wb") as file, memoryview(buffer) as view:
    while True:
        got = source.recv_into(buffer)
        if not got:
            break
        if following:
            following.sendall(view[:got])
        file.write(view[:got])
        digest.update(view[:got])
    file.flush()
    os.fsync(file.fileno())
if following:
    following.close()
print(digest.hexdigest(), flush=True)
"""

HOST = """
import json, sys
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import answered
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import ImageSource
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import offers, store
what, path, name, size, checksum, more = sys.argv[1:]
image = ImageSource("image", "raw", checksum)
if what == "offer":
    lies = int(more or 0)
    if lies:
        right = store.Store.read
        store.Store.read = lambda self, n: right(self, n) if n < lies else bytes(len(right(self, n)))
    found = offers.offer(image, path, name, int(size), "t" * 64, "s" * 64, (49216, 49279), 600.0)
    answered()
elif what == "connect":
    found = offers.connect(path, image.id, "t" * 64, json.loads(more))
else:
    found = offers.collect(image, path, 600.0)
print(json.dumps(found))
"""


def run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if check and done.returncode:
        raise SystemExit("%s failed:\n%s" % (" ".join(argv), done.stderr[-2000:]))
    return done.stdout


def limit(rate: float, device: str, *inside: str) -> None:
    """Let no more than ``rate`` Mbit/s leave through a device."""
    tc = [*inside, "tc"]
    run(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1")
    run(
        *tc,
        "class",
        "add",
        "dev",
        device,
        "parent",
        "1:",
        "classid",
        "1:1",
        "htb",
        "rate",
        "%gmbit" % rate,
        "burst",
        "64k",
    )
    # More packets would be seconds of delay.
    run(*tc, "qdisc", "add", "dev", device, "parent", "1:1", "pfifo", "limit", "64")


@dataclass(frozen=True)
class Host:
    """A host of the benchmark."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        return "host%02d" % self.number

    @property
    def namespace(self) -> str:
        return "%s%d" % (PREFIX, self.number)

    @property
    def address(self) -> str:
        return "198.18.250.%d" % (10 + self.number)

    def inside(self, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *argv]

    def start(self, *argv: str, **more: t.Any) -> subprocess.Popen[str]:
        return subprocess.Popen(self.inside(*argv), stdout=subprocess.PIPE, text=True, **more)

    def pids(self) -> list[int]:
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace, check=False).split()]


class Site:
    """Hosts and their links, until the block ends."""

    def __init__(self, count: int, rate: float, folder: Path):
        self.rate, self.folder = rate, folder
        self.hosts = [Host(number, folder / ("host%02d" % number)) for number in range(1, count + 1)]
        self.daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Site:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", CONTROLLER + "/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        limit(self.rate, BRIDGE)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "key"))
        shutil.copy(self.folder / "key.pub", self.folder / "authorized")
        for host in self.hosts:
            host.folder.mkdir()
            veth = host.namespace + "v"
            run("ip", "netns", "add", host.namespace)
            run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            run("ip", "link", "set", veth, "master", BRIDGE, "up")
            for command in (("address", "add", host.address + "/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                run("ip", "-n", host.namespace, *command)
            run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            limit(self.rate, veth)
            limit(self.rate, "eth0", *host.inside())
            options = {
                "HostKey": self.folder / "key",
                "AuthorizedKeysFile": self.folder / "authorized",
                "PidFile": "none",
                "StrictModes": "no",
                "UsePAM": "yes",
                "PermitRootLogin": "yes",
                "Subsystem": "sftp internal-sftp",
            }
            words = [word for name, value in options.items() for word in ("-o", "%s=%s" % (name, value))]
            Path("/run/sshd").mkdir(exist_ok=True)
            self.daemons.append(subprocess.Popen(host.inside("/usr/sbin/sshd", "-D", "-f", "/dev/null", *words)))

    def __exit__(self, *_error: object) -> None:
        for host in self.hosts:
            for pid in host.pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in self.daemons:
            daemon.wait()
        for host in self.hosts:
            run("ip", "netns", "delete", host.namespace, check=False)
            run("ip", "link", "delete", host.namespace + "v", check=False)
        run("ip", "link", "delete", BRIDGE, check=False)

    def ssh(self, host: Host) -> list[str]:
        known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        return ["ssh", "-i", str(self.folder / "key"), *known, "root@" + host.address]

    def sent(self) -> int:
        """Bytes that have left the controller."""
        return int(Path("/sys/class/net/%s/statistics/tx_bytes" % BRIDGE).read_text())


@dataclass
class Figures:
    """What one way has cost."""

    seconds: float
    link: float  # images
    cpu: float = 0.0  # seconds of all hosts and the controller, a GB and host
    note: str = ""


class Bench:
    def __init__(self, site: Site, image: Path):
        self.site, self.image = site, image
        self.size = image.stat().st_size
        with open(image, "rb") as file:
            whole = hashlib.sha256()
            self.pieces = read_pieces(file.read, whole)
        self.sha256 = whole.hexdigest()

    @contextlib.contextmanager
    def measured(self) -> t.Iterator[Figures]:
        """Time, link and processor of the block."""
        found = Figures(0.0, 0.0)
        before, sent = time.monotonic(), self.site.sent()
        used = self._processor()
        yield found
        found.seconds = time.monotonic() - before
        found.link = (self.site.sent() - sent) / self.size
        found.cpu = (self._processor() - used) / len(self.site.hosts) / (self.size / 1e9)

    def _processor(self) -> float:
        """Seconds of processor: of what this process started, and of what runs on the hosts and was started there."""
        used = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        for pid in (pid for host in self.site.hosts for pid in host.pids()):
            with contextlib.suppress(OSError):
                fields = Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
                used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        return used

    def wire(self, count: int) -> Figures:
        hosts = self.site.hosts[:count]
        processes = []
        for host, after in zip(hosts, [*hosts[1:], None]):
            to = after.address if after else ""
            processes.append(host.start(sys.executable, "-c", CHAIN, str(PORT), str(host.folder / "wire"), to))
        for process in processes:
            assert t.cast(t.IO[str], process.stdout).readline() == "ready\n"
        with self.measured() as found:
            with socket.create_connection((hosts[0].address, PORT)) as connection, open(self.image, "rb") as file:
                connection.sendfile(file)
            for process in processes:
                assert process.communicate()[0].strip() == self.sha256
        for host in hosts:
            (host.folder / "wire").unlink()
        return found

    def ours(self, count: int, fault: str = "") -> Figures:
        hosts = self.site.hosts[:count]
        victim = hosts[count // 2 - 1]
        offers = {}
        for host in hosts:
            lies = str(self.size // 3 // PIECE) if fault == "lied" and host is victim else ""
            offers[host.name] = json.loads(self._host(host, "offer", lies).communicate()[0])
        peers = {
            h.name: {"name": h.name, "address": h.address, **{k: offers[h.name][k] for k in ("port", "fingerprint")}}
            for h in hosts
        }
        order = plan(Peer(h.name, "", offers[h.name]["bytes"]) for h in hosts)
        told = []
        for host in hosts:
            tasks = {
                "root": self.pieces.root(),
                "sha256": self.sha256,
                "may_fetch": False,
                "before": [peers[n] for n in order.before(host.name)],
                "after": [peers[n] for n in order.after(host.name)],
                "origins": [],
            }
            told.append(self._host(host, "connect", json.dumps(tasks)))
        for each in told:
            each.communicate()
        waiting = [h for h in hosts if not (h is victim and fault in ("died", "silent"))]
        with self.measured() as found:
            if fault in ("died", "silent"):
                threading.Timer(self.size * 8e-6 / self.site.rate / 3, self._break, (victim, fault)).start()
            self._feed(hosts[0])
            while not all((host.folder / "_base" / (IMAGE + ".json")).exists() for host in waiting):
                time.sleep(0.02)
        answers = {h.name: json.loads(self._host(h, "collect").communicate()[0]) for h in waiting}
        wrong = {n: sorted(a["wrong"]) for n, a in answers.items() if a["wrong"]}
        left = {n: a["left"] for n, a in answers.items() if a["left"]}
        found.note = " ".join("%s: %s" % each for each in (("wrong", wrong), ("left", left)) if each[1])
        for host in waiting:
            files = [p for p in (host.folder / "_base").iterdir() if p.suffix == ".raw"]
            assert len(files) == 1 and hashlib.sha256(files[0].read_bytes()).hexdigest() == self.sha256
        if fault == "silent":
            run("ip", "link", "set", victim.namespace + "v", "master", BRIDGE)
        self._end(hosts)
        return found

    def _host(self, host: Host, what: str, more: str = "") -> subprocess.Popen[str]:
        return host.start(
            sys.executable, "-c", HOST, what, str(host.folder), host.name, str(self.size), self.sha256, more
        )

    def _feed(self, host: Host) -> None:
        folder = talk.relay_folder(str(host.folder / "_base"), IMAGE)
        process = subprocess.Popen([*self.site.ssh(host), "exec cat > %s/feed" % folder], stdin=subprocess.PIPE)
        pipe = t.cast(t.IO[bytes], process.stdin)
        pipe.write(talk.feed_head(0, self.size, self.pieces.digests(0, len(self.pieces))))
        with open(self.image, "rb") as file:
            shutil.copyfileobj(file, pipe, PIECE)
        pipe.close()
        process.wait()

    def _break(self, victim: Host, fault: str) -> None:
        if fault == "silent":
            run("ip", "link", "set", victim.namespace + "v", "nomaster")
            return
        for pid in victim.pids():
            if b"sshd" not in Path("/proc/%d/cmdline" % pid).read_bytes():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _end(self, hosts: t.Iterable[Host]) -> None:
        for host in hosts:
            for pid in host.pids():
                if b"sshd" not in Path("/proc/%d/cmdline" % pid).read_bytes():
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            for name in ("_base", "locks"):
                shutil.rmtree(host.folder / name, ignore_errors=True)

    def inventory(self, count: int) -> str:
        """The inventory of the hosts, and of a ledger."""
        known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        hosts = {
            h.name: {
                "ansible_host": h.address,
                "bootflow_copy_address": h.address,
                "bootflow_instances_path": str(h.folder),
                "where": str(h.folder),
            }
            for h in self.site.hosts[:count]
        }
        image = {"name": IMAGE, "path": str(self.image), "checksum": "sha256:" + self.sha256, "disk_format": "raw"}
        variables = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.site.folder / "key"),
            "ansible_ssh_common_args": known,
            "ansible_python_interpreter": sys.executable,
            "bootflow_ledger_url": str(self.site.folder / "ledger.db"),
            "bootflow_images": [image],
            "bootflow_precache_images": [IMAGE],
        }
        here = {"localhost": {"ansible_connection": "local"}}
        path = self.site.folder / "inventory.yml"
        children = {"bootflow_compute": {"hosts": hosts}}
        path.write_text(json.dumps({"all": {"hosts": here, "children": children, "vars": variables}}))
        return str(path)

    def playbook(self, count: int) -> Figures:
        """The whole playbook image_precache, from its start until its end."""
        hosts = self.site.hosts[:count]
        words = ["-i", self.inventory(count), "-f", str(count), "bootflow.compute.image_precache"]
        with self.measured() as found:
            run("ansible-playbook", *words)
        for host in hosts:
            files = [p for p in (host.folder / "_base").iterdir() if p.suffix == ".raw"]
            assert len(files) == 1 and hashlib.sha256(files[0].read_bytes()).hexdigest() == self.sha256
        self._end(hosts)
        return found

    def copy(self, count: int) -> Figures:
        """The whole command."""
        hosts = self.site.hosts[:count]
        words = ["bootflow_compute", "-i", self.inventory(count), "-f", str(count), "-m", "ansible.builtin.copy"]
        with self.measured() as found:
            run("ansible", *words, "-a", "src=%s dest={{ where }}/copied mode=0600" % self.image)
        for host in hosts:
            (host.folder / "copied").unlink()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", type=float, default=50.0, help="Mbit/s of each link")
    parser.add_argument("--mib", type=int, default=160, help="size of the image")
    parser.add_argument("--ways", default="wire,ours,died,silent,lied,playbook,copy")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))
    try:
        image = folder / "image.raw"
        with open(image, "wb") as file:
            for _mib in range(arguments.mib):
                file.write(os.urandom(1024**2))
        with Site(arguments.hosts, arguments.rate, folder) as site:
            figures = measure(Bench(site, image), arguments.hosts, arguments.ways.split(","))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(figures, arguments)


def measure(bench: Bench, count: int, ways: t.Sequence[str]) -> dict[str, Figures]:
    figures = {}
    for way in ways:
        if way == "wire":
            figures[way] = bench.wire(count)
        elif way in ("copy", "playbook"):
            figures[way] = getattr(bench, way)(count)
        else:
            figures[way] = bench.ours(count, "" if way == "ours" else way)
        print("%s: %s" % (way, figures[way]), file=sys.stderr, flush=True)
    return figures


def show(figures: t.Mapping[str, Figures], arguments: argparse.Namespace) -> None:
    wire = figures["wire"].seconds if "wire" in figures else 0.0
    print("%d hosts, %g Mbit/s, %d MiB" % (arguments.hosts, arguments.rate, arguments.mib))
    for way, found in figures.items():
        ratio = "%.2f x wire" % (found.seconds / wire) if wire else ""
        print(
            "%-8s %7.1f s  %-12s link %.3f  %.1f CPU s/GB  %s"
            % (way, found.seconds, ratio, found.link, found.cpu, found.note)
        )
    for text in missed(figures):
        print("MISSED: " + text)
    if arguments.json:
        arguments.json.write_text(json.dumps({way: vars(found) for way, found in figures.items()}, indent=2))


def missed(figures: t.Mapping[str, Figures]) -> t.Iterator[str]:
    """The bounds that the figures do not hold."""
    for way, bound in BOUNDS.items():
        if way in figures and "wire" in figures:
            most = bound * figures["wire"].seconds + (SILENCE if way == "silent" else 0.0)
            if figures[way].seconds > most:
                yield "%s: %.1f s, at most %.1f" % (way, figures[way].seconds, most)
            if figures[way].link > LINK:
                yield "%s: link %.3f, at most %.1f" % (way, figures[way].link, LINK)
    if "ours" in figures and figures["ours"].cpu > PROCESSOR:
        yield "processor: %.1f s a GB, at most %g" % (figures["ours"].cpu, PROCESSOR)
    if "playbook" in figures and "copy" in figures:
        times = figures["copy"].seconds / figures["playbook"].seconds
        if times < COPY:
            yield "playbook: %.1f times as fast as copy, at least %g" % (times, COPY)


if __name__ == "__main__":
    main()
