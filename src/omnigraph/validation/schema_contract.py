"""The accepted schema of a state of the graph: text, model, hashes.

Invariant: the manifest says by its hash which schema a state has. A contract is used only if its
model has that hash and its text means the same; where it was found does not matter. Comments and
white space of the text at the root may differ from what was accepted.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError, SchemaInvalidError
from omnigraph.failpoints import reach
from omnigraph.schema.model import decode_model, encode_model, model_hash, shape_hash
from omnigraph.storage.manifest.accepted_schemas import StoredSchema, kept_schema, schema_at_root
from omnigraph.storage.objects.documents import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.store import Objects

_STATE_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaContract:
    """An accepted schema: its text, its meaning, and the hash the manifest's heads carry."""

    text: str
    catalog: Catalog
    model_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """An accepted schema, and one that differs from it in more nullable properties alone.

    `added` are their names by table key, `values` what the commit records of values in old rows.
    """

    accepted: SchemaContract
    target: SchemaContract
    added: Mapping[str, tuple[str, ...]]
    values: str


class Contracts:
    """The accepted schemas that a handle has met, by hash: they never change."""

    def __init__(self, objects: Objects, first: SchemaContract) -> None:
        self._objects = objects
        self._known = {first.model_hash: first}

    def of(self, schema_hash: str) -> SchemaContract:
        """The schema of a hash, which a manifest names."""
        known = self._known.get(schema_hash)
        if known is None:
            known = self._known[schema_hash] = read_contract(self._objects, schema_hash)
        return known


def contract_for(text: str, catalog: Catalog) -> SchemaContract:
    return SchemaContract(text=text, catalog=catalog, model_hash=model_hash(catalog))


def stored_form(contract: SchemaContract) -> StoredSchema:
    """What to store for a contract."""
    state = {
        "format": _STATE_FORMAT,
        "identity_domain": contract.catalog.identity_domain,
        "model_hash": contract.model_hash,
        "shape_hash": shape_hash(contract.catalog),
        "source_hash": _sha256(contract.text),
    }
    return StoredSchema(
        text=contract.text,
        model=encode_model(contract.catalog),
        state=json.dumps(state, indent=2, sort_keys=True),
    )


def read_contract(objects: Objects, schema_hash: str | None = None) -> SchemaContract:
    """The accepted schema of a hash, or the one that the root has a copy of.

    The copy at the root is usually it, and one request nearer for people who start.

    Raises:
        DamagedGraphError: neither the copy nor what was kept under the hash can be trusted.
    """
    try:
        contract = _check(objects, schema_at_root(objects))
    except DamagedGraphError:
        kept = None if schema_hash is None else kept_contract(objects, schema_hash)
        if kept is None:
            raise
        return kept
    if schema_hash is None or contract.model_hash == schema_hash:
        return contract
    reach("read.post_contract")
    kept = kept_contract(objects, schema_hash)
    if kept is None:
        raise _torn(
            objects,
            f"the manifest says {schema_hash[:12]}, its files at the root say "
            f"{contract.model_hash[:12]}, and {names.accepted_schema(schema_hash)} is missing",
        )
    return kept


def kept_contract(objects: Objects, schema_hash: str) -> SchemaContract | None:
    """The schema that was kept under a hash; None if none was."""
    stored = kept_schema(objects, schema_hash)
    if stored is None:
        return None
    contract = _check(objects, stored)
    if contract.model_hash != schema_hash:
        raise _torn(objects, f"{names.accepted_schema(schema_hash)} holds another schema")
    return contract


def _check(objects: Objects, stored: StoredSchema | str) -> SchemaContract:
    if isinstance(stored, str):
        raise _torn(objects, f"{stored} is missing")
    catalog = decode_model(stored.model)
    state = _state_in(objects, stored.state)
    contract = contract_for(stored.text, catalog)
    if state.get("format") != _STATE_FORMAT:
        raise _torn(objects, f"its state has format {state.get('format')!r}, not {_STATE_FORMAT}")
    if state.get("model_hash") != contract.model_hash:
        raise _torn(objects, "its model was changed without its state")
    if state.get("identity_domain") != catalog.identity_domain:
        raise _torn(objects, "its model belongs to another graph")
    if state.get("source_hash") != _sha256(stored.text):
        _check_meaning(objects, stored.text, catalog)
    return contract


def _check_meaning(objects: Objects, text: str, catalog: Catalog) -> None:
    # The compiler costs 120 ms; only an edited text needs it.
    from omnigraph.schema.compile import compile_schema

    try:
        edited = compile_schema(
            text,
            filename=names.SCHEMA_SOURCE,
            identity_domain=catalog.identity_domain,
            was_accepted=True,
        )
    except SchemaInvalidError as error:
        raise _torn(objects, f"{names.SCHEMA_SOURCE} was edited and is no longer valid") from error
    if shape_hash(edited) != shape_hash(catalog):
        raise _torn(objects, f"{names.SCHEMA_SOURCE} was edited and has another meaning now")


def _state_in(objects: Objects, content: str) -> Mapping[str, object]:
    try:
        state = parsed(content)
    except ValueError as error:
        raise _torn(objects, f"{names.SCHEMA_STATE} is not JSON") from error
    if not isinstance(state, dict):
        raise _torn(objects, f"{names.SCHEMA_STATE} is not a JSON object")
    return state


def _torn(objects: Objects, why: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the schema of {objects.root} is damaged: {why}",
        next_step="Restore the three schema files from a backup of the root, then open it again.",
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
