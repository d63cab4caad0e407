# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files with which a person begins: inventories, catalogue, a first request and a first playbook."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from .errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*\Z")
_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+( [^\r\n]*)?\Z")

ANSIBLE_CFG = """\
[defaults]
inventory = hosts.yml,guests.bootflow.yml
stdout_callback = bootflow.compute.concise

[ssh_connection]
pipelining = true
# A guest that was just booted may need some time until it answers.
retries = 8
{password}"""

PASSWORD = """
# The modules work on compute hosts as root, which hosts.yml has sudo for. Where sudo asks for a password, give -K to each run, or take the # away:
# [privilege_escalation]
# become_ask_pass = true
"""

LOCAL_HOST = """\
        kvm1: # this machine
          ansible_connection: local
          ansible_python_interpreter: /usr/bin/python3
          ansible_pipelining: true
{become}"""

LOCAL_BECOME = """\
          ansible_become: true # by sudo: -K where it asks for a password
"""

HOSTS = """\
---
# The machines on which guests run. `ansible-playbook bootflow.compute.prepare` installs what they need.
all:
  children:
    bootflow_compute:
      hosts:
{hosts}{user}"""

REMOTE_USER = """\
      vars:
        ansible_user: {user}
        ansible_become: {become}
        ansible_python_interpreter: /usr/bin/python3
"""

SETTINGS = """\
---
# Read by the playbooks, and by guests.bootflow.yml. Back it up with bootflow.compute.backup.
bootflow_ledger_url: {url}
# Guests get SSH host keys that Ansible knows before the first login.
bootflow_ssh_host_keys: true
# Memory is not overcommitted: guests fit into the memory that a host has.
bootflow_ram_allocation_ratio: 1.0
"""

CATALOGUE = """\
---
# What requests may name. docs/request.md and docs/variables.md of the collection list all fields.
bootflow_flavors:
  - {{name: small, vcpus: 1, memory_mb: 1024, root_gb: 10}}
  - {{name: medium, vcpus: 2, memory_mb: 4096, root_gb: 20}}

# Requests may also name the images of inventory/images.yml in the collection, such as debian-13 and ubuntu-24.04.
# Hosts compare them with their publishers' checksums. Your own images:
bootflow_images: []
#  - name: mine
#    path: /srv/images/mine.qcow2 # or url
#    checksum: sha256:... # of sha256sum
#    disk_format: qcow2
#    min_disk: 3

bootflow_networks:
  - name: nat # a network of each host, whose guests reach the world through it
    type: network
    source: bootflow-nat
    manage: true
    forward: nat
    subnets:
      - name: nat-v4
        cidr: 10.78.0.0/24
        gateway_ip: 10.78.0.1
        dns_nameservers: [10.78.0.1]
        allocation_pools:
          - {{start: 10.78.0.10, end: 10.78.0.250}}

bootflow_keypairs:
  - name: me
    public_key: {key}
"""

GUESTS = """\
---
# The guests as hosts of Ansible, in the group instances. The name of the file has to end in bootflow.yml.
plugin: bootflow.compute.instances
ledger_url: {url}
via: jump # by SSH through their compute hosts
compose:
  ansible_user: "'debian'" # os_admin_user of the image: debian, ubuntu, rocky, ...
"""

WEB = """\
# ansible-playbook bootflow.compute.boot -e @web.yml
bootflow_instances:
  - name: web
    max_count: 2 # web-1, web-2
    flavor: small
    image: debian-13 # the collection knows it
    networks:
      - network: nat
    key_name: me
"""

SITE = """\
---
# Boots the guests of web.yml, and works in them: ansible-playbook site.yml -e @web.yml
- name: Boot
  import_playbook: bootflow.compute.boot

# Ansible reads inventories when it starts. This reads them again, now with the new guests.
- name: Find the new guests
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the inventories again
      ansible.builtin.meta: refresh_inventory

- name: Work in the guests
  hosts: instances
  gather_facts: false
  tasks:
    - name: Wait until they answer
      ansible.builtin.wait_for_connection:
        timeout: 600

    - name: Ask for their names
      ansible.builtin.command: hostname
      register: named
      changed_when: false

    - name: Show them
      ansible.builtin.debug:
        msg: "{{ inventory_hostname }} calls itself {{ named.stdout }}"
"""


@dataclass(frozen=True)
class Host:
    """A compute host: ``name``, and ``address`` where that is another one."""

    name: str
    address: str = ""


def read_host(text: str) -> Host:
    """Read NAME or NAME=ADDRESS.

    :raises InvalidInput: it is neither.
    """
    name, _mark, address = text.partition("=")
    if not _NAME.match(name) or (address and not re.match(r"[A-Za-z0-9:][A-Za-z0-9.:-]*\Z", address)):
        raise InvalidInput(
            message="bootflow_init_hosts has %r, which cannot be the name of a host" % text,
            remedy="Give names, or name=address: kvm1, kvm2=192.0.2.12.",
        )
    return Host(name, address)


def read_public_key(text: str, path: str) -> str:
    """The line of a public SSH key.

    :raises InvalidInput: it is none, such as a private key.
    """
    line = text.strip()
    if not _KEY.match(line):
        raise InvalidInput(
            message="%s has no public SSH key" % path,
            remedy="Name the file that ends in .pub in bootflow_init_public_key.",
        )
    return line


def becomes_root(hosts: t.Sequence[Host], user: str, is_root: bool) -> bool:
    """Whether modules become root on the compute hosts by sudo. :arg hosts: none: the machine that runs Ansible"""
    return user != "root" if hosts else not is_root


def files(folder: str, hosts: t.Sequence[Host], user: str, public_key: str, is_root: bool) -> dict[str, str]:
    """Relative path -> content.

    :arg folder: its absolute path, in which the ledger is, too.
    :arg hosts: none: the machine that runs Ansible.
    :arg user: who logs in to the hosts. :arg is_root: whether root runs Ansible on this machine.
    """
    url = json.dumps("sqlite:///%s/ledger.db" % folder)
    lines = "".join(
        "        %s:%s\n" % (h.name, "\n          ansible_host: %s" % json.dumps(h.address) if h.address else "")
        for h in hosts
    )
    by_sudo = becomes_root(hosts, user, is_root)
    local = LOCAL_HOST.format(become=LOCAL_BECOME if by_sudo else "")
    login = REMOTE_USER.format(user=json.dumps(user), become="true" if by_sudo else "false") if hosts else ""
    return {
        "ansible.cfg": ANSIBLE_CFG.format(password=PASSWORD if by_sudo else ""),
        "hosts.yml": HOSTS.format(hosts=lines or local, user=login),
        "group_vars/all/bootflow.yml": SETTINGS.format(url=url),
        "group_vars/all/catalogue.yml": CATALOGUE.format(key=json.dumps(public_key)),
        "guests.bootflow.yml": GUESTS.format(url=url),
        "web.yml": WEB,
        "site.yml": SITE,
    }
