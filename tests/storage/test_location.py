from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.objects.location import Scheme, parse_root

pytestmark = pytest.mark.unit

SECRETS = {"aws_access_key_id": "k", "aws_secret_access_key": "hush", "aws_region": "r"}


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/g", "/data/g"),
        ("/data//g/", "/data/g"),
        ("/data/./x/../g", "/data/g"),
        ("/../../g", "/g"),
        ("file:///data/g", "/data/g"),
        ("file://localhost/data/my%20graph", "/data/my graph"),
    ],
)
def test_local_roots_become_absolute_paths_without_dot_segments(text: str, uri: str) -> None:
    root = parse_root(text)

    assert (root.scheme, root.uri) == (Scheme.LOCAL, uri)


def test_relative_paths_are_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse_root("sub/../g").uri == f"{tmp_path}/g"


def test_a_home_directory_is_expanded() -> None:
    assert parse_root("~/g").uri == str(Path.home() / "g")


def test_s3_roots_keep_bucket_and_prefix() -> None:
    root = parse_root("s3://bucket//a/b/", storage_options={"aws_region": "eu-west-1"})

    assert (root.scheme, root.uri) == (Scheme.S3, "s3://bucket/a/b")
    assert root.child("nodes/x") == "s3://bucket/a/b/nodes/x"


def test_storage_options_never_show_in_the_repr() -> None:
    root = parse_root("s3://bucket/g", storage_options=SECRETS)

    assert "hush" not in repr(root)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "/",
        "/..",
        "a\x00b",
        "http://host/g",
        "gs://bucket/g",
        "file://elsewhere/g",
        "s3://",
        "s3:///prefix",
        "s3://bucket/../other",
        ":memory:",
    ],
)
def test_other_roots_are_refused_with_what_to_give(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"s3://bucket/prefix"):
        parse_root(text)
