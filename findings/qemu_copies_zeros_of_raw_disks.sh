#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# QEMU 7.2 (Debian 12). A copy that a running QEMU makes of a raw disk (blockdev-mirror, which is libvirt's blockCopy) to a qcow2 file writes zeros as
# data: the file is larger than the disk itself, although the disk is empty. `qemu-img convert` of the same disk leaves zeros out. Logical volumes are
# such disks: the image of an almost empty guest is larger than its flavor's disk, and is refused where the size of a file is compared with a flavor.
#
# Needs root, for a chroot. Unpacks QEMU's tools in a temporary folder; nothing of this machine is changed.
set -euo pipefail
VERSION=1:7.2+dfsg-7+deb12u18+b3
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
for suite in bookworm bookworm-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security bookworm-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="qemu-utils=$VERSION,qemu-system-common=$VERSION,base-files" \
    --aptopt='APT::Install-Recommends "false"' bookworm root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
SIZE=$((16 * 1024 * 1024))
head -c "$SIZE" /dev/zero >root/disk.raw
chroot root /usr/bin/qemu-img create -q -f qcow2 /mirrored.qcow2 "$SIZE"
# shellcheck disable=SC2094 # the answers are awaited
{
    echo '{"execute": "qmp_capabilities"}'
    echo '{"execute": "blockdev-add", "arguments": {"node-name": "disk", "driver": "raw", "file": {"driver": "file", "filename": "/disk.raw"}}}'
    echo '{"execute": "blockdev-add", "arguments": {"node-name": "copy", "driver": "qcow2", "file": {"driver": "file", "filename": "/mirrored.qcow2"}}}'
    echo '{"execute": "blockdev-mirror", "arguments": {"job-id": "mirror", "device": "disk", "target": "copy", "sync": "full"}}'
    for _ in {1..100}; do
        if grep -q BLOCK_JOB_READY said 2>/dev/null; then break; fi
        sleep 0.2
    done
    echo '{"execute": "block-job-cancel", "arguments": {"device": "mirror"}}'
    sleep 1
    echo '{"execute": "quit"}'
    sleep 1
} | chroot root /usr/bin/qemu-storage-daemon --chardev stdio,id=qmp --monitor chardev=qmp >said
chroot root /usr/bin/qemu-img convert -f raw -O qcow2 /disk.raw /converted.qcow2
mirrored=$(stat -c %s root/mirrored.qcow2)
converted=$(stat -c %s root/converted.qcow2)
echo "QEMU $VERSION: of an empty raw disk of $SIZE bytes a mirror makes a qcow2 file of $mirrored bytes, convert one of $converted bytes"
if [ "$mirrored" -le "$SIZE" ] || [ "$converted" -gt 1048576 ]; then
    echo "the behaviour changed"
    exit 1
fi
