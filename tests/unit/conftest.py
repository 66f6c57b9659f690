"""What tests of the new library share: a process has one session, and so one lake."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def lake(tmp_path_factory):
    """The lake of this process."""
    from unit.iceberg_world import Lake

    lake = Lake(tmp_path_factory.mktemp("lake") / "l")
    yield lake
    lake.session.stop()
