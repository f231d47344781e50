"""The accepted schema as three objects at the root: text, model, hashes.

Invariant: a contract is used only if all three agree. Comments and white space of the text may
differ from what was accepted; its meaning may not.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError, SchemaInvalidError
from omnigraph.schema.model import decode_model, encode_model, model_hash, shape_hash
from omnigraph.storage.objects import read_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects import Objects

_STATE_FORMAT: Final = 1
_PATHS: Final = (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaContract:
    """An accepted schema: its text, its meaning, and the hash the manifest's heads carry."""

    text: str
    catalog: Catalog
    model_hash: str


def contract_for(text: str, catalog: Catalog) -> SchemaContract:
    return SchemaContract(text=text, catalog=catalog, model_hash=model_hash(catalog))


def contract_objects(contract: SchemaContract) -> Mapping[str, bytes]:
    """What to store for a contract, by path."""
    state = {
        "format": _STATE_FORMAT,
        "identity_domain": contract.catalog.identity_domain,
        "model_hash": contract.model_hash,
        "shape_hash": shape_hash(contract.catalog),
        "source_hash": _sha256(contract.text),
    }
    return {
        names.SCHEMA_SOURCE: contract.text.encode(),
        names.SCHEMA_MODEL: encode_model(contract.catalog).encode(),
        names.SCHEMA_STATE: json.dumps(state, indent=2, sort_keys=True).encode(),
    }


def read_contract(objects: Objects) -> SchemaContract:
    """The accepted schema, checked against its own hashes."""
    contents = read_all(objects, _PATHS)
    text = _required(objects, contents, names.SCHEMA_SOURCE).decode()
    catalog = decode_model(_required(objects, contents, names.SCHEMA_MODEL).decode())
    state = _state_in(objects, _required(objects, contents, names.SCHEMA_STATE))
    contract = contract_for(text, catalog)
    if state.get("format") != _STATE_FORMAT:
        raise _torn(objects, f"its state has format {state.get('format')!r}, not {_STATE_FORMAT}")
    if state.get("model_hash") != contract.model_hash:
        raise _torn(objects, "its model was changed without its state")
    if state.get("identity_domain") != catalog.identity_domain:
        raise _torn(objects, "its model belongs to another graph")
    if state.get("source_hash") != _sha256(text):
        _check_meaning(objects, text, catalog)
    return contract


def _check_meaning(objects: Objects, text: str, catalog: Catalog) -> None:
    from omnigraph.schema.compile import (
        compile_schema,
    )  # costs 120 ms; only an edited text needs it

    try:
        edited = compile_schema(
            text, filename=names.SCHEMA_SOURCE, identity_domain=catalog.identity_domain
        )
    except SchemaInvalidError as error:
        raise _torn(objects, f"{names.SCHEMA_SOURCE} was edited and is no longer valid") from error
    if shape_hash(edited) != shape_hash(catalog):
        raise _torn(objects, f"{names.SCHEMA_SOURCE} was edited and means something else now")


def _state_in(objects: Objects, content: bytes) -> Mapping[str, object]:
    try:
        state = json.loads(content)
    except ValueError as error:
        raise _torn(objects, f"{names.SCHEMA_STATE} is not JSON") from error
    if not isinstance(state, dict):
        raise _torn(objects, f"{names.SCHEMA_STATE} is not a JSON object")
    return state


def _required(objects: Objects, contents: Mapping[str, bytes | None], path: str) -> bytes:
    content = contents[path]
    if content is None:
        raise _torn(objects, f"{path} is missing")
    return content


def _torn(objects: Objects, why: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the schema of {objects.root} cannot be trusted: {why}",
        next_step="Restore the three schema files from a backup of the root, then open it again.",
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
