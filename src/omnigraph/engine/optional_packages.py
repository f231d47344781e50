"""Optional packages, and the error if one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from omnigraph.errors import InvalidInputError


def optional_package(name: str) -> Any:
    """The package.

    Raises:
        InvalidInputError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InvalidInputError(
            f"this needs {name}, which is not installed", next_step=f"Run `pip install {name}`."
        ) from None
