# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of README.md, as a stranger types them: in a fresh clone of this commit, with an empty home, and without this shell's variables.

They run in a mount and process namespace whose /etc, /run and /var/lib are private, so that libvirt, guests and ledger end with it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
URL = "https://github.com/bootflow/bootflow.compute"  # git takes the clone's repository for it (url.insteadOf)

# What is not run as it stands there.
INSTEAD = {
    "apt-get update && apt-get install -y git": "git --version",  # a machine that has it
    "scripts/test": "scripts/test --help",  # what runs this test
}
# What the text says in words: "Then copy inventory/single".
COPY = "cp -r inventory/single my-inventory"

# The namespace: private trees, then the script; what it started ends with it.
PRIVATE = """
set -e
mount --make-rprivate /
resolver=$(cat /etc/resolv.conf)
mount -t tmpfs -o mode=755 readme-run /run
mkdir -p /run/lock /run/layers
for tree in /etc /var/lib /var/cache /var/log; do
    layer=/run/layers/${tree//\\//-}
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay overlay -o "lowerdir=$tree,upperdir=$layer/upper,workdir=$layer/work" "$tree"
done
[ -e /etc/resolv.conf ] || { rm -f /etc/resolv.conf; printf '%s\\n' "$resolver" >/etc/resolv.conf; }
rm -rf /var/lib/bootflow
status=0
timeout --kill-after=10 2400 env -i "${@:2}" bash -e "$1" || status=$?
if [ "$status" -ne 0 ]; then  # what ends with the namespace, and who ran out of memory
    echo "Exit code $status. Logs:"
    grep -v 'ethtool ioctl' /var/log/libvirt/libvirtd.log | tail -n 10 || true
    tail -q -n 5 /var/log/libvirt/qemu/*.log 2>/dev/null || true
    dmesg | grep -E 'Out of memory|Killed process|segfault|traps:' | tail -n 5 || true
    df -h /tmp /run || true
    free -m || true
fi
virsh -q -c qemu:///system net-destroy bootflow-demo || true  # the bridge is the machine's
exit $status
"""


def blocks(language=""):
    return [text for found, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S) if found == language]


def tour():
    """(command, lines that it prints) of the session in which lines begin with $."""
    (session,) = [block for block in blocks() if block.startswith("$ ")]
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip() not in ("", "...")]


def commands(having):
    (block,) = [block for block in blocks() if having in block and not block.startswith("$ ")]
    return [INSTEAD.get(line, line) for line in block.splitlines()]


def squeezed(text):
    """Without spaces, and with one rule for what differs from run to run: UUIDs, times, addresses and rules of tables."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\b10(\.\d+){3}\b", "ADDRESS", text)
    text = re.sub(r"\b\d+ (s|min)\b", "AGE", text)
    return re.sub(r"-{2,}|\s+", "", text)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """command -> what it printed."""
    folder = tmp_path_factory.mktemp("readme")
    (web,) = blocks("yaml")
    script = ["cd ~"]

    def typed(command):
        script.extend(["echo %s" % shlex.quote("\n$ " + command), command])

    for command in commands("git clone"):
        typed(command)
    # The demo's guests make room for those of the tour.
    (delete,) = [command for command, _shown in tour() if "compute.delete" in command]
    script += [". .venv/bin/activate", delete + " >/dev/null", "deactivate"]
    for command in [*commands("scripts/test"), *commands("pip install"), COPY, *commands("compute.prepare")]:
        typed(command)
    (folder / "web.yml").write_text(web)
    (configuration,) = blocks("ini")
    (folder / "ansible.cfg").write_text(configuration)
    script.append("cp ../web.yml ../ansible.cfg .")
    for command, _shown in tour():
        typed(command)
    (folder / "script").write_text("\n".join(script) + "\n")
    (folder / ".gitconfig").write_text('[url "%s"]\n\tinsteadOf = %s\n[safe]\n\tdirectory = *\n' % (ROOT, URL))

    # A mirror of PyPI is the machine's matter, not the README's.
    ours = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.lower().endswith("_proxy")}
    configured = [
        path for path in ("~/.config/pip/pip.conf", "~/.pip/pip.conf") if os.path.exists(os.path.expanduser(path))
    ]
    if configured:
        ours.setdefault("PIP_CONFIG_FILE", os.path.expanduser(configured[0]))
    ours.update(HOME=str(folder), PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C.UTF-8")
    namespace = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", PRIVATE, "bash"]
    program = [*namespace, str(folder / "script"), *("%s=%s" % item for item in ours.items())]
    with open(folder / "output", "w+b") as output:
        done = subprocess.run(
            program, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False
        )
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    for made in ("bootflow", "bootflow-env"):  # two virtual environments
        shutil.rmtree(folder / made, ignore_errors=True)
    sys.stdout.write(text)  # shown by pytest when a test fails
    if done.returncode != 0:  # its last lines in the message: what a long log of CI keeps
        command, *lines = ("$ " + re.split(r"^\$ ", text, flags=re.M)[-1]).splitlines()
        pytest.fail("README.md: a command failed: %s\n%s" % (command, "\n".join(lines[-80:])), pytrace=False)
    return {part.splitlines()[0]: part for part in re.split(r"^\$ ", text, flags=re.M)[1:]}


def test_the_blocks_are_all_known():
    """A block of commands that is added to the README has to be run, too."""
    known = ("-->", "$ ", "git clone", "pip install", "compute.prepare", "scripts/test")  # the first is a picture
    assert [[text in block for text in known].index(True) for block in blocks()] == list(range(len(known)))
    assert len(list(tour())) == 5


def test_every_command_prints_what_the_readme_shows(printed):
    for command, shown in tour():
        for line in shown:
            assert squeezed(line) in squeezed(printed[command]), "%s does not print: %s" % (command, line)


def test_the_tour_does_what_it_says(printed):
    check, boot, ping, _apply, delete = [printed[command] for command, _shown in tour()]
    assert "host: kvm1" in check
    assert re.search(r"web-1 +active ", boot)
    assert "no hosts matched" not in check + boot + delete, "the README's ansible.cfg"
    assert json.loads(re.search(r"web-1 \| SUCCESS => ({.*?})", ping, re.S)[1])["ping"] == "pong"
    assert "Deleted: web-1, web-2" in delete
