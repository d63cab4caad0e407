# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that actions run on hosts, as programs without Ansible's library (module_utils/hosts/os/program.py).

The files of a module are the files that Ansible found when it packed it (packed_modules.py); the program is kept next to the packed module. Ansible
decides how a module gets to a host, who it runs as and how its answer is read: only the transmitted code is different.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import marshal
import pickle
import typing as t
import zipfile
import zlib

from ansible import constants
from ansible.executor import module_common
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.action import ActionBase

from . import packed_modules

NEEDS_ANSIBLE = "needs_ansible_module"  # in the answer of a program that leaves the module to Ansible, see there
SUFFIX = ".program"
PROFILE = "legacy"  # how Ansible writes arguments and reads answers of modules
COLLECTIONS = "ansible_collections/"
PROGRAM = "ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.program"
# The code that reads from web servers is Ansible's, in its own process that loads it from a file.
READS_THE_WEB = "ansible_collections/bootflow/compute/plugins/module_utils/hosts/images/web.py"
# Settings by which Ansible looks for an interpreter on the host.
DISCOVERED = ("auto", "auto_legacy", "auto_silent", "auto_legacy_silent")
HEAD = 16  # bytes of a .pyc before the code

_ready: dict[str, bytes] = {}  # by make_ready()

# Follows PARTS (see program_of()) and ARGUMENTS on the host. What a Python that is too old says of a module is Ansible's; it can read this far.
START = """
import sys
if sys.version_info < (3, 9):
    sys.stdout.write('{"needs_ansible_module": "Python %s"}' % sys.version.split()[0])
    sys.exit()
import base64, importlib.util, marshal, types, zlib
parts = marshal.loads(base64.b64decode(PARTS))
codes = marshal.loads(zlib.decompress(parts['codes']))
def sources():
    return marshal.loads(zlib.decompress(parts['sources']))
name, path = parts['program'], parts['program'].replace('.', '/') + '.py'
program = types.ModuleType(name)
if parts['magic'] == importlib.util.MAGIC_NUMBER:
    code = marshal.loads(codes[path])
else:
    code = compile(sources()[path], path, 'exec', dont_inherit=True)
exec(code, program.__dict__)
program.run(program.Files(codes, sources, parts['magic']), parts['module'], ARGUMENTS)
"""


def built(
    action: ActionBase, module: str, arguments: t.Mapping[str, t.Any], task_vars: t.Mapping[str, t.Any]
) -> tuple[t.Any, str] | None:
    """Return the result of ActionBase._configure_module(); None where Ansible itself has to pack the module, or find Python on the host.

    :arg module: its FQCN. :arg arguments: including the ones that Ansible adds.
    """
    interpreter = _interpreter(action, task_vars)
    if interpreter is None or action._task.delegate_to or constants.DEFAULT_KEEP_REMOTE_FILES:
        return None
    if constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=dict(task_vars)):
        return None
    program = _ready.get(module) or _read_stored_program(module)
    if program is None or (program.startswith(b"#web") and may_read_the_web(arguments)):
        return None
    text = program + b"ARGUMENTS = %r\n" % _as_json(arguments) + START.encode()
    try:
        ready = module_common._BuiltModule(
            b_module_data=text, module_style="new", shebang="#!" + interpreter, serialization_profile=PROFILE
        )
    except (AttributeError, TypeError) as e:  # of another Ansible
        packed_modules.warn_of_another_ansible(e)
        return None
    action._display.vvv("%s goes to the host as a program (without AnsiballZ)" % module)
    return ready, str(packed_modules.PLUGINS / "modules" / (module.rpartition(".")[2] + ".py"))


@contextlib.contextmanager
def without(action: ActionBase) -> t.Iterator[None]:
    """In the block, ``action`` runs modules as Ansible does."""
    action.sends_programs = False
    try:
        yield
    finally:
        action.sends_programs = True


def make_ready(module: str) -> None:
    """Have the program of a module (its FQCN) in memory, for the workers that Ansible forks from this process: each would take 5 ms to find it."""
    program = _read_stored_program(module)
    if program is not None:
        _ready[module] = program


def may_read_the_web(arguments: t.Mapping[str, t.Any]) -> bool:
    """Whether a module with these arguments may fetch an image by its URL."""
    images = arguments.get("images") or ()
    if not isinstance(images, (list, tuple)):  # compute_unused gets a flag whether to look at them, and fetches none
        return False
    images = [i for i in images if i["id"] not in (arguments.get("uploads") or ())]
    return bool(arguments.get("fetch", True)) and any(image.get("url") for image in images)


def _interpreter(action: ActionBase, task_vars: t.Mapping[str, t.Any]) -> str | None:
    """Python on the host, where the inventory or Ansible's settings name it, or Ansible has found it in this run."""
    path = action._templar.template(constants.config.get_config_value("INTERPRETER_PYTHON", variables=dict(task_vars)))
    facts = task_vars.get("ansible_facts")
    if (not path or str(path).strip() in DISCOVERED) and isinstance(facts, t.Mapping):
        path = facts.get("discovered_interpreter_python")
    return path.strip() if isinstance(path, str) and path.strip().startswith("/") else None


def _as_json(arguments: t.Mapping[str, t.Any]) -> bytes:
    return json.dumps(arguments, cls=get_module_encoder(PROFILE, Direction.CONTROLLER_TO_MODULE)).encode()


def _read_stored_program(module: str) -> bytes | None:
    """The program of a module that an earlier run packed, all but its arguments."""
    path = packed_modules.path_of(module)
    if path is None:
        return None
    program_path = path.with_name(path.name + SUFFIX)
    program = packed_modules.read(program_path)
    if program is None:
        packed = packed_modules.read(path)
        program = None if packed is None else program_of(module, packed)
        if program is not None:
            packed_modules.write(program_path, program)
    return program


def program_of(module: str, packed: bytes) -> bytes | None:
    """The program, without arguments. None: its files are not as expected.

    :arg packed: what packed_modules keeps, with byte code.
    """
    codes: dict[str, bytes] = {}
    sources: dict[str, bytes] = {}
    magic = b""
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(pickle.loads(packed).zip_data))) as files:
            for name in files.namelist():
                if name.startswith(COLLECTIONS) and name.endswith(".py"):
                    sources[name] = files.read(name)
                    code = files.read(name + "c")
                    magic, codes[name] = code[:4], code[HEAD:]
    except Exception as e:  # of another Ansible, see packed_modules
        packed_modules.warn_of_another_ansible(e)
        return None
    if magic != importlib.util.MAGIC_NUMBER:
        packed_modules.warn_of_another_ansible(LookupError("no byte code of this Python for the collection's files"))
        return None
    path = PROGRAM.replace(".", "/") + ".py"  # no module loads it
    sources[path] = (packed_modules.PLUGINS / path.partition("/plugins/")[2]).read_bytes()
    codes[path] = marshal.dumps(compile(sources[path], path, "exec", dont_inherit=True))
    parts = {
        "codes": zlib.compress(marshal.dumps(codes, 4)),
        "sources": zlib.compress(marshal.dumps(sources, 4)),
        "magic": magic,
        "program": PROGRAM,
        "module": "ansible_collections.%s.plugins.modules.%s" % tuple(module.rsplit(".", 1)),
    }
    head = b"#web\n" if READS_THE_WEB in sources else b"#\n"
    return head + b"PARTS = %r\n" % base64.b64encode(marshal.dumps(parts, 4))
