#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# rtslib-fb 2.2.4 (PyPI). rtslib, by which LIO is configured, refuses names of targets whose naming authority is a domain of a single
# label (iqn.2026-01.lab:disk), which RFC 7143 allows and tgt and open-iscsi take: its pattern wants a second dot somewhere behind the date.
# A dot behind the colon is enough for it. A prefix for the targets of both needs a domain with a dot.
#
# Installs rtslib-fb in a temporary folder; nothing is asked of the kernel.
set -euo pipefail
RTSLIB=2.2.4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv python
python/bin/python -m pip install -qq --disable-pip-version-check "rtslib-fb==$RTSLIB" pyudev==0.24.4
python/bin/python - <<'PYTHON' >answers
from rtslib import utils

for name in ("iqn.2026-01.test.lab:disk", "iqn.2026-01.lab:disk", "iqn.2026-01.lab:disk.1"):
    try:
        print(name, "is taken as", utils.normalize_wwn(("iqn",), name)[0])
    except utils.RTSLibError as error:
        print(name, "is refused:", error)
PYTHON
echo "rtslib-fb $RTSLIB:"
cat answers
if [ "$(sed -n 's/.* is \(taken\|refused\).*/\1/p' answers | paste -sd' ')" != "taken refused taken" ]; then
    echo "the behaviour changed"
    exit 1
fi
