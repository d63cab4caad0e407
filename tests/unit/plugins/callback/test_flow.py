# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-playbook prints with the callback flow outside of boots; tests/simulated_py/test_flow_callback.py has boots."""

from __future__ import annotations

import pathlib

from .test_concise import PLAYS, play

FLOW = "bootflow.compute.flow"


def test_plays_of_others_are_as_they_are_by_default(tmp_path: pathlib.Path) -> None:
    failing: list[dict[str, object]] = [{"hosts": "localhost", "tasks": [{"ansible.builtin.fail": {"msg": "no"}}]}]
    for plays in (PLAYS, failing):
        assert play(tmp_path, plays, FLOW) == play(tmp_path, plays, "ansible.builtin.default")


def test_with_v_all_is_as_by_default(tmp_path: pathlib.Path) -> None:
    plays: list[dict[str, object]] = [{"import_playbook": "bootflow.compute.list"}]
    (tmp_path / "hosts.yml").write_text("bootflow_compute: {hosts: {h1: {}}}\n")
    options = ("-v", "-i", "hosts.yml", "-e", "bootflow_ledger_url=%s" % (tmp_path / "l.db"))
    shown = play(tmp_path, plays, FLOW, *options)
    assert "PLAY [" in shown and "TASK [" in shown and "PLAY RECAP" in shown
