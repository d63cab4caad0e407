#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# pycdlib 1.14.0. Programs that write ISO images take their time from SOURCE_DATE_EPOCH, as xorriso does, so that the same files give the same image. pycdlib
# does not: each record, the volume and its Rock Ridge entries have the time of the call, and new() and add_fp() have no argument for one. Two config drives of
# the same content that were written a second apart differ, so they are compared by their files, or written under a clock that stands still.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pycdlib==1.14.0
cat >drives.py <<'PYTHON'
import io
import time
from unittest import mock

import pycdlib


def drive():
    iso = pycdlib.PyCdlib()
    iso.new(joliet=3, rock_ridge="1.09", vol_ident="config-2")
    iso.add_fp(io.BytesIO(b"content"), 7, "/FILE.;1", rr_name="file", joliet_path="/file")
    out = io.BytesIO()
    iso.write_fp(out)
    return out.getvalue()


def pause():
    time.sleep(1.1)
    return drive()


print("same" if drive() == pause() else "different", end=" ")
with mock.patch("time.time", return_value=86400.0):
    print("same" if drive() == pause() else "different")
PYTHON
result=$(SOURCE_DATE_EPOCH=86400 venv/bin/python drives.py)
echo "pycdlib 1.14.0, two images a second apart with SOURCE_DATE_EPOCH, and with time.time that stands still: $result"
if [ "$result" != "different same" ]; then
    echo "the behaviour changed"
    exit 1
fi
