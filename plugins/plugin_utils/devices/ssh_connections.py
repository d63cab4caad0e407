# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments with which ssh reaches a guest: through its compute host, and by the host key that it was given."""

from __future__ import annotations

import re
import shlex
import typing as t

from ...module_utils.core.instances.states import RESCUED

HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")

# The compute host of a guest as the inventory has it; nothing of it where no inventory of the run has the host.
HOST = (
    "{%- set host = hostvars[bootflow_instance.host] if bootflow_instance.host in hostvars else {} -%}"
    "{%- set address = host.ansible_ssh_host | default(host.ansible_host) | default(bootflow_instance.host) -%}"
    "{%- set user = host.ansible_ssh_user | default(host.ansible_user) | default('') -%}"
    "{%- set port = host.ansible_ssh_port | default(host.ansible_port) | default('') -%}"
    "{%- set key = host.ansible_ssh_private_key_file | default(host.ansible_private_key_file) | default('') -%}"
    "{%- set known = host.ansible_ssh_host_key_checking | default(host.ansible_host_key_checking)"
    " | default(lookup('ansible.builtin.config', 'HOST_KEY_CHECKING')) | bool -%}"
    "{%- set here = host.ansible_connection | default('ssh') == 'local' -%}"
)
# Quoted twice: for the shell that ssh gives the command to, and for Ansible, which splits the arguments. In between ssh
# replaces what begins with a percent sign.
JUMP = HOST + (
    "{%- if not here -%}"
    "{%- set arguments = host.ansible_ssh_common_args | default('') -%}"
    "{%- set command = 'ssh ' ~ ('-o StrictHostKeyChecking=no ' if not known else '') ~ arguments"
    " ~ (' -p ' ~ (port | string | quote) if port else '') ~ (' -i ' ~ (key | quote) if key else '')"
    " ~ (' -l ' ~ (user | quote) if user else '') -%}"
    "-o {{ ('ProxyCommand=' ~ (command | replace('%', '%%')) ~ ' -W [%h]:%p ' ~ (address | quote | replace('%', '%%'))) | quote }}"
    "{%- else -%}{{ '' }}{%- endif -%}"
)


def known_host(view: t.Mapping[str, t.Any]) -> str:
    """Return arguments with which ssh accepts the host key of an instance and no other. "": the ledger has none.

    The key comes by a command, so that there is no file to be kept; its name is the UUID, as another guest may have had the address.
    """
    key = str(view.get("ssh_host_key") or "")
    if not HOST_KEY.fullmatch(key) or view["vm_state"] == RESCUED:  # a rescue image has its own keys
        return ""
    options = {
        "HostKeyAlias": view["uuid"],
        "KnownHostsCommand": "/bin/echo %s %s" % (view["uuid"], key),
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
    }
    return " ".join("-o %s" % shlex.quote("%s=%s" % item) for item in options.items())
