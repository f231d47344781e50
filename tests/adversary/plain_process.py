"""Makes this process one of a plain install, of a user who is no administrator."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

OPTIONAL_PACKAGES: Final = frozenset({"pyspark", "py4j", "polars", "pandas", "pygls", "lsprotocol"})
"""What `pip install omnigraph-lake` does not bring."""

_CAPABILITY_VERSION_3: Final = 0x20080522
_WORDS_OF_CAPABILITIES: Final = 6
_DAC_OVERRIDE: Final = 1 << 1
_DAC_READ_SEARCH: Final = 1 << 2


class _Hiding:
    """A finder that does not find the optional packages, as if they were not installed."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in OPTIONAL_PACKAGES:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def find_distributions(self, context: Any = None) -> Any:
        return getattr(self._finder, "find_distributions", lambda _: ())(context)


def hide_optional_packages() -> None:
    sys.meta_path[:] = [_Hiding(finder) for finder in sys.meta_path]
    for name in list(sys.modules):
        if name.partition(".")[0] in OPTIONAL_PACKAGES:
            del sys.modules[name]


def obey_permissions() -> None:
    """Give up the right of root to write where permissions forbid it; for threads to come, too."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    words = (ctypes.c_uint32 * _WORDS_OF_CAPABILITIES)()
    if libc.capget(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for place in range(2):  # effective and permitted, of the first 32 capabilities
        words[place] &= ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
    if libc.capset(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capset")
