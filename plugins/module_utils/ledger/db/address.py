# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger's address and connection settings: URL, password, TLS, timeouts.

The password is kept apart from the URL, so that showing a URL never shows it. Order of its sources: the setting, the file,
the URL, BOOTFLOW_LEDGER_PASSWORD, and then the sources of libpq (PGPASSWORD, ~/.pgpass, a service file).
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import typing as t
import urllib.parse
from dataclasses import dataclass, field

from ...core import errors

PASSWORD_VARIABLE = "BOOTFLOW_LEDGER_PASSWORD"
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
MEMORY = "sqlite://"


@dataclass(frozen=True)
class LedgerAddress:
    """A ledger and the settings of the connection. Times are seconds, 0 means no limit. The text form has no password."""

    url: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    sslmode: str | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    application_name: str = "bootflow"
    connect_timeout: int = 10
    lock_timeout: float = 60.0
    statement_timeout: float = 300.0
    answer_timeout: float = 30.0  # after statement_timeout
    idle_timeout: float = (
        120.0  # a frozen run's transaction loses its locks after this; normal transactions pause for seconds
    )
    retry_timeout: float = 60.0

    def __str__(self) -> str:
        return shown(self.url)

    def check(self) -> None:
        """Raise InvalidInput for invalid settings, before anything is changed."""
        for name in ("connect", "lock", "statement", "answer", "idle", "retry"):
            name += "_timeout"
            value = getattr(self, name)
            if not 0 <= value <= 2_000_000:
                raise errors.InvalidInput(
                    reason="bootflow_ledger_%s is %s" % (name, value),
                    remedy="Give seconds from 0 (none) to 2000000.",
                )
        if self.sslmode is not None and self.sslmode not in SSL_MODES:
            raise errors.InvalidInput(
                reason="bootflow_ledger_sslmode is %r" % self.sslmode, remedy="Give one of: %s." % ", ".join(SSL_MODES)
            )
        if self.password is not None and self.password_file is not None:
            raise errors.InvalidInput(
                reason="bootflow_ledger_password and bootflow_ledger_password_file are both set",
                remedy="Keep one of them.",
            )
        if not url_is_sqlite(normalise_url(self.url)):
            for name in ("sslrootcert", "sslcert", "sslkey"):
                path = getattr(self, name)
                if path is not None and path != "system" and not os.access(path, os.R_OK):
                    raise errors.InvalidInput(
                        reason="bootflow_ledger_%s: %s is not there or may not be read" % (name, path),
                        remedy="Name a file on the controller that its user may read.",
                    )

    def secret(self) -> str | None:
        """The password of this address; None: libpq finds one. Reads the file."""
        if self.password is not None:
            return self.password
        if self.password_file is not None:
            return password_from_file(self.password_file)
        return password_in(normalise_url(self.url)) or os.environ.get(PASSWORD_VARIABLE) or None


def as_address(address: str | LedgerAddress) -> LedgerAddress:
    return address if isinstance(address, LedgerAddress) else LedgerAddress(url=address)


def normalise_url(url: str) -> str:
    """A path or database URL in SQLAlchemy's form. Raises LedgerError for anything but sqlite and PostgreSQL."""
    if url.startswith(("/", "~")):
        return "sqlite:///" + os.path.expanduser(url)
    if url.startswith("sqlite:///") or url == MEMORY:
        return url
    match = re.match(r"^(postgres|postgresql|postgresql\+psycopg)://", url)
    if match:
        return "postgresql+psycopg://" + url[match.end() :]
    raise errors.LedgerError(
        url=shown(url),
        reason="the URL is neither a path nor a sqlite:/// or postgresql:// URL",
        remedy="Set bootflow_ledger_url, for example sqlite:////var/lib/bootflow/ledger.db.",
    )


# The hosts of libpq's list: a:5432,b:5432
_HOSTS = re.compile(r"^([^:]+://(?:[^/?@]*@)?)([^/?@]*,[^/?@]*)(/[^?]*)?(?:\?(.*))?$", re.S)


def hosts_as_options(url: str) -> str:
    """The URL with a list of hosts (``a:5432,b:5432``), which SQLAlchemy does not read, as the options host and port of libpq."""
    match = _HOSTS.match(url)
    if not match:
        return url
    hosts, ports = [], []
    for address in match[2].split(","):
        bracketed = re.fullmatch(r"\[(.*)\](?::(.*))?", address)
        host, _colon, port = (bracketed[1], "", bracketed[2] or "") if bracketed else address.partition(":")
        hosts.append(host)
        ports.append(port)
    options = "host=" + urllib.parse.quote(",".join(hosts), safe=",:%")
    if any(ports):
        options += "&port=" + ",".join(ports)
    return "%s%s?%s" % (match[1], match[3] or "", "&".join(filter(None, (options, match[4]))))


def shown(url: str) -> str:
    """The URL without its password, also if the password contains an @ or is an option."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url))


def url_is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def is_server_url(url: str) -> bool:
    """Whether it is a PostgreSQL URL, in any of the forms that normalise_url() takes."""
    return re.match(r"^postgres(ql(\+psycopg)?)?://", url) is not None


def sqlite_path(url: str) -> str | None:
    """The file of an sqlite URL; None for anything else (also an in-memory ledger)."""
    return url[len("sqlite:///") :] if url.startswith("sqlite:///") else None


# user:password@, whose password may contain an @ that should be written as %40
_USER = re.compile(r"^([^:]+://[^:/@?]*):([^?]*)@")


def password_in(url: str) -> str | None:
    """The password in a PostgreSQL URL."""
    before = _USER.match(url)
    if before and before[2]:
        return urllib.parse.unquote(before[2])
    option = re.search(r"[?&]password=([^&]+)", url)
    return urllib.parse.unquote_plus(option[1]) if option else None


def without_password(url: str) -> str:
    """The URL without the password before its host."""
    return _USER.sub(r"\1@", url)


def password_from_file(path: str) -> str:
    """The first line of a file that only its owner (this user or root) may read.

    :raises InvalidInput: the file is readable by others, of another owner, empty, or missing.
    """
    remedy = "Use a file of one line that belongs to this user: chmod 600 %s." % path
    path = os.path.expanduser(path)
    try:
        with open(path, encoding="utf-8") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                problem = "is not a regular file"
            elif facts.st_mode & 0o077:
                problem = "may be read or written by others (mode %04o)" % stat.S_IMODE(facts.st_mode)
            elif facts.st_uid not in (os.geteuid(), 0):
                problem = "belongs to %s" % user_name(facts.st_uid)
            else:
                lines = file.read(65536).splitlines()
                if lines and lines[0] and not any(lines[1:]) and "\0" not in lines[0]:
                    return lines[0]
                problem = "does not have one line with the password"
    except (OSError, UnicodeDecodeError) as e:
        problem = "cannot be read: %s" % (e.strerror if isinstance(e, OSError) else "the content is not a string")
    raise errors.InvalidInput(message="bootflow_ledger_password_file: %s %s" % (path, problem), remedy=remedy)


def user_name(uid: int) -> str:
    """The name of a user, for messages."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def scrubbed(text: str, secrets: t.Iterable[str | None]) -> str:
    """``text`` without these secrets, also in URL encoding."""
    for secret in secrets:
        if secret and len(secret) >= 3:
            for form in (secret, urllib.parse.quote(secret), urllib.parse.quote(secret, safe="")):
                text = text.replace(form, "***")
    return text
