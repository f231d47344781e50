"""What Lance's search indexes do, as the executor of queries relies on it.

Relied on in: `storage/indexes/segments.py`, `storage/indexes/search.py`,
`storage/indexes/index_files.py`, `storage/indexes/vector_search.py`,
`engine/access/text_ranking.py`, `engine/access/text_statistics.py`.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.file import LanceFileReader
from lance.query import MatchQuery, PhraseQuery

from omnigraph_lake.storage.indexes import index_files, segments
from omnigraph_lake.storage.indexes.segments import PARAMETERS, TRUSTED_MAX
from omnigraph_lake.storage.objects.location import parse_root
from tests.query import text_search

pytestmark = pytest.mark.unit

LETTER = re.compile(r"[^\W_]")
LOOKED_AT = [each for each in range(0x20000) if not 0xD800 <= each < 0xE000]


def with_text_index(dataset: LanceDataset, **changed: Any) -> LanceDataset:
    segment = dataset.create_index_uncommitted(
        "text",
        "INVERTED",
        name="by_text",
        fragment_ids=[each.fragment_id for each in dataset.get_fragments()],
        **{**PARAMETERS, **changed},
    )
    merged = dataset.merge_existing_index_segments([segment])
    operation = lance.LanceOperation.CreateIndex([merged], [])
    return lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def texts(uri: str | Path, values: list[str], **more: Any) -> LanceDataset:
    table = pa.table({"n": pa.array(range(len(values)), pa.int64()), "text": values})
    return lance.write_dataset(table, uri, enable_stable_row_ids=True, **more)


def found(dataset: LanceDataset, query: MatchQuery | PhraseQuery, **more: Any) -> set[int]:
    scanner = dataset.scanner(columns=["n", "_score"], full_text_query=query, **more)
    return set(scanner.to_table()["n"].to_pylist())


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    """One text per character, between two letters."""
    uri = tmp_path_factory.mktemp("characters") / "texts"
    table = pa.table({"n": LOOKED_AT, "text": [f"q{chr(each)}z" for each in LOOKED_AT]})
    return with_text_index(lance.write_dataset(table, uri))


def test_lance_cuts_a_text_where_python_does_but_at_characters_that_are_doubted(
    characters: LanceDataset,
) -> None:
    """Relied on by: which texts no index is built over (storage/indexes/segments.py)."""
    cut = found(characters, MatchQuery("q", "text"), fast_search=True)

    different = {each for each in LOOKED_AT if (each in cut) == bool(LETTER.match(chr(each)))}

    assert not {each for each in different if LETTER.match(chr(each))}
    doubted = {each for each in LOOKED_AT if segments._DOUBTED_CHARACTER.match(chr(each))}
    assert different <= doubted
    assert min(different) > ord(TRUSTED_MAX)
    assert segments.first_doubtful(pa.array([f"q{chr(min(different))}z"])) is not None


def test_lance_writes_trusted_tokens_small_as_python_does(characters: LanceDataset) -> None:
    """Relied on by: which tokens an index is asked for (storage/indexes/segments.py)."""
    by_small: dict[str, set[int]] = defaultdict(set)
    for each in LOOKED_AT:
        small = chr(each).lower()
        if LETTER.match(chr(each)) and max(small) <= TRUSTED_MAX:
            by_small[small].add(each)

    lost = {
        small: each
        for small, each in by_small.items()
        if not each <= found(characters, MatchQuery(f"q{small}z", "text"), fast_search=True)
    }

    assert lost == {}


def test_an_index_tells_how_it_was_built(tmp_path: Path) -> None:
    """Relied on by: an index that was built otherwise is built anew."""
    dataset = texts(tmp_path / "texts", ["a"])

    (ours,) = with_text_index(dataset).describe_indices()

    assert segments.is_built_for_tokens(ours.details)
    for name, other in [
        *(("stem", True), ("remove_stop_words", True), ("ascii_folding", True)),
        *(("lower_case", False), ("max_token_length", 40), ("with_position", False)),
        ("base_tokenizer", "whitespace"),
    ]:
        changed = with_text_index(texts(tmp_path / name, ["a"]), **{name: other})
        (each,) = changed.describe_indices()
        assert not segments.is_built_for_tokens(each.details), name


def test_long_tokens_are_found(tmp_path: Path) -> None:
    dataset = with_text_index(texts(tmp_path / "texts", ["a" * 50_000, "b"]))

    assert found(dataset, MatchQuery("a" * 50_000, "text")) == {0}


def test_a_phrase_is_tokens_that_follow_each_other(tmp_path: Path) -> None:
    """Relied on by: `match_text` through an index."""
    held = ["a b a c", "b a", "a_b", "c a-b a", "a", "a x b", "A\nB\tA"]
    dataset = with_text_index(texts(tmp_path / "texts", held))

    assert found(dataset, PhraseQuery("a b", "text")) == {0, 2, 3, 6}
    assert found(dataset, PhraseQuery("a b a", "text")) == {0, 3, 6}
    assert found(dataset, PhraseQuery("a a", "text")) == set()


def test_words_near_a_word_are_all_found_only_if_lance_may_expand_it(tmp_path: Path) -> None:
    """Relied on by: `fuzzy` through an index; the default of Lance stops at 50 words."""
    letters = [chr(each) for each in range(ord("a"), ord("z") + 1)]
    held = [f"{one}raph{other}" for one in letters for other in letters]
    dataset = with_text_index(texts(tmp_path / "texts", held))

    def near(**more: Any) -> int:
        return len(found(dataset, MatchQuery("graphs", "text", fuzziness=2, **more)))

    assert near() < len(held)
    assert near(max_expansions=2**31) == len(held)


def test_a_long_word_cannot_be_searched_for_with_edits(tmp_path: Path) -> None:
    """Relied on by: how long words are asked for (storage/indexes/search.py)."""
    dataset = with_text_index(texts(tmp_path / "texts", ["a" * 32]))

    assert found(dataset, MatchQuery("a" * 32, "text", fuzziness=2)) == {0}
    with pytest.raises(ValueError, match="exceeds size limit"):
        found(dataset, MatchQuery("a" * 300, "text", fuzziness=2))


def test_a_fast_search_sees_exactly_the_rows_that_the_index_knows(tmp_path: Path) -> None:
    """Relied on by: rows that an index does not know are read by ourselves."""
    with_text_index(texts(tmp_path / "texts", ["word", "word gone", "other"]))
    dataset = texts(tmp_path / "texts", ["word new"], mode="append")
    dataset.delete("text = 'word gone'")
    query = MatchQuery("word", "text")

    assert len(found(dataset, query)) == 1
    scanner = dataset.scanner(columns=["text", "_score"], full_text_query=query, fast_search=True)
    assert scanner.to_table()["text"].to_pylist() == ["word"]
    (index,) = dataset.describe_indices()
    assert set(index.segments[0].fragment_ids) == {0}


def test_a_fast_search_misses_rows_that_the_index_of_a_condition_does_not_know(
    tmp_path: Path,
) -> None:
    """Relied on by: whether texts are ranked with a condition (engine/access/text_ranking.py)."""
    dataset = texts(tmp_path / "texts", ["word old"])
    dataset.create_scalar_index("n", "BTREE")
    dataset = with_text_index(texts(tmp_path / "texts", ["word new"], mode="append"))
    query = MatchQuery("word", "text")

    def hits(**more: Any) -> list[str]:
        scanner = dataset.scanner(columns=["text", "_score"], full_text_query=query, **more)
        return sorted(scanner.to_table()["text"].to_pylist())

    assert hits(fast_search=True) == ["word new", "word old"]
    assert hits(filter="n < 5", prefilter=True) == ["word new", "word old"]
    assert hits(filter="n < 5", prefilter=True, fast_search=True) == ["word old"]


# Scores


def scored(dataset: LanceDataset, words: str, **more: Any) -> list[tuple[int, float]]:
    """Numbers and scores of the rows that an index finds, as it orders them."""
    query = MatchQuery(words, "text")
    table = dataset.scanner(
        columns=["n", "_score"], full_text_query=query, fast_search=True, **more
    ).to_table()
    return list(zip(table["n"].to_pylist(), table["_score"].to_pylist(), strict=True))


def bm25(held: list[str], number: int, words: list[str]) -> float:
    """The score of a text among those with a token."""
    cut = [text_search.tokens(text) for text in held]
    cut = [each for each in cut if each]
    average = sum(map(len, cut)) / len(cut)
    own, total = text_search.tokens(held[number]), 0.0
    for word in words:
        count, holders = own.count(word), sum(word in each for each in cut)
        rarity = math.log(1 + (len(cut) - holders + 0.5) / (holders + 0.5))
        total += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(own) / average))
    return total


def random_texts(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    words = [f"w{number}" for number in range(12)]
    return [
        " ".join(words[int(12 * generator.random() ** 2)] for _ in range(generator.randrange(9)))
        for _ in range(count)
    ]


def test_an_index_scores_by_the_texts_it_was_built_from(tmp_path: Path) -> None:
    """Relied on by: best texts by the scores of an index (engine/access/text_ranking.py)."""
    held = random_texts(3, 300)
    texts(tmp_path / "texts", held[:150])
    with_text_index(texts(tmp_path / "texts", held[150:], mode="append"))
    dataset = texts(tmp_path / "texts", ["w0 w0 w7"] * 40, mode="append")
    dataset.delete("text like 'w0%' and n % 3 = 0")
    dataset = lance.dataset(tmp_path / "texts")
    numbers = dataset.to_table(columns=["n"], filter="text is not null")["n"].to_pylist()
    assert len(numbers) < 340

    for words in (["w0"], ["w0", "w7"], ["w11"], ["w2", "w3", "w9"]):
        found = dataset.scanner(
            columns=["text", "_score"],
            full_text_query=MatchQuery(" ".join(words), "text"),
            fast_search=True,
        ).to_table()
        for text, score in zip(found["text"].to_pylist(), found["_score"].to_pylist(), strict=True):
            assert score == pytest.approx(bm25(held, held.index(text), words), rel=1e-6)


def test_few_rows_are_those_with_the_highest_scores_and_a_filter_changes_no_score(
    tmp_path: Path,
) -> None:
    """Relied on by: a text that is not among the fetched ones has a lower score."""
    dataset = with_text_index(texts(tmp_path / "texts", random_texts(4, 500)))

    for words in ("w0", "w0 w7", "w11 w1", "w2 w3 w9"):
        found = scored(dataset, words)
        best = sorted((score for _, score in found), reverse=True)
        few = dict(found)
        for count in (1, 5, 60):
            limited = scored(dataset, words, limit=count)
            assert [score for _, score in limited] == best[:count]
            assert all(few[number] == score for number, score in limited)
        passed = sorted((each for number, each in found if number < 100), reverse=True)
        narrow = scored(dataset, words, limit=5, filter="n < 100", prefilter=True)
        assert [score for _, score in narrow] == passed[:5]


def test_an_index_says_how_many_tokens_each_text_has(tmp_path: Path) -> None:
    """Relied on by: tokens of indexed texts are not counted again.

    Relied on in `storage/indexes/index_files.py`.
    """
    held = ["a b", "", "Ünï-cödé x_y 日本 1", " - ", "a", "gone a b"]
    texts(tmp_path / "texts", held)
    dataset = with_text_index(lance.dataset(tmp_path / "texts"))
    dataset.delete("text = 'gone a b'")
    (index,) = dataset.describe_indices()
    folder = tmp_path / "texts" / "_indices" / str(index.segments[0].uuid)

    about = LanceFileReader(str(folder / "metadata.lance")).metadata().schema.metadata
    (partition,) = json.loads(about[b"partitions"])
    lengths = LanceFileReader(str(folder / f"part_{partition}_docs.lance")).read_all().to_table()

    assert lengths.schema.field("_rowid").type == pa.uint64()
    assert lengths.schema.field("_num_tokens").type == pa.uint32()
    counted = {
        row_id: len(text_search.tokens(text))
        for row_id, text in enumerate(held)
        if text_search.tokens(text)
    }
    pairs = zip(lengths["_rowid"].to_pylist(), lengths["_num_tokens"].to_pylist(), strict=True)
    assert dict(pairs) == counted


def test_an_index_says_how_many_texts_hold_each_token(tmp_path: Path) -> None:
    """Relied on by: texts that hold a word are not counted (storage/indexes/index_files.py)."""
    generator = random.Random(8)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789éßæøñüāčłœ日本語κόδ"

    def word() -> str:
        return "".join(generator.choice(letters) for _ in range(generator.choice([1, 1, 2, 3, 9])))

    held = [" ".join(word() for _ in range(generator.randrange(9))) for _ in range(1500)]
    texts(tmp_path / "texts", held)
    dataset = with_text_index(lance.dataset(tmp_path / "texts"))
    dataset.delete("n < 300")
    (index,) = dataset.describe_indices()
    folder = str(tmp_path / "texts" / "_indices" / str(index.segments[0].uuid))

    holders = index_files.token_holders(parse_root(str(tmp_path)), [folder])

    assert holders is not None
    expected = Counter(token for text in held for token in set(text_search.tokens(text)))
    assert {token: holders.count(token) for token in expected} == dict(expected)
    absent = {word() + word() for _ in range(500)} - expected.keys()
    assert not any(holders.count(token) for token in absent)
    assert holders.count("") == 0


def test_a_phrase_without_repeats_is_scored_as_its_words(tmp_path: Path) -> None:
    """Relied on by: best texts with a phrase (engine/access/text_ranking.py)."""
    held = random_texts(5, 600)
    dataset = with_text_index(texts(tmp_path / "texts", held))

    for words in (["w0", "w1"], ["w3", "w0"], ["w2", "w0", "w1"]):
        query = PhraseQuery(" ".join(words), "text")
        found, few = (
            dataset.scanner(
                columns=["text", "_score"], full_text_query=query, fast_search=True, limit=limit
            ).to_table()
            for limit in (None, 5)
        )
        for text, score in zip(found["text"].to_pylist(), found["_score"].to_pylist(), strict=True):
            assert score == pytest.approx(bm25(held, held.index(text), words), rel=1e-6)
        best = sorted(found["_score"].to_pylist(), reverse=True)
        assert few["_score"].to_pylist() == best[:5]


def test_no_other_character_becomes_a_trusted_token(characters: LanceDataset) -> None:
    """Relied on by: texts that hold a word are counted by the index."""
    for small in ("k", "å", "s", "i", "ß", "é", "\u01c6", "0"):
        hits = found(characters, MatchQuery(f"q{small}z", "text"), fast_search=True)
        agreed = {each for each in hits if not segments.has_doubted(pa.array([chr(each)]))}
        assert agreed == {each for each in hits if chr(each).lower() == small}, small


# Vectors


def with_vector_index(
    uri: Path, vectors: np.ndarray[Any, Any], metric: str, partitions: int
) -> LanceDataset:
    size = vectors.shape[1]
    places = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype("f4").ravel()), size)
    table = pa.table({"n": pa.array(range(len(vectors)), pa.int64()), "place": places})
    dataset = lance.write_dataset(table, uri, enable_stable_row_ids=True)
    segment = dataset.create_index_uncommitted(
        "place",
        "IVF_FLAT",
        name="by_place",
        metric=metric,
        num_partitions=partitions,
        fragment_ids=[0],
    )
    operation = lance.LanceOperation.CreateIndex([segment], [])
    return lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def near(
    dataset: LanceDataset, query: list[float], metric: str, where: str | None = None, **more: Any
) -> pa.Table:
    nearest = {"column": "place", "q": query, "k": 10, "metric": metric, **more}
    return dataset.scanner(
        columns=["n", "_distance"], nearest=nearest, filter=where, prefilter=True
    ).to_table()


def test_l2_is_told_as_its_square(tmp_path: Path) -> None:
    dataset = with_vector_index(tmp_path / "places", np.array([[3.0, 4.0]]), "l2", 1)

    assert near(dataset, [0.0, 0.0], "l2")["_distance"].to_pylist() == [25.0]


def test_a_filter_starves_a_fixed_number_of_probes_but_no_minimum(tmp_path: Path) -> None:
    """Relied on by: `nearest` with a filter that few rows pass.

    Relied on in `storage/indexes/vector_search.py`.
    """
    vectors = np.random.default_rng(1).random((4000, 8))
    dataset = with_vector_index(tmp_path / "places", vectors, "l2", 20)
    few = "n % 333 = 0"

    assert len(near(dataset, [0.0] * 8, "l2", few, nprobes=1)) < 10
    fixed = {"minimum_nprobes": 1, "maximum_nprobes": 1}
    assert len(near(dataset, [0.0] * 8, "l2", few, **fixed)) < 10
    assert len(near(dataset, [0.0] * 8, "l2", few, minimum_nprobes=1)) == 10


def test_as_many_probes_as_partitions_find_the_nearest(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).random((4000, 8)).astype("f4")
    dataset = with_vector_index(tmp_path / "places", vectors, "l2", 20)

    answer = near(dataset, [0.5] * 8, "l2", minimum_nprobes=1024)["n"].to_pylist()

    wanted = np.argsort(((vectors.astype("f8") - 0.5) ** 2).sum(axis=1))[:10]
    assert answer == wanted.tolist()


def test_vectors_of_zeros_have_no_cosine(tmp_path: Path) -> None:
    """Relied on by: rows without a distance, as `engine/search.py` computes it, are no neighbours.

    Without neighbours every row is read, so a query of zeros has the same result as without an
    index. Spark uses no vector index. Relied on in `storage/indexes/vector_search.py`.
    """
    vectors = np.vstack([np.zeros((50, 4)), np.random.default_rng(1).normal(size=(50, 4))])
    dataset = with_vector_index(tmp_path / "places", vectors, "cosine", 2)

    assert min(near(dataset, [1.0, 1, 1, 1], "cosine")["n"].to_pylist()) >= 50
    assert len(near(dataset, [0.0] * 4, "cosine")) == 0


def test_rows_that_came_or_went_after_the_index_count(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).random((100, 4))
    with_vector_index(tmp_path / "places", vectors, "l2", 2)
    new = pa.FixedSizeListArray.from_arrays(pa.array([9.0] * 4, pa.float32()), 4)
    table = pa.table({"n": pa.array([500], pa.int64()), "place": new})
    dataset = lance.write_dataset(table, tmp_path / "places", mode="append")
    first = near(dataset, [9.0] * 4, "l2")["n"].to_pylist()
    dataset.delete(f"n = {first[1]}")

    answer = near(dataset, [9.0] * 4, "l2")["n"].to_pylist()

    assert answer[0] == first[0] == 500
    assert first[1] not in answer
    assert len(answer) == 10
