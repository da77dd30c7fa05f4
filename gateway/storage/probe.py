"""What `gateway check` asks of the storage and of the cache."""

import re

import sqlalchemy as sa

from gateway.storage.engine import parse_url

SECRET = re.compile(r"(?<=[?&])(password|passfile|sslpassword)=[^&]*")


def shown(url: str) -> str:
    """The address of a database without its password, wherever in it that stands.

    Raises:
        ValueError: it is none.
    """
    return SECRET.sub(r"\1=***", parse_url(url).render_as_string(hide_password=True))


def revision_of(connection: sa.Connection) -> str | None:
    """The schema's revision, None in an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return version


async def reach_cache(url: str, timeout_seconds: float) -> str | None:
    """None if the cache answers, else why not."""
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    client = Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        return f"cannot be reached ({type(error).__name__})"
    finally:
        await client.aclose()
    return None
