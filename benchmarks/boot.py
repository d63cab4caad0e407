# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole boot beside the same virtual machines made by hand with community.libvirt.virt, on the three lab hosts.

For 1, 10 and 50 instances: seconds of control plane for each instance, ours and a plain playbook's that a careful person
would write (one host loop per step: folder, disk, config drive, define, start). QEMU's own time is told apart: it is what
starting the same domains takes with libvirt alone, and is taken off both. The guest is a boot sector that halts, so that
the machine measures Ansible and not fifty guests booting. What QEMU takes differs by seconds from one time to the next: it is measured
after each run, taken off that run, and the figure is the median of the rounds. Our ledger stands, and the hosts' reports are as fresh as the heartbeat of the
role `controller` keeps them; the image is copied to the hosts by both. Told beside, not judged: a loop of ssh with a warm connection, which
runs qemu-img, genisoimage and virsh for one guest after the other, and knows nothing of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))
BOUNDS = {1: 3.0, 10: 8.0, 50: 20.0}  # how many times faster than the plain playbook, by instances
# cli; hlt; jmp back to hlt
BOOT_SECTOR = b"\xfa\xf4\xeb\xfd" + bytes(506) + b"\x55\xaa"
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")

PLAIN = """
- hosts: bootflow_compute
  gather_facts: false
  tasks:
    - name: Image
      ansible.builtin.copy: {src: "{{ image }}", dest: /var/lib/bootflow/plain.raw, mode: "0644"}
    - name: Folder
      ansible.builtin.file: {path: "/var/lib/bootflow/plain/{{ item.name }}", state: directory, mode: "0755"}
      loop: "{{ vms[inventory_hostname] }}"
    - name: Disk
      ansible.builtin.command:
        argv: [qemu-img, create, -q, -f, qcow2, -F, raw, -b, /var/lib/bootflow/plain.raw, "/var/lib/bootflow/plain/{{ item.name }}/disk", 1G]
        creates: "/var/lib/bootflow/plain/{{ item.name }}/disk"
      loop: "{{ vms[inventory_hostname] }}"
    - name: Metadata
      ansible.builtin.copy:
        content: "{{ {'uuid': item.uuid, 'hostname': item.name, 'name': item.name} | to_json }}"
        dest: "/var/lib/bootflow/plain/{{ item.name }}/meta_data.json"
        mode: "0600"
      loop: "{{ vms[inventory_hostname] }}"
    - name: Config drive
      ansible.builtin.command:
        argv: [genisoimage, -quiet, -J, -r, -V, config-2, -graft-points, -o, "/var/lib/bootflow/plain/{{ item.name }}/disk.config",
               "openstack/latest/meta_data.json=/var/lib/bootflow/plain/{{ item.name }}/meta_data.json"]
        creates: "/var/lib/bootflow/plain/{{ item.name }}/disk.config"
      loop: "{{ vms[inventory_hostname] }}"
    - name: Define
      community.libvirt.virt: {command: define, xml: "{{ lookup('ansible.builtin.template', xml) }}"}
      loop: "{{ vms[inventory_hostname] }}"
    - name: Start
      community.libvirt.virt: {name: "{{ item.name }}", state: running}
      loop: "{{ vms[inventory_hostname] }}"
"""

DOMAIN = """<domain type='qemu'><name>{{ item.name }}</name><uuid>{{ item.uuid }}</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/><apic/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/var/lib/bootflow/plain/{{ item.name }}/disk'/>
      <target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='/var/lib/bootflow/plain/{{ item.name }}/disk.config'/>
      <target dev='sda' bus='sata'/><readonly/></disk>
    <interface type='network'><source network='default'/><model type='virtio'/></interface>
    <serial type='pty'/><graphics type='vnc' port='-1' listen='127.0.0.1'/><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices></domain>
"""

BARE = """set -e
cd /var/lib/bootflow/plain; mkdir -p {name}/openstack/latest
qemu-img create -q -f qcow2 -F raw -b /var/lib/bootflow/plain.raw {name}/disk 1G
echo '{{"uuid": "{uuid}", "hostname": "{name}"}}' > {name}/meta_data.json
genisoimage -quiet -J -r -V config-2 -graft-points -o {name}/disk.config openstack/latest/meta_data.json={name}/meta_data.json
cat > {name}/domain.xml <<'END'
{xml}
END
virsh -q -c qemu:///system define {name}/domain.xml; virsh -q -c qemu:///system start {name}
"""

# Without workers: stop all domains. Else start them, so many at a time.
STARTER = """
import concurrent.futures, sys, libvirt
conn = libvirt.open("qemu:///system")
workers = int(sys.argv[1])
if workers:
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda d: d.create(), conn.listAllDomains()))
else:
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        domain.destroy()
"""


def without(totals: t.Sequence[float], alone: t.Sequence[float]) -> float:
    """The control plane's part, in seconds: the median of what each run took beyond what its guests took alone right after it."""
    return max(statistics.median(total - own for total, own in zip(totals, alone)), 0.001)


def uuid_of(number: int) -> str:
    return "00000000-0000-4000-8000-%012d" % number


def timed(argv: list[str], **kwargs: object) -> tuple[float, str]:
    start = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs)  # type: ignore[call-overload]
    seconds = time.monotonic() - start
    if done.returncode:
        raise SystemExit("%s failed:\n%s" % (" ".join(argv), done.stdout[-4000:]))
    return seconds, done.stdout


class Bench:
    def __init__(self, lab: lab_module.Lab, folder: Path):
        self.lab = lab
        self.folder = folder
        self.image = folder / "halt.raw"
        self.image.write_bytes(BOOT_SECTOR + bytes(1024 * 1024 - 512))
        (folder / "domain.xml.j2").write_text(DOMAIN)
        (folder / "plain.yml").write_text(PLAIN)
        self.booted = 0  # how often
        self.environment = {**os.environ, "ANSIBLE_FORKS": "10", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false"}

    def each_host(self, *command: str) -> None:
        for host in self.lab.hosts:
            host.run(*command, timeout=300)

    def warm_up(self) -> None:
        """libvirtd looks at every QEMU binary when it is first asked: neither side is to pay for that."""
        self.each_host("virsh", "-q", "-c", "qemu:///system", "capabilities")
        self.each_host("virsh", "-q", "-c", "qemu:///system", "domcapabilities", "--virttype", "qemu")

    def clean(self) -> None:
        self.each_host(
            "sh",
            "-c",
            "for d in $(virsh -q -c qemu:///system list --all --uuid); do virsh -q -c qemu:///system destroy $d; "
            "virsh -q -c qemu:///system undefine --nvram $d; done >/dev/null 2>&1; rm -rf /var/lib/bootflow; mkdir -p /var/lib/bootflow",
        )

    def plain(self, count: int) -> float:
        hosts = [h.name for h in self.lab.hosts]
        vms = {
            h: [{"name": "plain-%d" % n, "uuid": uuid_of(n)} for n in range(count) if hosts[n % len(hosts)] == h]
            for h in hosts
        }
        variables = self.folder / "plain.json"
        variables.write_text(
            json.dumps({"vms": vms, "image": str(self.image), "xml": str(self.folder / "domain.xml.j2")})
        )
        seconds, _output = timed(
            [PLAYBOOK, "-i", self.lab.inventory, str(self.folder / "plain.yml"), "-e", "@%s" % variables],
            env=self.environment,
        )
        return seconds

    def bare(self, count: int) -> float:
        """A loop of ssh over the guests, with the image on the hosts once."""
        options = [
            "-i",
            self.lab.private_key,
            "-o",
            "ControlMaster=auto",
            "-o",
            "ControlPersist=60",
            "-o",
            "IdentitiesOnly=yes",
        ]
        options += ["-o", "ControlPath=%s/%%h" % self.folder, "-o", "StrictHostKeyChecking=no"]
        options += ["-o", "UserKnownHostsFile=%s/ssh/known_hosts" % self.lab.directory]
        where = ["root@%s" % host.address for host in self.lab.hosts]
        started = time.monotonic()
        for place in where[:count]:
            timed(["ssh", *options, place, "mkdir -p /var/lib/bootflow/plain"])
            timed(["scp", "-q", *options, str(self.image), place + ":/var/lib/bootflow/plain.raw"])
        for number in range(count):
            known = {"name": "plain-%d" % number, "uuid": uuid_of(number)}
            xml = DOMAIN
            for field, value in known.items():
                xml = xml.replace("{{ item.%s }}" % field, value)
            timed(["ssh", *options, where[number % len(where)], "sh"], input=BARE.format(xml=xml, **known))
        seconds = time.monotonic() - started
        for place in where[:count]:
            subprocess.run(["ssh", *options, "-O", "exit", place], capture_output=True, check=False)
        return seconds

    def ours(self, count: int) -> tuple[float, int]:
        """Boot with the hosts' reports as fresh as their timer keeps them, or (the first time) by asking the hosts."""
        self.booted += 1
        variables = self.folder / "ours.json"
        variables.write_text(
            json.dumps(
                {
                    "bootflow_ledger_url": "sqlite:///%s/ledger.db" % self.folder,
                    "bootflow_virt_type": "qemu",
                    "bootflow_ram_allocation_ratio": 16.0,
                    "bootflow_disk_allocation_ratio": 16.0,
                    "bootflow_cpu_allocation_ratio": 64.0,
                    "bootflow_flavors": [{"name": "halt", "vcpus": 1, "memory_mb": 64, "root_gb": 1}],
                    "bootflow_images": [
                        {"name": "halt", "path": str(self.image), "disk_format": "raw", "allow_unverified": True}
                    ],
                    "bootflow_networks": [
                        {
                            "name": "default",
                            "type": "network",
                            "source": "default",
                            "subnets": [{"name": "v4", "cidr": "192.168.122.0/24"}],
                        }
                    ],
                    "bootflow_instances": [
                        {
                            "name": "ours-%d" % self.booted,
                            "max_count": count,
                            "min_count": count,
                            "flavor": "halt",
                            "image": "halt",
                            "networks": [{"network": "default"}],
                        }
                    ],
                }
            )
        )
        if self.booted > 1:
            self.play("heartbeat", variables)
        seconds, output = self.play("boot", variables)
        return seconds, output.count("\nTASK [")

    def end_ours(self) -> None:
        more = ("-e", "bootflow_project=default", "-e", "bootflow_delete_all=true")
        self.play("delete", self.folder / "ours.json", *more)

    def play(self, name: str, variables: Path, *options: str) -> tuple[float, str]:
        argv = [PLAYBOOK, "bootflow.compute." + name, "-i", self.lab.inventory, "-e", "@%s" % variables, *options]
        return timed(argv, env=self.environment)

    def qemu(self, workers: int) -> float:
        """Start the domains that are there (and stopped now) with libvirt alone, all hosts at the same time."""
        self.each_host("/usr/bin/python3", "-c", STARTER, "0")
        start = time.monotonic()
        running = [
            subprocess.Popen(host.command("/usr/bin/python3", "-c", STARTER, str(workers))) for host in self.lab.hosts
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit("libvirt could not start the domains again")
        return time.monotonic() - start

    def check(self, count: int) -> None:
        """As many domains as asked run, spread over the hosts."""
        running = [
            len(host.run("virsh", "-q", "-c", "qemu:///system", "list", "--uuid").stdout.split())
            for host in self.lab.hosts
        ]
        if sum(running) != count or max(running) - min(running) > 1:
            raise SystemExit("%d domains were asked for; the hosts run %s" % (count, running))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--counts", default="1,10,50", help="instances to boot at once (default: 1,10,50)")
    parser.add_argument("--rounds", type=int, default=3, help="measure so often and take the median (default: 3)")
    arguments = parser.parse_args()
    rows: list[dict[str, t.Any]] = []
    lab = lab_module.Lab(str(CACHE / "lab-bench"))
    print("making three lab hosts", flush=True)
    lab.up(3)
    try:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            bench = Bench(lab, Path(folder))
            bench.warm_up()
            bench.clean()
            first, _tasks = bench.ours(1)
            first -= bench.qemu(workers=8)
            bench.end_ours()
            for count in [int(c) for c in arguments.counts.split(",")]:
                found: dict[str, list[float]] = {}
                for number in range(1, arguments.rounds + 1):
                    bench.clean()
                    print("%d instances, round %d: bootflow.compute ..." % (count, number), flush=True)
                    seconds, tasks = bench.ours(count)
                    found.setdefault("ours", []).append(seconds)
                    bench.check(count)
                    # As many at once as the module instance_build starts.
                    found.setdefault("qemu_ours", []).append(bench.qemu(workers=8))
                    bench.end_ours()
                    bench.clean()
                    print("%d instances, round %d: the plain playbook ..." % (count, number), flush=True)
                    found.setdefault("plain", []).append(bench.plain(count))
                    bench.check(count)
                    # A loop starts one after the other.
                    found.setdefault("qemu_plain", []).append(bench.qemu(workers=1))
                    bench.clean()
                    print("%d instances, round %d: a loop of ssh and virsh ..." % (count, number), flush=True)
                    found.setdefault("bare", []).append(bench.bare(count))
                    bench.check(count)
                ours_each = without(found["ours"], found["qemu_ours"]) / count
                plain_each = without(found["plain"], found["qemu_plain"]) / count
                bare_each = without(found["bare"], found["qemu_plain"]) / count
                median = {name: statistics.median(each) for name, each in found.items()}
                ratio = plain_each / ours_each
                bound = BOUNDS.get(count)
                rows.append(
                    {
                        "name": "boot",
                        "n": count,
                        "ours": round(ours_each, 3),
                        "limit": round(plain_each, 3),
                        "unit": "s/instance",
                        "ratio": round(ratio, 2),
                        "bound": bound,
                        "within": bound is None or ratio >= bound,
                        "tasks": tasks,
                        "ours_total": round(median["ours"], 1),
                        "limit_total": round(median["plain"], 1),
                        "qemu_ours": round(median["qemu_ours"], 1),
                        "qemu_limit": round(median["qemu_plain"], 1),
                        "bare": round(bare_each, 3),
                    }
                )
            bench.clean()
    finally:
        lab.down()
    print()
    print("control plane, QEMU's own time taken off; plain = community.libvirt.virt in a plain playbook")
    print(
        "%5s  %12s  %12s  %7s  %14s  %6s  %20s  %20s  %13s"
        % (
            "n",
            "ours s/inst",
            "plain s/inst",
            "ratio",
            "bound",
            "tasks",
            "ours total (qemu) s",
            "plain total (qemu) s",
            "virsh s/inst",
        )
    )
    for r in rows:
        print(
            "%5d  %12.3f  %12.3f  %6.1fx  %14s  %6d  %13.1f (%4.1f)  %13.1f (%4.1f)  %13.3f"
            % (
                r["n"],
                r["ours"],
                r["limit"],
                r["ratio"],
                ">= %gx %s" % (r["bound"], "ok" if r["within"] else "MISSED") if r["bound"] else "",
                r["tasks"],
                r["ours_total"],
                r["qemu_ours"],
                r["limit_total"],
                r["qemu_limit"],
                r["bare"],
            )
        )
    print("told: the first boot of 1 instance, which makes the ledger and asks the hosts: %.3f s" % first)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(r["within"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
