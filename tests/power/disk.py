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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_LOG_FLUSH: Final = 2
_ATTEMPTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system of its own, mounted at `folder`."""

    image: Path
    folder: Path

    def mount(self, *, read_only: bool = False) -> None:
        options = "loop,ro,noload" if read_only else "loop"
        _run("mount", "-o", options, str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Wait until no process has it mounted any more, in whatever namespace."""
        for _ in range(_ATTEMPTS):
            if not subprocess.run(["umount", self.folder], capture_output=True).returncode:  # noqa: PLW1510
                break
            time.sleep(0.05)
        for _ in range(_ATTEMPTS):
            command = ["losetup", "--associated", str(self.image)]
            if not subprocess.run(command, capture_output=True, check=True).stdout:
                return
            time.sleep(0.05)
        raise RuntimeError(f"could not unmount {self.folder}")

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
