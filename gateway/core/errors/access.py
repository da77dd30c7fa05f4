"""Who may not, or not now: keys, roles, budgets and limits."""

from gateway.core.errors.base import GatewayError


class Unauthorized(GatewayError):
    """Keys are required, and the request carries no valid one (guarantee §8)."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    advice = (
        "The key is unknown, revoked or expired; for a [signed token](identity.md#programs-at-the-api) see the message."
    )


class Forbidden(GatewayError):
    """The key is valid, but none of its roles allows this (guarantee §13.2)."""

    status = 403
    type = "permission_error"
    code = "permission_denied"
    advice = (
        "Check `roles` in [`auth.keys`](configuration.md#authkeys); a token must name tenant, role or models "
        "([claims](identity.md#settings-of-both)). If a form on the page has expired, reload it."
    )


class IdentityProviderUnavailable(GatewayError):
    """The identity provider or token issuer cannot be reached; keys still work (guarantee §12.17)."""

    status = 503
    code = "identity_provider_unavailable"
    advice = (
        "It is down, or its name differs: `issuer` in [`auth.jwt`, "
        "`auth.oidc`](identity.md#settings-of-both) must match exactly."
    )
    may_be_charged = False


class ModelNotAllowed(Forbidden):
    """The key may ask only certain models, and this is not one of them (guarantee §12.1)."""

    code = "model_not_allowed"
    advice = "Check `models` of the [key](keys.md)."


class RateLimitExceeded(GatewayError):
    """A key, user, model or project exceeds its requests or tokens a minute, or its concurrent requests (guarantee
    §12.4). `Retry-After` says when to retry."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"
    advice = "Wait as `Retry-After` says, or raise [`limits`](configuration.md#limits)."
    may_be_charged = False


class BudgetExceeded(GatewayError):
    """A key, user, model or project has spent its budget (guarantee §12.3). `Retry-After` says when the period ends."""

    status = 429
    type = "insufficient_quota"
    code = "budget_exceeded"
    advice = (
        "Wait as `Retry-After` says, or raise the [budget](keys.md#budgets-and-limits); running requests "
        "reserve a part of it."
    )
    may_be_charged = False


class GuardUnavailable(GatewayError):
    """A guard failed, timed out or rests, and its `on_failure` is `closed` (guarantee §12.9)."""

    status = 503
    code = "guard_unavailable"
    advice = "See the log and the guard's [settings](guards.md#guards)."
    may_be_charged = False


class LimitsUnavailable(GatewayError):
    """Budgets or limits cannot be checked, and `limits.when_down` is `closed`."""

    status = 503
    code = "limits_unavailable"
    advice = "Restore Valkey or the database."
    may_be_charged = False
