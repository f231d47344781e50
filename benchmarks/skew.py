"""What a node with very many edges costs the task it lands in: `just bench skew`.

A million edges end at one node, five million elsewhere; keys go through eight buckets as in a load.
Prints the time of every bucket's check, and the longest beside the median.

With `--records`, loads so many records of `--ids` ids on Spark instead, where all but the last of
an id are superseded, and prints how much the memory of the driver's Python grows.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from typing import Final

import numpy as np
import psutil
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.runner.session import SparkTarget, spark_session
from omnigraph_lake.validation.constraints import WriteMode
from omnigraph_lake.validation.hashed_keys import Hashing, KeyBuckets, decode_keys, incoming_rows
from omnigraph_lake.validation.keyed_bucket import KeyPlan, Role, RoleKind, check_bucket

BUCKETS: Final = 8
EDGES_PER_SPLIT: Final = 250_000
ROWS_PER_PIECE: Final = 250_000
ROLES: Final = (
    Role(kind=RoleKind.ID, table_key="node:P", columns=("id",), pinned=False),
    *(
        Role(
            kind=RoleKind.ENDPOINT,
            table_key="edge:E",
            columns=(column,),
            pinned=False,
            node_key="node:P",
        )
        for column in ("src", "dst")
    ),
)
PLAN: Final = KeyPlan(
    roles=ROLES,
    mode=WriteMode.APPEND,
    counts={},
    overwritten=frozenset(),
    tracked=frozenset(),
)


def main() -> None:
    options = _options()
    if options.records:
        print(json.dumps(load_superseding(options.records, options.ids)))
        return
    blobs: dict[int, list[bytes]] = defaultdict(list)
    chance = np.random.default_rng(7)
    names = pa.array([f"person-{number}" for number in range(options.nodes)])
    _send(blobs, 0, 0, names)
    splits = -(-options.edges // EDGES_PER_SPLIT)
    hub_share = options.hub / options.edges
    for split in range(1, splits + 1):
        ends = chance.integers(0, options.nodes, (2, EDGES_PER_SPLIT))
        ends[1][chance.random(EDGES_PER_SPLIT) < hub_share] = 0
        for role in (1, 2):
            _send(blobs, role, split, names.take(pa.array(ends[role - 1])))
    seconds = []
    print("bucket   MB of keys   ms")
    for bucket in sorted(blobs):
        began = time.perf_counter()
        assert not list(check_bucket(decode_keys(blobs[bucket]), PLAN))
        seconds.append(time.perf_counter() - began)
        size = sum(map(len, blobs[bucket])) / 1e6
        print(f"{bucket:6}   {size:10.1f}   {seconds[-1] * 1e3:6.0f}")
    ratio = max(seconds) / statistics.median(seconds)
    print(
        json.dumps(
            {
                "name": "skew",
                "ratio": round(ratio, 2),
                "rows": options.nodes + options.edges,
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


def load_superseding(records: int, ids: int) -> dict[str, object]:
    """The growth of the driver's memory by a load of many records of each id."""
    spark = spark_session(target=SparkTarget(settings={"spark.driver.memory": "4g"}))
    frame = spark.range(0, records, 1, -(-records // ROWS_PER_PIECE)).selectExpr(
        f"concat('p', id % {ids}) as name", "id as number"
    )
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = og.init(f"{folder}/graph", schema="node P { name: String @key number: I64 }")
        warm_up = spark.range(10).selectExpr("concat('warm', id) as name", "id as number")
        graph.load({"P": warm_up}, options=LoadOptions(engine="spark"))
        with GrowthOfMemory() as growth:
            report = graph.load({"P": frame}, mode="replace", options=LoadOptions(engine="spark"))
    assert report.quarantined == {"superseded": records - ids}
    print("\n".join(report.stage_table().lines(width=None)))
    return {
        "name": "superseding",
        "records": records,
        "ids": ids,
        "seconds": report.seconds,
        "driver_growth_mb": round(growth.peak / 1e6, 1),
    }


class GrowthOfMemory:
    """Samples by how much the resident memory of this process exceeds that at the beginning."""

    def __init__(self) -> None:
        self.peak = 0
        self._process = psutil.Process()
        self._is_over = threading.Event()

    def __enter__(self) -> GrowthOfMemory:
        gc.collect()
        self._base = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss - self._base)


def _send(blobs: dict[int, list[bytes]], role: int, split: int, keys: pa.Array) -> None:
    buckets = KeyBuckets(Hashing(seed=b"skew", buckets=BUCKETS))
    buckets.add(role, [keys], incoming_rows(split, 0, len(keys)))
    for bucket, blob in buckets.buckets():
        blobs[bucket].append(blob)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=6_000_000)
    parser.add_argument("--hub", type=int, default=1_000_000, help="edges that end at one node")
    parser.add_argument("--records", type=int, default=0, help="load so many on Spark instead")
    parser.add_argument("--ids", type=int, default=2_000_000, help="of so many ids")
    return parser.parse_args()


if __name__ == "__main__":
    main()
