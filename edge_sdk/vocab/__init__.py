from edge_sdk.vocab.alignment import Alignment, pair_id, target_ids_from_bitmap
from edge_sdk.vocab.tokenizer_json import read_tokenizer
from edge_sdk.vocab.vocabulary import END_ROLES, Kind, TokenRole, Vocabulary

__all__ = [
    "END_ROLES",
    "Alignment",
    "Kind",
    "TokenRole",
    "Vocabulary",
    "pair_id",
    "read_tokenizer",
    "target_ids_from_bitmap",
]
