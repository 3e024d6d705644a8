"""Where things lie in the memory that threads share: the pool's control block, a plan's records, the step block. Plain numbers,
read by kernels and by Python alike."""

from __future__ import annotations

from typing import Final

from edgellm.memory.layout import RING_MULTIPLE

# Control block of a pool: one cache line of 8 words each, so that threads do not share lines by accident.
LINE: Final = 8  # int64 words per cache line
EPOCH: Final = 0  # counts plans started, times MOST_THREADS, plus the threads that walk the newest
ARRIVED: Final = 1  # threads that reached the barrier
GENERATION: Final = 2  # barriers passed
PLAN: Final = 3  # address of the first thread's records
RECORDS: Final = 4  # how many
STOP: Final = 5  # the pool is closing; beside it how many pauses a worker waits before it parks
SLEEPERS: Final = 6  # threads that sleep at the barrier; beside it how long: seconds, nanoseconds
STRIDE: Final = 7  # bytes from one thread's records to the next one's
WORDS: Final = 8  # after these a line per thread: the epoch that it has walked, and TAKEN
TAKEN: Final = 1  # word of it: how many chunks of the thread's share have been taken

MOST_THREADS: Final = 4096

BARRIER_SPINS: Final = 2048  # pauses before a thread sleeps at a barrier (a pure spin collapses on busy cores)
LONGEST_SLEEP: Final = (0, 20_000_000)  # seconds, nanoseconds: no wake-up is ever lost for longer
IDLE_SECONDS: Final = 0.0015  # between two plans before a worker parks: sampling and Python take 0.4 to 1 ms

# A program, what a pool runs: int64 words, of which the first three go to PLAN, RECORDS and STRIDE.
PROGRAM_THREADS: Final = 3  # how many threads walk it
PROGRAM_WORDS: Final = 4

# One record of a plan: 32 int64 words. Every thread has records of its own, which may differ in addresses.
RECORD_WORDS: Final = 32
KERNEL: Final = 0  # address of the kernel
STEP: Final = 1  # address of the step block
FIRST_ARGUMENT: Final = 2
MOST_ARGUMENTS: Final = 25
AHEAD: Final = 27  # address of weights that the thread reads after the barrier; 0: none
AHEAD_BYTES: Final = 28  # how many of them a thread that waits there prefetches
CHUNKS: Final = 29  # above 0: threads take so many chunks of all from here to the next barrier
REPLICATED: Final = 30  # 1: every thread does all of it, for itself
BARRIER_AFTER: Final = 31  # 1: all threads meet after this record

# The step block: int64 words.
N_TOKENS: Final = 0  # T
N_OUTPUTS: Final = 1  # R
N_SEGMENTS: Final = 2  # S
STEP_WORDS: Final = 8

# Attention's list of work (see step_block.py): int64 words.
WORK_N_ITEMS: Final = 0
WORK_N_MERGES: Final = 1
WORK_MERGES_AT: Final = 2  # word at which merges begin
WORK_ITEMS: Final = 8  # word at which items begin

# Attention: keys are taken in blocks, blocks make chunks, at fixed places of the ring; queries of some tokens go together.
ATTENTION_BLOCK: Final = 32
ATTENTION_CHUNK: Final = RING_MULTIPLE
ATTENTION_GROUP: Final = 16  # queries
ATTENTION_ENTRY: Final = 40  # bytes of a query's entry in the table of kernels/attention/attention_block.py
ATTENTION_SCORES: Final = 4 * ATTENTION_BLOCK * 4 + 32  # bytes of four queries' scores and factors

# Experts: a list of "buckets", for each expert the first of its pairs and how many there are (two i32), then the pairs by expert
# and token: token, slot, expert (three i32).
BUCKET: Final = 8  # bytes
PAIR: Final = 12
EXPERT_ROW_GROUP: Final = 16  # rows of an expert's weights that threads share together
EXPERT_PIECE: Final = 64  # rows whose products with all tokens are made at a time
EXPERT_WORK_HEAD: Final = (RECORD_WORDS + STEP_WORDS) * 8  # bytes before these products: a record, and a step block for it
