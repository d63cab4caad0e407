#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Ceph 16.2.15 (Debian 12). A program that hands a secret to another one by a pipe (`--keyfile <(...)`, a FIFO) gives Ceph's tools an empty key: they
# read as many bytes of the key file as its size says, which is 0 for a pipe. No error names the key file. The tool says "no keyring found" of four
# other files, and goes on without authentication ("disabling cephx"). The same key in a regular file is used.
#
# Needs root, for a chroot, and no cluster: both runs look for a monitor at a port of loopback where none is. Nothing of this machine is changed.
set -euo pipefail
VERSION=16.2.15+ds-0+deb12u2
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
cd "$folder"
for suite in bookworm bookworm-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security bookworm-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="ceph-common=$VERSION,base-files" \
    --aptopt='APT::Install-Recommends "false"' bookworm root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
# A key of the kind that Ceph makes: version, time, length, 16 bytes.
python3 -c 'import base64, struct; print(base64.b64encode(struct.pack("<HIIH", 1, 1700000000, 0, 16) + bytes(range(16))).decode())' >root/key
mkfifo root/pipe
list() { # KEY-FILE: what is printed in three seconds
    timeout 3 chroot root /usr/bin/rbd --conf /dev/null -m 127.0.0.1:1 --id tester --keyfile "$1" ls 2>&1 || true
}
of_file=$(list /key)
timeout 20 sh -c 'cat root/key >root/pipe' 2>/dev/null &
of_pipe=$(list /pipe)
wait || true
count() { grep -c 'no keyring found .* disabling cephx' <<<"$1" || true; }
echo "ceph-common $VERSION: with the key in a file 'no keyring found, disabling cephx' is said $(count "$of_file") times, with the same key in a pipe $(count "$of_pipe") times"
if [ "$(count "$of_file")" -ne 0 ] || [ "$(count "$of_pipe")" -eq 0 ] || grep -q pipe <<<"$of_pipe"; then
    printf '%s\n' "the behaviour changed" "$of_file" "$of_pipe"
    exit 1
fi
