# shellcheck shell=bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Sourced by the scripts that build images of Debian: where packages of a suite come from.

# Copies this machine's own sources of Debian into the current folder, wherever they point; where none names the suite, those of this
# machine's release with the suite's name. Sets the array sources to their paths. Fails if there is none.
debian_sources() { # SUITE
    local suite=$1 own file
    # shellcheck disable=SC1091  # of the machine
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        # Not those of others than Debian.
        if [ -f "$file" ] && grep -qE '/debian(-security)?/?( |$)' "$file" && grep -qwE "$suite|${own:-$suite}" "$file"; then
            if grep -qw "$suite" "$file"; then cp "$file" .; else sed -E "s/\\b$own\\b/$suite/g" "$file" >"$(basename "$file")"; fi
        fi
    done
    mapfile -t sources < <(find "$PWD" -maxdepth 1 \( -name '*.list' -o -name '*.sources' \))
    [ "${#sources[@]}" -gt 0 ]
}
