#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PgBouncer 1.18.0 and PostgreSQL 15 (Debian 12). A database of PgBouncer may have a list of hosts, of which it takes one after the other. Where the first one refuses
# its connection at once, the next one is not asked at once: a client waits for server_login_retry, 15 s by default. The same server behind a list whose
# first host is alive answers in a moment, and so does libpq itself, which takes the same list.
#
# Needs root, for chroot. Unpacks both in a temporary folder (150 MB); a server and a pooler run there on loopback for half a minute.
set -euo pipefail
PGBOUNCER=1.18.0-1+deb12u1
POSTGRESQL=15.20-0+deb12u1
DEAD=127.0.0.9 # of loopback; nobody listens there
folder=$(mktemp -d)
# shellcheck disable=SC2317,SC2329  # the trap calls it
finish() {
    [ ! -e "$folder/root/tmp/pgbouncer.pid" ] || kill "$(cat "$folder/root/tmp/pgbouncer.pid")" 2>/dev/null || true
    [ ! -e "$folder/root/tmp/data/postmaster.pid" ] || kill -INT "$(head -n 1 "$folder/root/tmp/data/postmaster.pid")" 2>/dev/null || true
    sleep 2
    rm -rf --one-file-system "$folder"
}
trap finish EXIT
cd "$folder"
for suite in bookworm bookworm-updates; do echo "deb http://deb.debian.org/debian $suite main"; done >sources.list
echo "deb http://deb.debian.org/debian-security bookworm-security main" >>sources.list
mmdebstrap --quiet --mode=root --variant=extract --include="pgbouncer=$PGBOUNCER,postgresql-15=$POSTGRESQL,postgresql-client-15=$POSTGRESQL,base-files,coreutils,dash,libc-bin" \
    --aptopt='APT::Install-Recommends "false"' bookworm root sources.list >log 2>&1 || { tail -n 5 log; exit 1; }
echo 'nobody:x:65534:65534::/tmp:/bin/sh' >root/etc/passwd
echo 'nogroup:x:65534:' >root/etc/group
chmod 1777 root/tmp
[ -e root/bin/sh ] || ln -s dash root/bin/sh
inside() { LC_ALL=C PGCONNECT_TIMEOUT=60 chroot --userspec=nobody:nogroup root "$@"; }
bin=/usr/lib/postgresql/15/bin
inside $bin/initdb -D /tmp/data -U nobody -A trust >log
inside $bin/pg_ctl -D /tmp/data -l /tmp/log -w -o "-c listen_addresses=127.0.0.1 -p 54329 -k /tmp" start >log
cat >root/tmp/pgbouncer.ini <<INI
[databases]
dead_first = host=$DEAD,127.0.0.1 port=54329 dbname=postgres user=nobody
alive_first = host=127.0.0.1,$DEAD port=54329 dbname=postgres user=nobody
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 54330
unix_socket_dir =
auth_type = any
pidfile = /tmp/pgbouncer.pid
logfile = /tmp/pgbouncer.log
INI
inside /usr/sbin/pgbouncer -q -d /tmp/pgbouncer.ini
for _ in {1..50}; do
    if (: </dev/tcp/127.0.0.1/54330) 2>/dev/null; then break; fi
    sleep 0.2
done
seconds() { # CONNECTION: how long a query takes
    local begin=$EPOCHREALTIME
    inside $bin/psql -qAtc 'SELECT 1' "$1" >/dev/null || return 1
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}
alive=$(seconds 'host=127.0.0.1 port=54330 dbname=alive_first user=nobody')
dead=$(seconds 'host=127.0.0.1 port=54330 dbname=dead_first user=nobody')
libpq=$(seconds "host=$DEAD,127.0.0.1 port=54329 dbname=postgres user=nobody")
echo "PgBouncer $PGBOUNCER, seconds of a query: first host alive $alive, first host dead $dead; libpq of PostgreSQL $POSTGRESQL with the dead host first $libpq"
if awk -v a="$alive" -v d="$dead" -v l="$libpq" 'BEGIN { exit !(a < 5 && l < 5 && d > 13 && d < 25) }'; then exit 0; fi
echo "the behaviour changed"
exit 1
