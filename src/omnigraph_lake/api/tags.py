"""`graph.tags`: create, list and delete tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting
from omnigraph_lake.commit.refs import create_tag, remove_tag
from omnigraph_lake.storage.refs.tags import Tag, all_tags

if TYPE_CHECKING:
    from omnigraph_lake.api.handle import Handle
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.storage.refs.references import Reference


class Tags:
    """The tags of a graph. A tagged commit is never cleaned up."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def create(self, name: str, *, at: Reference | None = None, actor: str | None = None) -> Tag:
        """Tag a commit.

        Args:
            name: The name of the tag.
            at: The branch, tag, commit or point in time to tag; the head of this branch by default.
            actor: Author of the tag; the user of this process by default.
        """
        self._handle.require_mode("tag")
        tagged = self._handle.resolve_here(at)
        return create_tag(
            self._handle.objects, name, tagged, actor=acting(actor), clock=SYSTEM_CLOCK
        )

    def list(self) -> Listing[Tag]:
        """List all tags by name."""
        return all_tags(self._handle.objects)

    def delete(self, name: str) -> None:
        """Delete a tag. Its commit stays; cleanup may remove its versions from now on."""
        self._handle.require_writable("delete a tag")
        remove_tag(self._handle.objects, name)
