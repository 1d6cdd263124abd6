"""What an exporter does: a Hugging Face folder in, an fp32 ONNX graph out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from export.progress import Progress


class ExportBackend(ABC):
    """One way to turn a causal language model into one ONNX decoder graph with a KV cache."""

    name: ClassVar[str]

    @abstractmethod
    def export(
        self,
        source: Path,
        work: Path,
        *,
        context: int,
        progress: Progress,
        trust_remote_code: bool = False,
    ) -> Path:
        """Export `source`, a Hugging Face folder (config.json and weights).

        The graph has inputs `input_ids` [1, n] (int64) and past keys and values
        [1, heads, past, dim], and outputs logits [1, n or 1, V_D] and present keys and
        values; position ids and an attention mask are optional. The names of the cache are
        free: the runtime reads them from the graph.

        Args:
            source: folder that holds the model.
            work: folder of this export alone; whatever is left in it may be deleted.
            context: most tokens a text will hold.
            progress: told of each stage.
            trust_remote_code: Python code that comes with the model may run.

        Returns:
            the fp32 graph inside `work`; its weights lie beside it as external data.

        Raises:
            UnsupportedModel: an architecture that this backend cannot export.
            ModelFolderInvalid: `source` is not a readable model.
            PreparationError: a package is missing, or the export failed.
        """
