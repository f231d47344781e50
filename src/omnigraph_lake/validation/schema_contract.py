"""The accepted schema of a state of the graph: text, model, hashes.

Invariant: the manifest says by its hash which schema a state has. A contract is used only if its
model has that hash and its text means the same; where it was found does not matter. Comments and
white space of the text at the root may differ from what was accepted.

Until its first opening for writing a graph of Omnigraph 0.3 to 0.7 has the files of that program at
its root, and its states go by their hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, GraphReplacedError, SchemaInvalidError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.schema import legacy_model
from omnigraph_lake.schema.model import decode_model, encode_model, model_hash, shape_hash
from omnigraph_lake.storage.manifest.accepted_schemas import (
    StoredSchema,
    kept_schema,
    schema_at_root,
)
from omnigraph_lake.storage.objects.documents import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.store import Objects

_STATE_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaContract:
    """An accepted schema: its text, its meaning, and the hash the manifest's heads carry."""

    text: str
    catalog: Catalog
    model_hash: str
    legacy_hash: str | None = None
    """What states that Omnigraph 0.3 to 0.7 left call it."""


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
    """The accepted schemas that a handle has met, by hash: they never change.

    A hash covers the identity of its graph, so the states of a graph that was created later at the
    same root have hashes that are not known here.
    """

    def __init__(self, objects: Objects, first: SchemaContract) -> None:
        self._objects = objects
        self._first = first
        self._known = {first.model_hash: first}

    def of(self, schema_hash: str) -> SchemaContract:
        """The schema of a hash, which a manifest names.

        Raises:
            GraphReplacedError: it is the schema of another graph.
        """
        known = self._known.get(schema_hash)
        if known is None:
            known = read_contract(self._objects, schema_hash)
            if not _of_one_graph(self._first, known):
                raise GraphReplacedError(self._objects.root.uri)
            self._known[schema_hash] = known
        return known


def _of_one_graph(one: SchemaContract, other: SchemaContract) -> bool:
    if one.legacy_hash is not None or other.legacy_hash is not None:
        return True  # Omnigraph 0.7 stores no identity: each of its schemas gets one of its own
    return one.catalog.identity_domain == other.catalog.identity_domain


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
    if schema_hash in (None, contract.model_hash, contract.legacy_hash):
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


def read_staged_contract(objects: Objects, staged: Mapping[str, bytes]) -> SchemaContract:
    """The schema at the root with some of its files exchanged.

    Raises:
        DamagedGraphError: they do not belong together.
    """
    stored = schema_at_root(objects)
    if not isinstance(stored, str):
        contents = {**stored.at_root(), **staged}
        texts = [content.decode(errors="replace") for content in contents.values()]
        stored = StoredSchema(text=texts[0], model=texts[1], state=texts[2])
    return _check(objects, stored)


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
    state = _state_in(objects, stored.state)
    if names.LEGACY_SCHEMA_HASH in state:
        return _check_legacy(objects, stored, state)
    catalog = decode_model(stored.model)
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


def _check_legacy(
    objects: Objects, stored: StoredSchema, state: Mapping[str, object]
) -> SchemaContract:
    if state.get("format_version") != legacy_model.STATE_FORMAT:
        raise _torn(objects, f"its state has format {state.get('format_version')!r:.40}")
    legacy_hash = legacy_model.legacy_hash(stored.model)
    if state[names.LEGACY_SCHEMA_HASH] != legacy_hash:
        raise _torn(objects, "its model was changed without its state")
    # The same graph gets the same domain from every process that opens it.
    catalog = _compile(objects, stored.text, identity_domain=legacy_hash)
    try:
        difference = legacy_model.find_difference(stored.model, catalog)
    except (ValueError, LookupError, TypeError) as error:
        raise _torn(objects, f"{names.SCHEMA_MODEL} cannot be read: {error!r:.80}") from error
    if difference is not None:
        raise _torn(
            objects, f"{names.SCHEMA_SOURCE} and {names.SCHEMA_MODEL} differ in {difference}"
        )
    return replace(contract_for(stored.text, catalog), legacy_hash=legacy_hash)


def _check_meaning(objects: Objects, text: str, catalog: Catalog) -> None:
    edited = _compile(objects, text, identity_domain=catalog.identity_domain)
    if shape_hash(edited) != shape_hash(catalog):
        raise _torn(objects, f"{names.SCHEMA_SOURCE} was edited and has another meaning now")


def _compile(objects: Objects, text: str, *, identity_domain: str) -> Catalog:
    # The compiler costs 120 ms; only an edited text, or one of Omnigraph 0.7, needs it.
    from omnigraph_lake.schema.compile import compile_schema

    try:
        return compile_schema(
            text,
            filename=names.SCHEMA_SOURCE,
            identity_domain=identity_domain,
            was_accepted=True,
        )
    except SchemaInvalidError as error:
        raise _torn(objects, f"{names.SCHEMA_SOURCE} is not a valid schema") from error


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
