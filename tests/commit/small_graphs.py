"""A little bank: small enough to look at, with everything a commit can touch."""

from __future__ import annotations

import omnigraph_lake as og
from omnigraph_lake.graph import Graph

SCHEMA = """
node Account {
    name: String @key
    balance: I64
}

node Note {
    text: String
}

edge Paid: Account -> Account {
    amount: I64
}
"""


def small_graph(root: str) -> Graph:
    return og.init(root, schema=SCHEMA)


def account(name: str, balance: int) -> dict[str, object]:
    return {"name": name, "balance": balance}


def pay(source: str, target: str, amount: int) -> dict[str, object]:
    return {"src": source, "dst": target, "amount": amount}


def accounts(graph: Graph) -> dict[str, int]:
    """Balance by account, as published."""
    rows = graph.scan("Account", columns=["id", "balance"]).read_all().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["balance"] for row in rows}
