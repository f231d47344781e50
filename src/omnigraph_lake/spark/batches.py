"""Load every batch of a stream once: the function that `foreachBatch` calls.

    query = changes.writeStream.foreachBatch(foreach_batch(root, stream="orders", type="Order"))
    query.option("checkpointLocation", place).start()

It promises what the streaming sink promises, on every version of Spark and with Spark's own
exchange for the keys.

Invariant: a batch is the operation that is named after its stream and its number. Spark repeats a
batch with the same rows and the same number, so it is published once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.opening import open as open_graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph_lake.api.options import LoadOptions, Mode

Tables = Callable[["DataFrame"], Mapping[str, "DataFrame"]]


def batch_operation(stream: str, batch_id: int) -> str:
    """The operation that a batch of a stream is written as."""
    return f"stream {stream}, batch {batch_id}"


def foreach_batch(  # noqa: PLR0913 - every word of a load is one
    root: str,
    *,
    stream: str,
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
        stream: Names the stream. A stream that starts again with batch 0, because its checkpoint
            was deleted, needs another name.
        type: The type of all rows.
        tables: Instead of `type`: makes frames by type name from the frame of a batch.
        mode: As in `Graph.load`.
        on_error: As in `Graph.load`.
        branch: The branch to write; main by default.
        actor: Author of the commits; the user of this process by default.
        message: Message of the commits.
        metadata: Further texts by name to store with the commits.
        options: Rarer options of the load.
        storage_options: Options of the object store.
    """
    if (type is None) == (tables is None):
        raise InvalidInputError(
            "either a type or a function that makes frames by type is needed",
            next_step="Give `type=`, or `tables=`.",
        )

    def load_batch(frame: DataFrame, batch_id: int) -> None:
        graph = open_graph(root, storage_options=storage_options)
        chosen = graph if branch is None else graph.checkout(branch)
        source = {type: frame} if tables is None and type is not None else tables(frame)  # type: ignore[misc]
        report = chosen.load(
            source,
            mode=mode,
            on_error=on_error,
            spark=frame.sparkSession,
            actor=actor,
            message=message,
            metadata=metadata,
            operation_id=batch_operation(stream, batch_id),
            options=options,
        )
        if report.repeated:
            # From Spark 4.1 on, a batch must commit every state store of its query, and only
            # a frame that is evaluated does that.
            frame.write.format("noop").mode("overwrite").save()

    return load_batch
