"""Entries of `model_list` that have one name, as a group of deployments (guarantee §12.5)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.litellm_names import ROUTER_PARAMETERS
from gateway.core.config.model_list import ModelEntry
from gateway.core.ids import content_digest
from gateway.upstream.routing.providers import named_base, unsupported

MAX_REMEMBERED = 1000
"""Models that are remembered: names come from clients where there are patterns."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An entry in its group. `id` names it on all replicas alike, whatever else stands in `model_list`; an entry that
    stands there again under another name has the same, so that its health and its limits are one."""

    id: str
    entry: ModelEntry


Group = tuple[GroupMember, ...]
"""In the order of `model_list`; without those that cannot be served, where any can be."""


class ModelGroups:
    """The groups of a configuration, by the names of models and by patterns (`*`, `openai/*`: LiteLLM's wildcards)."""

    def __init__(self, entries: Sequence[ModelEntry]) -> None:
        found: dict[str, list[GroupMember]] = {}
        members = list(_members(entries))
        for member in members:
            found.setdefault(member.entry.model_name, []).append(member)
        groups = {name: _told_apart(_served(members)) for name, members in found.items()}
        apart = {id(each.entry): each for group in groups.values() for each in group}
        self.members = tuple(apart.get(id(each.entry), each) for each in members)
        """All entries in their order, also those that cannot be served."""
        self._by_name = {name: group for name, group in groups.items() if "*" not in name}
        self._by_pattern = [group for name, group in groups.items() if "*" in name]
        self._starred: BoundedCache[str, Group] = BoundedCache(MAX_REMEMBERED)

    @property
    def names(self) -> list[str]:
        """Configured model names, in their order; patterns are none."""
        return list(self._by_name)

    def find(self, model: str) -> Group:
        """The group of that name, else the first whose pattern matches, with what the star matched in place of the star
        in the served models; empty if there is none."""
        group = self._by_name.get(model) or self._starred.peek(model)
        if group is not None:
            return group
        for pattern in self._by_pattern:
            star = pattern[0].entry.star(model)
            if star is not None:
                group = tuple(GroupMember(each.id, _starred(each.entry, star)) for each in pattern)
                return self._starred.put(model, group)
        return ()


def _starred(entry: ModelEntry, star: str) -> ModelEntry:
    served = entry.litellm_params.model.replace("*", star)
    return entry.model_copy(update={"litellm_params": entry.litellm_params.model_copy(update={"model": served})})


def _served(members: list[GroupMember]) -> list[GroupMember]:
    """Those that can be served; the first alone where none can, which says why."""
    return [each for each in members if unsupported(each.entry) is None] or members[:1]


def _members(entries: Iterable[ModelEntry]) -> Iterable[GroupMember]:
    """Entries with their ids: LiteLLM's `model_info.id`, else the served model and its host, numbered where other
    parameters (keys, regions) tell them apart."""
    known: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for entry in entries:
        given = (entry.model_info.model_extra or {}).get("id")
        if isinstance(given, str) and given:
            yield GroupMember(given, entry)
            continue
        what = _identity(entry)
        if what not in known:
            name = _place(entry)
            taken[name] += 1
            known[what] = name if taken[name] == 1 else f"{name}#{taken[name]}"
        yield GroupMember(known[what], entry)


def _told_apart(members: list[GroupMember]) -> Group:
    """Two of one group are two, also where nothing tells them apart."""
    ids: set[str] = set()
    found = []
    for member in members:
        name, number = member.id, 2
        while name in ids:
            name, number = f"{member.id}/{number}", number + 1
        ids.add(name)
        found.append(GroupMember(name, member.entry))
    return tuple(found)


def _place(entry: ModelEntry) -> str:
    host = named_base(entry).partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"{entry.litellm_params.model}@{host}" if host else entry.litellm_params.model


def _identity(entry: ModelEntry) -> str:
    """A digest of what calls of an entry are made with."""
    params = entry.litellm_params
    said = {name: value for name, value in params.model_dump().items() if name not in ROUTER_PARAMETERS}
    said["api_key"] = params.api_key.get_secret_value() if params.api_key else None
    return content_digest(repr(sorted(said.items())))
