#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# lvm2 2.03.16 (Debian 12). With log/command_names=1 in lvm.conf the report of `vgs --reportformat json` is not JSON: LVM puts the
# command's name in front of each line of it. LVM_REPORT_FD, which gives reports a file descriptor of their own so that programs
# need not tell them from messages, does not help: the names are in that report, too. --config log/command_names=0 does.
#
# Installs lvm2 in a temporary folder, reads no disk, and changes nothing of this machine.
set -euo pipefail
VERSION=2.03.16-2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -q download "lvm2=$VERSION" libdevmapper-event1.02.1 libdevmapper1.02.1 libaio1 >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
cp root/usr/lib/*/libdevmapper* root/lib/*/libdevmapper* root/lib/*/libaio* . 2>/dev/null || true
mkdir etc
cat >etc/lvm.conf <<CONF
devices { filter = [ "r|.*|" ] use_devicesfile = 0 }
global { locking_dir = "$folder/lock" }
log { command_names = 1 }
CONF
export LVM_SUPPRESS_FD_WARNINGS=1 LVM_SYSTEM_DIR=$folder/etc LD_LIBRARY_PATH=$folder
is_json() { python3 -c 'import json, sys; json.load(sys.stdin)' <"$1" 2>/dev/null && echo yes || echo no; }
root/sbin/lvm vgs --reportformat json >stdout 2>/dev/null
LVM_REPORT_FD=7 root/sbin/lvm vgs --reportformat json 7>descriptor >/dev/null 2>&1
root/sbin/lvm vgs --reportformat json --config log/command_names=0 >config 2>/dev/null
echo "lvm2 $VERSION, log/command_names=1: first line of the report on stdout: '$(head -n 1 stdout)', on LVM_REPORT_FD: '$(head -n 1 descriptor)'"
echo "JSON: on stdout $(is_json stdout), on LVM_REPORT_FD $(is_json descriptor), with --config log/command_names=0 $(is_json config)"
if [ "$(is_json stdout) $(is_json descriptor) $(is_json config)" != "no no yes" ]; then
    echo "the behaviour changed"
    exit 1
fi
