"""Readers: one manifest version tells the tables and the hash; the contract is looked up by it.

The root files are a shortcut: three reads, believed only if all three tell the wanted schema and
one text. Otherwise the object by hash is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.labels import SchemaName
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import (
    Contract,
    SchemaReader,
    SchemaState,
    SchemaStep,
    contract_of,
    label,
)
from tests.model.state import replaced

_ReaderStep = tuple[SchemaName, str, SchemaReader]


def reader_steps(scope: SchemaScope, state: SchemaState, number: int) -> Iterator[SchemaStep]:
    """Everything that reader `number` can do next."""
    for name, detail, reader in _steps(scope, state, state.readers[number]):
        readers = replaced(state.readers, number, reader)
        yield label(name, detail, f"R{number}"), state._replace(readers=readers)


def _steps(scope: SchemaScope, state: SchemaState, reader: SchemaReader) -> Iterator[_ReaderStep]:
    latest = len(state.manifest) - 1
    match reader.phase:
        case "idle":
            twice = scope.mutant == "read_twice"
            taken = SchemaReader("again" if twice else "files", latest, state.head.schema)
            yield "read.post_manifest", f"v{latest}, schema {state.head.schema}", taken
        case "again":
            later = reader._replace(phase="files", base=latest)
            yield "read.post_manifest", f"v{latest} for the pins", later
        case "files":
            yield _read_file(scope, state, reader)
        case "object":
            contract = contract_of(state, reader.wanted)
            lost = contract is None
            found = reader._replace(phase="lost" if lost else "answered", contract=contract)
            yield "read.post_contract", f"object, found: {not lost}", found
        case "answered" | "lost":
            return


def _read_file(scope: SchemaScope, state: SchemaState, reader: SchemaReader) -> _ReaderStep:
    """The next root file; the first one that does not fit sends the reader to the object."""
    number = len(reader.files)
    files = (*reader.files, state.files[number])
    detail = ("text", "model", "state")[number]
    if not _fit(scope, reader.wanted, files):
        return "read.post_contract", f"{detail} of another", _to_object(reader)
    if number < 2:
        return "read.post_contract", detail, reader._replace(files=files)
    # The model is what a reader works by, and the text is what it may show.
    told = Contract(files[1].schema, files[0].text)
    answered = SchemaReader("answered", reader.base, reader.wanted, contract=told)
    return "read.post_contract", detail, answered


def _to_object(reader: SchemaReader) -> SchemaReader:
    return reader._replace(phase="object", files=())


def _fit(scope: SchemaScope, wanted: int, files: tuple[Contract, ...]) -> bool:
    match scope.mutant:
        case "files_believed":
            return True
        case "state_file_believed":
            return len(files) < 3 or files[2].schema == wanted
        case _:
            return all(file == files[0] and file.schema == wanted for file in files)
