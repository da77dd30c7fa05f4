"""Who may not, or not now: keys, roles, budgets and limits."""

from gateway.core.errors.base import GatewayError


class Unauthorized(GatewayError):
    """Keys are configured and the request carries none of them (guarantee §8)."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    advice = (
        "Unknown, revoked or expired; of a [signed token](identity.md#programs-at-the-api) the message says what fails."
    )


class Forbidden(GatewayError):
    """The key is known, and has no role that allows this (guarantee §13.2)."""

    status = 403
    type = "permission_error"
    code = "permission_denied"
    advice = (
        "`roles` in [`auth.keys`](configuration.md#authkeys); a token must name tenant, role or models "
        "([claims](identity.md#settings-of-both)); a form of the page that is too old: open it again."
    )


class IdentityProviderUnavailable(GatewayError):
    """Whoever vouches for people or signs tokens cannot be asked; keys count all the same (guarantee §12.17)."""

    status = 503
    code = "identity_provider_unavailable"
    advice = (
        "It is down, or names itself otherwise: `issuer` in [`auth.jwt`, "
        "`auth.oidc`](identity.md#settings-of-both) exactly as it writes it."
    )
    may_be_charged = False


class ModelNotAllowed(Forbidden):
    """The key names the models that it may ask, and this is none of them (guarantee §12.1)."""

    code = "model_not_allowed"
    advice = "`models` of the [key](keys.md)."


class RateLimitExceeded(GatewayError):
    """More requests or tokens than a key, user, model or project may ask for in a minute, or at once (guarantee §12.4).
    `retry-after` says when there is room again."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"
    advice = "Wait as `Retry-After` says, or raise [`limits`](configuration.md#limits)."
    may_be_charged = False


class BudgetExceeded(GatewayError):
    """More than a key, user, model or project may spend (guarantee §12.3). `retry-after` says when the period ends."""

    status = 429
    type = "insufficient_quota"
    code = "budget_exceeded"
    advice = (
        "Wait as `Retry-After` says, or raise the [budget](keys.md#budgets-and-limits); running requests "
        "hold a part of it."
    )
    may_be_charged = False


class GuardUnavailable(GatewayError):
    """A guard fails, is late or rests, and its `on_failure` is `closed` (guarantee §12.9)."""

    status = 503
    code = "guard_unavailable"
    advice = "See the log; its [settings](guards.md#guards)."
    may_be_charged = False


class LimitsUnavailable(GatewayError):
    """Nobody can tell what is left of a budget or limit, and `limits.when_down` is `closed`."""

    status = 503
    code = "limits_unavailable"
    advice = "Bring Valkey or the database back."
    may_be_charged = False
