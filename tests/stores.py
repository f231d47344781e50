"""The store that the graphs of a test run live in, and its files behind everybody's back.

One switch chooses it: OMNIGRAPH_TEST_STORE=local (the default) or s3. On s3 every worker has a
server of its own that keeps objects as plain files, so that a test can look at them, spoil them or
remove them in the same way as on a disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects

SWITCH: Final = "OMNIGRAPH_TEST_STORE"
BUCKET: Final = "graphs"
SERVED_FOLDER: Final = "OMNIGRAPH_TEST_S3_FOLDER"


def on_s3() -> bool:
    """Whether this run keeps its graphs on a server."""
    store = os.environ.get(SWITCH, "local")
    assert store in {"local", "s3"}, f"{SWITCH}={store!r}: expected local or s3"
    return store == "s3"


def root_at(place: Path) -> str:
    """A root in the store of this run that is as unique as a path on this disk."""
    return f"s3://{BUCKET}{place.absolute()}" if on_s3() else str(place)


def folder_of(root: str, *below: str) -> Path:
    """Where the files of a root are; on S3 those of the server that keeps them."""
    if not root.startswith("s3://"):
        return Path(root, *below)
    return Path(os.environ[SERVED_FOLDER], root.removeprefix("s3://"), *below)


def files_of(root: str) -> list[Path]:
    """Every file below a root."""
    return sorted(path for path in folder_of(root).rglob("*") if path.is_file())


def place_copy(template: Path, root: str) -> None:
    """Make a root hold what a folder on this disk holds."""
    if not root.startswith("s3://"):
        shutil.copytree(template, root)
        return
    objects = StoredObjects(parse_root(root))
    for path in sorted(each for each in template.rglob("*") if each.is_file()):
        objects.replace(str(path.relative_to(template)), path.read_bytes())


def put_file(root: str, path: str, content: bytes) -> None:
    """Put an object where Omnigraph would not."""
    StoredObjects(parse_root(root), create=True).replace(path, content)
