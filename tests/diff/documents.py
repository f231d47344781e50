"""A graph of documents with values of every kind of type, and random changes to it."""

from __future__ import annotations

import random
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.graph import Graph

_SCHEMA = """
node Doc { name: String @key  size: I64?  raw: Blob?  at: Vector(2)?  words: [String]? }
node Note { text: String @key }
edge Cites: Doc -> Doc { page: I32? }
"""


def document_graph(root: str) -> Graph:
    graph = og.init(root, schema=_SCHEMA)
    graph.write(
        {
            "Doc": [document(number, 0) for number in range(30)],
            "Cites": [_citation(number, 0) for number in range(20)],
        }
    )
    return graph


def document(number: int, salt: int) -> dict[str, Any]:
    return {
        "name": f"d{number}",
        "size": None if salt == 3 else salt,
        "raw": bytes([salt]) * (number * 1000),
        "at": [float(salt), -0.0],
        "words": [str(salt)] * (number % 3),
    }


def _citation(number: int, salt: int) -> dict[str, Any]:
    return {"id": f"c{number}", "src": f"d{number}", "dst": "d0", "page": salt}


def change_documents(graph: Graph, rng: random.Random) -> None:
    for _ in range(3):
        numbers = rng.sample(range(40), 8)
        rows = [document(number, rng.randrange(4)) for number in numbers]
        graph.write({"Doc": rows}, mode="merge")
        graph.delete({"Doc": [f"d{rng.randrange(5, 40)}"], "Cites": [f"c{rng.randrange(20)}"]})
    graph.write({"Note": [{"text": f"n{number}"} for number in range(10)]})
