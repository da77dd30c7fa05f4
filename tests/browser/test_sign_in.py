"""The login by an identity provider in a real browser, which comes back from another site (guarantee §12.18)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.watched import NARROW, WIDE, watched
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    """At 127.0.0.1, which to a browser is another site than `localhost`."""
    with OidcProvider() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with MockUpstream() as upstream:
        factory = GatewayFactory(upstream, tmp_path_factory.mktemp("sign-in"))
        made = factory(start=False)
        oidc = {
            "issuer": provider.issuer,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_url": f"http://localhost:{made.port}/ui/login/callback",
            "label": "Acme",
            "claims": {"tenant": "org", "roles": "groups"},
            "roles": {"staff": "viewer"},
        }
        made.config = {**(made.config or {}), "auth": {"mode": "keys", "oidc": oidc}}
        made.start()
        yield made
        factory.close()


@pytest.mark.parametrize("shows_a_page", [False, True], ids=["at once", "by a page"])
def test_a_person_logs_in_and_out(
    browser: "Browser", gateway: GatewayProcess, provider: OidcProvider, shows_a_page: bool
) -> None:
    provider.shows_a_page = shows_a_page
    url = f"http://localhost:{gateway.port}"
    page = watched(browser, url)
    try:
        assert page.go("/ui/health") == 200
        page.page.get_by_role("link", name="Log in with Acme").click()
        if shows_a_page:
            page.page.get_by_role("link", name="Go on as Ann").click()
        page.page.wait_for_url(f"{url}/ui/health")
        page.page.get_by_role("heading", name="Health").wait_for()
        page.page.get_by_text("Ann Example").click()
        page.page.get_by_role("button", name="Log out", exact=True).click()
        page.page.wait_for_url(f"{url}/ui/login")
        page.go("/ui/health")
        assert "/ui/login" in page.page.url
    finally:
        page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_login_fits_and_can_be_used_by_all(
    browser: "Browser", gateway: GatewayProcess, size: tuple[int, int], dark: bool
) -> None:
    page = watched(browser, f"http://localhost:{gateway.port}", size=size, dark=dark)
    try:
        page.go("/ui/login")
        page.shot(f"sign-in{'-narrow' if size == NARROW else ''}{'-dark' if dark else ''}")
        assert not page.overflowing()
        assert not page.findings()
    finally:
        page.close()
