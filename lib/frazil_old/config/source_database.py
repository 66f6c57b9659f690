"""The source database's address and credentials: from the environment or a secret, never from parameters, never shown."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from frazil_old.config.aws_calls import explained
from frazil_old.errors import FrazilError, hide

ENGINES = {
    "postgresql": ("jdbc:postgresql://{host}:{port}/{database}", 5432, "org.postgresql.Driver", "org.postgresql:postgresql:42.7.8"),
    "mysql": ("jdbc:mysql://{host}:{port}/{database}", 3306, "com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j:9.4.0"),
    "sqlserver": (
        "jdbc:sqlserver://{host}:{port};databaseName={database};encrypt=true", 1433,
        "com.microsoft.sqlserver.jdbc.SQLServerDriver", "com.microsoft.sqlserver:mssql-jdbc:13.2.0.jre11",
    ),
    "oracle": ("jdbc:oracle:thin:@//{host}:{port}/{database}", 1521, "oracle.jdbc.OracleDriver", "com.oracle.database.jdbc:ojdbc11:23.9.0.25.07"),
}  # fmt: skip
"""By engine: the URL template, the usual port, the driver's class and its Maven coordinates."""
_NAMES = {"postgres": "postgresql", "aurora-postgresql": "postgresql", "aurora": "mysql", "mariadb": "mysql"}


class SourceDatabaseError(FrazilError):
    """The source database cannot be reached: its address or credentials are missing or wrong, or its driver is missing."""


@dataclass(frozen=True)
class Connection:
    """How to reach the source database over JDBC."""

    engine: str
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def options(self) -> dict[str, str]:
        """Return Spark's options for a JDBC read."""
        given = {"url": self.url, "driver": ENGINES[self.engine][2], "user": self.user, "password": self.password}
        return {k: v for k, v in given.items() if v}

    def hide(self, text: str) -> str:
        """Remove the password from a text, such as a driver's message."""
        return text.replace(self.password, "•••") if self.password else text


def engine_of(name: str) -> str:
    """Return the engine's canonical name for the name that AWS, a secret or a JDBC address uses."""
    engine = _NAMES.get(name.lower(), name.lower())
    engine = "sqlserver" if engine.startswith("sqlserver") else "oracle" if engine.startswith("oracle") else engine
    if engine not in ENGINES:
        raise SourceDatabaseError(f"source engine '{name}' is not known", f"known are {', '.join(ENGINES)}")
    return engine


def source_connection(endpoint: dict | None = None) -> Connection:
    """Return the connection to the source database; `endpoint`: the source as `aws dms describe-endpoints` prints it.

    The environment variables FRAZIL_SOURCE_URL, FRAZIL_SOURCE_USER and FRAZIL_SOURCE_PASSWORD give it.
    FRAZIL_SOURCE_SECRET names a secret in AWS Secrets Manager instead, for the credentials or for everything (`engine`,
    `host`, `port`, `dbname`, `username`, `password`).
    """
    env, endpoint = os.environ, endpoint or {}
    of_engine = [v for k, v in endpoint.items() if k.endswith("Settings") and isinstance(v, dict)]
    own = next(filter(None, (v.get("SecretsManagerSecretId") for v in of_engine)), "")
    name = env.get("FRAZIL_SOURCE_SECRET") or own
    secret = read_secret(name) if name else {}
    url = env.get("FRAZIL_SOURCE_URL") or secret.get("url") or ""
    if url:
        url = url.replace("jdbc:mariadb:", "jdbc:mysql:", 1)  # the driver of MySQL serves both
        engine = engine_of(url.removeprefix("jdbc:").split(":")[0])
    else:
        host = secret.get("host") or endpoint.get("ServerName")
        if not host:
            raise SourceDatabaseError(
                "nothing says where the source database is",
                "set FRAZIL_SOURCE_URL (jdbc:postgresql://host:port/database), or FRAZIL_SOURCE_SECRET to a secret's id",
            )
        engine = engine_of(secret.get("engine") or endpoint.get("EngineName") or "")
        form, port = ENGINES[engine][:2]
        database = secret.get("dbname") or endpoint.get("DatabaseName") or ""
        url = form.format(host=host, port=secret.get("port") or endpoint.get("Port") or port, database=database)
    user = env.get("FRAZIL_SOURCE_USER") or secret.get("username") or endpoint.get("Username") or ""
    password = env.get("FRAZIL_SOURCE_PASSWORD") or secret.get("password") or ""
    hide([password] if len(password) >= 6 else [])
    return Connection(engine, url, user, password)


def read_secret(name: str) -> dict:
    """Return the JSON object of a secret in AWS Secrets Manager; raise SourceDatabaseError if there is none."""
    cure = {"": "check its id, the region, and the permission GetSecretValue"}
    with explained(SourceDatabaseError, f"the secret '{name}' cannot be read", cure):
        import boto3

        text = boto3.client("secretsmanager").get_secret_value(SecretId=name).get("SecretString", "")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):  # its text may be a password: it is not shown
        raise SourceDatabaseError(
            f"the secret '{name}' holds no JSON object", "store username and password as RDS does"
        )
    return found
