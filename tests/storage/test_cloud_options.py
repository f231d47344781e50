from __future__ import annotations

from collections.abc import Mapping

import pytest

from omnigraph_lake.errors import InvalidInputError, OmnigraphError, StorageUnavailableError
from omnigraph_lake.storage.objects.location import Scheme, parse_input, parse_root
from omnigraph_lake.storage.objects.s3_options import without_secrets

pytestmark = pytest.mark.unit

ACCOUNT = {"azure_storage_account_name": "acc"}
LONG = "abfss://graphs@acc.dfs.core.windows.net"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("address", ["az://graphs/a//b/", f"{LONG}/a/b"])
def test_a_root_on_azure_has_one_address(address: str) -> None:
    root = parse_root(address, storage_options=ACCOUNT)

    assert (root.scheme, root.uri) == (Scheme.AZURE, f"{LONG}/a/b")
    assert root.storage_options["azure_storage_account_name"] == "acc"


def test_variables_complete_the_options_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "hush")
    monkeypatch.setenv("OMNIGRAPH_S3_TIMEOUT", "6s")

    options = parse_root("az://graphs/g").storage_options
    assert options == {
        "azure_storage_account_name": "acc",
        "azure_storage_account_key": "hush",
        "timeout": "6000ms",
        "client_retry_timeout": "6",
    }
    assert without_secrets("said hush", options) == "said ***"
    own = parse_root("az://graphs/g", storage_options={"SAS_KEY": "sig=s"}).storage_options
    assert own["azure_storage_sas_key"] == "sig=s"
    assert "azure_storage_account_key" not in own, "credentials of two origins never meet"


@pytest.mark.parametrize(
    ("address", "options", "error", "message"),
    [
        ("az://graphs/g", {}, StorageUnavailableError, "no storage account is known"),
        ("az://Graphs/g", ACCOUNT, InvalidInputError, "no name of a container or account"),
        ("az:///g", ACCOUNT, InvalidInputError, "it names no bucket"),
        ("abfss://graphs@acc.example.org/g", {}, InvalidInputError, "its host is not"),
        ("abfss://graphs/g", ACCOUNT, InvalidInputError, "its host is not"),
        (f"{LONG}/../g", {}, InvalidInputError, "dot segments"),
        ("gs://bucket/g", {}, InvalidInputError, "whether Lance commits safely there"),
        (
            "az://graphs/g",
            {**ACCOUNT, "azure_storage_endpoint": "http://127.0.0.1:1/acc"},
            StorageUnavailableError,
            "speaks plain http",
        ),
        (
            "az://graphs/g",
            {**ACCOUNT, "account_name": "other"},
            InvalidInputError,
            "is given twice",
        ),
    ],
)
def test_a_root_that_cannot_be_reached_is_refused_before_it_is_tried(
    address: str, options: Mapping[str, str], error: type[OmnigraphError], message: str
) -> None:
    with pytest.raises(error, match=message):
        parse_root(address, storage_options=options)


def test_an_input_is_reached_as_the_graph_is_if_it_is_in_the_same_account() -> None:
    graph = parse_root("az://graphs/g", storage_options={**ACCOUNT, "account_key": "hush"})

    def key_of(address: str, options: Mapping[str, str] | None = None) -> str | None:
        parsed = parse_input(address, storage_options=options, graph=graph)
        assert parsed is not None
        return parsed[0].storage_options.get("azure_storage_account_key")

    assert key_of("az://inputs/a.jsonl") == "hush"
    assert key_of("abfss://inputs@acc.dfs.core.windows.net/a") == "hush"
    assert key_of("abfss://inputs@other.dfs.core.windows.net/a") is None
    assert key_of("gs://inputs/a.jsonl") is None
    assert key_of("az://inputs/a.jsonl", {**ACCOUNT, "account_key": "own"}) == "own"


def test_an_address_of_an_input_is_a_bucket_and_a_key_as_it_is_spelled() -> None:
    parsed = parse_input("gs://bucket/a//b %41#?.jsonl")

    assert parsed is not None
    assert (parsed[0].scheme, parsed[0].uri) == (Scheme.GOOGLE, "gs://bucket")
    assert parsed[1] == "a//b %41#?.jsonl"
    assert parse_input("/tmp/a.jsonl") is None  # noqa: S108
    assert parse_input("hdfs://host/a") is None
