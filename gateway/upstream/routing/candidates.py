"""The deployments that one request may be asked at (`Candidates` of `models/routing.py`; guarantee §12.5)."""

import random
from collections.abc import Callable, Mapping, Sequence

from gateway.errors import GatewayError
from gateway.models.exchange import Deployment
from gateway.models.routing import Attempt, RouteHint
from gateway.upstream.routing.choice import State, Strategy, ranked
from gateway.upstream.routing.groups import Group
from gateway.upstream.routing.health import Health
from gateway.upstream.routing.stickiness import Placements, draws_by_chance, draws_of


class Alone:
    """The one deployment of a model. It is asked whatever its health says: nothing else is there. It holds nothing of a
    request, so that requests share it."""

    __slots__ = ("_health", "began", "first")

    several = False

    def __init__(self, first: Deployment, health: Health) -> None:
        self.first = first
        self._health = health
        self.began = health.began

    @property
    def exhausted(self) -> bool:
        """Whether it rests; its limits are its upstream's to keep."""
        return self._health.rests(self.first.id)

    def next(self, after: Deployment, error: GatewayError) -> Deployment | None:
        """None."""
        return None

    def rests(self, deployment: Deployment) -> bool:
        """Whether its health says so."""
        return self._health.rests(deployment.id)

    def remember(self, completion_id: str, deployment: Deployment) -> None:
        """Nothing: there is no choice."""


class Several:
    """The deployments of a group, ranked anew for each try: what the last one has shown counts for the next."""

    several = True

    def __init__(
        self,
        deployments: Mapping[str, Deployment],
        rank: Callable[[Sequence[str]], list[State]],
        health: Health,
        placements: Placements | None,
    ) -> None:
        """
        Args:
            rank: the states of the deployments of these ids, best first.
            placements: where completions are remembered; None: nobody comes back to them.
        """
        self._left = dict(deployments)
        self._rank = rank
        self._health = health
        self._placements = placements
        best = rank(list(self._left))[0]
        self.exhausted = best.tier > 0
        self.first = self._left.pop(best.id)

    def next(self, after: Deployment, error: GatewayError) -> Deployment | None:
        """The best that was not asked yet; None if all were."""
        if not self._left:
            return None
        return self._left.pop(self._rank(list(self._left))[0].id)

    def rests(self, deployment: Deployment) -> bool:
        """Whether its health or its limits say so."""
        return self._rank([deployment.id])[0].tier > 0

    def began(self, deployment: Deployment, tokens: int = 0) -> Attempt:
        """A try begins."""
        return self._health.began(deployment, tokens)

    def remember(self, completion_id: str, deployment: Deployment) -> None:
        """A request that goes on behind that completion is asked there."""
        if self._placements is not None:
            self._placements.put(completion_id, deployment.id)


class Chooser:
    """Chooses for each request among the deployments of its model."""

    def __init__(self, strategy: Strategy, health: Health, placements: Placements, chance: random.Random) -> None:
        self._strategy = strategy
        self._health = health
        self._placements = placements
        self._by_chance = draws_by_chance(chance)

    def choose(self, group: Group, deployments: Mapping[str, Deployment], hint: RouteHint | None) -> Several:
        """
        Args:
            deployments: those of the group that are for this caller, by their ids.
            hint: what tells the conversation, if conversations stay where they are.
        """
        key, placed, draw = None, None, self._by_chance
        if hint is not None:
            key = hint.key()
            name = hint.behind if key is None else key
            placed = None if name is None else self._placements.get(name)
            draw = draw if key is None else draws_of(key)
        members = {member.id: member for member in group}

        def rank(ids: Sequence[str]) -> list[State]:
            states = [self._health.state(members[each]) for each in ids]
            return ranked(states, self._strategy, draw, placed)

        found = Several(deployments, rank, self._health, None if hint is None else self._placements)
        if key is not None and self._strategy != "weighted":  # which depends on the moment
            self._placements.put(key, found.first.id)
        return found
