"""What the gate builds once and keeps in its cache: a Python environment, older versions of PySpark
that take the place of the one in the environment, and the S3 servers.

The cache is shared by checkouts, so nothing in it belongs to one of them: the environment holds
everything but Omnigraph, which every run takes from its own checkout by PYTHONPATH. A run without
that fails to import it; it never tests another checkout by mistake.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent
OLDER_SPARK = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4"}
"""The releases of PySpark that tests run on, beside the one of constraints.txt."""
OLDEST_LIBRARIES = {"3.5": ("pyarrow==19.0.1", "numpy==2.0.2")}
"""The oldest releases that pyproject.toml allows, which the tests of the oldest Spark run with."""
OLDER_SPARK_WARNINGS = (
    *("-W", "ignore::ResourceWarning"),
    *("-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
    *("-W", "ignore:distutils Version classes:DeprecationWarning"),
)
"""Options of pytest for what PySpark 3.5 does itself: it leaves sockets open and uses distutils."""
_SCRIPT = """\
#!{python}
import sys
from omnigraph_lake.cli.main import main
sys.exit(main())
"""


def cache_folder() -> Path:
    asked = os.environ.get("OMNIGRAPH_CI_CACHE")
    folder = Path(asked) if asked else Path.home() / ".cache" / "omnigraph"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def environment_folder() -> Path:
    """One folder per set of requirements and per interpreter."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    requirements = [project["dependencies"], project["optional-dependencies"]]
    constraints = (CHECKOUT / "constraints.txt").read_text()
    key = json.dumps([sys.version, constraints, *requirements]).encode()
    return cache_folder() / f"venv-{hashlib.sha256(key).hexdigest()[:16]}"


def build_environment() -> str:
    """Build the environment unless the cache has it; says which."""
    folder = environment_folder()
    with locked("environment"):
        if (folder / "complete").exists():
            return "from the cache"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
        requirements = ["--constraint", "constraints.txt", ".[dev]"]
        subprocess.run([*pip, "install", *requirements], cwd=CHECKOUT, check=True)
        subprocess.run([*pip, "uninstall", "--yes", "omnigraph-lake"], cwd=CHECKOUT, check=True)
        script = folder / "bin" / "omnigraph"
        script.write_text(_SCRIPT.format(python=folder / "bin" / "python"))
        script.chmod(0o755)
        (folder / "complete").touch()
    return "built"


def build_older_spark(version: str, python: str = sys.executable) -> str:
    """Unpack a release of PySpark with what it needs unless the cache has it; says which."""
    folder = older_spark_folder(version)
    with locked(folder.name):
        if (folder / "complete").exists():
            return "from the cache"
        shutil.rmtree(folder, ignore_errors=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        releases = [f"pyspark=={OLDER_SPARK[version]}", *OLDEST_LIBRARIES.get(version, ())]
        subprocess.run([*pip, "--no-compile", "--target", str(folder), *releases], check=True)
        (folder / "complete").touch()
    return "built"


def older_spark_folder(version: str) -> Path:
    names = [f"pyspark-{OLDER_SPARK[version]}", *OLDEST_LIBRARIES.get(version, ())]
    return cache_folder() / "-".join(names).replace("==", "-")


def build_s3_servers() -> str:
    """Build the servers of the S3 tier unless the cache has them; fails if there is no Go."""
    before = _servers()
    with locked("s3-servers"):
        subprocess.run(["bash", ".ci/s3-tools"], cwd=CHECKOUT, env=variables(), check=True)
    return "from the cache" if _servers() == before else "built"


def variables(spark: str | None = None) -> dict[str, str]:
    """The environment variables in which the tools of the cache check this checkout.

    `spark` is an older version of Spark to use.
    """
    folder = environment_folder()
    paths = [CHECKOUT / "src"] if spark is None else [older_spark_folder(spark), CHECKOUT / "src"]
    inherited = os.environ.get("PATH", os.defpath)
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{inherited}",
        "VIRTUAL_ENV": str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MYPY_CACHE_DIR": str(cache_folder() / "mypy"),
        "OMNIGRAPH_CI_CACHE": str(cache_folder()),
        # Hundreds of processes import the package; each would compile it again.
        "PYTHONDONTWRITEBYTECODE": "",
    }


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One run at a time builds or writes this part of the cache."""
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _servers() -> set[str]:
    folder = cache_folder() / "bin"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()
