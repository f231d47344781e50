"""What a nightly run does to a graph, as a file says it.

    [check]
    enabled = true

    [optimize]
    enabled = true
    target_rows_per_fragment = 1048576

    [cleanup]
    enabled = true
    keep = 10
    older_than = "7d"

    [branches]
    remove_abandoned = false

Invariant: an unknown word is refused; what is left out has the default shown by `Policy`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from omnigraph.ages import parse_age
from omnigraph.arguments import plain_text
from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.language.diagnostics import shown as shown_value
from omnigraph.maintenance.cleanup import CleanupPolicy
from omnigraph.maintenance.optimize import OptimizeOptions

_WORDS: Final[Mapping[str, Mapping[str, type]]] = {
    "check": {"enabled": bool},
    "optimize": {"enabled": bool, "target_rows_per_fragment": int},
    "branches": {"remove_abandoned": bool},
    "cleanup": {"enabled": bool, "keep": int, "older_than": str, "allow_unsafe_keep": bool},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which steps run, and how; without a file all of them, with a week of history kept."""

    check: bool = True
    optimize: bool = True
    optimize_options: OptimizeOptions = field(default_factory=OptimizeOptions)
    remove_abandoned_branches: bool = False
    cleanup: bool = True
    cleanup_policy: CleanupPolicy = field(
        default_factory=lambda: CleanupPolicy(keep_versions=10, older_than=timedelta(days=7))
    )


def parse_policy(text: str, *, name: str = "policy") -> Policy:
    """Read a policy.

    Args:
        text: The policy as TOML.
        name: The name of the text in errors.

    Raises:
        InvalidInputError: it is not TOML, or has a word or value that is not known.
    """
    plain_text(name, argument="name")
    try:
        said = tomllib.loads(plain_text(text, argument="text"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{name} is not TOML: {error}") from error
    _require_known(said, _WORDS, where=name)
    for section, words in said.items():
        if not isinstance(words, dict):
            raise InvalidInputError(
                f"{section} in {name} is {shown_value(words, 40)}, expected a section"
            )
        _require_known(words, _WORDS[section], where=f"[{section}] of {name}")
        for word, value in words.items():
            _require_type(value, _WORDS[section][word], where=f"{section}.{word} in {name}")
    optimize, cleanup = said.get("optimize", {}), said.get("cleanup", {})
    return Policy(
        check=said.get("check", {}).get("enabled", True),
        optimize=optimize.get("enabled", True),
        optimize_options=OptimizeOptions(
            target_rows_per_fragment=optimize.get("target_rows_per_fragment")
        ),
        remove_abandoned_branches=said.get("branches", {}).get("remove_abandoned", False),
        cleanup=cleanup.get("enabled", True),
        cleanup_policy=_cleanup(cleanup),
    )


def _cleanup(said: Mapping[str, Any]) -> CleanupPolicy:
    """Both words have defaults only if neither is said: one alone means what it says."""
    if "keep" not in said and "older_than" not in said:
        return Policy().cleanup_policy
    age = said.get("older_than")
    return CleanupPolicy(
        keep_versions=said.get("keep"), older_than=None if age is None else parse_age(age)
    ).checked(allow_unsafe_keep=said.get("allow_unsafe_keep", False))


def _require_known(said: Mapping[str, Any], known: Mapping[str, Any], *, where: str) -> None:
    for word in said:
        if word not in known:
            hint = did_you_mean(word, known)
            raise InvalidInputError(
                f"{where} says {shown_value(word, 40)}" + (f" ({hint})" if hint else ""),
                next_step=f"Known values: {', '.join(known)}.",
            )


def _require_type(value: object, expected: type, *, where: str) -> None:
    if type(value) is not expected:
        raise InvalidInputError(f"{where} is {shown_value(value, 40)}, expected {_KINDS[expected]}")


_KINDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}
