# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of README.md, as a stranger types them: in a fresh clone of this commit, with an empty home, and without this shell's variables.

They run in a mount and process namespace whose /etc, /run and /var/lib are private, so that libvirt, guests and ledger end with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "release"))

import readme  # noqa: E402

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


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """command -> what it printed."""
    folder = tmp_path_factory.mktemp("readme")
    for name, content in readme.files().items():
        (folder / name).write_text(content)
    # A machine that has git.
    (folder / "script").write_text(readme.script({"apt-get update && apt-get install -y git": "git --version"}))
    (folder / ".gitconfig").write_text(readme.gitconfig(str(ROOT)))

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
    return readme.parts(text)


def test_the_blocks_are_all_known():
    """A block of commands that is added to the README has to be run, too."""
    known = ("$ ", "git clone", "pip install", "compute.prepare", "scripts/test")
    blocks = readme.blocks()
    assert [[text in block for text in known].index(True) for block in blocks] == list(range(len(known)))
    assert len(list(readme.tour())) == 5


def test_the_tour_prints_and_does_what_it_says(printed):
    readme.check_tour(printed)
