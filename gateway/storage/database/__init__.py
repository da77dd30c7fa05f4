"""Schema, engines, transactions."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage.database import finish, migrate, sqlite
    from gateway.storage.database.migrate import SchemaState, shown
    from gateway.storage.database.schema import REVISION
    from gateway.storage.database.sqlite import DatabaseTransactions
    from gateway.storage.database.transactions import CommitUnknown, DatabaseClient, reads
else:
    __getattr__ = lazy_face(__name__)
