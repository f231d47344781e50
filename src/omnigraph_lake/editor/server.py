"""The language server: what an editor asks over standard input and output, answered.

Findings follow a change after a short pause. Everything else is answered on request, for the text
as it is in the editor at that moment.

Invariants:

- Nothing but messages of the protocol is written to standard output, and no file is written.
- This is the only module that knows the protocol.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from omnigraph_lake.editor.content import Completion, CompletionKind, LanguageDocument, TextRange
from omnigraph_lake.editor.query_document import QueryDocument
from omnigraph_lake.editor.schema_document import SchemaDocument
from omnigraph_lake.editor.workspace import (
    QUERY_SUFFIX,
    SCHEMA_SUFFIX,
    Encoding,
    Positions,
    Schemas,
    SchemaSource,
)
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import Diagnostic, Severity
from omnigraph_lake.schema.catalog import Catalog

_NAME: Final = "omnigraph"
_PAUSE_SECONDS: Final = 0.1
"""Findings are published when nothing was typed for so long."""
_REQUEST_FAILED: Final = types.LSPErrorCodes.RequestFailed
_SEVERITIES: Final = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
}
_COMPLETION_KINDS: Final = {
    CompletionKind.KEYWORD: types.CompletionItemKind.Keyword,
    CompletionKind.TYPE: types.CompletionItemKind.Class,
    CompletionKind.EDGE: types.CompletionItemKind.Reference,
    CompletionKind.PROPERTY: types.CompletionItemKind.Property,
    CompletionKind.VARIABLE: types.CompletionItemKind.Variable,
    CompletionKind.FUNCTION: types.CompletionItemKind.Function,
    CompletionKind.ANNOTATION: types.CompletionItemKind.Event,
    CompletionKind.VALUE: types.CompletionItemKind.EnumMember,
}


def serve(
    *, version: str, schema: Path | None, graph: str | None, read_graph: Callable[[str], Catalog]
) -> None:
    """Answer an editor until it says goodbye or closes standard input."""
    server = EditorServer(version=version, schema=schema, graph=graph, read_graph=read_graph)
    for method, (handler, options) in _FEATURES.items():
        server.feature(method, options)(handler)
    server.start_io()


class EditorServer(LanguageServer):
    """The documents of an editor, and the schemas of those that are queries."""

    def __init__(
        self,
        *,
        version: str,
        schema: Path | None,
        graph: str | None,
        read_graph: Callable[[str], Catalog],
    ) -> None:
        # Ranges of changes would be applied by lines that are not those of the protocol.
        super().__init__(_NAME, version, types.TextDocumentSyncKind.Full)
        self.schemas = Schemas(
            schema=schema, graph=graph, read_graph=read_graph, read_open=self._read_open
        )
        self._texts: dict[str, tuple[Catalog | None, LanguageDocument]] = {}
        self._pending: dict[str, asyncio.TimerHandle] = {}

    def start(self, params: types.InitializeParams) -> None:
        """Take the options and the folders of the editor."""
        options = params.initialization_options
        given = options if isinstance(options, Mapping) else {}
        if self.schemas.schema is None and isinstance(given.get("schema"), str):
            self.schemas.schema = Path(given["schema"])
        if self.schemas.graph is None and isinstance(given.get("graph"), str):
            self.schemas.graph = given["graph"]
        uris = [folder.uri for folder in params.workspace_folders or ()]
        if not uris and params.root_uri is not None:
            uris = [params.root_uri]
        self.schemas.folders = tuple(map(_path, uris))
        if self.schemas.schema is not None and self.schemas.folders:
            self.schemas.schema = self.schemas.folders[0] / self.schemas.schema

    def read(self, uri: str) -> tuple[LanguageDocument, SchemaSource | None]:
        """The text of a document, and its schema if it is a query file; others are empty.

        An editor may send every file of a folder.
        """
        path = _path(uri)
        is_known = path.suffix in (QUERY_SUFFIX, SCHEMA_SUFFIX)
        source = self.workspace.get_text_document(uri).source if is_known else ""
        schema = self.schemas.find(path) if path.suffix == QUERY_SUFFIX else None
        catalog = None if schema is None else schema.catalog
        known = self._texts.get(uri)
        if known is not None and known[0] is catalog and known[1].text == source:
            return known[1], schema
        text: LanguageDocument = (
            SchemaDocument(source) if schema is None else QueryDocument(source, catalog)
        )
        self._texts[uri] = catalog, text
        return text, schema

    def positions(self, text: str) -> Positions:
        encoding = self.server_capabilities.position_encoding or Encoding.UTF_16
        return Positions(text, Encoding(str(getattr(encoding, "value", encoding))))

    def offset(self, text: str, position: types.Position) -> int:
        return self.positions(text).offset(position.line, position.character)

    def range(self, text: str, place: TextRange) -> types.Range:
        positions = self.positions(text)
        start, end = positions.position(place.start), positions.position(place.end)
        return types.Range(start=types.Position(*start), end=types.Position(*end))

    def publish_soon(self, uri: str) -> None:
        """Publish the findings about a document after a pause, or of all queries for a schema."""
        for affected in self._uris_about(uri):
            handle = self._pending.pop(affected, None)
            if handle is not None:
                handle.cancel()
            loop = asyncio.get_running_loop()
            self._pending[affected] = loop.call_later(_PAUSE_SECONDS, self.publish, affected)

    def publish(self, uri: str) -> None:
        """Publish the findings about a document, as it is now."""
        self._pending.pop(uri, None)
        document = next((other for other in self._documents() if other.uri == uri), None)
        if document is None:
            return
        text, schema = self.read(uri)
        diagnostics = [self._diagnostic(text.text, finding) for finding in text.diagnostics()]
        if schema is not None and schema.problem:
            diagnostics.append(
                types.Diagnostic(
                    range=self.range(text.text, TextRange(start=0, end=0)),
                    severity=types.DiagnosticSeverity.Information,
                    source=_NAME,
                    code="schema",
                    message=schema.problem,
                )
            )
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=uri, diagnostics=diagnostics, version=document.version
            )
        )

    def forget(self, uri: str) -> None:
        """Drop what is known of a document that was closed."""
        self._texts.pop(uri, None)
        handle = self._pending.pop(uri, None)
        if handle is not None:
            handle.cancel()
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, diagnostics=[])
        )

    def _uris_about(self, uri: str) -> list[str]:
        if _path(uri).suffix != SCHEMA_SUFFIX:
            return [uri]
        uris = [document.uri for document in self._documents()]
        return [uri, *(other for other in uris if _path(other).suffix == QUERY_SUFFIX)]

    def _documents(self) -> list[TextDocument]:
        return list(self.workspace.text_documents.values())

    def _diagnostic(self, text: str, finding: Diagnostic) -> types.Diagnostic:
        hint = f"\n{finding.hint}" if finding.hint else ""
        place = TextRange(start=finding.span.offset, end=finding.span.end)
        return types.Diagnostic(
            range=self.range(text, place),
            severity=_SEVERITIES[finding.severity],
            source=_NAME,
            code=finding.rule,
            message=finding.message + hint,
        )

    def _read_open(self, path: Path) -> str | None:
        return next(
            (document.source for document in self._documents() if _path(document.uri) == path),
            None,
        )


def _path(uri: str) -> Path:
    return Path(to_fs_path(uri) or uri)


def _initialize(ls: EditorServer, params: types.InitializeParams) -> None:
    ls.start(params)


def _on_start(ls: EditorServer, params: types.InitializedParams) -> None:  # noqa: ARG001
    workspace = ls.client_capabilities.workspace
    watching = None if workspace is None else workspace.did_change_watched_files
    if watching is None or not watching.dynamic_registration:
        return
    watcher = types.FileSystemWatcher(glob_pattern=f"**/*{SCHEMA_SUFFIX}")
    ls.client_register_capability(
        types.RegistrationParams(
            registrations=[
                types.Registration(
                    id="schemas",
                    method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                    register_options=types.DidChangeWatchedFilesRegistrationOptions(
                        watchers=[watcher]
                    ),
                )
            ]
        )
    )


def _on_open(ls: EditorServer, params: types.DidOpenTextDocumentParams) -> None:
    ls.schemas.forget_graph()
    ls.publish(params.text_document.uri)


def _on_change(ls: EditorServer, params: types.DidChangeTextDocumentParams) -> None:
    ls.publish_soon(params.text_document.uri)


def _on_save(ls: EditorServer, params: types.DidSaveTextDocumentParams) -> None:
    ls.schemas.forget_graph()
    ls.publish_soon(params.text_document.uri)


def _on_close(ls: EditorServer, params: types.DidCloseTextDocumentParams) -> None:
    ls.forget(params.text_document.uri)


def _on_files(ls: EditorServer, params: types.DidChangeWatchedFilesParams) -> None:
    for change in params.changes:
        ls.publish_soon(change.uri)


def _completion(ls: EditorServer, params: types.CompletionParams) -> types.CompletionList:
    text, _ = ls.read(params.text_document.uri)
    completions = text.completions(ls.offset(text.text, params.position))
    where = ls.range(text.text, completions.range)
    items = [_completion_item(item, where, order) for order, item in enumerate(completions.items)]
    return types.CompletionList(is_incomplete=False, items=items)


def _completion_item(item: Completion, where: types.Range, order: int) -> types.CompletionItem:
    return types.CompletionItem(
        label=item.text,
        kind=_COMPLETION_KINDS[item.kind],
        detail=item.detail or None,
        documentation=item.description or None,
        filter_text=item.text,
        sort_text=f"{order:05}",
        text_edit=types.TextEdit(range=where, new_text=item.text),
    )


def _hover(ls: EditorServer, params: types.HoverParams) -> types.Hover | None:
    text, _ = ls.read(params.text_document.uri)
    hover = text.hover(ls.offset(text.text, params.position))
    if hover is None:
        return None
    # A description in a schema may contain anything, also the end of a block of code.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", hover.code)), default=0))
    shown = f"{fence}\n{hover.code}\n{fence}\n{hover.description}".rstrip()
    return types.Hover(
        contents=types.MarkupContent(kind=types.MarkupKind.Markdown, value=shown),
        range=ls.range(text.text, hover.range),
    )


def _definition(ls: EditorServer, params: types.DefinitionParams) -> types.Location | None:
    uri = params.text_document.uri
    text, schema = ls.read(uri)
    place = text.definition(ls.offset(text.text, params.position))
    if isinstance(place, TextRange):
        return types.Location(uri=uri, range=ls.range(text.text, place))
    if place is None or schema is None or schema.text is None or schema.file is None:
        return None
    declaration = schema.text.find(place)
    file_uri = from_fs_path(str(schema.file))
    if declaration is None or file_uri is None:
        return None
    return types.Location(uri=file_uri, range=ls.range(schema.text.text, declaration))


def _prepare_rename(ls: EditorServer, params: types.PrepareRenameParams) -> types.Range | None:
    text, _ = ls.read(params.text_document.uri)
    place = text.renamable(ls.offset(text.text, params.position))
    return None if place is None else ls.range(text.text, place)


def _rename(ls: EditorServer, params: types.RenameParams) -> types.WorkspaceEdit:
    uri = params.text_document.uri
    text, _ = ls.read(uri)
    name = params.new_name.removeprefix("$")
    try:
        places = text.rename(ls.offset(text.text, params.position), name)
    except InvalidInputError as error:
        raise JsonRpcException(str(error), code=_REQUEST_FAILED) from None
    edits = [types.TextEdit(range=ls.range(text.text, place), new_text=name) for place in places]
    return types.WorkspaceEdit(changes={uri: edits})


def _formatting(
    ls: EditorServer, params: types.DocumentFormattingParams
) -> list[types.TextEdit] | None:
    text, _ = ls.read(params.text_document.uri)
    formatted = text.format()
    if formatted is None or formatted == text.text:
        return None
    whole = ls.range(text.text, TextRange(start=0, end=len(text.text)))
    return [types.TextEdit(range=whole, new_text=formatted)]


_FEATURES: Final[Mapping[str, tuple[Callable[..., Any], Any]]] = {
    types.INITIALIZE: (_initialize, None),
    types.INITIALIZED: (_on_start, None),
    types.TEXT_DOCUMENT_DID_OPEN: (_on_open, None),
    types.TEXT_DOCUMENT_DID_CHANGE: (_on_change, None),
    types.TEXT_DOCUMENT_DID_SAVE: (_on_save, None),
    types.TEXT_DOCUMENT_DID_CLOSE: (_on_close, None),
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (_on_files, None),
    types.TEXT_DOCUMENT_COMPLETION: (
        _completion,
        types.CompletionOptions(trigger_characters=["$", ".", "@", ":", '"']),
    ),
    types.TEXT_DOCUMENT_HOVER: (_hover, None),
    types.TEXT_DOCUMENT_DEFINITION: (_definition, None),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (_prepare_rename, None),
    types.TEXT_DOCUMENT_RENAME: (_rename, types.RenameOptions(prepare_provider=True)),
    types.TEXT_DOCUMENT_FORMATTING: (_formatting, None),
}
