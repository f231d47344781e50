"""Servers that `just s3-tools` builds, and ports that stay theirs while they are down."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def built(name: str) -> Path:
    """Where `just s3-tools` puts a server."""
    cache = os.environ.get("OMNIGRAPH_CI_CACHE") or str(Path.home() / ".cache" / "omnigraph")
    return Path(cache, "bin", name)


def required(server: Path) -> str:
    """The command that starts a server.

    Raises:
        FileNotFoundError: it was not built.
    """
    if not server.exists():
        raise FileNotFoundError(f"{server} is missing: run `just s3-tools` once")
    return str(server)


def reserve_port() -> socket.socket:
    """A port of the loopback interface that no other process gets until the socket is closed.

    A port that was only found to be free can be taken before a server listens on it, or while the
    server is restarted. This socket stays bound to it and never listens: clients are refused, and
    a server that sets SO_REUSEADDR, as those written in Go do, can listen beside it.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation


def address_of(reservation: socket.socket) -> str:
    host, port = reservation.getsockname()
    return f"{host}:{port}"
