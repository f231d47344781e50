"""Errors about a root that contains a graph without a readable manifest.

Invariant: a root is called damaged only after its manifest was looked for again. A graph that is
just being created, or whose creation died before it held anything, is not damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph.storage.manifest.survey import ManifestSurvey, is_damage, survey_manifest
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.objects.location import Scheme
from omnigraph.storage.refs.branches import branch_logs

if TYPE_CHECKING:
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects

_MADE_FIRST: Final = 1


def holds_data(objects: Objects) -> bool:
    """Whether a graph at the root has, or had, more than what its creation begins with.

    Tables alone are no graph: they may be another program's, so a log, a history or a manifest has
    to be there as well.
    """
    folders = set(objects.folders(""))
    if names.MANIFEST in folders and objects.list(names.lance_versions(names.MANIFEST)):
        return True
    if not folders & _SIGNS:
        return False
    if objects.list(names.TAG_REFS_DIR) or branch_logs(objects):
        return True
    places = [place for place in (*names.TABLE_DIRS, names.COMMITS) if place in folders]
    return any(_is_written(path) for place in places for path in objects.list(place))


def require_manifest(objects: Objects) -> None:
    """Refuse a root that holds data, which a new graph there would replace.

    Raises:
        DamagedGraphError: it holds data and no manifest that can be read.
    """
    if not holds_data(objects):
        return
    survey = survey_manifest(objects)
    if survey.whole is None or survey.damaged:
        raise damaged(objects, survey)


def manifest_after_all(objects: Objects) -> ManifestState:
    """The manifest of a root that had none a moment ago: it may have been created since.

    Raises:
        DamagedGraphError: the root holds data, and the manifest is gone.
        NotFoundError: there is no graph.
    """
    has_data = holds_data(objects)
    try:
        return read_manifest(objects.root)
    except NotFoundError:
        if has_data:
            raise damaged(objects, survey_manifest(objects)) from None
        raise


def refuse_damage(objects: Objects, error: OmnigraphError) -> None:
    """Raise an error that names the damage, if that is why the manifest could not be read.

    Raises:
        DamagedGraphError: its newest version is.
    """
    if is_damage(error):
        survey = survey_manifest(objects)
        if survey.damaged:
            raise damaged(objects, survey) from error


def require_newest(objects: Objects, state: ManifestState) -> None:
    """Refuse to write on an older state because the newest one is damaged.

    Readers skip a version that a power failure damaged. Such versions are quarantined before a
    write starts, so one that still exists was damaged in another way.

    Raises:
        DamagedGraphError: a newer version of the manifest is there and cannot be read.
    """
    if objects.root.scheme is Scheme.LOCAL and state.handle.latest_version > state.version:
        survey = survey_manifest(objects)
        if survey.damaged:
            raise damaged(objects, survey)


def damaged(objects: Objects, survey: ManifestSurvey) -> DamagedGraphError:
    """The error that names what is left, and how to recover it."""
    root = objects.root
    if not survey.damaged and objects.list(names.BACKUPS_DIR):
        return DamagedGraphError(
            f"{root} is an unfinished copy of a graph",
            next_step="Run the same backup, restore or clone again: it continues where it stopped.",
        )
    if not survey.damaged:
        what = (
            f"{root} contains tables, but {names.MANIFEST}, which names the published versions, "
            "is gone"
        )
    else:
        newest = survey.damaged[0]
        whole = "no version of it" if survey.whole is None else f"version {survey.whole.version}"
        what = (
            f"{names.MANIFEST} of {root} is damaged: version {newest.version} cannot be read "
            f"({newest.reason}), {whole} is intact"
        )
    return DamagedGraphError(
        what,
        next_step=f"Run `omnigraph repair {root} --rebuild-manifest` to see what can be "
        "recovered; nothing changes without --confirm.",
    )


_SIGNS: Final = frozenset(
    {names.COMMITS, names.SCHEMAS_DIR, names.BRANCH_REFS_DIR.partition("/")[0]}
)


def _is_written(path: str) -> bool:
    version = names.lance_version_at(path)
    return names.holds_rows(path) or (version is not None and version > _MADE_FIRST)
