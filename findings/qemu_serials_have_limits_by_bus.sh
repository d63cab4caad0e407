#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# QEMU 10.0.13 (Debian 13). How long the serial of a disk may be depends on its bus: usb-storage takes 20 characters and refuses a longer serial,
# a UUID for example, with words about a device_id that usb-storage does not have; scsi-hd takes 20, or 36 with a device_id (libvirt
# gives one); virtio-blk and IDE take all lengths and show 20 characters to the guest. QEMU 7.2 (Debian 12) refused none and cut them.
# Whoever gives a disk the UUID of a volume as its serial can start or plug it on USB with QEMU 7.2 and not with QEMU 10.
#
# Needs root, for a chroot. Unpacks QEMU in a temporary folder (300 MB); no guest runs, and nothing of this machine is changed.
set -euo pipefail
VERSION=1:10.0.13+ds-0+deb13u1
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
for suite in trixie trixie-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security trixie-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="qemu-system-x86=$VERSION,base-files" --aptopt='APT::Install-Recommends "false"' \
    trixie root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
truncate -s 1M root/disk.raw
uuid=6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01
takes() { # DEVICE: whether QEMU accepts it
    local said
    said=$(echo quit | chroot root /usr/bin/qemu-system-x86_64 -M pc -accel tcg -S -display none -vga none -nodefaults -monitor stdio -device virtio-scsi-pci \
        -device piix3-usb-uhci -drive if=none,id=d,file=/disk.raw,format=raw -device "$1,drive=d" 2>&1 || true)
    if [[ $said == *"The serial number can't be longer"* ]]; then echo no; else [[ $said == *"(qemu)"* ]] && echo yes || echo "$said"; fi
}
found=$(for device in "usb-storage,serial=$uuid" "usb-storage,serial=${uuid:0:20}" "scsi-hd,serial=$uuid" "scsi-hd,serial=$uuid,device_id=d" \
    "scsi-hd,serial=${uuid}x,device_id=d" "virtio-blk-pci,serial=${uuid}x" "ide-hd,serial=${uuid}x"; do takes "$device"; done | paste -sd' ')
echo "QEMU $VERSION takes: a UUID on usb-storage, 20 characters there, a UUID on scsi-hd, the same with a device_id, 37 characters with one,"
echo "37 characters on virtio-blk, 37 on IDE: $found"
if [ "$found" != "no yes no yes no yes yes" ]; then
    echo "the behaviour changed"
    exit 1
fi
