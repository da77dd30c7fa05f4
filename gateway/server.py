"""Runs the application on uvicorn."""

import ipaddress
import resource

import uvicorn

from gateway import __version__, logs
from gateway.app import create_app
from gateway.http.edge import Draining
from gateway.http.protocol import limited
from gateway.settings import Settings
from gateway.shutdown import GracefulServer, ignore_reraised_signal

MOST_FILES = 65_536
log = logs.get_logger("gateway.server")


def serve(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT; running requests then get `server.shutdown_grace` seconds. Returns 0."""
    logs.configure(settings.server.log_level)
    for warning in settings.warnings:
        log.warning("configuration", warning=warning)
    host = bind_address(settings)
    files = _raise_file_limit()
    draining = Draining()
    config = uvicorn.Config(
        create_app(settings, draining),
        host=host,
        port=settings.server.port,
        http=limited(settings.server, max_connections=max(16, files // 2 - 32)),
        ws="none",
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=75,
    )
    server = GracefulServer(config, draining, settings.server.shutdown_grace, 5.0 + 4 * settings.storage.timeout)
    log.info("serving", version=__version__, host=host, port=settings.server.port, models=len(settings.model_list))
    ignore_reraised_signal()
    try:
        server.run()
    except KeyboardInterrupt:
        return 0
    return 0 if server.started else 1


def _raise_file_limit() -> int:
    """As many files as the system grants: the usual soft limit of 1,024 is for programs that use `select`.

    Returns the limit. Half of it is for clients; the other half is kept for upstreams and the storage, so that a
    flood of connections cannot take from the requests that are under way what they need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


def bind_address(settings: Settings) -> str:
    """The address to listen on: loopback only where anyone could spend the operator's money (contract §8)."""
    host = settings.server.host
    exposed = settings.has_operator_key() and not settings.auth.keys and settings.auth.mode != "open"
    if exposed and not _is_loopback(host):
        log.warning("bound_to_loopback", asked_for=host, reason="an operator's key is configured, auth.keys are not")
        return "127.0.0.1"
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
