"""`graph.spark(session)`: one state of a graph on Spark, and loads by that session.

Needs pyspark: imported once there is a session.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from omnigraph_lake.api.options import LoadOptions, Mode, Source
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.engine.query import query_on_spark
from omnigraph_lake.engine.query_text import ChosenQuery, all_parameters, choose_query, query_text
from omnigraph_lake.errors import ReadOnlyError
from omnigraph_lake.runner.scan import SparkTables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.api.handle import Reading
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.validation.schema_contract import SchemaContract


class SparkGraph(SparkTables):
    """One state of a graph on Spark. Commits that are published later are invisible.

    Where the graph was opened for writing, what it reads is held while this object is in use, and
    released at the end of a `with` block over it. Frames and views that outlive it are held for
    half an hour more.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Root,
        snapshot: Snapshot,
        contract: SchemaContract,
        *,
        reading: Reading,
        load: Callable[..., LoadReport] | None = None,
    ) -> None:
        super().__init__(spark, root, snapshot, contract.catalog)
        self._contract = contract
        self._reading = reading
        self._load = load

    def query(
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        **parameters: object,
    ) -> DataFrame:
        """Run a query on this state. What its frame reads is held while the frame is in use.

        Args:
            text: The text of a query file, or the path of one.
            params: Values of parameters by name.
            name: The query of the text to run, if there are several.
            **parameters: Values of parameters.

        Raises:
            QueryInvalidError: the text has errors; `diagnostics` holds all of them.
            InvalidInputError: no query was chosen, or a parameter is invalid.
        """
        parameter_values = all_parameters(params, parameters)
        chosen = choose_query(query_text(text, self._contract), parameter_values, name=name)
        return held_frame(self, chosen, self._reading)

    def load(  # noqa: PLR0913 - every word of a load is one
        self,
        source: Source,
        *,
        mode: Mode = "append",
        type: str | None = None,  # noqa: A002 - the conventional name
        on_error: Literal["fail", "quarantine"] = "fail",
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
        options: LoadOptions | None = None,
    ) -> LoadReport:
        """Load files or frames on this session, as one commit; arguments as for `Graph.load`.

        This object still reads the state it was made from.

        Raises:
            ReadOnlyError: it is a state of the past.
        """
        if self._load is None:
            raise ReadOnlyError(
                f"cannot load: this is a view of {self.root} at a commit",
                next_step="Call `load` of the graph, with `spark=`.",
            )
        chosen = LoadOptions() if options is None else options
        return self._load(
            source,
            mode=mode,
            type=type,
            on_error=on_error,
            spark=self.spark,
            dry_run=dry_run,
            actor=actor,
            message=message,
            metadata=metadata,
            operation_id=operation_id,
            options=replace(chosen, engine="spark") if chosen.engine == "auto" else chosen,
        )

    def release(self) -> None:
        """Release the hold; the data may be cleaned up from now on."""
        self._reading.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def held_frame(tables: SparkTables, chosen: ChosenQuery, reading: Reading) -> DataFrame:
    """The frame of a query; what it reads is held while it is in use."""
    frame = query_on_spark(tables, chosen, now=SYSTEM_CLOCK.now())
    weakref.finalize(frame, _forget, reading)
    return frame


def _forget(_: Reading) -> None:
    """Called when a frame is garbage-collected; it keeps the argument alive until then."""
