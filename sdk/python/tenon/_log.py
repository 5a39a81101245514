# SPDX-License-Identifier: Apache-2.0
"""Passes the log of tenon to the logger "tenon"."""

from __future__ import annotations

import logging

logger = logging.getLogger("tenon")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def log(level: int, text: str) -> None:
    """Logs a line. The extension calls it."""
    logger.log(_LEVELS[min(level, 3)], "%s", text)


def least_level() -> int:
    """The lowest level, as a number of tenon, that the logger passes on."""
    return next((i for i, level in enumerate(_LEVELS) if logger.isEnabledFor(level)), 3)
