"""Endpoint settings and table mappings: what the JSON says, and refusals that name setting and cure."""

import pytest

from frazil_old.config.settings import SetupSettings
from frazil_old.dms.source_errors import EndpointError
from frazil_old.flows import setup
from helpers import I, World

# --- endpoint settings and mappings


# --- settings: every one of them, and those that make reading impossible


# --- documents as AWS prints them


# --- mappings


# --- what will hurt


# --- the setup flow


def test_setup_refuses_what_a_file_contradicts(tmp_path):
    world = World(tmp_path, "w", {}).table("t").changes("t", I(2, "b"))
    world.s3["AddColumnName"] = True
    with pytest.raises(EndpointError, match="AddColumnName is true, but .*20240101-100000000.csv: first line is data"):
        setup.check_source(world.book(SetupSettings))
