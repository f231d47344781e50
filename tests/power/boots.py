"""Pretending that the machine was started again: another boot id, for this process alone."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from omnigraph.storage.durability import boot_id

_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 4096
_MNT_DETACH: Final = 2
_MS_REC_PRIVATE: Final = 0x4000 | (1 << 18)


def pretend_boot(name: str, file: Path) -> None:
    """Let this process see a boot id of its own, in a namespace of mounts of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    file.write_text(name)
    _checked(libc.unshare(_CLONE_NEWNS))
    _checked(libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None))
    _leave_other_disks(libc, file)
    target = b"/proc/sys/kernel/random/boot_id"
    _checked(libc.mount(os.fsencode(file), target, None, _MS_BIND, None))
    assert boot_id() == name


def _leave_other_disks(libc: ctypes.CDLL, file: Path) -> None:
    """Let go of the disks of storms beside this one, whose power cuts wait until none has them.

    The disk of a storm is mounted in a folder that the file is below.
    """
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mounted, *_ = line.split()
        if device.startswith("/dev/loop") and Path(mounted).parent not in file.parents:
            _checked(libc.umount2(os.fsencode(mounted), _MNT_DETACH))


def processes_beside(pid: int) -> list[int]:
    """The other processes in a namespace of mounts: what a process of `pretend_boot` started."""
    own = _namespace(pid)
    if own in (None, _namespace(os.getpid())):
        return []
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [number for number in numbers if number != pid and _namespace(number) == own]


def is_running(pid: int) -> bool:
    return _namespace(pid) is not None


def _namespace(pid: int) -> str | None:
    """None of a process that has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return None


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
