#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# libvirt 9.0.0 (Debian 12) and 11.3.0 (Debian 13). The older one refuses to define a guest whose <cputune> has <shares> of 1 or of more than 262144, and says so.
# The newer one defines a guest with any number, 0 and 300000 too: what a cgroup does not take comes out when the guest starts. Who leaves the check of a
# flavor's quota:cpu_shares to the definition, as on Debian 12, finds guests on Debian 13 that are defined and never run.
#
# Needs root, for chroot. Unpacks the client with its library in a temporary folder (200 MB); libvirt's test driver takes the definitions, no guest runs.
set -euo pipefail
declare -A LIBVIRT=([bookworm]=9.0.0-4+deb12u2 [trixie]=11.3.0-3+deb13u3)
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
taken() { # SUITE: the numbers with which a guest is defined
    local suite=$1 number result=
    for name in "$suite" "$suite-updates"; do echo "deb http://deb.debian.org/debian $name main"; done >"$suite.list"
    echo "deb http://deb.debian.org/debian-security $suite-security main" >>"$suite.list"
    mmdebstrap --quiet --mode=root --variant=extract --include="libvirt-clients=${LIBVIRT[$suite]},libvirt0=${LIBVIRT[$suite]},base-files" \
        --aptopt='APT::Install-Recommends "false"' "$suite" "$suite" "$suite.list" >log 2>&1 || { tail -n 5 log >&2; return 1; }
    for number in 0 1 2 262144 300000; do
        cat >"$suite/guest.xml" <<XML
<domain type='test'><name>guest</name><memory>1024</memory><os><type>hvm</type></os><cputune><shares>$number</shares></cputune></domain>
XML
        if LC_ALL=C chroot "$suite" /usr/bin/virsh -q -c test:///default define /guest.xml >>log 2>&1; then result+=" $number"; fi
    done
    echo "${result# }"
}
older=$(taken bookworm)
newer=$(taken trixie)
echo "shares with which a guest is defined: libvirt ${LIBVIRT[bookworm]}: $older; libvirt ${LIBVIRT[trixie]}: $newer"
if [ "$older / $newer" != "0 2 262144 / 0 1 2 262144 300000" ]; then
    echo "the behaviour changed"
    exit 1
fi
