# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generated identifiers and secrets for requests without them. Randomness is passed in."""

from __future__ import annotations

import typing as t

_RESERVATION_CHARS = "0123456789abcdefghijklmnopqrstuvwxyz"

#: without easily confused characters: 0 O, 1 I l
PASSWORD_SYMBOLS = ("23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz")


def reservation_id(rng: t.Any) -> str:
    """A reservation id, r- and eight characters, shared by all instances of one call. source: Nova's _create_instance.

    :arg rng: a random.Random.
    """
    return "r-" + "".join(rng.choice(_RESERVATION_CHARS) for _place in range(8))


def generate_password(rng: t.Any, length: int = 12) -> str:
    """An admin password with at least one symbol of each group if the length allows. source: Nova's API.create.

    :arg rng: a cryptographic source with random.Random's interface, such as random.SystemRandom.
    """
    symbols = [rng.choice(group) for group in PASSWORD_SYMBOLS]
    rng.shuffle(symbols)
    symbols = symbols[:length]
    everything = "".join(PASSWORD_SYMBOLS)
    symbols += [rng.choice(everything) for _place in range(length - len(symbols))]
    rng.shuffle(symbols)
    return "".join(symbols)
