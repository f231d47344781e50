"""Pretending that the machine was started again: another boot id, for this process alone."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from omnigraph_lake.storage.objects.durability import boot_id

_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 4096
_MNT_DETACH: Final = 2
_MS_REC_PRIVATE: Final = 0x4000 | (1 << 18)
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
BOOT_SUFFIX: Final = ".boot"


def pretend_boot(name: str, file: Path) -> None:
    """Let this process see a boot id of its own, in a namespace of mounts of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    file.write_text(name)
    _checked(libc.unshare(_CLONE_NEWNS))
    _checked(libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None))
    _leave_other_disks(libc, file)
    _checked(libc.mount(os.fsencode(file), os.fsencode(_BOOT_ID), None, _MS_BIND, None))
    assert boot_id() == name


def _leave_other_disks(libc: ctypes.CDLL, file: Path) -> None:
    """Let go of the disks of storms beside this one, whose power cuts wait until none has them.

    The disk of a storm is mounted in a folder that the file is below.
    """
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mounted, *_ = line.split()
        if device.startswith("/dev/loop") and Path(mounted).parent not in file.parents:
            _checked(libc.umount2(os.fsencode(mounted), _MNT_DETACH))


def signal_with_started(pid: int, number: int) -> None:
    """Signal a process and all that it started since `pretend_boot`; a kill leaves none of them."""
    namespace = _namespace(pid)
    others = _in_namespace(namespace) if namespace != _namespace(os.getpid()) else []
    _signal([pid, *others], number)
    while number == signal.SIGKILL and others:
        time.sleep(0.01)
        # What was listed may have started others before it was killed.
        others = _in_namespace(namespace)
        _signal(others, number)


def kill_started_below(folder: Path) -> None:
    """Kill every process that pretends a boot by a file below a folder, whoever started it."""
    files = {_identity(file) for file in folder.glob(f"*{BOOT_SUFFIX}")}
    while booted := [pid for pid in _processes() if _boot_file(pid) in files]:
        _signal(booted, signal.SIGKILL)
        time.sleep(0.01)


def _boot_file(pid: int) -> tuple[int, int] | None:
    """The file that a process reads as its boot id; None if it has ended."""
    try:
        return _identity(Path(f"/proc/{pid}/root{_BOOT_ID}"))
    except OSError:
        return None


def _identity(file: Path) -> tuple[int, int]:
    facts = file.stat()
    return facts.st_dev, facts.st_ino


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _in_namespace(namespace: str | None) -> list[int]:
    if namespace is None:
        return []
    return [pid for pid in _processes() if _namespace(pid) == namespace]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _namespace(pid: int) -> str | None:
    """None of a process that has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return None


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
