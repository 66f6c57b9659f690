"""The loop that repeats commits: a commit that happened is found, one that certainly failed is made again, any other error is raised."""

import pytest

from frazil_old.lake import commit_retry
from frazil_old.lake.commit_retry import MainMovedError, until_committed


class Java:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, cause=None):
        self.name, self.cause = name, cause

    def getClass(self):
        return self

    def getSimpleName(self):
        return self.name

    def getCause(self):
        return self.cause


def java_error(*names: str) -> Exception:
    """An error of py4j; the first name is the outermost exception's."""
    java = None
    for name in reversed(names):
        java = Java(name, java)
    error = RuntimeError("an error occurred")
    error.java_exception = java
    return error


LOST = [MainMovedError("t"), java_error("SparkException", "CommitFailedException"), java_error("ValidationException")]
UNANSWERED = [java_error("CommitStateUnknownException"), java_error("RuntimeException", "SocketTimeoutException")]


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(commit_retry.time, "sleep", found.append)
    return found


class Catalog:
    """Raises the errors one after the other, then commits; `commits_before` says that the first commit happens nevertheless."""

    def __init__(self, *errors: Exception, commits_before: bool = False):
        self.errors, self.commits_before = list(errors), commits_before
        self.calls, self.committed, self.undone = 0, 0, []

    def attempt(self) -> str:
        self.calls += 1
        if self.errors:
            self.committed += self.commits_before
            raise self.errors.pop(0)
        self.committed += 1
        return "committed"

    def happened(self) -> str | None:
        return "found" if self.committed else None

    def run(self, **more) -> str:
        return until_committed(self.attempt, self.happened, self.undone.append, **more)


def test_a_commit_without_an_error_is_made_once_and_not_looked_for(pauses):
    catalog = Catalog()
    assert (catalog.run(), catalog.calls, catalog.undone, pauses) == ("committed", 1, [], [])


@pytest.mark.parametrize("error", [*LOST, *UNANSWERED], ids=str)
def test_a_lost_race_or_an_unanswered_commit_that_is_not_there_is_made_again(pauses, error):
    catalog = Catalog(error, error)
    assert (catalog.run(), catalog.calls, catalog.committed) == ("committed", 3, 1)
    assert catalog.undone == [error, error]
    assert pauses == [0.0, pytest.approx(0.2)], "the first repetition does not wait"


@pytest.mark.parametrize("error", [*LOST, *UNANSWERED, RuntimeError("reset"), java_error("IOException")], ids=str)
def test_a_commit_that_happened_is_found_after_any_error_and_neither_repeated_nor_undone(pauses, error):
    catalog = Catalog(error, commits_before=True)
    assert (catalog.run(), catalog.calls, catalog.committed, catalog.undone) == ("found", 1, 1, [])


@pytest.mark.parametrize("error", [RuntimeError("no route"), java_error("IOException")], ids=str)
def test_an_error_of_unknown_outcome_is_raised_and_the_commit_not_repeated(pauses, error):
    catalog = Catalog(error)
    with pytest.raises(RuntimeError) as raised:
        catalog.run()
    assert (raised.value, catalog.calls, catalog.undone, pauses) == (error, 1, [error], [])


@pytest.mark.parametrize("times", [1, 5, 10])
def test_the_last_error_is_raised_after_the_given_number_of_attempts_and_pauses_are_bounded(pauses, times):
    catalog = Catalog(*[MainMovedError(str(n)) for n in range(20)])
    with pytest.raises(MainMovedError, match=str(times - 1)):
        catalog.run(attempts=times)
    assert (catalog.calls, len(catalog.undone), len(pauses)) == (times, times, times - 1)
    assert max(pauses, default=0) <= commit_retry.LONGEST_PAUSE_S


def test_an_error_of_the_clean_up_ends_the_attempts(pauses):
    def refused(error):
        raise PermissionError from error

    catalog = Catalog(MainMovedError("t"))
    with pytest.raises(PermissionError):
        until_committed(catalog.attempt, failed=refused)
    assert catalog.calls == 1


def test_a_stop_is_never_held_up_by_another_attempt(pauses):
    catalog = Catalog(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        catalog.run()
    assert (catalog.calls, catalog.undone) == (1, [])
