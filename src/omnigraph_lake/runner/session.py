"""The Spark session: a given one, one on a cluster or a Connect server, or a local one.

Invariant: a session is stopped by the code that started it. A session that was passed in, or that
the process had already, is used as it is and never stopped, and no setting of it is changed.

Work uses only features of Spark Connect: no JVM, no context, no jar. `spark_versions` asks classic
sessions for the names and progress of jobs. Executors import this package, so it must be
installed where they run; for a local session they run the interpreter of this process.

Credentials are not settings of a session, because those are written to command lines and event
logs. Storage options are part of the tasks instead.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from omnigraph_lake.errors import InvalidInputError, SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "Run `pip install 'omnigraph-lake[spark]'`, and install Java 17 or newer."
_LOCAL: Final = "local[*]"
_LOOPBACK: Final = "127.0.0.1"
_CONNECT_PORT: Final = 15002
_ANSWER_SECONDS: Final = 10
_STDERR: Final = 2
_LOG_LINES_SHOWN: Final = 5
# A Connect session leaves these set, and no classic session can be started meanwhile.
_CONNECT_VARIABLES: Final = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "SPARK_REMOTE")
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "omnigraph",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps are stored in UTC; a result must not depend on the local time zone.
    "spark.sql.session.timeZone": "UTC",
}
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_OWN_MACHINE_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTarget:
    """Which Spark to use: a cluster's master, a Connect address, or neither for this machine.

    `settings` are for a session that is started here; an existing one keeps its own.
    """

    master: str | None = None
    remote: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.master is not None and self.remote is not None:
            raise InvalidInputError(
                f"Spark is given as master {self.master!r} and as remote "
                f"{_without_parameters(self.remote)!r}",
                next_step="Give one of them.",
            )

    @property
    def address(self) -> str:
        return self.remote or self.master or _LOCAL

    @property
    def is_open(self) -> bool:
        """Whether any Spark can be used."""
        return self.master is None and self.remote is None

    @property
    def on_this_machine(self) -> bool:
        return self.address.startswith("local")


THIS_MACHINE: Final = SparkTarget()


def spark_session(
    spark: SparkSession | None = None, *, target: SparkTarget = THIS_MACHINE
) -> SparkSession:
    """The given session, else the active one of this process, else a new one.

    A new session lives until it is stopped or the process ends.

    Raises:
        SparkUnavailableError: Spark or Java is missing, or the target does not answer.
    """
    require_installed()
    if spark is not None:
        return require_session(spark)
    running = _running_session(target)
    return _started(target) if running is None else running


@contextmanager
def spark_for_a_while(
    spark: SparkSession | None = None, *, target: SparkTarget = THIS_MACHINE
) -> Iterator[SparkSession]:
    """As `spark_session`; a session that had to be started is stopped afterwards."""
    session = spark if spark is not None else _running_session(target)
    if session is not None:
        yield session
        return
    before = {name: os.environ.get(name) for name in _CONNECT_VARIABLES}
    session = _started(target)
    try:
        yield session
    finally:
        session.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def given_spark(spark: object | None) -> AbstractContextManager[SparkSession]:
    """The Spark that a caller gave: a session, a `SparkTarget`, or None for any.

    Raises:
        InvalidInputError: it is neither.
        SparkUnavailableError: as for `spark_session`.
    """
    if isinstance(spark, SparkTarget):
        return spark_for_a_while(target=spark)
    return spark_for_a_while(None if spark is None else require_session(spark))


def is_at_hand() -> bool:
    """Whether Spark can be used without a new JVM: a session of this process, or a server.

    A session is known without an import: the code that made it has imported PySpark.
    """
    if "SPARK_REMOTE" in os.environ and find_spec("pyspark") is not None:
        return True
    return "pyspark.sql" in sys.modules and _running_session(THIS_MACHINE) is not None


def require_session(session: object) -> SparkSession:
    """A session that a caller passed, of classic Spark or of Spark Connect.

    Raises:
        InvalidInputError: it is none.
        SparkUnavailableError: Spark is not installed, so nothing can be one.
    """
    require_installed()
    if not (hasattr(session, "range") and hasattr(session, "interruptAll")):
        raise InvalidInputError(
            f"spark is {type(session).__name__}, expected a SparkSession or a SparkTarget"
        )
    return cast("SparkSession", session)


def is_installed() -> bool:
    """Whether Spark could be started here, or be reached: pyspark, and Java or a server."""
    has_pyspark = find_spec("pyspark") is not None
    return has_pyspark and (find_java() is not None or "SPARK_REMOTE" in os.environ)


def require_installed() -> None:
    """Refuse work that needs pyspark, before a module is imported that does.

    Raises:
        SparkUnavailableError: it is not installed.
    """
    if find_spec("pyspark") is None:
        raise SparkUnavailableError(
            "this needs Spark, and pyspark is not installed", next_step=_INSTALL
        )


@contextmanager
def without_noise() -> Iterator[None]:
    """Suppress warnings of Spark and Lance around calls of this package.

    PySpark warns of an untested version of pandas, which is not used here, and PySpark 3.5 of its
    own use of distutils. Lance warns of forks; the only fork starts Spark's JVM.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        warnings.filterwarnings(
            "ignore", message="distutils Version classes", category=DeprecationWarning
        )
        warnings.filterwarnings("ignore", message="lance is not fork-safe", category=UserWarning)
        yield


def _running_session(target: SparkTarget) -> SparkSession | None:
    require_installed()
    with without_noise():
        # Saves 300 ms where Spark is not used.
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        try:
            running = SparkSession.active()
        except PySparkRuntimeError:
            return None
    if target.is_open:
        return running
    master = running.conf.get("spark.master", None)
    if target.master is not None and target.master == master:
        return running
    raise InvalidInputError(
        f"Spark was requested on {_without_parameters(target.address)!r}, but this process already "
        f"has a session on {master!r}",
        next_step="Stop that session first, or pass it in.",
    )


def _started(target: SparkTarget) -> SparkSession:
    # PySpark is loaded only if a session has to be started.
    from pyspark.sql import SparkSession

    if target.is_open and "SPARK_REMOTE" in os.environ:
        target = SparkTarget(remote=os.environ["SPARK_REMOTE"], settings=target.settings)
    if target.remote is not None and not target.on_this_machine:
        _require_answer(target.remote)
    elif find_java() is None:
        raise SparkUnavailableError("this needs Spark, and there is no Java", next_step=_INSTALL)
    builder = SparkSession.builder
    if target.remote is None:
        builder = builder.master(target.address)
    else:
        builder = builder.remote(target.remote)
    for name, value in _settings(target).items():
        builder = builder.config(name, value)
    with _stderr_to_a_file() as log, _environment(target), without_noise():
        try:
            return builder.getOrCreate()
        except Exception as error:  # Spark, py4j and grpc each have errors of their own
            raise SparkUnavailableError(
                f"Spark did not start on {_without_parameters(target.address)!r}: "
                f"{_reason(error, log)}",
                next_step="Check the address, and that Java is 17 or newer.",
            ) from error


def _settings(target: SparkTarget) -> Mapping[str, str]:
    # A Connect server has its settings already and warns of each that it does not take.
    settings = dict(_SETTINGS) if target.remote is None else {}
    if target.on_this_machine and target.remote is None:
        settings |= _OWN_MACHINE_SETTINGS
    settings |= target.settings
    if target.on_this_machine and _WAREHOUSE not in settings:
        settings[_WAREHOUSE] = _warehouse()
    return settings


def _warehouse() -> str:
    """A folder for saved tables; Spark would create one in the working directory."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-spark-warehouse-"))
    atexit.register(_remove_if_empty, folder)
    return str(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _require_answer(remote: str) -> None:
    """Refuse a server that does not respond; the first query would retry for ten minutes."""
    if getproxies():
        # Whether the proxy lets requests through cannot be determined here.
        return
    try:
        server = urlsplit(remote)
        address = (server.hostname or "", server.port or _CONNECT_PORT)
        socket.create_connection(address, timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise SparkUnavailableError(
            f"no Spark Connect server responds at {_without_parameters(remote)}: {error}",
            next_step="Start one with Spark's `sbin/start-connect-server.sh`, or correct the "
            "address.",
        ) from error


def _without_parameters(remote: str) -> str:
    """The address without its parameters, which may contain a token."""
    return remote.partition(";")[0]


def find_java() -> str | None:
    """The Java that Spark would start, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


@contextmanager
def _environment(target: SparkTarget) -> Iterator[None]:
    """The environment of a JVM that is started here; later processes do not inherit it."""
    wanted: dict[str, str] = {}
    if target.on_this_machine:
        wanted = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _LOOPBACK}
        if target.address.startswith("local-cluster"):
            wanted["SPARK_HOME"] = os.environ.get("SPARK_HOME") or _spark_home()
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _spark_home() -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


@contextmanager
def _stderr_to_a_file() -> Iterator[BinaryIO]:
    """Redirect the stderr of a JVM that is started meanwhile to an anonymous file.

    Some output of a JVM cannot be disabled by settings of Spark or its log.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        kept = os.dup(_STDERR)
        os.dup2(log.fileno(), _STDERR)
        try:
            yield log
        finally:
            sys.stderr.flush()
            os.dup2(kept, _STDERR)
            os.close(kept)


def _reason(error: Exception, log: BinaryIO) -> str:
    log.seek(0)
    said = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    first = str(error).splitlines()[0] if str(error) else repr(error)
    return "\n".join([first, *said[-_LOG_LINES_SHOWN:]])
