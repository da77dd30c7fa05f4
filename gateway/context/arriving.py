"""Shapes tool results as they arrive, once, before a model is first sent them (guarantee §4 I8): they stand in that
form until something has to leave (I7)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property

from gateway.billing.economy.kept_results import changed_files, named_files, tool_uses
from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.artifacts.shaping import ShapedText, StandingText, of_failed_run, shaped
from gateway.context.assembly.block import DELIMITER, FORGED_LABEL, NO_MARKS, as_data, one_line
from gateway.context.build import FinalFit, MeasuredInputs
from gateway.context.window.fitting import WindowFitter
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.economy import AUTO
from gateway.core.types.tool_steps import text_of
from gateway.core.types.window import ArtifactRendering, PackedWindow

ARGUMENT_CHARS = 80
"""Characters of a call's arguments by which a reference names its result."""
STANDING_CHARS = 4_000_000
"""Characters of results that a new one may refer to, the latest."""
READS = re.compile(r"read|view|open|file", re.IGNORECASE)
"""How tools are named that give a file as it is."""
RUNS = re.compile(r"cat|search|grep|edit|write|patch|shell|bash|exec|command|terminal", re.IGNORECASE)
"""How others are named whose results may hold one."""


def shaped_on_arrival(measured: MeasuredInputs, final: FinalFit) -> FinalFit:
    """The window with its new results in their shorter forms, where `context.economy` is `auto`."""
    options, note = measured.inputs.request.options, final.economy
    if options.economy != AUTO or note is None or options.whole or options.what_if is not None:
        return final
    if measured.limits.tokens is None:
        return final
    found = _Arrival(measured, final.fitted)
    renderings = dict(found.renderings())
    if not renderings:
        return final
    fitted, selection = final.fitted, final.fitted.selection
    selection = replace(selection, renderings=selection.renderings | renderings, refers=found.refers)
    fitting = WindowFitter(measured.material, measured.limits, measured.counting, measured.tools)
    made = fitting.fitted(selection, exact=fitted.exact)
    kept = replace(made, new_pass=fitted.new_pass, moved=fitted.moved, guarded=fitted.guarded)
    return replace(final, fitted=kept, economy=replace(note, shaped=fitted.tokens - made.tokens))


class _Arrival:
    """The results that this request brings, beside those that stand in its window. `refers`: what the shaped ones
    refer to."""

    def __init__(self, measured: MeasuredInputs, fitted: PackedWindow) -> None:
        self._measured, self._material, self._fitted = measured, measured.material, fitted
        self._count = measured.counting.text
        self.refers: dict[int, frozenset[int]] = {}

    def renderings(self) -> Iterator[tuple[str, ArtifactRendering]]:
        """The shorter forms, by the ids of the results."""
        sent = dict(zip(self._fitted.forwarded.indexes, self._fitted.forwarded.messages, strict=True))
        here = [a for a in self._results() if a.place.message in sent]
        new = [a for a in here if self._is_new(a)]
        if not new:
            return
        standing: list[StandingText] = []
        chars = 0
        for artifact in reversed(here[: here.index(new[0])]):
            if chars > STANDING_CHARS or artifact.artifact_id in self._fitted.selection.renderings:
                continue
            if self._material.stands_reduced(artifact):
                continue
            index = artifact.place.message or 0
            is_as_sent = self._material.messages[index].rendered is None
            text = artifact.content if is_as_sent else text_of(sent[index].get("content"))
            chars += len(text)
            standing.append(StandingText(index, _name_of(artifact), text))
        standing.reverse()
        for artifact in new:
            found = self._shaped(artifact, standing)
            text = artifact.content if found is None else found.text
            index = artifact.place.message or 0
            standing.append(StandingText(index, _name_of(artifact), text))
            if found is not None:
                if found.targets:
                    self.refers[index] = found.targets
                yield artifact.artifact_id, ArtifactRendering(artifact, ProcessingStrategy.SHAPE, found.text)
            elif (cut := self._cut(artifact)) is not None:
                standing.pop()
                yield artifact.artifact_id, cut

    def _results(self) -> list[Artifact]:
        """In the order of their messages."""
        return [each for each in self._material.placed if each.artifact_type is ArtifactType.TOOL_RESULT]

    def _is_new(self, artifact: Artifact) -> bool:
        """Whether it came behind the last answer, and nothing was decided on it."""
        index = artifact.place.message or 0
        if index < max(self._first_new, self._measured.inputs.history.stored):
            return False
        if artifact.pinned or artifact.documents or artifact.artifact_id in self._fitted.selection.renderings:
            return False
        message = self._material.messages[index]
        options = self._measured.inputs.request.options
        is_untouched = any(fnmatchcase(artifact.title or "", each) for each in options.untouched_tools)
        return message.rendered is None and not is_untouched

    @cached_property
    def _first_new(self) -> int:
        """Index behind the last answer: what stands before it went up with an earlier request, whoever sent that."""
        messages = self._material.messages
        return next((i + 1 for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), 0)

    @cached_property
    def _edited(self) -> set[str]:
        """The files that were changed in the conversation, with this step's."""
        return changed_files(tool_uses(self._material))

    def _shaped(self, artifact: Artifact, standing: list[StandingText]) -> ShapedText | None:
        text, tool = artifact.content, artifact.title or ""
        files, is_read = named_files(artifact.arguments), READS.search(tool) is not None
        may_be_quoted = is_read or bool(files) or RUNS.search(tool) is not None
        shorter = text if may_be_quoted else compact(text)
        found = shaped(shorter, standing, is_plain=is_read)
        if found is None and shorter != text:
            found = ShapedText(shorter)
        if found is None or (files and not files.isdisjoint(self._edited)):
            return None  # what is being edited has to be quoted as it was read last
        if FORGED_LABEL.search(text) is not None or DELIMITER.search(text) is not None:
            return None  # whose words these are could not be told any more
        return found if self._count(found.text) < self._count(text) else None

    def _cut(self, artifact: Artifact) -> ArtifactRendering | None:
        """A failed run that said far too much, as an extract."""
        spans = of_failed_run(artifact.content)
        if not spans or not named_files(artifact.arguments).isdisjoint(self._edited):
            return None
        return ArtifactRendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=spans, headings=("",) * len(spans))


def _name_of(artifact: Artifact) -> str:
    """As a reference calls a result: its step and tool, and how that was called."""
    asked = artifact.arguments[:ARGUMENT_CHARS] + ("…" if len(artifact.arguments) > ARGUMENT_CHARS else "")
    return as_data(one_line(f"{artifact.source} {asked}".translate(NO_MARKS)))
