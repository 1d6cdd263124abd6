"""The whole check of one draft folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import InvalidRequest
from edge_sdk.vocab import Alignment
from export.check.expected import Acceptance, expected_acceptance
from export.check.parity import Parity, measure_parity
from export.check.recommendation import RTTS_MS, Costs, Recommendation, recommend
from export.check.report import Common, Folder, Report
from export.check.served import measure_served
from export.check.speed import Speed, measure_speed, thread_counts
from export.check.texts import PROMPTS, TEXT
from export.packaged import PACKAGED_MODELS
from export.progress import NoProgress, Progress
from export.sources import SourceFolder, locate, resolve_source
from export.target_vocabulary import TargetVocabulary, aligned, read_target

DTYPES = ("auto", "float32", "bfloat16", "float16")
_PASS_ROWS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to measure, and on what.

    Attributes:
        source: the model that was exported, as `cosd export` takes it; None: what the
            manifest names, if it is on this machine.
        target: address of a server, folder or name of a target; None: no target.
        prompts: texts to go on from.
        text: text over which the laws of draft and source are compared.
        text_tokens: how much of it.
        temperature: of the laws whose overlap is measured.
        tokens: most tokens of a text.
        gamma: drafts a round, where a server writes the texts.
        seed: the same seed repeats the texts.
        threads: numbers of threads to time; empty: 1, 2, 4, ...
        draft_ms: a drafted token on the device that the draft is for; None: as measured here.
        target_ms: a pass of the target where it will run; None: as measured.
        rtts_ms: round trip times to choose for.
        target_dtype: of a target that is loaded here, one of `DTYPES`; `auto`: as stored.
        trust_remote_code: Python code that comes with source or target may run.
        api_key: key of the server.
    """

    source: str | None = None
    target: str | None = None
    prompts: tuple[str, ...] = PROMPTS
    text: str = TEXT
    text_tokens: int = 256
    temperature: float = 0.7
    tokens: int = 32
    gamma: int = 3
    seed: int = 1
    threads: tuple[int, ...] = ()
    draft_ms: float | None = None
    target_ms: float | None = None
    rtts_ms: tuple[float, ...] = RTTS_MS
    target_dtype: str = "auto"
    trust_remote_code: bool = False
    api_key: str | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "draft_ms", "target_ms"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidRequest(f"{name} is {value}; it must be above 0", field=name)
        for name in ("text_tokens", "tokens", "gamma", *["threads"] * bool(self.threads)):
            value = getattr(self, name)
            if min(value if isinstance(value, tuple) else (value,)) < 1:
                raise InvalidRequest(f"{name} is {value}; it must be at least 1", field=name)
        if not self.prompts:
            raise InvalidRequest("there is no prompt; give at least one", field="prompts")
        if self.target_dtype not in DTYPES:
            raise InvalidRequest(
                f"target_dtype is {self.target_dtype!r}; use one of {', '.join(DTYPES)}",
                field="target_dtype",
            )
        if not self.rtts_ms or min(self.rtts_ms) < 0:
            raise InvalidRequest("round trip times must be 0 or more", field="rtts_ms")


def check_draft(
    folder: str | Path, options: CheckOptions | None = None, *, progress: Progress | None = None
) -> Report:
    """Measure a draft folder.

    Args:
        folder: what `cosd export` made.
        options: what to measure.
        progress: told of each stage.

    Raises:
        InvalidRequest: an option is out of range, or the source is of another model.
        ModelError: folder, source or target cannot be used.
        VocabularyMismatch: draft and target share too little.
        TransportError, Unauthorized: the server cannot be talked to.
    """
    return _Check(Path(folder), options or CheckOptions(), progress or NoProgress()).run()


class _Check:
    """One check, part by part."""

    def __init__(self, folder: Path, options: CheckOptions, progress: Progress) -> None:
        self._folder = folder
        self._options = options
        self._progress = progress
        self._notes: list[str] = []
        self._manifest = Manifest.read(folder)
        self._target: SourceFolder | None = None  # where it is no server

    def run(self) -> Report:
        options = self._options
        # First what the user named, as far as that is quick to look at.
        if options.source is not None:
            locate(options.source)
        target = self._read_target()
        source = self._source()
        with self._progress.stage("open the draft"):
            draft = OnnxDraft.open(self._folder)
        acceptance = recommendation = None
        with draft:
            pair = None if target is None else aligned(target, draft.vocabulary)
            if draft.pruned is not None and pair is not None:
                draft.pruned.check(pair)
            speeds = measure_speed(
                self._folder, options.threads or thread_counts(), progress=self._progress
            )
            parity = None if source is None else self._parity(source, draft, pair)
            if target is not None:
                acceptance, recommendation = self._advice(draft, speeds)
        return Report(
            folder=Folder.of(self._manifest),
            machine=f"{_processor()}, {os.cpu_count() or 1} processors",
            parity=parity,
            speeds=speeds,
            common=None if target is None or pair is None else Common.of(target, draft, pair),
            acceptance=acceptance,
            prompts=options.prompts if acceptance is not None else (),
            recommendation=recommendation,
            notes=tuple(self._notes),
        )

    def _source(self) -> SourceFolder | None:
        manifest, named = self._manifest, self._options.source
        if named is None:
            named = manifest.source
            if named not in PACKAGED_MODELS and not Path(named).exists():
                self._note(
                    f"Not compared with its source: {named} is not on this machine. Name it with "
                    "--source."
                )
                return None
        source = resolve_source(
            named, trust_remote_code=self._options.trust_remote_code, progress=self._progress
        )
        if source.checkpoint.graph is not None and self._options.source is None:
            self._note("Not compared with its source, which is an ONNX graph itself.")
            return None
        if source.revision != manifest.revision:
            self._note(
                f"{source.source} does not have the digest of what was exported "
                f"({manifest.revision[:12]}): it was changed since, or is another file."
            )
        return source

    def _parity(
        self, source: SourceFolder, draft: OnnxDraft, pair: Alignment | None
    ) -> Parity | None:
        if draft.pruned is not None and pair is None:
            self._note(
                f"Not compared with its source: its head is for the target {draft.pruned.target} "
                "alone. Name that with --target."
            )
            return None
        ids = draft.text.prompt(self._options.text)[: self._options.text_tokens]
        columns = None if draft.pruned is None or pair is None else pair.draft_ids
        if source.source in PACKAGED_MODELS and self._manifest.bits < 16:
            self._note(
                f"{source.source} comes in few bits already, so rounding its weights again loses "
                "less than it would with another model."
            )
        return measure_parity(
            source,
            draft,
            ids[: draft.context - 1],
            columns=columns,
            trust_remote_code=self._options.trust_remote_code,
            progress=self._progress,
        )

    def _read_target(self) -> TargetVocabulary | None:
        options = self._options
        if options.target is None:
            return None
        target = read_target(
            options.target,
            api_key=options.api_key,
            trust_remote_code=options.trust_remote_code,
            progress=self._progress,
        )
        self._target = target.source
        return target

    def _advice(
        self, draft: OnnxDraft, speeds: Sequence[Speed]
    ) -> tuple[Acceptance, Recommendation]:
        options = self._options
        acceptance, passes = self._served(draft) if self._target is None else self._local(draft)
        if options.target_ms is not None:
            passes = {1: 1e-3 * options.target_ms}
            self._note(
                "The target's pass is taken to cost the same for one token and for a block, as "
                "you gave it one figure."
            )
        drafted = options.draft_ms or min(speed.decode_ms for speed in speeds)
        return acceptance, recommend(
            acceptance.by_method, Costs(1e-3 * drafted, passes), rtts_ms=options.rtts_ms
        )

    def _local(self, draft: OnnxDraft) -> tuple[Acceptance, dict[int, float]]:
        from export.check.local_target import LocalTarget

        assert self._target is not None
        options = self._options
        model = LocalTarget(
            self._target.path,
            dtype=options.target_dtype,
            trust_remote_code=options.trust_remote_code,
            progress=self._progress,
        )
        acceptance = expected_acceptance(
            model,
            draft,
            options.prompts,
            temperature=options.temperature,
            tokens=options.tokens,
            seed=options.seed,
            progress=self._progress,
        )
        with self._progress.stage("time the target"):
            return acceptance, model.pass_seconds(_PASS_ROWS)

    def _served(self, draft: OnnxDraft) -> tuple[Acceptance, dict[int, float]]:
        options = self._options
        served = measure_served(
            str(options.target),
            draft,
            options.prompts,
            api_key=options.api_key,
            temperature=options.temperature,
            tokens=options.tokens,
            gamma=options.gamma,
            seed=options.seed,
            progress=self._progress,
        )
        self._note(
            "The server wrote the texts: acceptance is accepted / examined drafts, which has more "
            f"noise than an overlap of laws. Its round trip took {1e3 * served.rtt_s:.1f} ms."
        )
        alone = served.alone_s or served.round_s
        return served.acceptance, {1: alone, served.gamma + 1: served.round_s or alone}

    def _note(self, text: str) -> None:
        self._notes.append(text)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else (platform.processor() or platform.machine() or "a processor")
