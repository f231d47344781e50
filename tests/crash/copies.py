"""Graphs copied by their files, in the store of this run: on a disk, or beneath the server.

No file of a graph is ever written in place, by Omnigraph or by the server that keeps objects as
files, so a copy may share its files with the template.
"""

from __future__ import annotations

import os
import shutil

from tests.stores import folder_of


def is_made(root: str) -> bool:
    """Whether there are files of a graph at the root."""
    return folder_of(root).exists()


def copy_root(template: str, to: str) -> None:
    """Copy every file; what a server knows about an object is copied along."""
    shutil.copytree(folder_of(template), folder_of(to))


def link_root(template: str, to: str) -> None:
    """A copy that shares the files of its template."""
    shutil.copytree(folder_of(template), folder_of(to), copy_function=os.link)


def move_root(root: str, to: str) -> None:
    folder_of(to).parent.mkdir(parents=True, exist_ok=True)
    folder_of(root).rename(folder_of(to))


def remove_root(root: str) -> None:
    shutil.rmtree(folder_of(root), ignore_errors=True)
