"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.model import DraftModel
from edge_sdk.vocab import Alignment
from export.check.expected import Acceptance
from export.check.parity import Parity
from export.check.recommendation import Recommendation
from export.check.speed import Speed
from export.target_vocabulary import TargetVocabulary


@dataclass(frozen=True, slots=True)
class Folder:
    """What the manifest says, and how large it is.

    Attributes:
        size_mb: all files, in 10^6 bytes.
        weights_mb: of these, the graph and its weights.
    """

    name: str
    source: str
    architecture: str
    bits: int
    backend: str
    context: int
    logits_width: int
    size_mb: float
    weights_mb: float

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Read a manifest."""
        sizes = {name: entry.bytes / 1e6 for name, entry in manifest.files.items()}
        return cls(
            name=manifest.name,
            source=manifest.source,
            architecture=manifest.architecture,
            bits=manifest.bits,
            backend=manifest.backend,
            context=manifest.context,
            logits_width=manifest.logits_width,
            size_mb=sum(sizes.values()),
            weights_mb=sum(size for name, size in sizes.items() if name.startswith(manifest.graph)),
        )


@dataclass(frozen=True, slots=True)
class Common:
    """V_C of draft and target.

    Attributes:
        target: name of the target.
        tokens: |V_C|.
        text_tokens: of these, tokens that carry text.
        share_of_target: text tokens / different byte strings of the target.
        share_of_draft: the same of the draft.
    """

    target: str
    tokens: int
    text_tokens: int
    share_of_target: float
    share_of_draft: float

    @classmethod
    def of(cls, target: TargetVocabulary, draft: DraftModel, found: Alignment) -> Self:
        """Shares of an alignment."""
        return cls(
            target=target.name,
            tokens=len(found),
            text_tokens=found.text_tokens,
            share_of_target=found.text_tokens / len(target.vocabulary.ids_by_bytes),
            share_of_draft=found.text_tokens / len(draft.vocabulary.ids_by_bytes),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured; None where it was not, and `notes` say why.

    Attributes:
        folder: the draft folder.
        machine: processor and number of processors.
        parity: the draft beside its source.
        speeds: by number of threads.
        common: the vocabularies.
        acceptance: on the prompts.
        prompts: on which it was measured.
        recommendation: gamma and method.
        notes: sentences for the reader.
    """

    folder: Folder
    machine: str
    parity: Parity | None
    speeds: tuple[Speed, ...]
    common: Common | None
    acceptance: Acceptance | None
    prompts: tuple[str, ...]
    recommendation: Recommendation | None
    notes: tuple[str, ...]

    @property
    def fastest(self) -> Speed:
        """The number of threads with the shortest decode step."""
        return min(self.speeds, key=lambda speed: speed.decode_ms)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; long lists are left out of it."""
        document = asdict(self)
        if self.parity is not None:
            del document["parity"]["kl_by_position"]
        return document
