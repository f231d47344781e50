"""`graph.holds`: list and release the holds of readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_lake.arguments import plain_text
from omnigraph_lake.storage.refs.holds import Hold, list_holds, release_hold

if TYPE_CHECKING:
    from omnigraph_lake.api.handle import Handle
    from omnigraph_lake.display.pages import Listing


class Holds:
    """The holds of readers: versions that cleanup keeps for a limited time."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def list(self) -> Listing[Hold]:
        """List all holds, oldest first."""
        return list_holds(self._handle.objects)

    def release(self, hold_id: str) -> None:
        """Release any hold. Its reader may then find its data no longer kept."""
        self._handle.require_writable("release a hold")
        release_hold(self._handle.objects, plain_text(hold_id, argument="hold_id"))
