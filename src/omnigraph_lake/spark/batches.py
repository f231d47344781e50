"""Load every batch of a stream once: the function that `foreachBatch` calls.

    query = changes.writeStream.foreachBatch(foreach_batch(root, type="Order"))
    query.option("checkpointLocation", place).start()

It promises what the streaming sink promises, on every version of Spark and with Spark's own
exchange for the keys.

Invariant: a batch is the operation that is named after its query and its number. Spark repeats a
batch with the same rows and the same number, so it is published once. A query keeps its id as long
as its checkpoint exists, so a stream that starts again with batch 0 is another query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.utils import is_remote

from omnigraph_lake.display.cells import cut, printable
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.opening import open as open_graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.api.options import LoadOptions, Mode

Tables = Callable[["DataFrame"], Mapping[str, "DataFrame"]]


_LABEL_WIDTH: Final = 80
QUERY_ID: Final = "sql.streaming.queryId"
"""The property of jobs and tasks that has Spark's id of a streaming query."""


def batch_operation(query_id: str, stream: str | None, batch_id: int) -> str:
    """The operation that a batch of a streaming query is written as; `stream` is its label."""
    label = "" if stream is None else f", stream {stream}"
    return f"query {query_id}{label}, batch {batch_id}"


def batch_message(stream: str | None, batch_id: int) -> str:
    """The message of a batch whose stream is given none."""
    label = "" if stream is None else f" {cut(printable(str(stream)), _LABEL_WIDTH)},"
    return f"stream{label} batch {batch_id}"


def foreach_batch(  # noqa: PLR0913 - every word of a load is one
    root: str,
    *,
    stream: str | None = None,
    checkpoint: str | None = None,
    type: str | None = None,  # noqa: A002 - the conventional name
    tables: Tables | None = None,
    mode: Mode = "append",
    on_error: Literal["fail", "quarantine"] = "fail",
    branch: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    options: LoadOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """The function for `DataStreamWriter.foreachBatch` that loads every batch once.

    Args:
        root: The graph.
        stream: A label of the stream for its operations.
        checkpoint: The place of the checkpoint, from which the id of the query is read. Needed
            through Spark Connect, which does not tell the id.
        type: The type of all rows.
        tables: Instead of `type`: makes frames by type name from the frame of a batch.
        mode: As in `Graph.load`.
        on_error: As in `Graph.load`.
        branch: The branch to write; main by default.
        actor: Author of the commits; the user of this process by default.
        message: Message of the commits; by default the label and the number of the batch.
        metadata: Further texts by name to store with the commits.
        options: Rarer options of the load.
        storage_options: Options of the object store.
    """
    make_tables = _tables_of(type, tables)
    if checkpoint is None and is_remote():
        raise _unknown_query()

    def load_batch(frame: DataFrame, batch_id: int) -> None:
        session = frame.sparkSession
        query_id = _query_id(session, checkpoint)
        graph = open_graph(root, storage_options=storage_options)
        chosen = graph if branch is None else graph.checkout(branch)
        report = chosen.load(
            make_tables(frame),
            mode=mode,
            on_error=on_error,
            spark=session,
            actor=actor,
            message=message or batch_message(stream, batch_id),
            metadata=metadata,
            operation_id=batch_operation(query_id, stream, batch_id),
            options=options,
        )
        if report.repeated:
            # From Spark 4.1 on, a batch must commit every state store of its query, and only
            # a frame that is evaluated does that.
            frame.write.format("noop").mode("overwrite").save()

    return load_batch


def _tables_of(type_name: str | None, tables: Tables | None) -> Tables:
    if (type_name is None) == (tables is None):
        raise InvalidInputError(
            "either a type or a function that makes frames by type is needed",
            next_step="Give `type=`, or `tables=`.",
        )
    if tables is not None:
        return tables
    assert type_name is not None
    return lambda frame: {type_name: frame}


def _query_id(session: SparkSession, checkpoint: str | None) -> str:
    """The id of the query that this thread runs a batch of, or that a checkpoint belongs to."""
    if checkpoint is not None:
        return _id_in(session, checkpoint)
    context = getattr(session, "sparkContext", None)
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if not query_id:
        raise _unknown_query()
    return str(query_id)


def _id_in(session: SparkSession, checkpoint: str) -> str:
    """The id of a query by its checkpoint, which Spark reads wherever it is."""
    metadata = session.read.text(f"{checkpoint.rstrip('/')}/metadata").first()
    assert metadata is not None, "Spark writes the metadata of a query before its first batch"
    return str(json.loads(metadata.value)["id"])


def _unknown_query() -> InvalidInputError:
    return InvalidInputError(
        "the id of the streaming query is unknown, so a batch that is repeated could not be "
        "recognised",
        next_step="Give `checkpoint=` with the place of the query's checkpoint.",
    )
