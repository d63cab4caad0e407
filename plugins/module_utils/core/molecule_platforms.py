# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The platforms of a molecule scenario as requested instances, and what molecule reads of the guests.

source: molecule's schema of molecule.yml, and the instance config of its default driver
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from dataclasses import dataclass

from .errors import InvalidInput
from .reading.problems import Problems

PREFIX = "molecule-"  # of projects
GROUP = "molecule_guests"  # of the inventory
LONGEST_NAME = 63  # the name is the guest's hostname, and a label of a domain has no more
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\Z")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_FIELDS = "bootflow"  # the field of a platform that has the fields of its instance
_OURS = ("name", "count", "min_count", "max_count", "project")  # fields of a request that the scenario decides
_EXAMPLE = "{name: web, bootflow: {flavor: small, image: debian-13, networks: [{network: nat}]}}"


@dataclass(frozen=True)
class Platform:
    """A platform: its name, the fields of the request for its instance, and how people log in to it."""

    name: str
    fields: t.Mapping[str, t.Any]
    user: str
    private_key_file: str
    port: int


def read_platforms(config: t.Any, user: str = "", private_key_file: str = "") -> list[Platform]:
    """Read the platforms of the scenario. :arg config: molecule.yml. :arg user: of platforms without one. :arg private_key_file: likewise

    :raises InvalidRequest: one cannot be booted; all errors are in it.
    """
    problems = Problems()
    entries = config.get("platforms") if isinstance(config, t.Mapping) else None
    if not isinstance(entries, list) or not entries:
        problems.add(
            "platforms", _error("molecule.yml has no platforms", "List what to boot: platforms: [%s]" % _EXAMPLE)
        )
        entries = []
    platforms = []
    names: set[str] = set()
    for number, entry in enumerate(entries):
        with problems.collect("platforms[%d]" % number):
            platform = _platform(entry, user, private_key_file)
            if platform.name.lower() in names:
                raise _error("the name %s is given twice" % platform.name, "Give each platform its own name.")
            names.add(platform.name.lower())
            platforms.append(platform)
    problems.raise_if_any()
    return platforms


def project_name(run: str, controller: str, folder: str) -> str:
    """Return the project of the job, which has no other instances.

    :arg run: what the job was called by a person; "": it is known by this machine and molecule's folder
    :arg controller: the name of this machine. :arg folder: MOLECULE_EPHEMERAL_DIRECTORY, which a job has for itself
    :raises InvalidInput: the run's name has other characters than a name may have.
    """
    if not run:
        return PREFIX + hashlib.sha256(("%s\0%s" % (controller, folder)).encode()).hexdigest()[:16]
    if not _RUN.match(run):
        raise _error(
            "bootflow_molecule_run is %r" % run, "Use at most 100 letters, digits, dots, dashes and underscores."
        )
    return PREFIX + run


def instance_config(
    platforms: t.Iterable[Platform], guests: t.Mapping[str, t.Mapping[str, t.Any]]
) -> list[dict[str, t.Any]]:
    """Return the content of molecule's instance config. :arg guests: name -> how Ansible reaches the guest, see connection()"""
    return [
        {
            "instance": platform.name,
            "address": guests[platform.name]["ansible_host"],
            "port": platform.port,
            **({"user": platform.user} if platform.user else {}),
            **({"identity_file": platform.private_key_file} if platform.private_key_file else {}),
        }
        for platform in platforms
    ]


def inventory(
    platforms: t.Iterable[Platform], guests: t.Mapping[str, t.Mapping[str, t.Any]], wait: int
) -> dict[str, t.Any]:
    """Return the content of an inventory that adds to molecule's how its hosts are reached.

    :arg guests: see instance_config(). :arg wait: seconds until they must answer
    """
    hosts = {
        platform.name: {
            **guests[platform.name],
            "ansible_port": platform.port,
            **({"ansible_user": platform.user} if platform.user else {}),
            **({"ansible_ssh_private_key_file": platform.private_key_file} if platform.private_key_file else {}),
        }
        for platform in platforms
    }
    return {GROUP: {"hosts": hosts, "vars": {"bootflow_molecule_wait": wait}}}


def _error(message: str, remedy: str) -> InvalidInput:
    return InvalidInput(message=message, remedy=remedy)


def _platform(entry: t.Any, user: str, private_key_file: str) -> Platform:
    """:raises InvalidInput: it cannot be booted."""
    if not isinstance(entry, t.Mapping):
        raise _error("a platform is a mapping, got %r" % (entry,), "Write %s" % _EXAMPLE)
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise _error(
            "the name of a platform is the hostname of its guest, got %r" % (name,),
            "Use letters, digits and dashes, and begin and end with a letter or digit.",
        )
    if len(name) > LONGEST_NAME:
        raise _error(
            "the name %s has %d characters, and a hostname at most %d" % (name, len(name), LONGEST_NAME),
            "Shorten it. Names of platforms need no part that tells jobs apart: each job has its own project.",
        )
    fields = entry.get(_FIELDS)
    if not isinstance(fields, t.Mapping):
        raise _error("platform %s has no mapping %s" % (name, _FIELDS), "Write %s" % _EXAMPLE)
    for field in _OURS:
        if field in fields:
            raise _error(
                "platform %s has %s.%s" % (name, _FIELDS, field), "Leave it out: a platform is one instance of the job."
            )
    if not fields.get("flavor"):
        raise _error("platform %s has no flavor" % name, "Name a flavor of bootflow_flavors in %s.flavor." % _FIELDS)
    if not fields.get("image") and not fields.get("block_device_mapping"):
        raise _error("platform %s has no image" % name, "Name an image that the fleet knows in %s.image." % _FIELDS)
    port = entry.get("port", 22)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise _error("platform %s has the port %r" % (name, port), "Give a number from 1 to 65535.")
    return Platform(
        name, dict(fields), _text(entry, "user", user), _text(entry, "identity_file", private_key_file), port
    )


def _text(entry: t.Mapping[str, t.Any], field: str, default: str) -> str:
    value = entry.get(field)
    if value is not None and not isinstance(value, str):
        raise _error("platform %s has the %s %r" % (entry["name"], field, value), "Write it as a text.")
    return value or default
