"""Graphs on S3 that name things outside of their prefix: nothing there is read, changed or removed.

The server keeps objects as files, so forgeries are laid on disk and a tripwire tells what was read.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake import names
from tests.adversary.questions import GROWING, ask, opened
from tests.adversary.verbs import Desk, Ending, call, lay_out
from tests.adversary.world import build
from tests.gate.seeds import run_seed
from tests.gate.selection import is_nightly
from tests.hostile.forging import COMPANY, PERSON, VICTIM, Forgery, forgeries, in_fork, in_version
from tests.hostile.storm import ENTRIES_HERE, STOLEN, fill
from tests.hostile.tripwire import Tripwire, sees_reads
from tests.hostile.versions import with_files_at
from tests.s3.server import S3Server
from tests.stores import BUCKET

pytestmark = [pytest.mark.s3, pytest.mark.random]

ON_DISKS_ONLY: Final = ("link at", "pipe at", "copy", "absolute", "address")
"""What only a folder has, is played with copies, or is spelt as the path of a folder."""
SPELT: Final = (": dots", ": escaped", ": bucket", ": parent", ": a dot")


def _addresses(prefix: str) -> Iterator[Forgery]:
    """Versions that name the victim by the address that it has in the bucket."""
    company, person = names.table_location(COMPANY), names.table_location(PERSON)
    made: dict[str, tuple[Callable[[Path, str], None], str]] = {
        "files elsewhere": (partial(in_version, with_files_at), company),
        "fork of a table": (partial(in_fork, person), person),
        "fork of the manifest": (partial(in_fork, names.MANIFEST), names.MANIFEST),
    }
    for name, (lay, place) in made.items():
        for told, victim in (("beside", f"{prefix}/{VICTIM}"), ("bucket", f"s3://{VICTIM}")):
            address = f"{victim}/{place}"
            yield Forgery(name=f"{name}, on S3: {told}", lay=partial(_laid, lay, address))


def _laid(lay: Callable[[Path, str], None], address: str, root: Path) -> None:
    lay(root, address)


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}{tmp_path}"


def test_no_verb_touches_anything_outside_of_a_hostile_prefix(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    folder = s3_server.folder_of(bucket)
    build(tmp_path / "origin")
    shutil.copytree(tmp_path / "origin", tmp_path / VICTIM)
    fill(tmp_path / VICTIM)
    lay_out(tmp_path / "desk")
    folder.mkdir(parents=True)
    shutil.copytree(tmp_path / VICTIM, folder / VICTIM)
    shutil.copytree(tmp_path / "origin", folder / "sound")
    if not sees_reads(tmp_path):
        pytest.skip("NOT SHOWN HERE: this file system does not keep times of access")
    wire = Tripwire(folder / VICTIM)
    known = ask(opened(f"{bucket}/sound"))
    assert not list(wire.tripped())
    opened(f"{bucket}/{VICTIM}")
    assert list(wire.tripped()), "a read through the server is seen"
    wire.lay()
    chance = random.Random(f"hostile-s3-{run_seed()}")
    forged = [
        forgery
        for forgery in forgeries()
        if not forgery.name.startswith(ON_DISKS_ONLY) and forgery.name.endswith(SPELT)
    ]
    addresses = list(_addresses(bucket))
    chosen = [*chance.sample(addresses, 6 if is_nightly() else 1)]
    chosen += chance.sample(forged, 60 if is_nightly() else 1)
    faults: list[str] = []
    for number, forgery in enumerate(chosen):
        shutil.copytree(tmp_path / "origin", folder / f"g{number}")
        forgery.lay(folder / f"g{number}")
        root = f"{bucket}/g{number}"
        for question, answer in ask(opened(root)).items():
            is_right = isinstance(answer, str) or (
                set(answer) >= set(known[question])
                if question in GROWING
                else answer == known[question]
            )
            if STOLEN in str(answer) or not is_right:
                faults.append(f"{forgery.name}: {question} is answered {answer}")
        for entry in chance.sample(ENTRIES_HERE, 6 if is_nightly() else 1):
            ended = call(entry, Desk(root=root, folder=tmp_path / "desk"))
            if ended.ending is Ending.RAW:
                faults.append(f"{forgery.name}: {entry} ended with {ended.said}")
            faults += (f"{forgery.name}: {entry}: {told}" for told in wire.tripped())
            wire.lay()
        shutil.rmtree(folder / f"g{number}")

    print(f"hostile on S3: {len(chosen)} forgeries, {len(faults)} faults")
    assert not faults, "\n\n".join(faults)
