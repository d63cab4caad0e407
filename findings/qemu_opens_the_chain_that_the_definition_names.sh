#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# libvirt 11.3.0 (Debian 13). A qcow2 disk has the name of its backing file in its header, and a domain may name the backing chain of its disks, too. Where both
# differ, as after the disk was replaced by another file of the same name, libvirt gives QEMU the file of the definition, without a word about the header: the
# guest has another base image below its disk, and reads wrong data. So whoever exchanges a disk removes <backingStore> from the definition, or writes it anew.
#
# Needs root, for chroot. Unpacks libvirt's driver and QEMU in a temporary folder (900 MB); no daemon and no guest runs: libvirt prints QEMU's command line.
set -euo pipefail
VERSION=11.3.0-3+deb13u3
folder=$(mktemp -d)
trap 'umount -l "$folder/root/proc" 2>/dev/null || true; rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
for name in trixie trixie-updates; do echo "deb http://deb.debian.org/debian $name main"; done >list
echo "deb http://deb.debian.org/debian-security trixie-security main" >>list
packages=libvirt-clients=$VERSION,libvirt-daemon-driver-qemu=$VERSION,libvirt0=$VERSION,qemu-system-x86,qemu-utils,base-files,coreutils,bash
mmdebstrap --quiet --mode=root --variant=extract --include="$packages" --aptopt='APT::Install-Recommends "false"' trixie root list >log 2>&1 || { tail -n 5 log >&2; exit 1; }
printf 'root:x:0:0:root:/root:/bin/sh\nlibvirt-qemu:x:64055:64055::/:/bin/false\n' >root/etc/passwd
printf 'root:x:0:\nkvm:x:103:\nlibvirt-qemu:x:64055:\n' >root/etc/group
mount -t proc proc root/proc
mkdir -p root/images root/embedded
truncate -s 1M root/images/of-the-definition.raw root/images/of-the-header.raw
chroot root /usr/bin/qemu-img create -q -f qcow2 -b /images/of-the-header.raw -F raw /images/disk.qcow2
cat >root/guest.xml <<XML
<domain type='qemu'><name>guest</name><memory>65536</memory><os><type arch='x86_64'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/disk.qcow2'/>
<backingStore type='file'><format type='raw'/><source file='/images/of-the-definition.raw'/><backingStore/></backingStore>
<target dev='vda' bus='virtio'/></disk></devices></domain>
XML
header=$(chroot root /usr/bin/qemu-img info /images/disk.qcow2 | sed -n 's|^backing file: /images/||p')
opened=$(LC_ALL=C timeout 120 chroot root /usr/bin/virsh -c 'qemu:///embed?root=/embedded' domxml-to-native qemu-argv /guest.xml 2>>log |
    grep -oE 'of-the-[a-z]+\.raw' | sort -u | paste -sd' ' || true)
echo "libvirt $VERSION: the header names $header, QEMU opens ${opened:-nothing that was found}"
if [ "$header / $opened" != "of-the-header.raw / of-the-definition.raw" ]; then
    tail -n 3 log >&2
    echo "the behaviour changed"
    exit 1
fi
