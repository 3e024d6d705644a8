"""The memory of conversations: classes, rings of slots and the bookkeeping of sequences; integers only."""
