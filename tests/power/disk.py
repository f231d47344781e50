"""An ext4 file system whose power can be cut: what was not synced is gone, as on a real disk.

The file system is in a file on a loop device. `EXT4_IOC_SHUTDOWN` without a flush of the journal
stops it at once: nothing that is only in the cache reaches the file any more. Needs root.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_LOG_FLUSH: Final = 2
_PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system of its own, mounted at `folder`."""

    image: Path
    folder: Path

    def mount(self, *, read_only: bool = False) -> None:
        options = "loop,ro,noload" if read_only else "loop"
        _run("mount", "-o", options, str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Wait until no process has it mounted any more, in whatever namespace.

        A process that was killed lets go of it some time later.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._is_released():
            if time.monotonic() > deadline:
                raise RuntimeError(f"could not unmount {self.folder}: used by {self._users()}")
            time.sleep(0.05)

    def _is_released(self) -> bool:
        if self.folder.is_mount():
            subprocess.run(["umount", self.folder], capture_output=True, check=False)
        command = ["losetup", "--associated", str(self.image)]
        return not subprocess.run(command, capture_output=True, check=True).stdout

    def _users(self) -> list[str]:
        """The processes that have it mounted, or that have files of it open."""
        users: list[str] = []
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            with suppress(OSError):  # it has ended
                used = [str(file.readlink()) for file in (process / "fd").iterdir()]
                used.append((process / "mountinfo").read_text())
                if any(str(self.folder) in text for text in used):
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    users.append(f"{process.name} {command[:100]}")
        return users

    def cut_power(self) -> None:
        """Lose everything that was not synced; nothing can be read or written afterwards."""
        opened = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(opened, _EXT4_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(opened)


def make_disk(place: Path, *, size: str = "1G") -> Disk:
    disk = Disk(image=place / "disk.img", folder=place / "mounted")
    disk.folder.mkdir(parents=True)
    _run("truncate", "-s", size, str(disk.image))
    _run("mkfs.ext4", "-q", "-F", str(disk.image))
    disk.mount()
    return disk


def can_mount(place: Path) -> bool:
    """Whether this machine lets us make such a disk."""
    try:
        make_disk(place, size="8M").unmount()
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return False
    return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
