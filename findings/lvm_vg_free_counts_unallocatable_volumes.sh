#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# lvm2 2.03.16 (Debian 12). vg_free and vg_free_count include the free extents of physical volumes that are set not allocatable
# (pvchange --allocatable n), although lvcreate may not use them: `lvcreate --extents 100%FREE`, and any size up to vg_free,
# count on fewer extents than vg_free promises. The room for new logical volumes is the sum of pv_free where pv_allocatable is set.
#
# Needs root, for two loop devices. Installs lvm2 in a temporary folder; nothing of this machine is changed.
set -euo pipefail
VERSION=2.03.16-2
folder=$(mktemp -d)
loops=()
clean() {
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
    rm -rf "$folder"
}
trap clean EXIT
cd "$folder"
apt-get -q download "lvm2=$VERSION" libdevmapper-event1.02.1 libdevmapper1.02.1 libaio1 >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
cp root/usr/lib/*/libdevmapper* root/lib/*/libdevmapper* root/lib/*/libaio* . 2>/dev/null || true
for size in 64 32; do
    truncate -s "${size}M" "disk$size"
    loops+=("$(losetup --find --show "disk$size")")
done
mkdir etc
cat >etc/lvm.conf <<CONF
devices { filter = [ "a|^${loops[0]}\$|", "a|^${loops[1]}\$|", "r|.*|" ] use_devicesfile = 0 }
global { locking_dir = "$folder/lock" use_lvmpolld = 0 event_activation = 0 }
activation { monitoring = 0 udev_sync = 0 udev_rules = 0 }
CONF
lvm_words() { LVM_SUPPRESS_FD_WARNINGS=1 LVM_SYSTEM_DIR=$folder/etc LD_LIBRARY_PATH=$folder root/sbin/lvm "$@"; }
lvm() { lvm_words "$@" 2>>errors; }
lvm vgcreate -q --physicalextentsize 4m example "${loops[@]}" >/dev/null
lvm pvchange -q --allocatable n "${loops[0]}" >/dev/null
report=$(lvm vgs --noheadings --options vg_free_count example | tr -d ' ')
allocatable=$(lvm pvs --noheadings --options pv_allocatable,pv_pe_count,pv_pe_alloc_count |
    awk '$1 == "allocatable" { free += $2 - $3 } END { print free + 0 }')
# The group is not activated here: a logical volume without activation needs no device-mapper.
error=$(lvm_words lvcreate --driverloaded n --yes --activate n --zero n --wipesignatures n --name lost --extents "$report" example 2>&1 || true)
echo "lvm2 $VERSION: vg_free_count $report, free extents of allocatable physical volumes $allocatable"
echo "lvcreate of $report extents: $error"
if [ "$report $allocatable" != "22 7" ] || [[ $error != *"Insufficient free space: 22 extents needed, but only 7 available"* ]]; then
    echo "the behaviour changed"
    cat errors
    exit 1
fi
