#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# tgt 1.0.85 (Debian 12) and rtslib-fb 2.2.4 (PyPI). iSCSI names do not differ by case (RFC 7143, 4.2.7.1), but the two targets of Linux treat
# capitals in two ways: rtslib, by which LIO is configured, writes a name in small letters, so that a program which reads back what
# it wrote finds another name; tgt keeps a name as it is, and serves two targets whose names differ in case only. Whoever compares the
# names of targets or initiators across both has to compare them in small letters.
#
# Installs both in a temporary folder; the daemon listens on 127.0.0.1 only.
set -euo pipefail
VERSION=1:1.0.85-1+deb12u1
RTSLIB=2.2.4
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv python
python/bin/python -m pip install -qq --disable-pip-version-check "rtslib-fb==$RTSLIB" pyudev==0.24.4
lio=$(python/bin/python - <<'PYTHON'
from rtslib import utils

print(utils.normalize_wwn(("iqn",), "iqn.2026-01.test.lab:KVM1")[0])
PYTHON
)
apt-get -q download "tgt=$VERSION" libaio1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 libsystemd0 >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(find "$folder/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH TGT_IPC_SOCKET=$folder/socket
root/usr/sbin/tgtd -f --iscsi portal=127.0.0.1:13261 >log 2>&1 &
pid=$!
tgtadm() { root/usr/sbin/tgtadm --lld iscsi "$@"; }
for _ in {1..50}; do
    if tgtadm --op show --mode target >/dev/null 2>&1; then break; fi
    sleep 0.1
done
tgtadm --op new --mode target --tid 1 --targetname iqn.2026-01.test.lab:KVM1
tgtadm --op new --mode target --tid 2 --targetname iqn.2026-01.test.lab:kvm1
tgt=$(tgtadm --op show --mode target | sed -n 's/^Target [0-9]*: //p' | paste -sd' ')
echo "rtslib-fb $RTSLIB: iqn.2026-01.test.lab:KVM1 becomes $lio"
echo "tgt $VERSION: serves $tgt"
if [ "$lio $tgt" != "iqn.2026-01.test.lab:kvm1 iqn.2026-01.test.lab:KVM1 iqn.2026-01.test.lab:kvm1" ]; then
    echo "the behaviour changed"
    exit 1
fi
