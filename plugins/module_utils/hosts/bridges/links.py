# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces of this host by the programs of iproute2."""

from __future__ import annotations

import contextlib
import json
import socket
import typing as t

from ..os.command import program, run

Links = t.Dict[str, t.Mapping[str, t.Any]]  # by their names, as ip shows them

_ATTEMPTS = 20  # lists of interfaces that the kernel ends early; the last one is taken as it is


def host_name() -> str:
    """Return this host's name, for messages."""
    return socket.gethostname()


def exists(name: str) -> bool:
    """Return whether an interface of this name is in our network namespace."""
    try:
        return bool(socket.if_nametoindex(name))
    except OSError:
        return False


def links_of(names: t.Iterable[str]) -> Links:
    """Return the interfaces of these names that exist, whoever made them."""
    links: Links = {}
    for name in names:
        if exists(name):
            links.update({str(link["ifname"]): link for link in ip("-details", "link", "show", "dev", name)})
    return links


def ip(*arguments: str) -> list[t.Mapping[str, t.Any]]:
    """Return interfaces as ``ip`` shows them. While interfaces come and go the kernel may end its list early; it is asked again."""
    argv = [program("ip", "iproute2"), "-json", *arguments]
    for _attempt in range(_ATTEMPTS):
        answer = run(argv, timeout=60)
        if "Dump was interrupted" not in answer.stderr:
            break
    return [link for link in json.loads(answer.stdout or "[]") if link.get("ifname")]


def batch(name: str, commands: t.Sequence[str]) -> None:
    """Run commands of ``ip`` or ``bridge`` one after the other, until one fails. :raises CommandFailed:"""
    run([program(name, "iproute2"), "-batch", "-"], timeout=120, stdin="".join(line + "\n" for line in commands))


def is_up(link: t.Mapping[str, t.Any]) -> bool:
    """Return whether an interface is turned on."""
    return "UP" in link.get("flags", ())


def info_of(link: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """Return the fields of an interface that only its kind has."""
    return t.cast("t.Mapping[str, t.Any]", link.get("linkinfo", {}).get("info_data", {}))


def turn_off_ipv6(*names: str) -> None:
    """Have the host take no IPv6 address and no routes from these interfaces."""
    for name in names:
        with contextlib.suppress(OSError):  # a kernel without IPv6
            with open("/proc/sys/net/ipv6/conf/%s/disable_ipv6" % name, "w", encoding="ascii") as file:
                file.write("1")
