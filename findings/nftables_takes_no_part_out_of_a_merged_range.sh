#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# nftables 1.0.6 (Debian 12) and 1.1.3 (Debian 13). A set with auto-merge joins ranges that meet: 10.0.0.0/25 and 10.0.0.128/25 become 10.0.0.0/24. What was
# added by itself cannot be deleted by itself with 1.0.6: it says that the element does not exist. 1.1.3 takes the part out, and keeps the rest. So a filter
# that follows addresses which come and go flushes such a set and fills it anew in one transaction.
#
# Needs root, for chroot and a network namespace of its own. Unpacks both releases in a temporary folder (100 MB).
set -euo pipefail
folder=$(mktemp -d)
space=finding$$
trap 'ip netns del "$space" 2>/dev/null || true; rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
ip netns add "$space"

unpack() { # SUITE VERSION
    for name in "$1" "$1-updates"; do echo "deb http://deb.debian.org/debian $name main"; done >"$1.list"
    mmdebstrap --quiet --mode=root --variant=extract --include="nftables=$2,bash,coreutils" --aptopt='APT::Install-Recommends "false"' "$1" "$1" "$1.list" >log 2>&1 ||
        { tail -n 5 log >&2; exit 1; }
}

deletion() { # SUITE: prints what became of the deletion, and the set after it
    nft() { ip netns exec "$space" chroot "$1" /usr/sbin/nft "${@:2}"; }
    nft "$1" add table bridge finding
    nft "$1" add set bridge finding addresses '{ type ipv4_addr; flags interval; auto-merge; }'
    nft "$1" add element bridge finding addresses '{ 10.0.0.0/25, 10.0.0.128/25 }'
    local result=deleted
    nft "$1" delete element bridge finding addresses '{ 10.0.0.0/25 }' 2>error || result=$(sed -n '1s/^Error: //p' error)
    echo "$result;$(nft "$1" list set bridge finding addresses | sed -n 's/.*elements = //p')"
    nft "$1" delete table bridge finding
}

unpack bookworm 1.0.6-2+deb12u2
unpack trixie 1.1.3-1
old=$(deletion bookworm)
new=$(deletion trixie)
echo "nftables 1.0.6: $old; 1.1.3: $new"
if [ "$old" != "element does not exist;{ 10.0.0.0/24 }" ] || [ "$new" != "deleted;{ 10.0.0.128/25 }" ]; then
    echo "the behaviour changed"
    exit 1
fi
