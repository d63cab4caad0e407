#!/bin/sh
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Starts a guest as boots do: its disk is a layer over another file, both below the directory for instances ($1). Its CPUs stay stopped,
# and it is gone when the connection of virsh ends.
set -eu
[ -d "$1/_probe" ] || mkdir -m 711 "$1/_probe"
work=$(mktemp -d "$1/_probe/try-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 711 "$work"
truncate -s 1M "$work/base.raw"
chmod 644 "$work/base.raw"
qemu-img create -q -f qcow2 -F raw -b "$work/base.raw" "$work/disk" 1M
chmod 600 "$work/disk"
path=$(printf '%s\n' "$work" | sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/"/\&quot;/g')
cat >"$work/guest.xml" <<XML
<domain type="qemu"><name>bootflow-${work##*/}</name><memory unit="MiB">32</memory><vcpu>1</vcpu><os><type>hvm</type></os>
<devices><disk type="file"><driver name="qemu" type="qcow2"/><source file="$path/disk"/>
<backingStore type="file"><format type="raw"/><source file="$path/base.raw"><seclabel model="dac" relabel="no"/></source><backingStore/></backingStore>
<target dev="vda" bus="virtio"/></disk></devices></domain>
XML
virsh --quiet --connect qemu:///system create "$work/guest.xml" --paused --autodestroy </dev/null
