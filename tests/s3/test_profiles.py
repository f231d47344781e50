"""A profile whose keys a process gives opens a graph, in obstore and in Lance alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import StorageUnavailableError
from tests.s3.server import WRITER, S3Server
from tests.s3.signing import REGION

pytestmark = pytest.mark.s3


def test_a_graph_is_written_with_the_keys_of_a_process(
    served: S3Server, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, secret = WRITER
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"Version": 1, "AccessKeyId": access, "SecretAccessKey": secret}))
    config = tmp_path / "config"
    config.write_text(
        f"[profile graphs]\nregion = {REGION}\nendpoint_url = {served.endpoint}\n"
        f"credential_process = {sys.executable} -c "
        f"'print(open(\"{keys}\").read())'\n[profile empty]\nregion = {REGION}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "graphs")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")

    graph = og.init(s3_root, schema="node Person { name: String @key }")
    graph.write({"Person": [{"name": "ann"}]})

    assert og.open(s3_root, read_only=True).count("Person") == 1
    texts = [path.read_bytes() for path in served.folder_of(s3_root).rglob("*") if path.is_file()]
    assert texts
    assert not any(secret.encode() in text for text in texts)
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(StorageUnavailableError, match="there is no AWS profile 'none'"):
        og.open(s3_root)
