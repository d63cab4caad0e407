# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that several modules share, each under a name: bootflow.compute.shared.workers."""

    VOLUME_CHANGE = r"""
options:
  project:
    description: Project of the instances and volumes. Read from the variable C(bootflow_project), else V(default).
    type: str
  phase:
    description:
      - V(begin) before the hosts work, V(finish) afterwards, which fails when something is left.
      - V(undo) in between releases volumes that could not be attached, and names the storage hosts with exports to remove in RV(storage).
      - V(clean) before all of it takes over what an earlier run could not end of these volumes since a host did not answer, and names these hosts.
    type: str
    choices: [clean, begin, undo, finish]
    default: begin
  print_table:
    description: Print what was done, or in check mode what would be done. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
"""

    ATTACHMENTS = r"""
options:
  attachments:
    type: list
    elements: raw
    required: true
"""

    CONTROLLER = r"""
options: {}
notes:
  - Runs on the controller, inside the ansible-playbook process; nothing is copied to a host.
"""

    INSTANCES_PATH = r"""
options:
  instances_path:
    description: Absolute path of the directory that holds one directory per instance, named by its UUID.
    type: path
    default: /var/lib/bootflow/instances
"""

    LEDGER_ID = r"""
options:
  ledger_id:
    description:
      - Id of the ledger that the items belong to. Several ledgers may use one host.
      - New items are marked with it. Items with the mark of another ledger are neither changed nor reported as items of this one.
    type: str
    default: ""
"""

    RUN_LIMIT = r"""
options:
  run_limit:
    description:
      - The limit of ansible-playbook, as C(ansible_limit) has it, where the play names all hosts. localhost must be within the limit.
      - With it, instances and volumes are placed only on hosts within the limit, and operations refuse instances on others.
    type: str
"""

    STATISTICS = r"""
options:
  set_stats:
    description:
      - Leave the instances to later jobs as the custom statistic C(bootflow_guests), as M(ansible.builtin.set_stats) does, with name,
        uuid, project, host, vm_state and addresses of each.
      - AWX hands it to the next jobs of a workflow, ansible-runner keeps it among the artifacts.
    type: bool
    default: false
"""

    SCHEDULE = r"""
options:
  round:
    description: Number of the round. In check mode the plan is shown in the first.
    type: int
    default: 1
  print_table:
    description: Print the plan in check mode. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

    STORAGE_FACTS = r"""
options:
  facts_max_age:
    description:
      - Storage hosts whose last report is older than this many seconds are listed in RV(ask).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
"""

    USER_DATA = r"""
options:
  instances:
    description:
      - The requested instances. Only their user data, injected files and passwords are read.
      - Read from the variable C(bootflow_instances).
    type: list
    elements: raw
    required: true
  project:
    description: The project of entries that name none. Read from the variable C(bootflow_project), else V(default).
    type: str
"""

    ADMIN_PASSWORDS = r"""
options:
  instances:
    description: Requested instances, whose passwords count where they have one. Read from the variable C(bootflow_instances).
    type: list
    elements: raw
  project:
    description: The project of entries that name none. Read from the variable C(bootflow_project), else V(default).
    type: str
  admin_password_dir:
    description:
      - Folder on the controller (absolute path; made with mode 0700) in which the password of each instance is left, in a file of mode 0600
        named by the instance's UUID. Nothing removes the files. Read from the variable C(bootflow_admin_password_dir).
    type: path
"""

    VOLUME_CLEAR = r"""
options:
  volume_clear:
    description:
      - How to clear logical volumes before they are removed. V(zero) and V(shred) overwrite them; with V(none) the next guest can read the old data.
    type: str
    choices: [zero, shred, none]
    default: zero
  volume_clear_size_mb:
    description: Size of the beginning of each logical volume to overwrite, in MiB; V(0) for all of it.
    type: int
    default: 0
"""

    VOLUME_GROUP = r"""
options:
  volume_group:
    description: The volume group.
    type: str
    default: cinder-volumes
  thin_pool:
    description: Name of the thin pool. By default the name of the volume group followed by C(-pool).
    type: str
"""

    CEPH_CLUSTER = r"""
options:
  pool:
    description: The pool.
    type: str
    required: true
  monitors:
    description: Addresses of all monitors of the cluster, C(address) or C(address:port); the port is 6789 by default.
    type: list
    elements: str
    required: true
  user:
    description: User of the cluster, without C(client.). It needs the capabilities C(mon 'profile rbd') and C(osd 'profile rbd pool=POOL').
    type: str
    required: true
  key:
    description: Key of O(user). It is in a file that only this module's process uses, while it works.
    type: str
    required: true
"""

    DISK_POOL = r"""
options:
  disk_pool:
    description: Pool of a Ceph cluster in which instances of this host have their disks.
    type: dict
    suboptions:
      pool:
        description: The pool.
        type: str
        required: true
      monitors:
        description: Addresses of all monitors of the cluster, C(address) or C(address:port); the port is 6789 by default.
        type: list
        elements: str
        required: true
      user:
        description: User of the cluster, without C(client.). It needs the capabilities C(mon 'profile rbd') and C(osd 'profile rbd pool=POOL').
        type: str
        required: true
      key:
        description: Key of O(disk_pool.user). It is in a file that only this module's process uses, while it works.
        type: str
        required: true
      fsid:
        description: Id of the cluster. Monitors of another cluster are an error.
        type: str
        required: true
"""

    MAX_BUILDS = r"""
options:
  max_builds:
    description: Number of builds that all runs together work on at once on this host. 0 means no limit.
    type: int
    default: 0
  place_timeout:
    description: Seconds that a build waits for one of these places.
    type: float
    default: 600.0
"""

    TIME_LIMIT = r"""
options:
  time_limit:
    description:
      - Seconds after which the module and the programs that it runs end, and the task fails with the error C(HostTimeout).
      - By default there is no limit.
    type: float
"""

    WORKERS = r"""
options:
  workers:
    description: Number of items to process in parallel.
    type: int
    default: 4
"""

    SOURCE_IMAGES = r"""
options:
  images:
    description: The source images of the volumes.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Id of the image.
        type: str
        required: true
      name:
        description: Name of the image.
        type: str
      url:
        description: URL from which this host fetches the image, C(http://), C(https://) or C(file://).
        type: str
      path_on_host:
        description: Path of the image on this host. Used instead of O(images[].url).
        type: path
      checksum:
        description:
          - Checksum of the file as it is published, also if it is compressed. C(sha256:), C(sha384:) or C(sha512:) with the digest, or with
            the address of a file with checksums. Digits alone are a sha256.
        type: str
        default: ""
      version:
        description: Version of the controller's file, for an image without a checksum. An image of another version is fetched again.
        type: str
        default: ""
      disk_format:
        description: Format of the image according to the catalogue, such as V(qcow2) or V(raw).
        type: str
        required: true
      size:
        description: Size of the file in bytes. A larger file is rejected.
        type: int
      validate_certs:
        description: Check the certificate of the web server.
        type: bool
        default: true
      ca_path:
        description: File on this host with the certificates of the authorities (PEM) that the web server's certificate is checked with.
        type: path
      client_cert:
        description: File on this host with the client certificate (PEM) for the web server; it may contain the key.
        type: path
      client_key:
        description: File on this host with the key of O(images[].client_cert).
        type: path
      url_username:
        description: User for the web server. Login, headers and client certificate are not sent to other servers that it redirects to.
        type: str
      url_password:
        description: Password of O(images[].url_username).
        type: str
      headers:
        description: Headers of the request to the web server, a dictionary.
        type: json
      use_proxy:
        description: Use the proxy that the environment of this host sets.
        type: bool
        default: true
  uploads:
    description: Files on this host to which images were uploaded, a dictionary from image id to path.
    type: dict
    default: {}
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  image_max_gb:
    description: Largest image file in GiB; V(0) for no limit. A file that the file system has no room for is rejected anyway.
    type: int
    default: 1024
  image_fetch_timeout:
    description: Longest time to fetch an image, in seconds; V(0) for no limit. A server that stalls is given up earlier.
    type: float
    default: 3600.0
  vmdk_allowed_types:
    description: VMDK subformats (createType) that are accepted. All have their data in the file itself; without any, no VMDK image is accepted.
    type: list
    elements: str
    choices: [streamOptimized, monolithicSparse]
    default: [streamOptimized, monolithicSparse]
  temp_dir:
    description: Directory for temporary image files. Leftovers of killed runs are removed from it.
    type: path
    default: /var/lib/bootflow/conversion
"""
