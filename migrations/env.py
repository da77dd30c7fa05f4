"""Runs migrations on the connection and in the transaction that `gateway migrate` opened; needs no alembic.ini."""

from alembic import context

from gateway.storage.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
