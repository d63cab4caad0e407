# shellcheck shell=bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# shellcheck disable=SC2034  # the lists are for those who source this
#
# Shared by scripts/demo, scripts/test and scripts/bench: Debian packages, the virtual environment, the built collection.
# Source it after `set -euo pipefail`. Apart from the packages, all results are in $CACHE (.cache) and $VENV (.venv).

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${BOOTFLOW_CACHE:-$ROOT/.cache}
VENV=${BOOTFLOW_VENV:-$ROOT/.venv}
export BOOTFLOW_CACHE=$CACHE
export PATH=$VENV/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

PACKAGES_CONTROLLER=(python3 python3-venv python3-apt openssh-client)
# The packages of the role compute_host.
mapfile -t PACKAGES_HOST < <(sed -n '/^compute_host_family_packages:/,/^[^ ]/s/^  - //p' "$ROOT/roles/compute_host/vars/debian.yml")
PACKAGES_GUEST_IMAGE=(cpio mtools syslinux syslinux-common qemu-utils)
# Used by scripts/test, never by the collection itself.
PACKAGES_TEST=(python3-packaging openssh-server genisoimage util-linux xorriso cloud-init shellcheck procps git postgresql pgbouncer openssl nftables
    ovn-central ovn-host ovn-common openvswitch-switch openvswitch-common)

# A PostgreSQL that fails over (scripts/test failover).
PACKAGES_FAILOVER=(postgresql patroni python3-etcd etcd-server haproxy)

# The engine of Event-Driven Ansible (scripts/test integration_all).
PACKAGES_EDA=(default-jre-headless)

# Builds the storage host of the lab (scripts/test storage).
PACKAGES_STORAGE_IMAGE=(mmdebstrap cpio e2fsprogs qemu-block-extra)

# The cluster of tests/integration_py/test_ceph.py (scripts/test integration).
PACKAGES_CEPH=(ceph-mon ceph-osd ceph-mgr ceph-common python3-rados python3-rbd qemu-block-extra)

say() { printf '\n==> %s\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }

# Packages of the arguments that are not installed, one a line, each once.
missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || echo "$package"
    done | awk '!seen[$0]++'
}

# A line of progress every few seconds while a command runs; its output only when it fails.
quietly() { # WHAT COMMAND...
    local what=$1 log status=0 started=$SECONDS pid shown=0
    shift
    mkdir -p "$CACHE"
    log=$(mktemp "$CACHE/log.XXXXXX")
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - started)) -ge $((shown + 5)) ]; then
            shown=$((SECONDS - started))
            note "$what: ${shown} s - $(tail -c 200 "$log" | tr '\r' '\n' | grep -v '^$' | tail -n 1 | cut -c1-90)"
        fi
    done
    wait "$pid" || status=$?
    [ "$status" -eq 0 ] || { cat "$log" >&2; note "$what failed (exit $status)"; }
    rm -f "$log"
    return "$status"
}

# Installs what is missing. A service of a package is not started where there is no systemd, and never an sshd, etcd or HAProxy.
install_packages() {
    local missing policy=/usr/sbin/policy-rc.d made_policy=no status=0
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "these Debian packages are missing, and installing them needs root: ${missing[*]}"
    command -v apt-get >/dev/null || die "apt-get not found; install the content of these Debian packages by hand: ${missing[*]}"
    say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
    if [ ! -e "$policy" ] && { [ ! -d /run/systemd/system ] || printf '%s\n' "${missing[@]}" | grep -qxE 'openssh-server|etcd-server|haproxy'; }; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made_policy=yes
    fi
    quietly "apt-get update" apt-get -o DPkg::Lock::Timeout=300 update || note "going on with the package lists that are there"
    quietly "apt-get install" apt-get -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold install \
        --no-install-recommends "${missing[@]}" || status=$?
    [ "$made_policy" = no ] || rm -f "$policy"
    [ "$status" -eq 0 ] || die "apt-get could not install: ${missing[*]}"
}

# Package lists for `apt-get download`, if the machine has none.
ensure_package_lists() {
    apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 && return 0
    quietly "apt-get update" apt-get -o DPkg::Lock::Timeout=300 update || die "apt-get update failed"
}

# The newest Python of this machine's programs that makes virtual environments; BOOTFLOW_PYTHON names another one.
newest_python() {
    local python PATH=${PATH#"$VENV/bin:"} # not the one that it made before
    for python in ${BOOTFLOW_PYTHON:-$(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -Vru) /usr/bin/python3}; do
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

# The virtual environment with the pinned versions of the named requirements files, ansible-core's newest release that its Python runs among
# them; nothing to do when it has them.
make_venv() { # requirements.txt...
    local stamp options=() file python
    python=$(newest_python) || die "no Python can make a virtual environment: is python3-venv installed?"
    stamp=$(cd "$ROOT" && ("$python" --version && cat "$@" constraints.txt) | sha256sum | cut -d' ' -f1)
    if [ -f "$VENV/.stamps/$stamp" ] && "$VENV/bin/python" -c 'import ansible' 2>/dev/null; then
        return 0
    fi
    say "Python environment $VENV: $*"
    if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null || [ "$("$VENV/bin/python" --version)" != "$("$python" --version)" ]; then
        rm -rf "$VENV"
        quietly "$python -m venv" "$python" -m venv "$VENV" || die "$python cannot create a virtual environment"
    fi
    for file in "$@"; do options+=(-r "$ROOT/$file"); done
    quietly "pip install" "$VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
        -c "$ROOT/constraints.txt" "${options[@]}" || die "pip could not install $*"
    mkdir -p "$VENV/.stamps"
    touch "$VENV/.stamps/$stamp"
}

# The source files of the collection, one per line: what git has or would add; without git, all except caches.
source_files() {
    if command -v git >/dev/null && git -C "$ROOT" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$ROOT" ls-files --cached --others --exclude-standard | while IFS= read -r file; do
            if [ -e "$ROOT/$file" ]; then echo "$file"; fi
        done
    else
        find "$ROOT" -type d \( -name .git -o -name '.*_cache' -o -name __pycache__ -o -name .ansible -o -name .hypothesis -o -path "$CACHE" \
            -o -path "$VENV" -o -path "$ROOT/collections" \) -prune -o \( -type f -o -type l \) ! -name '*.pyc' ! -name '*.tar.gz' -printf '%P\n'
    fi | LC_ALL=C sort
}

# Copies the source to ansible_collections/bootflow/compute below the given directory; prints its path.
copy_source() { # FOLDER
    local target=$1/ansible_collections/bootflow/compute
    rm -rf "$target"
    mkdir -p "$target"
    (source_files | tar -C "$ROOT" -cf - --no-recursion -T - | tar -C "$target" -xf -)
    echo "$target"
}

site_packages() { "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Builds the tarball and installs it into the virtual environment: `ansible-playbook bootflow.compute.boot` finds it there.
# Prints nothing and does nothing when the source is the one that is installed.
# From here on Ansible uses that copy: by default it takes one in ~/.ansible/collections first, of whatever version.
install_collection() {
    local recipe stamp=$VENV/.stamps/collection source tarball
    recipe=$(source_files | (cd "$ROOT" && tr '\n' '\0' | xargs -0 sha256sum 2>/dev/null) | sha256sum | cut -d' ' -f1)
    ANSIBLE_COLLECTIONS_PATH=$(site_packages)
    export ANSIBLE_COLLECTIONS_PATH
    if [ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ] && [ -d "$(site_packages)/ansible_collections/bootflow/compute" ]; then
        return 0
    fi
    say "Building and installing the collection"
    source=$(copy_source "$CACHE/build")
    rm -f "$CACHE"/build/*.tar.gz
    quietly "ansible-galaxy collection build" ansible-galaxy collection build --force --output-path "$CACHE/build" "$source" || die "cannot build the collection"
    tarball=$(echo "$CACHE"/build/bootflow-compute-*.tar.gz)
    rm -rf "$(site_packages)/ansible_collections/bootflow/compute"
    quietly "ansible-galaxy collection install" ansible-galaxy collection install "$tarball" -p "$(site_packages)" --force --no-deps --offline ||
        die "cannot install the collection"
    mkdir -p "$VENV/.stamps"
    echo "$recipe" >"$stamp"
}

# The guest of the demo and the tests; prints the path of its qcow2.
guest_image() { # OPTION...
    ensure_package_lists
    "$ROOT/scripts/build-guest-image" "$CACHE/guest" "$@"
}
