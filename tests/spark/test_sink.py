"""The writers behind `format("omnigraph")`: what tasks stage becomes one checked commit, once.

Most tests play the part of Spark in this process: they send a writer to tasks, choose the messages
that count, and commit or abort. Spark itself runs in `test_datasource` and in the last tests here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    LoadRefusedError,
    OperationRolledBackError,
    SchemaChangedError,
)
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.spark import OmnigraphDataSource, foreach_batch, sink
from omnigraph_lake.spark.batches import batch_message
from omnigraph_lake.spark.change_source import ChangeStreamReader
from omnigraph_lake.spark.datasource import (
    plan_sink,
    planned_read,
    planned_stream,
    planned_write,
)
from omnigraph_lake.spark.sink import GraphStreamWriter, GraphWriter, StagedPieces, stage_partition
from tests.gate.selection import for_gate
from tests.spark.versions import needs_read_limits
from tests.stores import folder_of

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64?  city: String? }
edge Knows: Person -> Person { since: I64? }
"""

Part = list[dict[str, Any]]

SENT: Any = CPickleSerializer()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": f"p{n}", "age": n, "city": "Ulm"} for n in range(4)]})
    return graph


def people(graph: Graph) -> dict[str, tuple[int | None, str | None]]:
    rows = graph.scan("Person", columns=["name", "age", "city"]).read_all().to_pylist()
    return {row["name"]: (row["age"], row["city"]) for row in rows}


def files(graph: Graph, folder: str) -> list[Path]:
    return sorted(path for path in folder_of(graph.root, folder).rglob("*") if path.is_file())


def data_files(graph: Graph) -> int:
    return sum(path.suffix == ".lance" for path in files(graph, ""))


def tables(parts: Sequence[Part]) -> list[pa.Table]:
    """The partitions of one frame: all have the columns of all."""
    rows = pa.Table.from_pylist([row for part in parts for row in part])
    columns = dict.fromkeys(name for part in parts for row in part for name in row)
    schema = pa.Table.from_pylist([dict.fromkeys(columns), *rows.to_pylist()]).schema
    return [pa.Table.from_pylist(part, schema=schema) for part in parts]


def texts(columns: Sequence[str]) -> pa.Schema:
    """The columns of a frame whose types do not matter."""
    return pa.schema([(name, pa.string()) for name in columns])


class Write:
    """One write as Spark runs it: the writer is planned, sent, used by tasks, and committed."""

    def __init__(
        self, graph: Graph, *parts: Part, spark_mode: str = "append", **options: str
    ) -> None:
        self._frames = tables(parts)
        plan = planned_write(
            {"path": graph.root, **options},
            self._frames[0].schema,
            overwrite=spark_mode == "overwrite",
        )
        self.plan = plan
        self._writer: GraphWriter = SENT.loads(SENT.dumps(GraphWriter(plan)))

    def stage(self) -> list[WriterCommitMessage | None]:
        return [self.task(number) for number in range(len(self._frames))]

    def task(self, number: int) -> StagedPieces:
        batches = iter(self._frames[number].to_batches())
        message = stage_partition(self.plan, batches, partition=number)
        sent: StagedPieces = SENT.loads(SENT.dumps(message))
        return sent

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)

    def run(self) -> None:
        self.commit(self.stage())


def test_a_merge_keeps_what_rows_do_not_mention_and_a_replacement_does_not(graph: Graph) -> None:
    parts = [{"name": "p1", "age": 10}], [{"name": "new", "age": 1}, {"name": "p3", "age": 30}]

    Write(graph, *parts, type="Person", mode="merge").run()
    merged = people(graph)
    Write(graph, *parts, type="Person", mode="replace").run()

    graph.schema.apply(SCHEMA.replace("city: String?", 'city: String? = "Rome"'))
    unnamed = [{"name": "p0", "age": 7}, {"name": "newer", "age": 2}]
    Write(graph, unnamed, type="Person", mode="merge").run()

    assert merged["p1"] == (10, "Ulm")
    assert merged["new"] == (1, None)
    assert people(graph)["newer"] == (2, "Rome")
    assert people(graph)["p1"] == (10, None)
    assert people(graph)["p0"] == (7, "Ulm")
    assert len(graph.commits()) == 6
    assert files(graph, names.STAGING_DIR) == []
    assert graph.maintenance.check().ok


def test_a_write_with_an_operation_id_that_was_published_stages_nothing(graph: Graph) -> None:
    Write(graph, [{"name": "a"}], type="Person", operationId="run 1").run()
    before = data_files(graph)
    again = Write(graph, [{"name": "a"}], type="Person", operationId="run 1")

    messages = again.stage()
    again.commit(messages)

    assert again.plan.is_published
    assert len(graph.commits()) == 3
    assert data_files(graph) == before
    assert files(graph, names.STAGING_DIR) == []


def test_a_write_that_was_published_while_its_tasks_staged_is_not_repeated(graph: Graph) -> None:
    writes = [Write(graph, [{"name": "a"}], type="Person", operationId="run 1") for _ in range(2)]
    staged = [write.stage() for write in writes]
    writes[0].commit(staged[0])
    published = data_files(graph)

    writes[1].commit(staged[1])

    assert len(graph.commits()) == 3
    assert data_files(graph) == published - 1
    assert files(graph, names.STAGING_DIR) == []


def test_rejected_rows_are_set_aside_up_to_a_limit(graph: Graph) -> None:
    rows: Part = [{"name": f"n{n}", "age": n} for n in range(8)] + [{"name": "p1", "age": 1}]
    wish = {"type": "Person", "onError": "quarantine", "actor": "pipeline"}
    note = {"message": "Nightly", "metadata": '{"run": "17"}'}

    with pytest.raises(LoadRefusedError, match="more than the limit of 0"):
        Write(graph, rows, maxBad="0", **wish).run()
    refused = people(graph)
    Write(graph, rows, maxBad="50%", **wish, **note).run()
    with pytest.raises(InvalidInputError, match="expected a JSON object"):
        Write(graph, rows, type="Person", metadata="run=17")

    assert len(refused) == 4
    assert len(people(graph)) == 12
    newest = graph.commits()[0]
    assert (newest.actor, newest.message) == ("pipeline", "Nightly")
    assert newest.metadata == {"run": "17"}
    assert len(files(graph, names.QUARANTINE_DIR)) == 1


def test_only_the_messages_given_to_the_commit_count(graph: Graph) -> None:
    write = Write(graph, [{"name": "a"}], [{"name": "b"}], type="Person")
    write.task(0)  # a speculative copy

    write.commit(write.stage())

    assert sorted(people(graph)) == ["a", "b", "p0", "p1", "p2", "p3"]
    assert graph.maintenance.check().ok


def test_an_aborted_write_and_a_task_that_outlives_it_leave_nothing(graph: Graph) -> None:
    before = data_files(graph)
    write = Write(graph, [{"name": "a"}], [{"name": "b"}], type="Person")

    write.abort([write.task(0), None])
    with pytest.raises(OperationRolledBackError):
        write.task(1)

    assert data_files(graph) == before
    assert files(graph, names.STAGING_DIR) == []
    assert len(people(graph)) == 4


def test_a_refused_write_leaves_nothing(graph: Graph) -> None:
    before = data_files(graph)

    with pytest.raises(LoadRefusedError, match="1 of 2 records are invalid"):
        Write(graph, [{"name": "a"}, {"name": "p1"}], type="Person").run()

    assert data_files(graph) == before
    assert files(graph, names.STAGING_DIR) == []


def test_rows_are_checked_on_what_is_published_at_the_commit(graph: Graph) -> None:
    write = Write(graph, [{"name": "a", "age": 1}], type="Person", mode="merge")
    messages = write.stage()
    graph.write({"Person": [{"name": "a", "age": 7, "city": "Bonn"}]})

    write.commit(messages)

    assert people(graph)["a"] == (1, "Bonn")


def test_the_schema_may_not_change_between_tasks_and_commit(graph: Graph) -> None:
    write, stream = Write(graph, [{"name": "a"}], type="Person"), Stream(graph)
    of_write = write.stage()
    of_stream = stream.stage([{"name": "a"}])
    graph.schema.apply(SCHEMA.replace("city: String?", "city: String?  size: I64?"))
    before = data_files(graph)

    with pytest.raises(ConflictError, match=r"schema of .* was changed while rows were staged"):
        write.commit(of_write)
    with pytest.raises(SchemaChangedError):
        stream.commit(0, of_stream)

    assert data_files(graph) == before - 2
    assert len(people(graph)) == 4
    stream.batch(0, [{"name": "a"}])
    assert len(people(graph)) == 5


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_the_first_write_of_a_type_on_a_branch_is_moved_to_its_line(
    graph: Graph, mode: str
) -> None:
    graph.branches.create("dev")
    parts = [{"name": "a", "age": 1}], [{"name": "b", "age": 2}]

    for age in (1, 2):
        part: Part = [{"name": f"more{age}"}]
        wish = {"type": "Person", "branch": "dev", "mode": mode}
        Write(graph, *([*parts, part] if age == 1 else [part]), **wish).run()

    dev = graph.checkout("dev")
    assert sorted(people(dev)) == ["a", "b", "more1", "more2", "p0", "p1", "p2", "p3"]
    assert len(people(graph)) == 4
    assert dev.maintenance.check().ok
    assert graph.maintenance.check().ok


def test_a_column_routes_rows_to_several_types(graph: Graph) -> None:
    Write(
        graph,
        [
            {"kind": "Person", "name": "a", "age": 1, "src": None, "dst": None},
            {"kind": "Knows", "name": None, "age": None, "src": "a", "dst": "b"},
        ],
        [
            {"kind": "Person", "name": "b", "age": None, "src": None, "dst": None},
            {"kind": "Knows", "name": None, "age": None, "src": "b", "dst": "p0"},
        ],
        typeColumn="kind",
    ).run()

    assert len(graph.commits()) == 3
    assert people(graph)["a"] == (1, None)
    edges = graph.scan("Knows", columns=["src", "dst"]).read_all().to_pylist()
    assert sorted((edge["src"], edge["dst"]) for edge in edges) == [("a", "b"), ("b", "p0")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"kind": "Persn", "name": "a"}, "no type 'Persn'"),
        ({"kind": None, "name": "a"}, "names a type None"),
        ({"kind": "Knows", "name": "a"}, "a row of Knows has a value in the column 'name'"),
    ],
)
def test_rows_that_cannot_be_routed_are_refused(graph: Graph, row: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Write(graph, [row], typeColumn="kind").run()


WITHOUT_SENSE: list[tuple[dict[str, str], str]] = [
    ({}, "either a type of .* or a column that names types"),
    ({"type": "Person", "typeColumn": "name"}, "either a type of .* or a column"),
    ({"typeColumn": "kind"}, "the frame has no column 'kind' that names types"),
    ({"type": "Knows"}, "the frame of Knows has a column for"),
    ({"type": "Person", "mode": "upsert"}, 'mode is .*upsert.*, expected "append", "merge"'),
    ({"type": "Person", "onError": "skip"}, 'onError is .*skip.*, expected "fail"'),
    ({"type": "Person", "operationId": ""}, "expected a text of 1 to 1024 characters"),
    ({"type": "Person", "stream": "x"}, "there is no option 'stream'"),
    ({"type": "Person", "mergeSchema": "yes"}, "mergeSchema is 'yes', expected one of true, false"),
    ({"typeColumn": "name", "mergeSchema": "true"}, "mergeSchema was given together with"),
]


@pytest.mark.parametrize(("options", "said"), WITHOUT_SENSE)
def test_options_without_sense_are_refused_before_tasks_start(
    graph: Graph, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Write(graph, [{"name": "a"}], **options)


def test_two_modes_that_differ_are_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match='the mode is "overwrite" and the option mode'):
        Write(graph, [{"name": "a"}], spark_mode="overwrite", type="Person", mode="merge")


class Stream:
    """One run of a query: every batch is planned anew, and committed by a writer of its own."""

    def __init__(
        self,
        graph: Graph,
        columns: Sequence[str] = (),
        schema: pa.Schema | None = None,
        query_id: str = "q1",
        **options: str,
    ) -> None:
        self._schema = schema or texts(columns or ["name", "age"])
        typed = {"typeColumn": "kind"} if columns else {"type": "Person"}
        self._query_id = query_id
        self._options = {"path": graph.root, **typed, **options}

    def batch(self, batch_id: int, *parts: Part) -> None:
        self.commit(batch_id, self.stage(*parts))

    def stage(self, *parts: Part) -> list[WriterCommitMessage | None]:
        frames = tables(parts)
        writer = self._writer()
        SENT.dumps(writer)
        return [
            stage_partition(
                writer._plan,
                iter(frame.to_batches()),
                partition=number,
                query_id=self._query_id,
            )
            for number, frame in enumerate(frames)
        ]

    def commit(self, batch_id: int, messages: list[WriterCommitMessage | None]) -> None:
        self._writer().commit(messages, batch_id)

    def _writer(self) -> GraphStreamWriter:
        plan = plan_sink(self._options, self._schema, overwrite=False)
        return GraphStreamWriter(plan, StructType())


def test_every_batch_of_a_stream_is_one_commit_and_its_repetition_none(graph: Graph) -> None:
    stream = Stream(graph)
    for _ in range(2):
        for batch_id in range(2):
            stream.batch(batch_id, [{"name": f"a{batch_id}"}], [{"name": f"b{batch_id}"}])

    assert len(graph.commits()) == 4
    assert len(people(graph)) == 8
    Stream(graph, query_id="q2", mode="merge").batch(0, [{"name": "a0", "age": 5}])
    assert len(graph.commits()) == 5
    assert people(graph)["a0"] == (5, None)


@pytest.mark.local_disk("a store has no folders")
def test_staging_folders_end_with_their_batch_and_those_of_killed_tasks_with_a_cleanup(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    area, stream = folder_of(graph.root, names.STAGING_DIR), Stream(graph)
    stream.batch(0, [{"name": "a"}], [{"name": "b"}])
    assert list(area.iterdir()) == []

    stream.stage([{"name": "c"}], [{"name": "d"}])
    two_days_ago = ULID.from_datetime(datetime.now(UTC) - timedelta(days=2))
    monkeypatch.setattr(sink, "new_ulid", lambda: str(two_days_ago))
    stream.stage([{"name": "c"}], [{"name": "d"}])
    of_today, old = sorted(area.iterdir(), reverse=True)
    assert (old / "open").exists()

    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    assert list(area.iterdir()) == [of_today]
    assert len(files(graph, names.STAGING_DIR)) > 1
    stream.batch(1, [{"name": "c"}], [{"name": "d"}])
    assert {"a", "b", "c", "d"} <= people(graph).keys()


def test_a_label_is_no_owner_of_batches(graph: Graph) -> None:
    """Two flows into one sink share its options, and each has a batch 0."""
    for query_id in ("q1", "q2", "q1"):
        row = {"name": f"of {query_id}"}
        Stream(graph, query_id=query_id, stream="shared").batch(0, [row])

    assert {"of q1", "of q2"} <= people(graph).keys()
    assert len(graph.commits()) == 4


def test_a_batch_of_an_unknown_query_is_refused(graph: Graph) -> None:
    stream = Stream(graph, query_id="", stream="label")

    with pytest.raises(InvalidInputError, match="the id of the streaming query"):
        stream.batch(0, [{"name": "a"}])

    assert len(graph.commits()) == 2


COMMIT_STEPS = [
    "mutation.begin",
    "mutation.post_sidecar",
    "load.staged",
    "load.settled",
    "load.gathered",
    "mutation.post_stage",
    "mutation.pre_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "mutation.post_sidecar_delete",
]


@pytest.mark.parametrize(
    ("step", "mode"),
    for_gate(
        [(step, mode) for step in COMMIT_STEPS for mode in ("append", "merge")],
        lambda case: case in {("load.settled", "merge"), ("publish.pre_manifest", "append")},
    ),
)
def test_a_batch_whose_commit_dies_is_published_once_when_it_is_repeated(
    graph: Graph, step: str, mode: str
) -> None:
    """Edges get a new id each time they are written, so a second time would be seen."""
    rows: Part = [{"kind": "Knows", "src": "p0", "dst": "p1"}]
    if mode == "merge":
        rows = [{"kind": "Person", "name": "a", "age": 1}, {"kind": "Person", "name": "p1"}]
    stream = Stream(graph, columns=list(rows[0]), mode=mode)
    for _ in range(2):
        arm(step, Armed(action=Action.ERROR))
        try:
            # The second attempt may find the batch published, and then reaches few steps.
            stream.batch(7, rows)
        except FailpointReached:
            pass
        finally:
            disarm_all()

    stream.batch(7, rows)
    graph.write({"Person": [{"name": "a", "age": 2}]}, mode="merge")
    stream.batch(7, rows)

    assert graph.count("Knows") == (1 if mode == "append" else 0)
    assert people(graph)["a"] == (2, None)
    assert people(graph)["p1"] == ((None if mode == "merge" else 1), "Ulm")
    assert graph.maintenance.check().ok


WIDE: Part = [{"name": "a", "town": "Ulm", "scores": [0.5]}, {"name": "p1", "town": None}]
WIDE_SCHEMA = pa.schema(
    [("name", pa.string()), ("town", pa.string()), ("scores", pa.list_(pa.float64()))]
)


@pytest.mark.parametrize("mode", for_gate(["merge", "replace"], {"merge"}.__contains__))
def test_new_columns_become_properties_in_the_commit_of_their_rows(graph: Graph, mode: str) -> None:
    Write(graph, WIDE[:1], WIDE[1:], type="Person", mode=mode, mergeSchema="true").run()
    Write(graph, WIDE[:1], type="Person", mode=mode, mergeSchema="true").run()

    rows = graph.scan("Person", columns=["name", "city", "town", "scores"]).read_all().to_pylist()
    assert {"name": "a", "city": None, "town": "Ulm", "scores": [0.5]} in rows
    city = "Ulm" if mode == "merge" else None
    assert {"name": "p1", "city": city, "town": None, "scores": None} in rows
    assert len(rows) == 5
    assert [commit.schema_change is not None for commit in graph.commits()] == [
        False,
        True,
        False,
        False,
    ]
    assert files(graph, names.STAGING_DIR) == []
    assert graph.maintenance.check().ok


def test_a_branch_gets_new_columns_with_its_first_rows(graph: Graph) -> None:
    graph.branches.create("dev")
    Write(graph, WIDE[:1], type="Person", branch="dev", mergeSchema="true").run()

    dev = graph.checkout("dev")
    assert dev.scan("Person", columns=["town"]).read_all().column(0).to_pylist().count("Ulm") == 1
    assert "town" not in graph.scan("Person").schema.names
    assert dev.maintenance.check().ok


WIDE_STEPS = ["load.staged", "schema.post_contract", "schema.post_columns", *COMMIT_STEPS[4:]]


@pytest.mark.parametrize(
    ("step", "mode"),
    for_gate(
        [(step, mode) for step in WIDE_STEPS for mode in ("append", "merge")],
        lambda case: case in {("schema.post_columns", "append"), ("publish.pre_manifest", "merge")},
    ),
)
def test_a_batch_with_new_columns_whose_commit_dies_is_published_once(
    graph: Graph, step: str, mode: str
) -> None:
    rows = WIDE[:1] if mode == "append" else WIDE
    stream = Stream(graph, schema=WIDE_SCHEMA, mode=mode, mergeSchema="true")
    for _ in range(2):
        arm(step, Armed(action=Action.ERROR))
        try:
            stream.batch(7, rows)
        except FailpointReached:
            pass
        finally:
            disarm_all()
        has_columns = "town" in og.open(graph.root).scan("Person").schema.names
        assert has_columns == ("a" in people(graph))

    for _ in range(2):
        stream.batch(7, rows)

    assert graph.count("Person") == 5
    assert graph.scan("Person", columns=["town"]).read_all().column(0).to_pylist().count("Ulm") == 1
    assert sum(commit.schema_change is not None for commit in graph.commits()) == 1
    assert graph.maintenance.check().ok


def test_rows_with_new_columns_that_another_write_has_added_meanwhile(graph: Graph) -> None:
    """Both were planned on the same schema, so both come to the same one."""
    first = Write(graph, WIDE[:1], type="Person", mergeSchema="true")
    second = Write(graph, [{**WIDE[0], "name": "b"}], type="Person", mergeSchema="true")
    first_staged, second_staged = first.stage(), second.stage()
    first.commit(first_staged)
    second.commit(second_staged)

    towns = graph.scan("Person", columns=["name", "town"]).read_all().to_pylist()
    assert {"name": "a", "town": "Ulm"} in towns
    assert {"name": "b", "town": "Ulm"} in towns
    assert len(graph.commits()) == 4
    assert graph.maintenance.check().ok


def after_images(changes: pa.RecordBatch) -> pa.RecordBatch:
    """As `changes.where("_op != 'delete'").select("_type", "after.*")` has them."""
    written = changes.filter(pc.not_equal(changes.column("_op"), "delete"))
    images = pa.RecordBatch.from_struct_array(written.column("after"))
    return images.add_column(0, "_type", written.column("_type"))


def copy_feed(source: Graph, target: Graph, *, batches: int) -> None:
    """Stream what is new in one graph into another; every batch is committed twice."""
    from pyspark.sql.streaming.datasource import ReadMaxFiles  # from Spark 4.2 on

    feed = {"path": source.root, "types": "*", "startingCommit": "beginning"}
    sink = {"path": target.root, "typeColumn": "_type", "mode": "replace"}
    reader = ChangeStreamReader(planned_stream(feed))
    start = reader.initialOffset()
    columns = ["_type", *reader._plan.stored.names]
    for batch_id in range(batches):
        end = reader.latestOffset(start, ReadMaxFiles(2))
        for _ in range(2):
            writer = GraphStreamWriter(
                plan_sink(sink, texts(columns), overwrite=False), StructType()
            )
            SENT.dumps(writer)
            messages: list[WriterCommitMessage | None] = [
                stage_partition(
                    writer._plan,
                    map(after_images, reader.read(part)),
                    partition=n,
                    query_id="copy",
                )
                for n, part in enumerate(reader.partitions(start, end))
            ]
            writer.commit(messages, batch_id)
        start = end


@needs_read_limits
def test_a_feed_that_is_streamed_into_another_graph_ends_equal(
    graph: Graph, tmp_path: Path
) -> None:
    copy = og.init(str(tmp_path / "copy"), schema=SCHEMA)
    edges = [{"src": "p0", "dst": f"p{n}", "since": n} for n in range(1, 4)]
    graph.write({"Knows": edges})
    graph.write({"Person": [{"name": "p1", "age": 11}, {"name": "new"}]}, mode="merge")
    graph.write({"Person": [{"name": "p1", "age": 12, "city": None}]}, mode="merge")

    copy_feed(graph, copy, batches=3)

    for type_name in ("Person", "Knows"):
        expected = graph.scan(type_name).read_all().sort_by("id")
        assert copy.scan(type_name).read_all().sort_by("id").equals(expected)
    assert len(copy.commits()) == 4


def test_what_spark_adds_to_the_options_is_accepted(graph: Graph) -> None:
    added = {"queryName": "people", "checkpointLocation": "hdfs://host/place"}
    options = {"path": graph.root, "type": "Person"}

    plan_sink({**options, **added}, texts(["name"]), overwrite=False)
    planned_read({**options, "location": graph.root})
    with pytest.raises(InvalidInputError, match="there is no option 'queryNames'"):
        plan_sink({**options, "queryNames": "people"}, texts(["name"]), overwrite=False)


@pytest.fixture
def source(tmp_path: Path, spark: SparkSession) -> Path:
    spark.dataSource.register(OmnigraphDataSource)
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def run_query(
    spark: SparkSession,
    source: Path,
    writer: Any,
    change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> None:
    """Run a query over what is in the folder now, until that is written."""
    frame = change(spark.readStream.schema("name string, age long").json(str(source)))
    query = writer(frame.writeStream).option("checkpointLocation", str(source.parent / "place"))
    query.trigger(availableNow=True).start().awaitTermination()


def forget_last_commit(source: Path) -> None:
    """What a driver that dies after the commit of a batch leaves: Spark repeats the batch."""
    log = source.parent / "place" / "commits"
    last = max(log.glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, log / f".{last.name}.crc"):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("repeats", for_gate([False, True], lambda repeats: not repeats))
def test_a_batch_is_written_once_even_if_spark_repeats_it(
    graph: Graph, spark: SparkSession, source: Path, *, repeats: bool
) -> None:
    def sink(writer: Any) -> Any:
        return writer.format("omnigraph").option("type", "Person").option("path", graph.root)

    Path(source, "0.json").write_text('{"name": "a", "age": 1}\n{"name": "b"}')
    run_query(spark, source, sink)
    if repeats:
        forget_last_commit(source)
        run_query(spark, source, sink)

    assert len(graph.commits()) == 3
    assert sorted(people(graph)) == ["a", "b", "p0", "p1", "p2", "p3"]
    assert files(graph, names.STAGING_DIR) == []


@pytest.mark.nightly("three jobs of Spark; the gate plays the part of Spark")
def test_spark_writes_frames_with_new_columns(graph: Graph, spark: SparkSession) -> None:
    spark.dataSource.register(OmnigraphDataSource)
    wide = spark.createDataFrame([("a", "Ulm"), ("b", None)], "name string, town string")
    writer = wide.write.format("omnigraph").option("type", "Person").mode("append")
    writer.option("mergeSchema", "true").save(graph.root)
    wider = spark.createDataFrame([("p1", [1, 2])], "name string, seen array<int>")
    merging = LoadOptions(merge_schema=True)
    graph.load({"Person": wider}, mode="merge", spark=spark, options=merging)
    odd = spark.sql("SELECT 'c' AS name, interval 1 month AS span")
    with pytest.raises(InvalidInputError, match="'span' of the type interval month"):
        graph.load({"Person": odd}, spark=spark, options=merging)

    rows = graph.scan("Person", columns=["name", "town", "seen"]).read_all().to_pylist()
    assert {"name": "a", "town": "Ulm", "seen": None} in rows
    assert {"name": "p1", "town": None, "seen": [1, 2]} in rows
    assert len(graph.commits()) == 4
    assert graph.maintenance.check().ok


@pytest.mark.nightly("two more queries; the gate repeats a batch of the sink in the same way")
def test_a_batch_that_foreach_batch_repeats_is_loaded_once(
    graph: Graph, spark: SparkSession, source: Path
) -> None:
    load_batch = foreach_batch(graph.root, stream="files", type="Person", mode="merge")

    def sink(writer: Any) -> Any:
        return writer.foreachBatch(load_batch)

    Path(source, "0.json").write_text('{"name": "a", "age": 1}\n{"name": "p1", "age": 11}')
    run_query(spark, source, sink)
    forget_last_commit(source)
    run_query(spark, source, sink)

    assert len(graph.commits()) == 3
    assert graph.commits()[0].message == "stream files, batch 0"
    assert people(graph)["p1"] == (11, "Ulm")


@pytest.mark.parametrize("way", ["foreach_batch", "checkpoint", "sink"])
@pytest.mark.nightly("two queries each; the gate gives batches the ids of two queries")
def test_a_stream_whose_checkpoint_was_deleted_loses_no_rows(
    graph: Graph, spark: SparkSession, source: Path, way: str
) -> None:
    place = source.parent / "place"

    def sink(writer: Any) -> Any:
        if way == "sink":
            named = writer.format("omnigraph").queryName("people").option("stream", "people")
            return named.option("type", "Person").option("mode", "merge").option("path", graph.root)
        checkpoint = str(place) if way == "checkpoint" else None
        load = foreach_batch(
            graph.root, stream="people", checkpoint=checkpoint, type="Person", mode="merge"
        )
        return writer.foreachBatch(load)

    Path(source, "0.json").write_text('{"name": "a"}')
    run_query(spark, source, sink)
    shutil.rmtree(place)
    Path(source, "1.json").write_text('{"name": "b"}')
    run_query(spark, source, sink)

    assert {"a", "b"} <= people(graph).keys()


@pytest.mark.parametrize("way", ["foreach_batch", "sink"])
@pytest.mark.nightly("four queries each; the gate gives batches of one label two ids")
def test_two_queries_at_once_write_every_row_to_one_sink(
    graph: Graph, spark: SparkSession, source: Path, way: str
) -> None:
    load = foreach_batch(graph.root, stream="shared", type="Person", mode="merge")
    flows = ("one", "two")

    def start(flow: str) -> StreamingQuery:
        frame = spark.readStream.schema("name string, age long").json(str(source / flow))
        writer = frame.writeStream.option("checkpointLocation", str(source.parent / f"at-{flow}"))
        if way == "sink":
            given = {"path": graph.root, "type": "Person", "mode": "merge", "stream": "shared"}
            writer = writer.format("omnigraph").options(**given)
        else:
            writer = writer.foreachBatch(load)
        return writer.trigger(availableNow=True).start()

    for number in range(2):
        for flow in flows:
            (source / flow).mkdir(exist_ok=True)
            (source / flow / f"{number}.json").write_text(f'{{"name": "{flow} {number}"}}')
        for query in [start(flow) for flow in flows]:
            query.awaitTermination()

    expected = {f"{flow} {number}" for flow in flows for number in range(2)}
    assert people(graph).keys() == expected | {"p0", "p1", "p2", "p3"}
    assert len(graph.commits()) == 2 + 2 * len(flows)
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("way", ["foreach_batch", "sink"])
@pytest.mark.nightly("two more queries each; the gate repeats a batch without state")
def test_a_stateful_batch_that_is_repeated_is_loaded_once_and_the_stream_goes_on(
    graph: Graph, spark: SparkSession, source: Path, way: str
) -> None:
    def sink(writer: Any) -> Any:
        if way == "foreach_batch":
            return writer.foreachBatch(foreach_batch(graph.root, stream="state", type="Person"))
        return writer.format("omnigraph").option("type", "Person").option("path", graph.root)

    def deduplicated(frame: DataFrame) -> DataFrame:
        timed = frame.withColumn("at", functions.current_timestamp())
        return timed.withWatermark("at", "1 hour").dropDuplicates(["name"]).drop("at")

    Path(source, "0.json").write_text('{"name": "a"}\n{"name": "b"}\n{"name": "a"}')
    run_query(spark, source, sink, deduplicated)
    forget_last_commit(source)
    Path(source, "1.json").write_text('{"name": "b"}\n{"name": "c"}')
    run_query(spark, source, sink, deduplicated)

    assert sorted(people(graph)) == ["a", "b", "c", "p0", "p1", "p2", "p3"]
    assert graph.maintenance.check().ok


def test_a_batch_without_a_message_is_called_after_its_stream() -> None:
    assert batch_message("files", 7) == "stream files, batch 7"
    assert batch_message(None, 7) == "stream batch 7"
    assert batch_message("a\x1b", 7) == "stream a\\x1b, batch 7"


def test_foreach_batch_needs_types(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="either a type or a function"):
        foreach_batch(graph.root, stream="files")
