"""The container files follow the usual rules; no builder is needed to check them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

pytestmark = pytest.mark.unit

HOME = Path(__file__).parent.parent.parent
DOCKERFILE = HOME / "deploy/Dockerfile"
COMPOSE = HOME / "deploy/compose.yml"


def instructions() -> Iterator[tuple[str, str]]:
    """The instructions of the Dockerfile in one line each, without comments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, " ".join(rest.split())


def services() -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return described


def test_the_image_is_small_repeatable_and_does_not_run_as_root() -> None:
    words = list(instructions())
    runs = [rest for word, rest in words if word == "RUN"]
    packages = [run for run in runs if "apt-get install" in run]

    assert [rest for word, rest in words if word == "FROM"] == ["python:3.12-slim-bookworm"]
    assert all("--no-install-recommends" in run for run in packages)
    assert all(run.endswith("rm -rf /var/lib/apt/lists/*") for run in packages)
    assert all("--no-cache-dir" in run for run in runs if "pip install" in run)
    assert [rest for word, rest in words if word == "USER"][-1] not in {"root", "0"}
    assert "ADD" not in {word for word, _ in words}
    for word, rest in words:
        if word in {"ENTRYPOINT", "CMD"}:
            assert rest.startswith("["), f"{word} in its exec form passes signals on"


def test_what_the_image_copies_is_in_the_repository_or_built() -> None:
    (copied,) = [rest.split()[:-1] for word, rest in instructions() if word == "COPY"]

    assert [name for name in copied if not name.startswith("dist/")] == ["constraints.txt"]
    assert (HOME / "constraints.txt").is_file()


@pytest.mark.parametrize("name", list(services()))
def test_every_service_names_a_version_and_waits_for_what_it_needs(name: str) -> None:
    service = services()[name]

    assert re.fullmatch(r"[\w./-]+:(?!latest$)[\w.-]+", service["image"])
    for needed, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in services()[needed]
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "a trial is not open to the network"


def test_the_keys_of_the_store_are_those_that_clients_use() -> None:
    store = services()["s3"]["environment"]
    client = services()["omnigraph"]["environment"]

    assert client["AWS_ACCESS_KEY_ID"] == store["ROOT_ACCESS_KEY"]
    assert client["AWS_SECRET_ACCESS_KEY"] == store["ROOT_SECRET_KEY"]
    assert client == services()["spark-worker"]["environment"]
