#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# libvirt 9.0.0 (Debian 12; the rules of 11.3.0 in Debian 13 are the same). virt-aa-helper writes the AppArmor profile of a guest, and opens its
# disks to find their backing files. Its own profile lets it read disks by their names: a disk called `disk` or `disk.*`, or with one of seven endings. A
# backing file without such an ending (outside of /home, /mnt, /media, /opt, /srv and libvirt's pool) is missing in the guest's profile, without a
# word: the domain starts nowhere, with "Permission denied" from QEMU.
#
# Reads the profile from the package, in a temporary folder; nothing of this machine is changed.
set -euo pipefail
VERSION=9.0.0-4+deb12u2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -q download "libvirt-daemon-system=$VERSION" >/dev/null 2>&1
dpkg-deb -x ./*.deb root
profile=root/etc/apparmor.d/usr.lib.libvirt.virt-aa-helper
[ -e "$profile" ] || { echo "the package has no profile of virt-aa-helper"; exit 1; }
anywhere=$(sed -n 's/^  \(\/\*\*[^ ]*\) r,$/\1/p' "$profile" | tr '\n' ' ')
echo "libvirt $VERSION: virt-aa-helper reads anywhere: $anywhere"
# AppArmor's ** is any path, {,.*} an alternative.
may_read() { case $1 in *.img | *.raw | *.qcow | *.qcow2 | *.qed | *.vmdk | *.vhd | *.[iI][sS][oO] | */disk | */disk.*) echo yes ;; *) echo no ;; esac; }
for path in /var/lib/x/instances/UUID/disk /var/lib/x/instances/_base/image /var/lib/x/instances/_base/image.raw; do
    echo "$path: $(may_read "$path")"
done
if [ "$anywhere" != '/**.img /**.raw /**.qcow{,2} /**.qed /**.vmdk /**.vhd /**.[iI][sS][oO] /**/disk{,.*} ' ]; then
    echo "the rules changed"
    exit 1
fi
