#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# tgt 1.0.85 (Debian 12). tgtd goes on after SIGTERM, with targets and without: who stops it as any other daemon waits for ever, and who
# takes the signal for its end starts a second one against a port that is in use. `tgtadm --op delete --mode system` ends it.
#
# Installs tgt in a temporary folder; the daemon listens on 127.0.0.1 only.
set -euo pipefail
VERSION=1:1.0.85-1+deb12u1
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get -q download "tgt=$VERSION" libaio1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 libsystemd0 >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(find "$folder/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH TGT_IPC_SOCKET=$folder/socket
root/usr/sbin/tgtd -f --iscsi portal=127.0.0.1:13260 >log 2>&1 &
pid=$!
tgtadm() { root/usr/sbin/tgtadm --lld iscsi "$@"; }
for _ in {1..50}; do
    if tgtadm --op show --mode target >/dev/null 2>&1; then break; fi
    sleep 0.1
done
kill -TERM "$pid"
sleep 3
if tgtadm --op show --mode target >/dev/null; then after=answers; else after="is gone"; fi
tgtadm --op delete --mode system
for _ in {1..50}; do
    if ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.1
done
if kill -0 "$pid" 2>/dev/null; then end=runs; else end="is gone"; fi
echo "tgt $VERSION: 3 s after SIGTERM tgtd $after; after tgtadm --op delete --mode system it $end"
if [ "$after, $end" != "answers, is gone" ]; then
    echo "the behaviour changed"
    exit 1
fi
