# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules as Ansible packs them for hosts (AnsiballZ), kept from run to run: to pack one costs the controller some 0.4 s.

Ansible itself keeps a packed module until its run ends, in a folder of the run. A copy of that file in ANSIBLE_HOME is put there when
a run first needs the module, as long as nothing that is packed has changed. Where anything of it is not as expected, Ansible packs.
Each file is kept with its checksum: a file that a power failure has cut off is packed again.

The copy also has the byte code of its files, made by the controller's Python: a host with the same version of Python (3.11, say) need not compile
them each time, some 0.2 s of its processor; another version finds the sources next to them.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import marshal
import os
import pickle
import shutil
import stat
import sys
import tempfile
import typing as t
import zipfile
import zlib
from pathlib import Path

from ansible import constants
from ansible.release import __version__ as ansible_version
from ansible.utils.display import Display

PLUGINS = Path(__file__).resolve().parents[2]
PACKED = ("module_utils", "modules")  # folders of the collection that hosts get files of
PACKERS = (
    "plugin_utils/transport/packed_modules.py",
    "plugin_utils/transport/host_programs.py",
)  # what gives what is kept its form
FOLDER = "bootflow-modules"  # in ANSIBLE_HOME
CACHE_OF_RUN = "ansiballz_cache"  # Ansible's own folder, in its temporary folder of the run
OTHERS = (".lock", ".part", ".program")  # in addition to what Ansible packed
CHECKSUM = 4  # bytes before the content of a kept file
# Of files that are kept: this one, and that of another installation of the collection with the same ANSIBLE_HOME.
STATES = 2
UNCHECKED_HASH = (1).to_bytes(4, "little")  # the flags of a .pyc that is not compared with its source


@contextlib.contextmanager
def reuse_packed_module(module: str) -> t.Iterator[None]:
    """Have ``module`` (its FQCN) packed before it runs in the block, if an earlier run packed it, and keep it afterwards."""
    pattern = _pattern(module)
    of_run = Path(constants.DEFAULT_LOCAL_TMP) / CACHE_OF_RUN
    packed_before = any(_packed(of_run, pattern))
    folder = None
    with contextlib.suppress(OSError):
        folder = None if packed_before else _folder()
        if folder is not None:
            for path in _packed(folder, pattern):
                content = read(path)
                if content is not None:
                    of_run.mkdir(mode=0o700, exist_ok=True)
                    write_whole(of_run / path.name, content)
                    packed_before = True
    yield
    if folder is None or packed_before:
        return
    packed_now = list(_packed(of_run, pattern))
    if not packed_now:
        warn_of_another_ansible(LookupError("a module that was packed is not in %s" % CACHE_OF_RUN))
    with contextlib.suppress(OSError):
        for path in packed_now:
            write(folder / path.name, _with_byte_code(path.read_bytes()))


def path_of(module: str) -> Path | None:
    """Return the file that an earlier run packed of this module, with byte code; None: there is none, or Ansible packs again."""
    with contextlib.suppress(OSError):
        folder = _folder()
        if folder is not None:
            return next(_packed(folder, _pattern(module)), None)
    return None


def read(path: Path) -> bytes | None:
    """Return the content that write() kept there. None: nothing, or not all of it."""
    with contextlib.suppress(OSError):
        kept_there = path.read_bytes()
        content = kept_there[CHECKSUM:]
        if kept_there[:CHECKSUM] == _checksum(content):
            return content
    return None


def write(path: Path, content: bytes) -> None:
    """Keep a file. It does no harm if that fails."""
    with contextlib.suppress(OSError):
        write_whole(path, _checksum(content) + content)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(CHECKSUM, "little")


def _pattern(module: str) -> str:
    return "ansible_collections.%s.plugins.modules.%s-*" % tuple(module.rsplit(".", 1))


def _packed(folder: Path, pattern: str) -> t.Iterator[Path]:
    return (path for path in folder.glob(pattern) if path.suffix not in OTHERS)


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Whole or not at all: another process may look for it, or write it too, on another computer with the same home."""
    fd, part = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _with_byte_code(packed: bytes) -> bytes:
    """:arg packed: the file that Ansible keeps, a pickled object with a zip file in base64. Returns it with a .pyc next to each .py."""
    try:
        module = pickle.loads(packed)
        archive = base64.b64decode(module.zip_data)
        return pickle.dumps(dataclasses.replace(module, zip_data=base64.b64encode(_compiled(archive))))
    except (
        Exception
    ) as e:  # of another Ansible, whose form is not known here: to read a pickled object can raise anything
        warn_of_another_ansible(e)
        return packed


def warn_of_another_ansible(error: Exception) -> None:
    """Warn, once in a run, that modules go to hosts as Ansible packs them: nothing fails, but each task takes longer."""
    Display().warning(
        "ansible-core %s packs modules in a form that bootflow.compute does not know (%s: %s). They go to hosts as Ansible packs them, which is slower: use one"
        " of the releases of ansible-core that the README names." % (ansible_version, type(error).__name__, error)
    )


def _compiled(archive: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as sources, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as both:
        for entry in sources.infolist():
            content = sources.read(entry)
            both.writestr(entry, content)
            if entry.filename.endswith(".py"):
                code = compile(content, entry.filename, "exec", dont_inherit=True)
                # PEP 552: an unchecked hash, because the zip file holds both and neither is changed later.
                head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(content)
                both.writestr(
                    zipfile.ZipInfo(entry.filename + "c", entry.date_time),
                    head + marshal.dumps(code),
                    zipfile.ZIP_DEFLATED,
                )
    return made.getvalue()


def _folder() -> Path | None:
    """Return the folder of modules that are packed of the files as they are now; None: nowhere. Packed modules of older files are removed."""
    if any(os.path.isdir(path) for path in constants.DEFAULT_MODULE_UTILS_PATH or ()):
        return None  # files of the user may be packed with ours
    above = Path(constants.config.get_config_value("ANSIBLE_HOME")) / FOLDER
    above.mkdir(mode=0o700, exist_ok=True)
    if not _only_ours(above):
        return None
    folder = above / _state()
    if not folder.is_dir():
        for old in sorted(above.iterdir(), key=lambda path: path.lstat().st_mtime)[: 1 - STATES]:
            shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder if _only_ours(folder) else None


def _only_ours(folder: Path) -> bool:
    """Whether no other user can put a file there, which would run on the hosts."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _state() -> str:
    """A digest of all that a packed module depends on: names, times and sizes of the files, and who packs them."""
    digest = hashlib.sha256(repr((ansible_version, sys.version_info, str(PLUGINS))).encode())
    for path in _files():
        status = os.stat(path)
        # The time of its last change is the kernel's: an image or a package may have given each version the same time of writing.
        digest.update(repr((path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)).encode())
    return digest.hexdigest()[:32]


def _files() -> t.Iterator[str]:
    for root in PACKED:
        for folder, folders, files in os.walk(PLUGINS / root):
            folders.sort()
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))
    yield from (str(PLUGINS / name) for name in PACKERS)
