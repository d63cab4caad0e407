# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the ledger and of a run on the controller."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from ..networks.ipam import BASE_MAC, checked_base_mac
from ..ovn.addresses import checked_addresses
from ..reading.setting import FILLED, PATH, Kind, Setting, Table, Unfit, structure

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
NOTIFICATIONS = ("none", "vm_state", "vm_and_task_state")
LONGEST = 2_000_000  # seconds, of a timeout
LONGEST_AGE = 10_000_000_000  # seconds


SHORTEST_KEY = 16  # characters, of a passphrase


def _passphrases(value: t.Any) -> list[str]:
    passphrases = structure(value)
    if not isinstance(passphrases, (list, tuple)):
        raise Unfit
    if any(not isinstance(p, str) or len(p) < SHORTEST_KEY for p in passphrases):
        raise Unfit
    return list(passphrases)


def _database(value: t.Any) -> str:
    try:
        return checked_addresses(value)
    except InvalidInput:
        raise Unfit from None


def _base_mac(value: t.Any) -> str:
    try:
        return checked_base_mac(value)
    except InvalidInput:
        raise Unfit from None


LEDGER = Table(
    (
        Setting(
            "ledger_url",
            str,
            "sqlite:////var/lib/bootflow/ledger.db",
            "Where the ledger is: an absolute path, or a `sqlite:////path` or `postgresql://user@server/database` URL; see"
            " [ledger.md](ledger.md).",
            secret=True,
        ),
        Setting(
            "ledger_password",
            str,
            help="Password of a PostgreSQL ledger. Without it, `bootflow_ledger_password_file` and a password in the URL, the"
            " controller's environment variable `BOOTFLOW_LEDGER_PASSWORD` is read, then what libpq finds (`PGPASSWORD`,"
            " `~/.pgpass`, a service file).",
            secret=True,
        ),
        Setting(
            "ledger_password_file",
            PATH,
            help="File on the controller with the password in its first line, mode 0600.",
        ),
        Setting(
            "ledger_sslmode",
            str,
            help="TLS to PostgreSQL; `verify-full` is recommended.",
            choices=SSL_MODES,
            default_text="libpq's",
        ),
        Setting(
            "ledger_sslrootcert",
            PATH,
            help="Certificates that verify the server's: a file on the controller, or `system`.",
            default_text="libpq's",
        ),
        Setting("ledger_sslcert", PATH, help="Client certificate, a file on the controller.", default_text="libpq's"),
        Setting("ledger_sslkey", PATH, help="Client key, a file of mode 0600.", default_text="libpq's"),
        Setting(
            "ledger_connect_timeout",
            int,
            10,
            "Time to wait for a connection to PostgreSQL.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "ledger_lock_timeout",
            float,
            60.0,
            "Time to wait for what another run has locked; 0: no limit.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "ledger_statement_timeout",
            float,
            300.0,
            "Time that one statement may take on PostgreSQL; 0: no limit.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "ledger_answer_timeout",
            float,
            30.0,
            "Time after `bootflow_ledger_statement_timeout` that PostgreSQL has to answer: then it is frozen, and the connection is cut;"
            " 0: no limit.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "ledger_idle_timeout",
            float,
            120.0,
            "Time after which PostgreSQL takes the locks from a run that froze inside a transaction; 0: never.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "ledger_retry_timeout",
            float,
            60.0,
            "Time during which a transaction is tried again after a conflict or a server restart.",
            least=0,
            most=LONGEST,
            unit="seconds",
        ),
    )
)

READING = Table(
    (
        Setting(
            "ledger_read_url",
            str,
            help="URL of a PostgreSQL replica of the ledger. The playbooks `list`, `show`, `events`, `hosts`, `volume_list`, `metrics` and `report` and the"
            " inventory plugin read it in place of the ledger, see [failover.md](failover.md). The variables of password, TLS and timeouts hold for"
            " it too.",
            default_text="the ledger itself",
            secret=True,
        ),
    )
)

MAINTENANCE = Table(
    (
        Setting("ledger_backup", PATH, help="Playbook `backup`: the new file.", option="dest"),
        Setting(
            "history_retention_days",
            float,
            90.0,
            "Playbook `purge`: how long deleted instances and their history are kept; 0: for ever.",
            least=0,
            most=1_000_000,
            unit="days",
        ),
    )
)

INIT = Table(
    (
        Setting(
            "init_dir", PATH, ".", "Playbook `init`: the folder that it writes.", default_text="the current folder"
        ),
        Setting(
            "init_hosts",
            list,
            (),
            "Playbook `init`: the compute hosts, each a name that SSH knows, or `name=address`.",
            default_text="this machine",
        ),
        Setting(
            "init_user",
            FILLED,
            "root",
            "Playbook `init`: who logs in to these hosts by SSH; another user than root becomes root there.",
        ),
        Setting(
            "init_public_key",
            PATH,
            help="Playbook `init`: the file of the public SSH key that guests let in.",
            default_text="id_ed25519.pub, id_ecdsa.pub or id_rsa.pub in ~/.ssh",
        ),
    )
)

#: Read for each compute host.
PURGE = Table(
    (
        Setting(
            "remove_unused_base_images",
            bool,
            True,
            "Playbook `purge`: remove base images that no disk on the host uses, as Nova's setting does.",
        ),
        Setting(
            "remove_unused_networks",
            str,
            "undeclared",
            "Playbook `purge`: remove libvirt networks that the collection defined and no domain uses: the ones that `bootflow_networks`"
            " no longer has, all, or none.",
            choices=("undeclared", "all", "none"),
        ),
        Setting(
            "remove_unused_original_minimum_age_seconds",
            int,
            86400,
            "Playbook `purge`: how long a base image or network must have been unused, as Nova's setting.",
            least=0,
            most=LONGEST_AGE,
            unit="seconds",
        ),
    )
)

WATCH = Table(
    (
        Setting(
            "watch_seconds",
            float,
            0.0,
            "Playbook `watch`: how long it listens; 0: until it is ended.",
            least=0,
            most=LONGEST_AGE,
            unit="seconds",
            option="seconds",
        ),
        Setting(
            "watch_write",
            bool,
            True,
            "Playbook `watch`: write what follows from events into the ledger. Without it the ledger is not opened.",
            option="write",
        ),
        Setting(
            "watch_sync",
            bool,
            False,
            "Playbook `watch`: run `power_sync` at once for a host on which it has something to do, with the command line of this run. A guest"
            " that was started although its instance is stopped is stopped again.",
            option="sync",
        ),
        Setting(
            "watch_events_file",
            PATH,
            help="Playbook `watch`: file (absolute path; a named pipe as well) that gets each event as a line of JSON.",
            option="events_file",
        ),
    )
)

#: Read for each compute host.
WATCHED = Table(
    (
        Setting(
            "handle_virt_lifecycle_events",
            bool,
            True,
            "Playbook `watch`: listen to the events of the host's guests, as Nova's setting does.",
        ),
        Setting(
            "resume_guests_state_on_host_boot",
            bool,
            True,
            "After a restart of the host, `power_sync` starts the guests of active instances; otherwise these instances are stopped. Nova's"
            " setting of that name is false.",
        ),
    )
)

RUN = Table(
    (
        Setting(
            "actor",
            str,
            help="User that the ledger records for what the run does.",
            default_text="the user (AWX: `awx_user_name`)",
        ),
        Setting(
            "image_relay",
            bool,
            True,
            "Hosts that lack a large image give it to each other while they receive it, at their `bootflow_copy_ports`, so that it leaves the controller,"
            " or the web server, once. `false`: each host gets it by itself.",
        ),
        Setting(
            "notify_on_state_change",
            str,
            "none",
            "Record notifications of state changes, as Nova's setting does.",
            choices=NOTIFICATIONS,
        ),
        Setting(
            "lease_seconds",
            int,
            600,
            "How long the claims of a dead run are kept. The value has to leave a live run time to renew its lease.",
            least=30,
            unit="seconds",
        ),
        Setting(
            "consecutive_build_service_disable_threshold",
            int,
            10,
            "Failed builds are counted for the BuildFailureWeigher; 0: they are not counted.",
            least=0,
        ),
        Setting(
            "base_mac",
            Kind("a unicast MAC address", _base_mac, "str"),
            BASE_MAC,
            "Beginning of the MAC addresses that are drawn: three octets, or four if the fourth is not 00, as Neutron's setting."
            " Ledgers whose guests are on one network need different ones.",
        ),
        Setting("compute_group", str, "bootflow_compute", "Inventory group of the compute hosts."),
        Setting(
            "hosts",
            list,
            help="Playbooks `boot` and `whatif`: compute hosts, or groups of them, that may get new instances. Playbook `power_sync`, and `list`"
            " with `bootflow_list_refresh`: the hosts that are asked. Playbook `image_precache`: the hosts that get"
            " the images. Ansible's `--limit` would leave out localhost, where the ledger is, and is"
            " refused without it.",
            default_text="all",
        ),
        Setting("storage_group", str, "bootflow_storage", "Inventory group of the storage hosts."),
        Setting(
            "facts_max_age",
            int,
            300,
            "Age at which the report of a compute host (boots) or storage host (playbooks of volumes) is stale, and the host is"
            " asked again.",
            least=0,
            unit="seconds",
        ),
        Setting(
            "service_down_time",
            int,
            900,
            "Time without a report after which a compute host is down, and a storage host gets no volumes.",
            least=1,
            unit="seconds",
        ),
        Setting("print_table", bool, True, "Print tables and plans in addition to the results."),
        Setting(
            "admin_password_dir",
            PATH,
            help="Folder on the controller (absolute path; made with mode 0700) in which a boot leaves the admin password of each instance"
            " that it started, in a file of mode 0600 named by the instance's UUID. `set_admin_password` replaces it, and a rescue leaves that of its"
            " guest in `UUID.rescue`. Nothing removes the files.",
        ),
    )
)

#: Settings of the data that guests need when they are made again, and that the ledger does not have.
IN_FOLDER, IN_LEDGER = "folder", "ledger"  # of user_data_store

GUEST_DATA = Table(
    (
        Setting(
            "keep_user_data",
            bool,
            True,
            "Keep user data and injected files, at `bootflow_user_data_store`: `evacuate`, `rebuild` and `unshelve` then need no file for them."
            " They are removed when no instance has them any more.",
        ),
        Setting(
            "user_data_store",
            str,
            IN_FOLDER,
            "Where user data and injected files are kept: in a folder of this controller (`bootflow_user_data_dir`), or in the ledger, where each controller"
            " has them; see [recovery.md](recovery.md#user-data).",
            choices=(IN_FOLDER, IN_LEDGER),
        ),
        Setting(
            "user_data_keys",
            Kind(
                "a list of passphrases with at least %d characters each (openssl rand -base64 32)" % SHORTEST_KEY,
                _passphrases,
                "list",
                "str",
            ),
            (),
            "Passphrases of at least 16 characters for user data in the ledger: the first one encrypts, each of them decrypts. Without any, whoever reads the"
            " ledger or its backups reads the user data.",
            secret=True,
        ),
        Setting(
            "user_data_dir",
            PATH,
            help="Folder on the controller (absolute path; made with mode 0700) for user data and injected files. Each ledger has a folder in it, named by"
            " its id, with files of mode 0600 named by their SHA-256.",
            default_text="the folder `user-data` next to an sqlite ledger; with PostgreSQL `/var/lib/bootflow/user-data`, of another user than root"
            " `~/.local/state/bootflow/user-data`",
        ),
    )
)

#: Read for each host, compute and storage.
TIME_LIMITS = Table(
    (
        Setting(
            "report_timeout",
            float,
            120.0,
            "Time that a host has to report. One that takes longer is left out, like an unreachable one.",
            least=1,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "work_timeout",
            float,
            300.0,
            "Time that a host has for its part of a task that neither copies nor clears data (networks, domains, attachments,"
            " exports), in addition to what the task itself may wait for. Its builds go to other hosts when it takes longer.",
            least=1,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "copy_timeout",
            float,
            7200.0,
            "Time that a host has to fetch images and make the disks of a round, or to write the memory of guests that are"
            " suspended.",
            least=1,
            most=LONGEST,
            unit="seconds",
        ),
        Setting(
            "clear_timeout",
            float,
            86400.0,
            "Time that a host has for work on volumes, and to remove instances whose disks are cleared.",
            least=1,
            most=LONGEST,
            unit="seconds",
        ),
    )
)

#: Variables that playbooks read directly; the action that opens the ledger checks them.
PLAYBOOKS = Table(
    (
        Setting(
            "enable_instance_password",
            bool,
            True,
            "Return the admin passwords of a boot (registered, `no_log`).",
        ),
        Setting(
            "hook_create_instance_pre",
            PATH,
            help="File with tasks (absolute path), run on the controller before anything is written; a failing one stops the boot.",
        ),
        Setting(
            "hook_create_instance_post",
            PATH,
            help="File with tasks (absolute path), run on the controller after all instances are ACTIVE (`bootflow_booted` has"
            " them).",
        ),
        Setting(
            "periodic_fuzzy_delay",
            int,
            0,
            "Playbook `heartbeat`: start after a random delay of up to this time.",
            least=0,
            unit="seconds",
        ),
        Setting(
            "list_refresh",
            bool,
            False,
            "Playbook `list`: let the compute hosts report first, so that states are up to date. The ledger"
            " itself is read, not `bootflow_ledger_read_url`.",
        ),
        Setting(
            "image_cache_images",
            list,
            help="Playbook `volume_image_cache`: remove only these cached images (ids or checksums).",
            default_text="all",
        ),
        Setting(
            "image_cache_unused",
            bool,
            False,
            "Playbook `volume_image_cache`: remove only images that no volume uses any more.",
        ),
    )
)

DATABASE = Kind("addresses such as ssl:192.0.2.1:6641, separated by commas", _database, "raw")

OVN = Table(
    (
        Setting(
            "ovn_northbound",
            DATABASE,
            help="Northbound database of OVN, for networks of `type: ovn`: `ssl:ADDRESS:PORT`, `tcp:ADDRESS:PORT` or `unix:/PATH`, several with commas where"
            " it is a cluster. The controller writes it with `ovn-nbctl` (Debian's ovn-common); see [ovn.md](ovn.md).",
        ),
        Setting("ovn_private_key", PATH, help="Private key of the controller for `ssl:`, a file of mode 0600."),
        Setting("ovn_certificate", PATH, help="Certificate of the controller for `ssl:`, a file."),
        Setting("ovn_ca_certificate", PATH, help="Certificate that verifies the database's for `ssl:`, a file."),
        Setting(
            "ovn_timeout",
            int,
            30,
            "Longest time of one call of `ovn-nbctl`: a database that is away is given up then.",
            least=1,
            most=3600,
            unit="seconds",
        ),
    )
)
