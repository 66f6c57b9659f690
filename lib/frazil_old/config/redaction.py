"""Which options may be shown: only those whose key is known to be harmless. Any other value may be a credential."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from frazil_old.errors import HIDDEN, hide

if TYPE_CHECKING:
    from frazil_old.config.settings import Settings

CATALOG = {
    "type", "catalog-impl", "io-impl", "uri", "warehouse", "clients", "ref", "cache-enabled", "cache.case-sensitive",
    "cache.expiration-interval-ms", "default-namespace", "list-all-tables", "lock-impl", "lock.table",
    "lock.heartbeat-interval-ms", "lock.heartbeat-timeout-ms", "lock.acquire-interval-ms", "lock.acquire-timeout-ms",
    "jdbc.schema-version", "jdbc.busy_timeout", "jdbc.init-catalog-tables", "jdbc.strict-mode", "jdbc.open_mode",
    "glue.id", "glue.endpoint", "glue.skip-archive", "glue.skip-name-validation", "glue.lakeformation-enabled",
    "client.region", "client.factory", "s3.region", "s3.endpoint", "s3.path-style-access", "s3.delete-enabled",
    "s3.acl", "s3.sse.type", "s3.remote-signing-enabled", "s3.multipart.part-size-bytes", "s3.multipart.threshold",
    "s3.checksum-enabled", "s3.access-grants.enabled", "s3.acceleration-enabled", "s3.dualstack-enabled",
    "s3.use-arn-region-enabled", "s3.delete.batch-size", "s3.delete.num-threads", "s3.analytics-accelerator.enabled",
    "s3tables.endpoint", "dynamodb.table-name", "dynamodb.endpoint", "http-client.type", "rest.auth.type",
    "rest.sigv4-enabled", "rest.signing-name", "rest.signing-region", "rest-metrics-reporting-enabled",
    "rest-page-size", "snapshot-loading-mode", "view-endpoints-supported", "oauth2-server-uri", "scope", "audience",
    "token-refresh-enabled", "gcs.project-id", "gcs.user-project", "gcs.service.host", "hadoop.warehouse",
}  # fmt: skip
"""Options of Iceberg's catalogs that hold no credential, whatever their value. Addresses in them are shown without logins."""
SPARK = re.compile(
    r"""spark\.(
    master | app\.name | frazil\.packages | scheduler\.mode | default\.parallelism | log\.level | network\.timeout | local\.dir | memory\.\w+
    | (driver|executor)\.(memory|memoryOverhead|cores|instances|host|bindAddress|port|maxResultSize|heartbeatInterval)
    | cores\.max | task\.(cpus|maxFailures) | speculation | serializer | rdd\.compress | io\.compression\.codec
    | jars | jars\.(packages|excludes|repositories|ivy|ivySettings) | files | archives | submit\.deployMode
    | dynamicAllocation\.\w+ | shuffle\.(service\.enabled|compress|spill\.compress|partitions) | ui\.(enabled|port|showConsoleProgress)
    | eventLog\.(enabled|dir|compress) | pyspark\.(python|driver\.python) | kryoserializer\.buffer(\.max)?
    | sql\.(adaptive|files|parquet|orc|codegen|session|inMemoryColumnarStorage|iceberg)\.[\w.-]+
    | sql\.(extensions|defaultCatalog|warehouse\.dir|shuffle\.partitions|autoBroadcastJoinThreshold|broadcastTimeout|ansi\.enabled
        |ui\.explainMode|caseSensitive|maxMetadataStringLength)
    | hadoop\.fs\.(s3a\.)?(endpoint|endpoint\.region|path\.style\.access|impl|aws\.credentials\.provider|connection\.[\w.]+|threads\.[\w.]+)
    | hadoop\.fs\.(s3|s3a|file|gs|abfss?)\.impl | hadoop\.fs\.permissions\.umask-mode
    )""",
    re.VERBOSE,
)
"""Settings of Spark that hold no credential."""
_OF_CATALOG = re.compile(r"spark\.sql\.catalog\.[^.]+\.")
_NAMES_A_CREDENTIAL = re.compile("pass|pwd|pw$|secret|token|credential|key|auth|sas|login|signature", re.IGNORECASE)
_ORDINARY = re.compile(r"[a-z]{1,15}|-?[\d.:]{1,7}[a-zA-Z]{0,3}|[a-z]+(\.[a-z]\w*)+\.[A-Z]\w*")
"""Ordinary values of unknown keys, which any text may contain: a word, a number with its unit, a Java class."""
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:[^\s,]+")
_SCHEME = re.compile(r"(?:jdbc:)?[a-z][\w+.-]*:(?:(?:thin|oci8?):)?(?://)?", re.IGNORECASE)
_ENVIRONMENT = re.compile("PASSWORD|SECRET|TOKEN|CREDENTIAL|PRIVATE_KEY|ACCESS_KEY")
_NAMES_OF_SECRETS = ("FRAZIL_SOURCE_SECRET", "AWS_WEB_IDENTITY_TOKEN_FILE")
OPTIONS = ("catalog_options", "spark_options")
SEALED = ("webhook", "on_trouble")
"""Parameters with an address or a command, which may hold a credential anywhere."""


def harmless(key: str) -> bool:
    """Return whether an option of the catalog or of Spark is known to hold no credential."""
    return key in CATALOG or bool(SPARK.fullmatch(key)) or _OF_CATALOG.sub("", key) in CATALOG


def shown(name: str, value: Any) -> Any:
    """Return a parameter's value as it may be shown."""
    if name in SEALED:
        return HIDDEN if value else value
    if name in OPTIONS and isinstance(value, dict):
        return {k: without_login(v) if harmless(k) else HIDDEN for k, v in value.items()}
    if isinstance(value, dict):
        return {k: shown("", v) for k, v in value.items()}
    if isinstance(value, list):
        return [shown("", v) for v in value]
    return without_login(value) if isinstance(value, str) else value


def shown_text(name: str, text: str) -> str:
    """Return a parameter, as written on a command line, in a form that may be shown."""
    return HIDDEN if name in (*OPTIONS, *SEALED) else without_login(text)


def without_login(text: str) -> str:
    """Return a text with its addresses cut to scheme, host and path: without user, password, query and parameters."""
    shown = _ADDRESS.sub(lambda found: _split(found[0])[0], text)
    place = shown.partition("?")[0]
    return place if re.search("[/:]", place) else shown


def _split(address: str) -> tuple[str, str, str]:
    """Return an address in a form that may be shown, its login, and its query or parameters."""
    scheme = _SCHEME.match(address)[0]
    rest = address[len(scheme) :]
    place = re.split(r"[?#;(]", rest, maxsplit=1)[0]
    more, (host, slash, path) = rest[len(place) :], place.partition("/")
    if scheme.endswith("//"):
        unclear = "@" in more or ("@" in path and not re.fullmatch(r"[^:]*(:\d*)?", host))  # a password with ? or /
        login, _, host = host.rpartition("@")
        if scheme.startswith(("abfs", "wasb")) and ":" not in login:  # a container, not a user
            login, host = "", f"{login}@{host}" if login else host
        place = f"{host}{slash}{path}"
    elif scheme.lower() == "jdbc:sqlite:":  # a path
        unclear, login = False, ""
    else:
        unclear = "@" in rest and not scheme.startswith("jdbc:")
        login, _, place = place.rpartition("@")
    return (scheme + HIDDEN, rest, "") if unclear else (scheme + place, login, more)


def _secrets(key: str, value: str) -> Iterator[str]:
    """Yield the secret parts of an option's value: all of an unknown option, and the secrets inside addresses."""
    for address in _ADDRESS.findall(value):
        _, login, more = _split(address)
        yield from _worth("password", login, *re.split("[:/]", login)[1:])
        yield from _worth("password", more[1:])
        for name, parameter in re.findall(r"([^?#;&=(),]+)=([^#;&(),]+)", more):
            yield from _worth(name, parameter)
    if not harmless(key):
        yield from _worth(key, value)
        yield from _worth("", *re.split(r"[\s:=]+", value))


def _worth(key: str, *texts: str) -> Iterator[str]:
    """Yield the texts that are distinguishable from ordinary words."""
    for text in texts:
        if len(text) >= 6 if _NAMES_A_CREDENTIAL.search(key) else len(text) >= 8 and not _ORDINARY.fullmatch(text):
            yield text


def credentials(settings: Settings) -> set[str]:
    """Return the secret texts in the settings and the environment, in every form in which messages may contain them."""
    found: set[str] = set()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in OPTIONS:
            found.update(s for k, v in value.items() for s in _secrets(k, v))
        elif field.name in SEALED:
            found.update(re.findall(r"[^\s'\"]{20,}", value))
        elif isinstance(value, str):
            found.update(_secrets("uri", value))
    env = {k: v for k, v in os.environ.items() if _ENVIRONMENT.search(k.upper()) and k not in _NAMES_OF_SECRETS}
    found.update(v for v in env.values() if len(v) >= 8)
    found.update(s for k, v in os.environ.items() if k.upper().endswith(("_URL", "_URI")) for s in _secrets("uri", v))
    return {form for text in found for form in _forms(text)}


def _forms(text: str) -> set[str]:
    """Return a text in the spellings of messages, JSON, Python and addresses."""
    return {
        text,
        *(json.dumps(text, ensure_ascii=a)[1:-1] for a in (True, False)),
        repr(text)[1:-1],
        quote(text),
        unquote(text),
    }


def hide_credentials(settings: Settings) -> None:
    """Hide the settings' credentials in every text that Frazil shows from now on."""
    hide(credentials(settings))
