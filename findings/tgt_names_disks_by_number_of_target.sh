#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# tgt 1.0.85 (Debian 12). The SCSI ID and the serial number of a disk are the number of its target and its LUN, not its file and not the target's name.
# The number is given by whoever makes the target, and tgt-admin gives the next free one: after a restart of the daemon the same volume under the
# same name is another disk for multipathd and /dev/disk/by-id, and may have the identity that another volume had before. The first disks of two
# servers have the same one. Only the parameters scsi_id and scsi_sn of the disk change that; of a scsi_id of hexadecimal digits the name by which
# multipathd knows the disk (NAA) has all but the first, in whose place is a 6, the form of such names.
#
# Installs tgt in a temporary folder; the daemon listens on 127.0.0.1 only.
set -euo pipefail
VERSION=1:1.0.85-1+deb12u1
NAME=iqn.2026-11.com.example:volume
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get -q download "tgt=$VERSION" libaio1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 libsystemd0 libiscsi-bin libiscsi7 >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(find "$folder/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH TGT_IPC_SOCKET=$folder/socket
truncate -s 8M volume other
root/usr/sbin/tgtd -f --iscsi portal=127.0.0.1:13261 >log 2>&1 &
pid=$!
tgtadm() { root/usr/sbin/tgtadm --lld iscsi "$@"; }
for _ in {1..50}; do
    if tgtadm --op show --mode target >/dev/null 2>&1; then break; fi
    sleep 0.1
done
identity() { # NUMBER NAME FILE: what an initiator reads of the disk; the target goes again
    tgtadm --op new --mode target --tid "$1" --targetname "$2"
    tgtadm --op new --mode logicalunit --tid "$1" --lun 1 --backing-store "$folder/$3"
    tgtadm --op show --mode target | awk '/LUN: 1/ { disk = 1 } disk && /SCSI (ID|SN):/ { sub(/^ +/, ""); gsub(/ +/, " "); printf "%s; ", $0 }'
    tgtadm --op delete --mode target --tid "$1"
}
first=$(identity 1 "$NAME" volume)
again=$(identity 2 "$NAME" volume)
other=$(identity 1 "$NAME-2" other)
tgtadm --op new --mode target --tid 1 --targetname "$NAME"
tgtadm --op new --mode logicalunit --tid 1 --lun 1 --backing-store "$folder/volume"
tgtadm --op update --mode logicalunit --tid 1 --lun 1 --params scsi_id=0123456789abcdef0123456789abcdef
tgtadm --op bind --mode target --tid 1 --initiator-address ALL
naa=$(root/usr/bin/iscsi-inq -e 1 -c 131 "iscsi://127.0.0.1:13261/$NAME/1" | LC_ALL=C sed -n 's/^Designator:\[\(....\).*/\1/p' | head -n 1 | od -An -tx1 -N4 | tr -d ' ')
echo "tgt $VERSION: target 1: $first"
echo "the same file and name as target 2: $again"
echo "another file and name as target 1: $other"
echo "with scsi_id=01234567... the NAA name begins with $naa"
if [ "$naa" != 61234567 ] || [ -z "$first" ] || [ "$first" = "$again" ] || [ "$first" != "$other" ]; then
    echo "the behaviour changed"
    exit 1
fi
