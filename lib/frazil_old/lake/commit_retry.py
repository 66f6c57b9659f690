"""Repeats commits and other calls to a catalog: which failed ones may be made again, and how often.

`until_committed` is the only loop that repeats a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_KNOWN_FAILURES = ("CommitFailedException", "ValidationException", "IllegalArgumentException", "AlreadyExistsException")
_NO_ANSWER = (
    "CommitStateUnknownException", "ConnectException", "ConnectTimeoutException", "ConnectionClosedException", "ConnectionRequestTimeoutException",
    "HttpHostConnectException", "NoHttpResponseException", "RESTException", "ServiceFailureException", "ServiceUnavailableException",
    "SocketException", "SocketTimeoutException",
)  # fmt: skip
"""Iceberg's exceptions for a catalog that did not answer, or cannot at present."""
PAUSES_S = (0.2, 1.0, 3.0)
"""Seconds to wait before `steady` makes a call again."""
ATTEMPTS, LONGEST_PAUSE_S = 5, 2.0


class MainMovedError(Exception):
    """Main, or the position, is no longer what a commit was made for; nothing was committed."""


def until_committed(
    attempt: Callable[[], T],
    happened: Callable[[], T | None] = lambda: None,
    failed: Callable[[Exception], None] = lambda error: None,
    attempts: int = ATTEMPTS,
) -> T:
    """Call `attempt` until it commits, and return its result; nothing is committed twice.

    After any error `happened` looks for the commit in the table, and returns the result if it is there. If it is not,
    `failed` undoes what the attempt left, prepares the next one, or raises a better error. The attempt is repeated after
    a known failure, and if the catalog did not answer. Any other error is raised.

    A catalog that did not answer may still make the commit later. So `attempt` must then be refused, or change nothing.
    The first repetition does not wait: the commit that was faster is done.
    """
    for number in range(1, attempts + 1):
        try:
            return attempt()
        except Exception as error:
            if (done := happened()) is not None:
                return done
            failed(error)
            if number == attempts or not may_try_again(error):
                raise
        time.sleep(min(0.1 * (2**number - 2), LONGEST_PAUSE_S))
    raise AssertionError("unreachable")


def steady(call: Callable[[], T]) -> T:
    """Make an idempotent call; repeat it after pauses if the catalog does not answer, unless an inner call already did so."""
    for pause in (*PAUSES_S, None):
        try:
            return call()
        except Exception as error:
            if pause is None or not is_no_answer(error) or hasattr(error, "frazil_tried"):
                error.frazil_tried = True
                raise
            time.sleep(pause)
    raise AssertionError("unreachable")


def may_try_again(error: Exception) -> bool:
    """Return whether a commit that is not in the table may be made again: it certainly failed, or nobody answered."""
    return is_known_failure(error) or is_no_answer(error)


def is_known_failure(error: Exception) -> bool:
    """Return whether a failed commit certainly did not happen; for any other error the outcome is unknown."""
    return isinstance(error, MainMovedError) or failure(error) in _KNOWN_FAILURES


def is_no_answer(error: Exception) -> bool:
    """Return whether a catalog did not answer, so that the outcome of a commit is unknown."""
    return any(java.getClass().getSimpleName() in _NO_ANSWER for java in causes(error))


def failure(error: Exception) -> str:
    """Return the simple class name of the Java exception in a py4j or Spark error; a known one if there is any."""
    names = [java.getClass().getSimpleName() for java in causes(error)]
    for known in (*_KNOWN_FAILURES, "CommitStateUnknownException"):
        if known in names:
            return known
    return names[0] if names else type(error).__name__


def causes(error: Exception) -> list[Any]:
    """Return the Java exceptions in a py4j or Spark error, outermost first."""
    java, found = getattr(error, "java_exception", None) or getattr(error, "_origin", None), []
    while java is not None and len(found) < 20:
        found.append(java)
        java = java.getCause()
    return found
