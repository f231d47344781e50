"""Plan an import: find its sources, then infer a schema and a mapping, or read the mapping given.

Invariants:
- Nothing is written but files of the import's own temporary folder.
- A plan that was inferred and one that was read from the files of the former load the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInputError
from omnigraph.importer.import_report import ImportedSource
from omnigraph.importer.import_sources import ImportSource, find_import_sources
from omnigraph.importer.inference import InferenceOptions, Source, infer
from omnigraph.importer.mapping_file import (
    SUFFIX,
    MappingFile,
    check_mapping,
    read_mapping,
    write_mapping,
)
from omnigraph.importer.neo4j import infer_neo4j
from omnigraph.importer.profile import profile_source
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.load.formats.mapping import SourceMapping, UnknownColumns
from omnigraph.load.load import MappedInput
from omnigraph.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog

_NAME: Final = "mapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What will be loaded: every source with its mapping, for a schema.

    `schema` is None if the mapping was given and names no schema. `records` has the records of the
    sources that were profiled.
    """

    sources: tuple[ImportSource, ...]
    mapping_file: MappingFile
    mapping: str
    mapping_name: str = _NAME
    schema: str | None
    records: Mapping[str, int] = field(default_factory=dict)

    @property
    def mappings(self) -> Mapping[str, SourceMapping]:
        return {mapping.name: mapping for mapping in self.mapping_file.mappings}

    def check(self, catalog: Catalog) -> None:
        """Compare the mapping with the schema of the graph.

        Raises:
            InvalidInputError: it names a type or a property that the schema does not have.
        """
        check_mapping(self.mapping_file, catalog, text=self.mapping, name=self.mapping_name)

    def load_input(self) -> MappedInput:
        """The input of the load."""
        mappings = self.mappings
        frames = {source.name: source.frame for source in self.sources if source.is_frame}
        files = tuple(
            replace(file, mapping=mappings[source.name])
            for source in self.sources
            for file in source.files
        )
        if frames and files:
            raise InvalidInputError(
                "frames and lists of records were given together, expected one kind",
                next_step="Import them one after the other, or make frames of the lists.",
            )
        return MappedInput(
            files=files, frames=frames, mappings={name: mappings[name] for name in frames}
        )

    def describe_sources(self) -> tuple[ImportedSource, ...]:
        mappings = self.mappings
        return tuple(
            ImportedSource(
                name=source.name,
                location=source.describe(),
                records=self.records.get(source.name),
                types=tuple(dict.fromkeys(rule.type for rule in mappings[source.name].rules)),
            )
            for source in self.sources
        )


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Where an import keeps hashes and spooled inputs."""
    with TemporaryDirectory(prefix="omnigraph-import-") as folder:
        yield Path(folder)


def find_sources(
    named: object,
    *,
    folder: Path,
    format_name: str | None,
    storage_options: Mapping[str, str] | None,
    graph: Root,
) -> tuple[ImportSource, ...]:
    """The sources that a caller names."""
    spool = folder / "spool"
    spool.mkdir()
    return find_import_sources(
        named,
        folder=spool,
        format_name=format_name,
        storage_options=storage_options,
        graph=graph,
    )


def infer_plan(
    sources: Sequence[ImportSource],
    options: InferenceOptions,
    *,
    folder: Path,
    schema_name: str,
    records_max: int | None = None,
) -> ImportPlan:
    """Read the sources and infer a schema and a mapping."""
    profiled: list[Source] = []
    for number, source in enumerate(sources):
        hashes = folder / f"source-{number}"
        hashes.mkdir()
        limits = [limit for limit in (records_max, source.records_max) if limit is not None]
        profile = profile_source(
            source.name, source.records(), hashes, records_max=min(limits, default=None)
        )
        if not profile.columns and not profile.children:
            continue
        profiled.append(Source(name=source.name, profile=profile, declared=source.declared))
    if not profiled:
        raise InvalidInputError(
            "the input has no records and no columns: there is nothing to infer a schema from",
            next_step="Name files that have records.",
        )
    draft = infer_neo4j(profiled, options) or infer(profiled, options)
    mapping_file = MappingFile(mappings=draft.mappings, schema=schema_name)
    names = {source.name for source in profiled}
    return ImportPlan(
        sources=tuple(source for source in sources if source.name in names),
        mapping_file=mapping_file,
        mapping=write_mapping(draft.mappings, schema=schema_name),
        schema=draft.schema_text(),
        records={source.name: source.profile.records for source in profiled},
    )


def read_plan(
    sources: Sequence[ImportSource],
    text: str,
    *,
    name: str,
    unknown: UnknownColumns | None,
    schema: str | None,
) -> ImportPlan:
    """Use a mapping that was written before; sources are matched with it by name.

    Raises:
        InvalidInputError: the mapping has faults, or no rules for a source.
    """
    mapping_file = read_mapping(text, name=name)
    if unknown is not None and unknown is not UnknownColumns.KEEP:
        changed = tuple(
            replace(mapping, unknown=unknown, kept_in=None) for mapping in mapping_file.mappings
        )
        mapping_file = replace(mapping_file, mappings=changed)
    known = {mapping.name for mapping in mapping_file.mappings}
    if len(known) == 1 and len(sources) == 1:
        (only,) = known
        sources = [replace(sources[0], name=only)]
    for source in sources:
        if source.name not in known:
            hint = did_you_mean(source.name, known)
            raise InvalidInputError(
                f"{name} has no [[source]] with name = {source.name!r} for {source.describe()}"
                + (f"; {hint}" if hint else ""),
                next_step="Add the source to the mapping, or leave the file out.",
            )
    return ImportPlan(
        sources=tuple(sources),
        mapping_file=mapping_file,
        mapping=text,
        mapping_name=name,
        schema=schema,
    )


def default_files(root: Root) -> tuple[Path, Path]:
    """Where schema and mapping of a graph are kept: beside it, or here if it is on a store."""
    name = root.uri.rstrip("/").rpartition("/")[2] or "graph"
    folder = Path(root.uri.rstrip("/")).parent if root.scheme is Scheme.LOCAL else Path()
    return folder / f"{name}.pg", folder / f"{name}{SUFFIX}"
