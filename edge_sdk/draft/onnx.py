"""The draft model on onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import default_threads, open_session
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.resident import apart, release_pages, return_freed
from edge_sdk.draft.text import DraftText
from edge_sdk.draft.token_list import TokenList
from edge_sdk.draft.tokenizer_text import TokenizerText, load_tokenizer
from edge_sdk.errors import InvalidRequest, ManifestMismatch, ModelError, ModelFolderInvalid
from edge_sdk.vocab import TokenRole, Vocabulary, read_tokenizer

TOKENIZER_NAME = "tokenizer.json"
_PROMPT: Final = 16  # rows from which on a pass is one over a prompt


class OnnxDraft(DraftModel):
    """An exported draft folder. Use `open`; a context manager.

    Example:
        >>> with OnnxDraft.open(Path("smollm2"), threads=2) as draft:
        ...     draft.append(draft.text.prompt("Once upon a time"))
        ...     logits = draft.next_logits()
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        *,
        vocabulary: Vocabulary,
        text: DraftText,
        context: int,
        pruned: PrunedHead | None = None,
    ) -> None:
        graph = DecoderGraph.read(session.get_inputs(), session.get_outputs())
        width = len(vocabulary) if pruned is None else pruned.size
        if graph.width is not None and graph.width != width:
            raise ManifestMismatch(
                f"the graph gives {graph.width} logits and the manifest says {width}: they belong "
                "to different exports, so export the model again"
            )
        self._vocabulary = vocabulary
        self._text = text
        self._context = context
        self._pruned = pruned
        self._tokens = TokenList(width=len(vocabulary), context=context)
        self._decoder = Decoder(session, graph, width=width, context=context)
        self._logits: NDArray[np.float32] | None = None  # after the last id, once computed
        self._read = False  # a prompt

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None, spin: bool = True) -> Self:
        """Open a folder that `cosd export` made.

        Args:
            folder: manifest, graph with its weights, tokenizer.json.
            threads: threads of a pass; default: the physical cores, at most 4.
            spin: let threads wait busily inside a pass (never between passes). Off, a decode
                step of SmolLM2-135M on 2 threads takes about a third longer.

        Raises:
            ModelFolderInvalid: files are missing or truncated, or onnxruntime refuses them.
            ManifestMismatch: graph, weights or tokenizer are not those that the manifest
                describes. Every file is read for that, which takes about 0.13 s for 114 MB.
            TokenizerUnsupported: tokens that have no meaning in bytes, or a tokenizer that the
                installed tokenizers cannot load.
            InvalidRequest: threads below 1 or above 256.
            UnsupportedModel: a graph whose inputs are not known.
        """
        with apart():
            draft = cls._opened(folder, threads=threads, spin=spin)
        release_pages()
        return_freed()
        return draft

    @classmethod
    def _opened(cls, folder: Path, *, threads: int | None, spin: bool) -> Self:
        manifest = Manifest.read(folder)
        manifest.check_files(folder, digests=True)
        vocabulary = read_tokenizer(
            folder / TOKENIZER_NAME,
            width=manifest.logits_width,
            roles={role: manifest.roles.get(role.value, ()) for role in TokenRole},
        )
        if vocabulary.fingerprint != manifest.vocabulary_fingerprint:
            raise ManifestMismatch(
                f"{folder / TOKENIZER_NAME} is not the tokenizer that the manifest describes "
                "(its fingerprint differs); export the model again"
            )
        text = TokenizerText(
            load_tokenizer(folder / TOKENIZER_NAME),
            vocabulary=vocabulary,
            prefix_ids=manifest.prefix_ids,
            chat=manifest.chat,
        )
        return_freed()
        session = open_session(
            folder / manifest.graph,
            threads=default_threads() if threads is None else threads,
            spin=spin,
        )
        draft = cls(
            session,
            vocabulary=vocabulary,
            text=text,
            context=manifest.context,
            pruned=manifest.pruned,
        )
        draft._try_out(folder / manifest.graph)
        return draft

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def pruned(self) -> PrunedHead | None:
        return self._pruned

    @property
    def text(self) -> DraftText:
        return self._text

    @property
    def context(self) -> int:
        return self._context

    @property
    def length(self) -> int:
        return len(self._tokens)

    def append(self, ids: Sequence[int]) -> None:
        self._tokens.append(ids)
        if ids:
            self._logits = None

    def next_logits(self) -> NDArray[np.float32]:
        """See `DraftModel`; besides

        Raises:
            ModelError: the model is closed, its logits are not numbers, onnxruntime failed,
                or `cancel` was called. The ids held stay as they were.
        """
        count = len(self._tokens)
        if not count:
            raise InvalidRequest("the draft holds no id: append a prompt first", field="ids")
        if self._logits is None:
            # A row of logits belongs to a token of the pass, so the last one is always in it.
            decoder, ids = self._decoder, self._tokens.ids
            decoder.keep(count - 1)
            rows = count - decoder.length
            while count - decoder.length > decoder.most_rows:
                decoder.extend(ids[decoder.length : decoder.length + decoder.most_rows])
            self._logits = decoder.extend(ids[decoder.length :], shrink=rows > _PROMPT)
            if rows > _PROMPT:
                if not self._read:
                    # Once: the code that only long passes run need not stay until the next one.
                    release_pages()
                    self._read = True
                return_freed()
        return self._logits.copy()

    def rewind(self, length: int) -> None:
        before = len(self._tokens)
        self._tokens.rewind(length)
        if length != before:
            self._decoder.keep(length)
            self._logits = None

    def cancel(self) -> None:
        """Stop the pass that is running, if one is; safe from any thread."""
        self._decoder.cancel()

    def close(self) -> None:
        self._decoder.close()
        self._logits = None

    def _try_out(self, graph: Path) -> None:
        """One pass, so that a folder that cannot run fails when it is opened."""
        try:
            self.append([0])
            self.next_logits()
            self.reset()
            self._decoder.try_shrinking()
        except ModelError as error:
            self.close()
            raise ModelFolderInvalid(
                f"{graph} was loaded but a first pass did not succeed: {error.message}"
            ) from error
