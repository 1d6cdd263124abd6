from edge_sdk.vocab.vocabulary import END_ROLES, Kind, TokenRole, Vocabulary

__all__ = ["END_ROLES", "Kind", "TokenRole", "Vocabulary"]
