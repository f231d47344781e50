from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from omnigraph_lake.load.formats.records import FileFormat, SourceFile, Split
from omnigraph_lake.load.formats.splits import (
    HEAD_BYTES,
    LineBlock,
    LongLine,
    plan_splits,
    read_lines,
)
from tests.drawing import drawn
from tests.load.inputs import whole, written

pytestmark = pytest.mark.unit


def lines_of(split: Split, **limits: int) -> list[bytes]:
    """The lines of a split, one too long as its length; checks that places count them."""
    found: list[bytes] = []
    for each in read_lines(split, **limits):
        if isinstance(each, LongLine):
            assert each.place == len(found)
            found.append(b"%d" % each.size)
        else:
            assert each.first == len(found)
            found += each.lines
    return found


def plain_lines(content: bytes) -> list[bytes]:
    """The obvious answer."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


CONTENTS = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\xef\xbb\xbf", b"\x00", b"\xff", b" ", b"{}"]),
    max_size=40,
).map(b"".join)


@pytest.mark.random
def test_the_splits_of_a_file_hold_each_of_its_lines_once_and_in_order(tmp_path: Path) -> None:
    @drawn(40)
    @given(CONTENTS, st.lists(st.integers(0, 80), max_size=6), st.integers(1, 20))
    def hold(content: bytes, cuts: list[int], block_bytes: int) -> None:
        file = written(tmp_path / "a.jsonl", content)
        places = sorted({0, file.size, *(cut for cut in cuts if cut < file.size)})
        splits = [
            Split(number=number, file=file, start=start, end=end)
            for number, (start, end) in enumerate(pairwise(places))
        ]

        found = [lines_of(split, block_bytes=block_bytes) for split in splits]

        assert [line for lines in found for line in lines] == plain_lines(content)

    hold()


@pytest.mark.parametrize("split_bytes", [1, 2, 3, 7, 1000])
def test_planned_splits_hold_the_file_whatever_their_size(tmp_path: Path, split_bytes: int) -> None:
    content = b"\xef\xbb\xbfone\r\ntwo\n\n\nfive\n" + b"x" * 50 + b"\nlast"
    splits = plan_splits([written(tmp_path / "a.jsonl", content)], split_bytes=split_bytes)

    found = [line for split in splits for line in lines_of(split, block_bytes=4)]

    assert found == plain_lines(content)


def test_a_line_longer_than_a_block_comes_whole(tmp_path: Path) -> None:
    content = b"a\n" + b"b" * 1000 + b"\nc\n"

    found = lines_of(whole(written(tmp_path / "a.jsonl", content)), block_bytes=16)

    assert found == [b"a", b"b" * 1000, b"c"]


@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "last"])
def test_a_line_beyond_the_limit_is_cut_and_reading_goes_on(tmp_path: Path, end: bytes) -> None:
    long = b"x" * 10_000
    content = b"a\n" + b"y" * 20 + b"\n" + long + b"\nb\n" + long + end
    split = whole(written(tmp_path / "a.jsonl", content))

    found = list(read_lines(split, block_bytes=16, line_bytes_max=20))

    cut = [each for each in found if isinstance(each, LongLine)]
    assert [(each.place, each.size, each.head) for each in cut] == [
        (2, 10_000, b"x" * HEAD_BYTES),
        (4, 10_000, b"x" * HEAD_BYTES),
    ]
    assert lines_of(split, block_bytes=16, line_bytes_max=20) == [
        b"a", b"y" * 20, b"10000", b"b", b"10000",
    ]  # fmt: skip


def test_a_packed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfa\r\n\nb" * 1000

    found = lines_of(whole(written(tmp_path / "a.jsonl.gz", content)), block_bytes=100)

    assert found == plain_lines(content)


def test_a_packed_file_may_have_several_members(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n") + gzip.compress(b""))
    file = SourceFile(
        path=str(path), format=FileFormat.JSONL, size=path.stat().st_size, gzipped=True
    )

    assert lines_of(whole(file)) == [b"a", b"bc"]


PACKED = gzip.compress(bytes(range(256)) * 50)


@pytest.mark.parametrize(
    "content",
    [
        PACKED[:-9],
        PACKED[:20],
        b"plain" + PACKED,
        PACKED[:100] + bytes([PACKED[100] ^ 0xFF]) + PACKED[101:],
        PACKED[:-6] + b"\0" + PACKED[-5:],
    ],
    ids=["end", "middle", "start", "inside", "checksum"],
)
def test_a_damaged_packed_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    file = SourceFile(path=str(path), format=FileFormat.JSONL, size=len(content), gzipped=True)

    with pytest.raises(
        InvalidInputError, match=r"a\.jsonl\.gz is not a complete gzip file"
    ) as caught:
        lines_of(whole(file))
    assert "nothing was written" in str(caught.value)


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", b"a\n")
    (tmp_path / "a.jsonl").unlink()

    with pytest.raises(NotFoundError, match=r"a\.jsonl does not exist on this machine"):
        lines_of(whole(file))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    file = SourceFile(path=str(tmp_path / "a.jsonl"), format=FileFormat.JSONL, size=1)

    with pytest.raises(StorageUnavailableError, match=r"a\.jsonl cannot be read"):
        lines_of(whole(file))


def test_a_file_that_lost_bytes_is_refused_rather_than_read_in_part(tmp_path: Path) -> None:
    splits = plan_splits([written(tmp_path / "a.jsonl", b"abc\n" * 10)], split_bytes=20)
    (tmp_path / "a.jsonl").write_bytes(b"abc\n")

    for split in splits:
        with pytest.raises(InvalidInputError, match="expected 40 bytes, found 4"):
            lines_of(split)


def test_a_line_that_grew_behind_the_planned_end_is_read_to_its_end(tmp_path: Path) -> None:
    split = whole(written(tmp_path / "a.jsonl", b"a\nbc"))
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"d\ne\n")

    assert lines_of(split) == [b"a", b"bcd"]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines_of(whole(written(tmp_path / "a.jsonl", b""))) == []
    assert lines_of(whole(written(tmp_path / "b.jsonl", b"\xef\xbb\xbf"))) == []


def test_blocks_are_bounded(tmp_path: Path) -> None:
    split = whole(written(tmp_path / "a.jsonl", b"0123456789\n" * 1000))

    blocks = list(read_lines(split, block_bytes=100))

    assert all(isinstance(each, LineBlock) and len(each.lines.data) <= 111 for each in blocks)
    assert len(blocks) > 90
