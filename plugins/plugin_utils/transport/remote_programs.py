# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local program that runs a line of shell on a host of the inventory: Ansible's own connection plugin says which, with its arguments."""

from __future__ import annotations

import typing as t

from ansible import constants
from ansible.errors import AnsibleError
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from ...module_utils.core import errors

# The first value that ssh is given counts. A connection that lasts has nothing to do with connections that tasks share, and finds out that a
# host is gone; no person can answer a question there.
OWN = ("ControlMaster=no", "ControlPath=none", "ServerAliveInterval=10", "ServerAliveCountMax=2", "BatchMode=yes")


def program(host: str, variables: t.Mapping[str, t.Any], line: str) -> list[str]:
    """The arguments, to be executed here without a shell.

    :arg variables: the host's.
    :raises HostUnreachable: its type of connection cannot be kept open.
    """
    kind = str(variables.get("ansible_connection") or constants.DEFAULT_TRANSPORT).rpartition("ansible.builtin.")[2]
    if kind == "local":
        return ["/bin/sh", "-c", line]
    if kind not in ("ssh", "smart"):
        raise errors.HostUnreachable(host=host, reason="events need the connection ssh or local, not %s" % kind)
    plugin = connection_loader.get("ssh", PlayContext(), None)
    names = constants.config.get_plugin_vars("connection", plugin._load_name)
    plugin.set_options(var_options={name: variables[name] for name in names if name in variables})
    if plugin.get_option("password"):
        raise errors.HostUnreachable(host=host, reason="events need an SSH key, not ansible_password")
    executable = plugin.get_option("ssh_executable")
    try:
        built = plugin._build_command(executable, "ssh", plugin.get_option("host"), line)
    except AnsibleError as e:
        raise errors.HostUnreachable(host=host, reason=str(e)) from e
    arguments = [part.decode(errors="surrogateescape") for part in built]
    after = arguments.index(executable) + 1
    return [*arguments[:after], *(word for option in OWN for word in ("-o", option)), *arguments[after:]]
