"""The state folder: landed messages and quarantined rows lie in it, outside of every table's location."""

from __future__ import annotations

from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from frazil.errors import FrazilError
from frazil.settings.settings_model import Settings


class StateFolderError(FrazilError, code="state-folder"):
    """The state folder is not named, or its store lets objects be written twice. Name another one: `state: s3://bucket/folder`."""


def state_address(settings: Settings) -> str:
    """Return the address of the state folder: the setting `state`, else `<warehouse>/_frazil`."""
    if settings.state:
        return settings.place("state")
    warehouse = settings.catalog_properties().get("warehouse", "")
    if "://" not in warehouse and not warehouse.startswith("/"):  # an ARN, as of S3 Tables, or a name
        problem = f"the catalog owns its storage ('{warehouse}'), so the state folder needs a place of its own"
        raise StateFolderError(problem, "write state: s3://bucket/folder into the environment file")
    return f"{warehouse.rstrip('/')}/_frazil"


def require_create_only(store: ObjectStore) -> None:
    """Raise StateFolderError unless a store can be written, and refuses to create an object that is there."""
    name = f"probe-{uuid4().hex}"
    try:
        obstore.put(store, name, b"1", mode="create")
        try:
            obstore.put(store, name, b"2", mode="create")
        except AlreadyExistsError:
            return obstore.delete(store, name)
        obstore.delete(store, name)
    except (BaseError, OSError) as error:
        raise StateFolderError(f"the state folder cannot be used: {error}", "check its address and rights") from error
    raise StateFolderError("the state folder's store lets an object be written twice", "use one with If-None-Match")
