#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# QEMU 7.2 (Debian 12). The virtual size of a raw image is not the length of its file: `qemu-img info` rounds it up to 512 bytes, and `qemu-img convert`
# of such a file to raw writes those bytes. A raw image of 1,000 bytes has 1,024, so that a copy differs from its source in length and in checksum;
# `qemu-img compare` calls the two identical.
#
# Needs root, for a chroot. Unpacks qemu-utils in a temporary folder; nothing of this machine is changed.
set -euo pipefail
VERSION=1:7.2+dfsg-7+deb12u18+b3
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
for suite in bookworm bookworm-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security bookworm-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="qemu-utils=$VERSION,base-files" --aptopt='APT::Install-Recommends "false"' \
    bookworm root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
head -c 1000 /dev/zero | tr '\0' 'x' >root/source.raw
img() { chroot root /usr/bin/qemu-img "$@"; }
size=$(img info -f raw --output=json /source.raw | sed -n 's/.*"virtual-size": \([0-9]*\),.*/\1/p' | head -n 1)
img convert -f raw -O raw /source.raw /copy.raw
copied=$(stat -c %s root/copy.raw)
compared=$(img compare -f raw -F raw /source.raw /copy.raw)
echo "qemu-utils $VERSION: a file of 1000 bytes has a virtual size of $size, its copy $copied bytes; compare says: $compared"
if [ "$size $copied $compared" != "1024 1024 Images are identical." ]; then
    echo "the behaviour changed"
    exit 1
fi
