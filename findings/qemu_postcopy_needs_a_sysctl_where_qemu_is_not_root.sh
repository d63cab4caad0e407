#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# QEMU 7.2 and libvirt 9.0.0 (Debian 12). A QEMU that is not root, as libvirt starts it, receives no guest by post-copy: "Postcopy is not supported". It handles
# page faults of the kernel by userfaultfd, which Linux 5.11 and later permit root only, unless vm.unprivileged_userfaultfd is 1. libvirt's
# packages install no file for sysctl.d that sets this. As root the same QEMU takes the capability: a test with a QEMU of root sees nothing of it.
#
# Needs root, for a chroot. Unpacks QEMU in a temporary folder (300 MB); no guest runs, and nothing of this machine is changed.
set -euo pipefail
QEMU=1:7.2+dfsg-7+deb12u18+b3
LIBVIRT=9.0.0-4+deb12u2
SETTING=/proc/sys/vm/unprivileged_userfaultfd
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
[ "$(cat $SETTING)" = 0 ] || { echo "this kernel has another default, or somebody has set $SETTING"; exit 1; }
for suite in bookworm bookworm-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security bookworm-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="qemu-system-x86=$QEMU,base-files" --aptopt='APT::Install-Recommends "false"' \
    bookworm root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
takes() { # USER: whether QEMU takes the capability
    local said
    said=$(printf 'migrate_set_capability postcopy-ram on\ninfo migrate_capabilities\nquit\n' | chroot --userspec="$1" root /usr/bin/qemu-system-x86_64 -M pc \
        -accel tcg -incoming defer -m 64 -display none -vga none -nodefaults -monitor stdio 2>&1 || true)
    if [[ $said == *"Postcopy is not supported"* ]]; then echo no; elif [[ $said == *"postcopy-ram: on"* ]]; then echo yes; else echo "$said"; fi
}
apt-get -q download "libvirt-daemon-system=$LIBVIRT" "libvirt-daemon=$LIBVIRT" "libvirt-daemon-driver-qemu=$LIBVIRT" >/dev/null 2>&1
files=$(for package in ./libvirt*.deb; do dpkg-deb --contents "$package"; done | grep -c 'sysctl\.d/' || true)
found="$(takes root:root) $(takes nobody:nogroup) $files"
echo "QEMU $QEMU takes postcopy-ram as root, as nobody; files for sysctl.d in three packages of libvirt $LIBVIRT: $found"
if [ "$found" != "yes no 0" ]; then
    echo "the behaviour changed"
    exit 1
fi
