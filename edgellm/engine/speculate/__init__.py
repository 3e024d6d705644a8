"""Drafts: tokens that are guessed, and checked several at a time in one step."""
