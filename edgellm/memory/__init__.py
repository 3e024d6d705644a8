"""What a conversation keeps: memory classes, rings of slots and the bookkeeping of a sequence; integers only."""
