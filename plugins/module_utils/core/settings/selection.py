# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables that choose what a playbook works on: instances, hosts, questions of whatif."""

from __future__ import annotations

from ..reading.setting import ABSOLUTE, CAPITALS, NAMES, PATH, REQUESTS, UUIDS, Setting, Table
from .request import QUOTA

HOST_STATES = ("enabled", "disabled", "forced_down", "up", "deleted")

SELECTION = Table(
    (
        Setting("names", list, help="Names of instances; several conditions must all hold."),
        Setting("uuids", UUIDS, help="UUIDs of instances."),
        Setting("reservation_ids", list, help="Reservation ids of instances."),
        QUOTA.named("project").but(default=None, help="Only instances of this project."),
    )
)

ADOPTION = Table(
    (
        Setting(
            "adopt_domains",
            NAMES,
            help="Playbook `adopt`: domains to be adopted, by name or UUID; one that is not adoptable is an error, and then none is adopted.",
            option="domains",
        ),
        Setting(
            "adopt_all",
            bool,
            False,
            "Playbook `adopt`: adopt all domains that are adoptable. With `--check` they are shown in any case.",
            option="all",
        ),
        Setting(
            "adopt_names",
            dict,
            {},
            help="Playbook `adopt`: names of instances by UUID or name of the domain.",
            default_text="the name of the domain",
            option="names",
        ),
        Setting(
            "adopt_other_interfaces",
            bool,
            False,
            "Playbook `adopt`: interfaces that are in no network of `bootflow_networks` do not prevent it; they get no port.",
            option="other_interfaces",
        ),
        Setting(
            "adopt_user",
            str,
            help="Playbook `adopt`: user to whom the instances belong.",
            default_text="who runs the playbook",
            option="user",
        ),
    )
)

MISSING_OK = Setting(
    "missing_ok",
    bool,
    False,
    "Playbooks `delete`, `volume_delete`, `image_delete`, `port_delete`, `security_group_delete` and"
    " `security_group_rule_delete`: what is named and does not exist is not an error.",
)

DELETION = Table(
    (
        MISSING_OK,
        Setting(
            "delete_all",
            bool,
            False,
            "Playbook `delete`: all instances of `bootflow_project`.",
            option="all",
        ),
        Setting(
            "delete_force",
            bool,
            False,
            "Playbook `delete`: remove from the ledger also instances whose host does not answer.",
            option="force",
        ),
        Setting(
            "reclaim_instance_interval",
            int,
            0,
            "Playbook `delete`: how long a deleted instance can be restored. Until then its guest is off and keeps its host, its claim, disks, "
            "volumes and addresses; the playbook `reclaim` deletes it afterwards. 0: it is deleted at once.",
            least=0,
            unit="seconds",
        ),
    )
)

LISTING = Table(
    (Setting("list_events", bool, False, "Playbook `list`: return each instance's journal.", option="events"),)
)

METRICS = Table(
    (
        Setting(
            "metrics_file",
            ABSOLUTE,
            help="Playbook `metrics`: file for the textfile collector of Prometheus' node exporter, with the ending `.prom`, see"
            " [metrics.md](metrics.md).",
            option="path",
            required=True,
        ),
    )
)

REPORT = Table(
    (
        Setting(
            "report_file",
            ABSOLUTE,
            help="Playbook `report`: file that gets the report, with the ending `.html`, see [report.md](report.md).",
            option="path",
            required=True,
        ),
        Setting(
            "report_run",
            str,
            help="Playbook `report`: request id of the run whose instances are drawn.",
            default_text="the newest boot",
            option="request_id",
        ),
        Setting(
            "report_limit",
            int,
            200,
            "Playbook `report`: how many hosts, instances of the run, claims of a host and reasons are shown at most; a line says how many are left out.",
            least=1,
            most=10_000,
            option="limit",
        ),
        Setting(
            "report_days",
            int,
            90,
            "Playbook `report`: days of capacity over time that are drawn at most.",
            least=0,
            most=3660,
            option="days",
        ),
        Setting(
            "report_flavors",
            list,
            help="Playbook `report`: flavors for which the report says how many more instances fit.",
            default_text="all of `bootflow_flavors`",
            option="flavor_names",
        ),
        Setting(
            "report_n_plus_1",
            bool,
            help="Playbook `report`: check for each compute host whether its instances would fit on the others, which takes long where hosts are many.",
            default_text="true for up to `bootflow_report_limit` hosts",
            option="n_plus_1",
        ),
        Setting(
            "report_plan",
            PATH,
            help="Playbook `report`: file on the controller with a plan (`bootflow_plan_out`), whose hosts are shown before and after.",
            option="plan",
        ),
    )
)

PRECACHE = Table(
    (
        Setting(
            "precache_images",
            list,
            help="Playbook `image_precache`: images (of `bootflow_images` or of the ledger), by name or id, that compute hosts (or only `bootflow_hosts`) get.",
            option="names",
            required=True,
        ),
    )
)

HOSTS = Table(
    (
        Setting(
            "host",
            list,
            help="Playbooks `host` and `hosts`: compute hosts. Playbooks of operations: instances on these compute hosts; of `delete` a further condition,"
            " which alone selects nothing.",
            option="hosts",
            required=True,
        ),
        Setting(
            "host_state",
            str,
            help="Playbook `host`: state of these hosts.",
            choices=HOST_STATES,
            option="state",
            required=True,
        ),
        Setting("host_reason", str, "", "Playbook `host`: reason of the state.", option="reason"),
    )
)

#: of an operation
INSTANCES = Table(
    (
        *SELECTION,
        HOSTS.named("host").but(required=False),
        Setting("all", bool, False, "Playbooks of operations: all instances of `bootflow_project`."),
    )
)

#: Options of single operations.
OPERATION_OPTIONS = Table(
    (
        Setting(
            "reboot_type",
            CAPITALS,
            "SOFT",
            "Playbook `reboot`: ask the guests, and reset them where they do not restart in time, or reset them at once."
            " A guest that is reset starts by a domain that is written again from the ledger, after its networks and volumes are there.",
            choices=("SOFT", "HARD"),
        ),
        Setting(
            "rebuild_image",
            str,
            help="Playbook `rebuild`: the image of `bootflow_images` that the local disks are made from, by name or id; without it, each"
            " instance's own. A root volume that was made from another image is written again from this one.",
        ),
        Setting(
            "revert_image",
            str,
            help="Playbook `revert`: the snapshot or backup of the instance that its root disk goes back to, by name or id. `%(name)s` in it is the"
            " name of the instance. Either it or `bootflow_revert_backup` is required.",
        ),
        Setting(
            "revert_backup",
            str,
            help="Playbook `revert`: the incremental backup of the instance that its root disk goes back to: its id, or `newest`.",
        ),
        Setting(
            "admin_password",
            str,
            help="Playbook `set_admin_password`: the new password.",
            default_text="one is generated for each instance, and left in `bootflow_admin_password_dir`",
            secret=True,
        ),
        Setting(
            "rescue_image_ref",
            str,
            help="Playbook `rescue`: the image of `bootflow_images`, by its name or id, that the guests boot. Their disks are behind it.",
            default_text="each instance's own image",
        ),
        Setting(
            "rescue_password",
            str,
            help="Playbook `rescue`: the admin password of the rescued guests, which their config drives have. An instance without config"
            " drive is refused with it.",
            default_text="one is generated for each",
            secret=True,
        ),
        Setting(
            "snapshot_name",
            str,
            help="Playbook `snapshot`: the name of the image (required). `%(name)s` in it is the name of the instance, and has to be there for several."
            " An instance whose snapshot has this name is left alone.",
        ),
        Setting(
            "snapshot_store",
            str,
            help="Playbooks `snapshot`, `create_backup` and `shelve`: the store of `bootflow_image_stores` that gets the image.",
            default_text="the first one",
        ),
        Setting(
            "snapshot_properties",
            dict,
            help="Playbooks `snapshot` and `create_backup`: properties of the image, texts; they take precedence over inherited ones.",
        ),
        Setting(
            "backup_name",
            str,
            help="Playbook `create_backup`: the name of the image (required). `%(name)s` in it is the name of the instance, and has to be there for several;"
            " `%(date)s` is the time of the backup, as in 2026-11-29T16:09:49Z. An image is made each time, also of a name that a backup of the instance has.",
        ),
        Setting(
            "backup_type",
            str,
            help="Playbook `create_backup`: the type of the backup (required), of 1 to 255 characters, as daily or weekly. Each type has its own rotation.",
        ),
        Setting(
            "backup_rotation",
            int,
            help="Playbook `create_backup`: how many backups of this type each instance keeps (required). The oldest ones"
            " beyond that are deleted, with 0 the new one, too.",
            least=0,
        ),
        Setting(
            "backup_full",
            bool,
            False,
            "Playbook `incremental_backup`: make a full backup also where an increment is possible.",
        ),
        Setting(
            "backup_chain_length",
            int,
            30,
            "Playbook `incremental_backup`: how many backups may need each other. The one after them is full.",
            least=1,
        ),
        Setting(
            "shelved_offload_time",
            int,
            0,
            "Playbook `shelve`: how long a shelved instance stays on its host. 0: it leaves the host at once; -1: it stays; else the playbook"
            " `shelve_offload` without a selection takes it from the host afterwards. An instance whose root is a volume leaves at once.",
            least=-1,
            unit="seconds",
        ),
        Setting(
            "unshelve_availability_zone",
            str,
            help="Playbook `unshelve`: the availability zone of offloaded instances from now on.",
            default_text="the one that each has",
        ),
        Setting(
            "unshelve_unpin",
            bool,
            False,
            "Playbook `unshelve`: the availability zone that offloaded instances have does not bind them any more.",
        ),
        Setting(
            "unshelve_host",
            str,
            help="Playbook `unshelve`: the compute host that offloaded instances come to.",
            default_text="the scheduler chooses",
        ),
    )
)

OPERATION = Table(
    (
        Setting("operation", str, help="Set by the playbooks of operations: what they do.", required=True),
        *INSTANCES,
        *OPERATION_OPTIONS,
    )
)

MOVE = Table(
    (
        *INSTANCES,
        Setting(
            "resize_flavor",
            str,
            help="Playbook `resize`: the flavor that the instances get, of `bootflow_flavors`.",
            option="flavor",
        ),
    )
)

DRAIN = Table(
    (
        Setting(
            "drain_host",
            str,
            help="Playbook `drain`: the compute host that its instances leave.",
            option="host",
            required=True,
        ),
        Setting(
            "drain_live",
            bool,
            True,
            "Playbook `drain`: guests that can move while they run do so. False: they are shut down for it.",
            option="live",
        ),
    )
)

CONFIRMATION = Table(
    (
        *INSTANCES,
        Setting(
            "resize_confirm_window",
            int,
            0,
            "Playbook `confirm_resize` without a selection: instances that have waited so long are confirmed. 0: none.",
            option="window",
            least=0,
            unit="seconds",
        ),
    )
)

LOCK = Table(
    (
        *INSTANCES,
        Setting(
            "locked_reason",
            str,
            "",
            "Playbook `lock`: why, at most 255 characters. Users who are refused see it.",
            option="reason",
        ),
        Setting(
            "unlock_override",
            bool,
            False,
            "Playbook `unlock`: also instances that another user locked.",
            option="override",
        ),
    )
)

RESET = Table(
    (
        *INSTANCES,
        Setting(
            "reset_state",
            str,
            "error",
            "Playbook `reset_state`: the vm_state that the instances get.",
            choices=("error", "active"),
            option="state",
        ),
    )
)

CONSOLE = Table(
    (
        *INSTANCES,
        Setting(
            "console_lines",
            int,
            50,
            "Playbook `console`: how many lines of each console.",
            option="lines",
            least=1,
            most=10_000,
        ),
    )
)

AUDIT = Table(
    (
        Setting(
            "audit_hosts",
            list,
            help="Playbook `audit`: only what is on these compute and storage hosts.",
            option="hosts",
            default_text="all",
        ),
        Setting(
            "audit_remove_orphans",
            bool,
            False,
            "Playbook `audit`: remove orphans, see [audit.md](audit.md).",
            option="remove_orphans",
        ),
    )
)

WHATIF = Table(
    (
        Setting(
            "whatif_flavor",
            str,
            help="How many more instances of this flavor fit, and where. Without it, the entries of `bootflow_instances` are"
            " placed.",
            option="flavor",
        ),
        Setting("whatif_image", str, help="With a flavor: the image, as in an entry.", option="image"),
        Setting(
            "whatif_availability_zone",
            str,
            help="With a flavor: the availability zone, as in an entry.",
            option="availability_zone",
        ),
        Setting(
            "whatif_scheduler_hints",
            dict,
            help="With a flavor: the scheduler hints, as in an entry.",
            option="scheduler_hints",
        ),
        Setting("whatif_server_group", str, help="With a flavor: the hint `group`.", option="server_group"),
        Setting(
            "whatif_count",
            int,
            help="With a flavor: whether this many instances fit.",
            default_text="`1`",
            option="count",
        ),
        Setting(
            "whatif_limit",
            int,
            help="Count no further than this; needed where no filter ends the count.",
            least=1,
            option="limit",
        ),
        Setting(
            "whatif_n_plus_1",
            bool,
            False,
            "For each compute host, whether its instances would fit on the others.",
            option="n_plus_1",
        ),
        Setting(
            "whatif_lose",
            list,
            help="The same for these compute hosts only, lost one at a time; `all`: each of them.",
            option="lose",
        ),
        Setting("whatif_fail", bool, False, "Fail where something does not fit.", option="fail"),
    )
)

INTERFACES = Table(
    (
        Setting(
            "interfaces",
            REQUESTS,
            help="Playbooks `attach_interface` and `detach_interface`: `instance` (name or UUID). To attach `network` (the only one by default), `subnet`,"
            " `fixed_ip`, `tag`, or `port` (name or id) and `tag`; to detach one or more of `port`, `mac_address`, `network`, `fixed_ip`, `tag`."
            " `net_id` and `port_id` are Nova's words for `network` and `port`.",
            required=True,
        ),
    )
)
