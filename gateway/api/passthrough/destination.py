"""Where a relayed call goes: to the deployment of the model that it names, or the default upstream (guarantee §1)."""

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote

from gateway.api.fields import missing
from gateway.api.passthrough.bodies import Body, JsonBody, understood
from gateway.api.passthrough.relay_rules import is_operators, only_stores_files
from gateway.api.passthrough.upload import RelayedUpload
from gateway.api.server.admission import BodySlot
from gateway.api.server.fast_router import Scope
from gateway.api.server.receiving import LARGE_BODY, check_encoding
from gateway.conversations.matching import end_user_of
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest, ModelNotFound, NotRelayed, UnsupportedMediaType
from gateway.core.tasks import offload_if
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.core.types.upstreams import PROTOCOLS
from gateway.upstream.routing.router import ConfiguredRouter

BEFORE_A_MODEL = ("engines", "deployments")
"""Segments of a path behind which some upstreams look for the name of a model."""
MODELS = "models"


@dataclass(frozen=True, slots=True)
class RelayTarget:
    """A call that is to be relayed: `target` is path and query below `/v1/`, `named` whether an operator's key may
    be used for it."""

    scope: Scope
    caller: RequestCaller
    target: str
    named: bool

    @property
    def is_restricted(self) -> bool:
        """Whether its key names the models that it may ask."""
        return self.caller.key is not None and bool(self.caller.key.models)

    @property
    def models_in_address(self) -> list[str]:
        """The models that path and query name."""
        path, _, query = self.target.partition("?")
        segments = path.split("/")
        found = [value for name, value in parse_qsl(query, keep_blank_values=True) if name.strip().lower() == "model"]
        for at, segment in enumerate(map(unquote, segments[:-1])):
            if segment.lower() in BEFORE_A_MODEL:
                found.append(unquote(segments[at + 1]))
            elif segment.lower() == MODELS:
                found.append(unquote("/".join(segments[at + 1 :])))
        return found


@dataclass(frozen=True, slots=True)
class RelayDestination:
    """The upstream, the body for it, and the content type of a body that was written anew. `model`: which it asks, and
    `user`: for whom, as far as that is known."""

    deployment: ModelDeployment
    body: bytes | RelayedUpload | None
    content_type: bytes | None = None
    model: str = ""
    user: str | None = None
    asked: Body | None = None
    """The body as it was understood, where it was read."""


class RelayDestinations:
    """Without a `model_list`, the default upstream. With one, whatever names a model is read: a listed model is served
    where its entry says, any other is refused, or relayed as it came (`upstream.unlisted`)."""

    def __init__(self, router: ConfiguredRouter, settings: Settings) -> None:
        self._router = router
        self._has_entries = bool(settings.model_list)
        limits = settings.limits
        self._limits_named = bool(limits.models or limits.users or limits.each_user.is_set)
        self._listed_only = self._has_entries and settings.upstream.unlisted == "refuse"

    def default(self, caller: RequestCaller, *, named: bool) -> ModelDeployment:
        """The default upstream. Raises NotRelayed: not for this caller, or not for this path."""
        try:
            deployment = self._router.default("", caller)
        except ModelNotFound:
            raise NotRelayed("This path is not relayed: the default upstream has no key.") from None
        if deployment.operator_key and not named:
            raise NotRelayed(
                "This path is not relayed with the gateway's own key; server.relay could name it, "
                "and `files.serve: on` keeps files here."
            )
        return deployment

    async def of(self, call: RelayTarget, upload: RelayedUpload, place: BodySlot, *, limited: bool) -> RelayDestination:
        """Where a call goes, with which body. `limited`: what it may cost is to be told by its body; `place`: what a
        body that is read holds of the budget for large ones.
        Raises ModelNotFound: the model is not served here; NotRelayed: the call is not for this key, or the model's
        provider has no such path; InvalidRequest: the body, or its model, cannot be read; Overloaded: the body is
        large, and there is no room for it."""
        if self._listed_only:
            self._check_address(call)
        for name in call.models_in_address if call.is_restricted else ():
            call.caller.check_model(name)
        if not upload.present:
            return self._without_model(call, None)
        if not (limited or self._reads(call)):
            return RelayDestination(self.default(call.caller, named=call.named), upload)
        if limited or self._is_strict(call):
            check_encoding(call.scope)
        raw = await upload.read(place)
        body = await offload_if(len(raw) > LARGE_BODY, understood, raw, call.scope["headers"])
        model = self._model(body, strict=self._is_strict(call))
        if isinstance(body, JsonBody):
            call.caller.check_models_of(body.fields)
        if model is None:
            found = self._without_model(call, raw)
        elif not self._router.lists(model) and not self._listed_only:
            found = await self._unlisted(call, model, body, raw)
        else:
            found = await self._listed(call, model, body, len(raw))
        fields = body.fields if isinstance(body, JsonBody) else {}
        return replace(found, asked=body, user=end_user_of(fields, call.caller))

    def _reads(self, call: RelayTarget) -> bool:
        """Whether a body is read before it goes up. Where unlisted models are relayed, only what an operator's key may
        be used for."""
        if self._is_strict(call):
            return not only_stores_files(call.scope["method"], call.target.partition("?")[0])
        return (self._has_entries or self._limits_named) and call.named and call.scope["method"] == "POST"

    def _is_strict(self, call: RelayTarget) -> bool:
        """Whether nothing may go up whose model is not known."""
        return self._listed_only or call.is_restricted

    def _model(self, body: Body | None, *, strict: bool) -> str | None:
        if not strict:
            try:
                return body.model if body else None
            except InvalidRequest:  # for the upstream to refuse
                return None
        if body is None:
            text = "The request body must be a JSON object in UTF-8, or a multipart form."
            raise UnsupportedMediaType(text, param="content-type")
        return body.model

    def _without_model(self, call: RelayTarget, raw: bytes | None) -> RelayDestination:
        path = call.target.partition("?")[0]
        if self._is_strict(call) and is_operators(call.scope["method"], path):
            raise missing("model")  # the upstream would choose one
        return RelayDestination(self.default(call.caller, named=call.named), raw)

    async def _unlisted(self, call: RelayTarget, model: str, body: Body | None, raw: bytes) -> RelayDestination:
        """As it came; with a key that names its models as it was understood."""
        deployment = self.default(call.caller, named=call.named)
        if body is None or not call.is_restricted:
            return RelayDestination(deployment, raw, model=model)
        call.caller.check_model(model)
        written, kind = await offload_if(len(raw) > LARGE_BODY, body.written, {}, model)
        return RelayDestination(deployment, written, kind, model)

    async def _listed(self, call: RelayTarget, model: str, body: Body | None, size: int) -> RelayDestination:
        deployment = self._router.deployment(model, call.caller)
        call.caller.check_model(model)
        call.scope["gateway"]["model"] = model
        if not PROTOCOLS[deployment.protocol].is_openais:
            raise NotRelayed(f"The provider of {model!r} does not speak OpenAI's protocol; it serves chats alone.")
        if deployment.operator_key and not call.named:
            raise NotRelayed(
                "This path is not relayed with the gateway's own key; server.relay could name it, "
                "and `files.serve: on` keeps files here."
            )
        if any(name != deployment.provider_model for name in call.models_in_address):
            raise NotRelayed("A model is named in the body alone.")
        if body is None:
            raise NotRelayed("A model is named in the body.")
        written, kind = await offload_if(
            size > LARGE_BODY, body.written, deployment.parameters, deployment.provider_model
        )
        return RelayDestination(deployment, written, kind, model)

    def _check_address(self, call: RelayTarget) -> None:
        """Raises ModelNotFound: path or query name a model that is not served here; NotRelayed: they name one that is
        served elsewhere than at the default upstream, or by another name there."""
        for name in call.models_in_address:
            found = self._router.deployment(name, call.caller)
            default = self.default(call.caller, named=call.named)
            there = (default.api_base, default.api_key, name)
            if (found.api_base, found.api_key, found.provider_model) != there or not PROTOCOLS[
                found.protocol
            ].is_openais:
                raise NotRelayed("This path is not relayed: its model is not served at the default upstream.")
