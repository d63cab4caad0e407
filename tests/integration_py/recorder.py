# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A callback plugin that writes down all that it is given, for runs that must not show secrets."""

from __future__ import annotations

from pathlib import Path

# Writes down each event with all that its objects hold, as deep as they go.
CALLBACK = """
from __future__ import annotations

import os

from ansible.plugins.callback import CallbackBase

PRIMITIVES = (str, bytes, int, float, bool, type(None))
# Ansible's own machinery, which has the variables of the run whatever a task does.
SKIPPED = ("_loader", "_variable_manager", "_parent", "_play", "_role", "_host", "host", "_attr_cache")


def everything(value, depth=0, seen=()):
    if isinstance(value, PRIMITIVES):
        return str(value)
    if depth > 12 or id(value) in seen:
        return ""
    seen = (*seen, id(value))
    if isinstance(value, dict):
        parts = [p for k, v in value.items() if k not in SKIPPED for p in (everything(k, depth + 1, seen), everything(v, depth + 1, seen))]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = [everything(v, depth + 1, seen) for v in value]
    else:
        parts = [repr(value), everything(dict(getattr(value, "__dict__", {})), depth + 1, seen)]
    return "\\n".join(parts)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "recorder"


def note(self, *args, **kwargs):
    with open(os.environ["RECORDED"], "a", encoding="utf-8") as f:
        f.write("EVENT %s\\n" % everything([args, kwargs]))


for name in dir(CallbackBase):
    if name.startswith("v2_") and name != "v2_on_any":
        setattr(CallbackModule, name, note)
"""


def environment(folder: Path) -> dict[str, str]:
    """For a run of ansible-playbook that records into the folder, and prints the arguments of tasks."""
    plugins = folder / "callbacks"
    plugins.mkdir(exist_ok=True)
    (plugins / "recorder.py").write_text(CALLBACK)
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(plugins),
        "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "true",
        "RECORDED": str(folder / "recorded"),
    }


def told(folder: Path) -> str:
    """What callbacks were given."""
    return (folder / "recorded").read_text()
