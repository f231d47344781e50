"""Imports of R's data sets keep every record and every value, and a second one adds nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest

import omnigraph_lake as og
from tests.gate.seeds import examples, run_seed
from tests.public_data import r_data

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.nightly("packages are fetched; tests/importer has the shapes of their tables"),
]
ALL = 2293
"""How many data sets the package has."""
ONE_IN = 7
"""So many are inferred for one that is also imported."""
TOO_WIDE = {
    "ISLR/NCI60",
    "modeldata/grants_other",
    "modeldata/grants_test",
    "modeldata/permeability_qsar",
    "plyr/ozone",
}
"""Those of more than 1,000 columns, which are refused."""


@cache
def drawn() -> list[str]:
    names = r_data.names()
    assert len(names) == ALL
    return random.Random(f"data sets of R {run_seed()}").sample(names, ALL)


@pytest.mark.parametrize("number", range(min(ALL, examples(200))))
def test_a_data_set_of_r_is_imported_whole(number: int, tmp_path: Path) -> None:
    file = r_data.read(drawn()[number])
    path, root = file.write(tmp_path), str(tmp_path / "g")
    if file.name in TOO_WIDE:
        with pytest.raises(og.InvalidInputError, match="columns"):
            og.import_data(root, path, dry_run=True)
        return

    inferred = og.import_data(root, path, dry_run=True)

    assert not [*r_data.problems_of_inference(inferred, file)], file.name
    if number % ONE_IN == 0:
        imported = og.import_data(root, path)
        assert imported.schema == inferred.schema
        assert not [*r_data.problems_of_import(imported, og.open(root), file)], file.name
        assert not [*r_data.problems_of_again(og.import_data(root, path))], file.name


CARS = r_data.of_frame(
    "made/cars",
    pd.DataFrame(
        {
            "rownames": ["Duster", "Fiat", "Merc", "Volvo"],
            "mpg": [14.3, 32.4, None, 21.4],
            "maker": ["Renault", None, "Mercedes", "Volvo, of Sweden"],
            "old": [True, False, True, False],
        }
    ),
)
EDGE = """
[[source.edge]]
type = "Likes"
from = { type = "Car", key = { id = "maker" } }
to = { type = "Car", key = { id = "COLUMN" } }
"""


@pytest.fixture(scope="module")
def cars(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, og.ImportReport]:
    folder = tmp_path_factory.mktemp("cars")
    return str(folder / "g"), og.import_data(str(folder / "g"), CARS.write(folder))


def test_a_file_is_written_as_r_writes_it(tmp_path: Path) -> None:
    text = Path(CARS.write(tmp_path)).read_text()

    assert text == (
        '"","mpg","maker","old"\n"Duster",14.3,"Renault",TRUE\n"Fiat",32.4,NA,FALSE\n'
        '"Merc",NA,"Mercedes",TRUE\n"Volvo",21.4,"Volvo, of Sweden",FALSE\n'
    )


def test_no_problem_is_seen_in_a_whole_import(cars: tuple[str, og.ImportReport]) -> None:
    root, report = cars

    assert not [*r_data.problems_of_inference(report, CARS)]
    assert not [*r_data.problems_of_import(report, og.open(root), CARS)]


@pytest.mark.parametrize(
    ("mutation", "seen"),
    [
        ('delete Car where maker = "Renault"', "3 rows instead of 4"),
        ('update Car set { mpg: 14.4 } where maker = "Renault"', "the sum is"),
        ('update Car set { mpg: null } where maker = "Renault"', "2 values instead of 3"),
        ('update Car set { maker: "renault" } where maker = "Renault"', "other texts"),
    ],
    ids=["lost row", "other number", "lost value", "other text"],
)
def test_a_graph_that_is_not_the_file_is_seen(
    mutation: str, seen: str, cars: tuple[str, og.ImportReport]
) -> None:
    root, report = cars
    faulty = og.open(root).branches.create(f"faulty-{len(og.open(root).branches.list())}")

    faulty.mutate(mutation)

    assert seen in "; ".join(r_data.problems_of_import(report, faulty, CARS))


@pytest.mark.parametrize(
    ("account", "seen"),
    [
        ({"written": 3}, "does not add up"),
        ({"written": 3, "rejected": {"wrong_type": 1}}, "rejected {'wrong_type': 1}"),
        ({"written": 3, "skipped": 1}, "skipped 1"),
        ({"written": 3, "replaced": 1}, "1 were replaced, but 4 keys are different"),
        ({"written": 3, "replaced": 1}, "its key is none"),
        ({"written": 3, "records": 3}, "not 4 records"),
    ],
    ids=["lost", "rejected", "skipped", "replaced", "no key", "not offered"],
)
def test_an_account_that_is_not_of_the_file_is_seen(
    account: dict[str, Any], seen: str, cars: tuple[str, og.ImportReport]
) -> None:
    root, report = cars
    assert report.load is not None
    (line,) = report.load.accounts

    faulty = replace(report, load=replace(report.load, accounts=(replace(line, **account),)))

    assert seen in "; ".join(r_data.problems_of_import(faulty, og.open(root), CARS))


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ('maker = "maker"\n', "", "column 'maker' is nowhere"),
        ('"FALSE" }\n', '"FALSE" }\n' + EDGE.replace("COLUMN", ""), "row names are an end"),
        ('"FALSE" }\n', '"FALSE" }\n' + EDGE.replace("COLUMN", "maker"), "where they start"),
    ],
    ids=["lost column", "row names", "loops"],
)
def test_a_mapping_that_is_not_of_the_file_is_seen(
    before: str, after: str, seen: str, cars: tuple[str, og.ImportReport]
) -> None:
    report = cars[1]
    assert before in report.mapping

    faulty = replace(report, mapping=report.mapping.replace(before, after))

    assert seen in "; ".join(r_data.problems_of_inference(faulty, CARS))


def test_a_second_import_that_writes_is_seen(cars: tuple[str, og.ImportReport]) -> None:
    assert [*r_data.problems_of_again(cars[1])] == [
        "imported again, {'Car': 4} were written",
        "Car: 0 of 4 are already there",
    ]
