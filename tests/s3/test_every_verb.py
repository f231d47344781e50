"""Every verb of a graph is called on S3 by a test of this folder.

What reads is called with credentials that may only read, what writes is called in the rounds that
meet faults. A verb that is new has to be added to one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.s3.fault_cases import WRITERS
from tests.s3.test_faults import SINGLE
from tests.s3.test_reader_credentials import READS
from tests.surface import verbs_of_graph

pytestmark = pytest.mark.s3

ELSEWHERE: Mapping[str, str] = {
    "maintenance.run": "the graph that test_reader_credentials.py reads has been maintained",
    "maintenance.recover": "test_many_hosts.py recovers what a writer on another host left",
    "holds.release": "the nightly runs tests/behaviours/test_holds.py on S3",
    "log": "reads what `commits` and `branches.list` read",
    "blame": "reads commits, and rows by their ids as `get` does",
    "blob": "reads rows by their ids as `get` does, and ranges of data files as `scan` does",
    "revert": "a commit by the protocol of `merge`",
    "restore": "a commit by the protocol of `merge`",
    "spark": "the nightly runs the suites of Spark on S3",
    "root": "a value that was given",
    "branch": "a value that was given",
    "is_read_only": "a value that was given",
}


def test_every_verb_is_called_on_s3() -> None:
    verbs = verbs_of_graph()
    written = {WRITERS[name].verb for name in SINGLE}

    assert verbs - written - set(READS) == set(ELSEWHERE)
    assert written - verbs == {"init", "open"}
