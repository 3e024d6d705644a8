"""Attention over pages of keys and values, with rotary embedding before it.

rope                    pairs of dims turned by the angles in the step's tables
kv_store                keys and values of a step written to their pages, in the forms of kv_rows.py: f32, f16, q8_0, q4_0
attention               groups of queries by chunks of 256 keys, online softmax in blocks of 32, as step_block.py lists them
attention_block.py      a block by two or four queries: f32 and f16 keys. With sixteen float lanes (AVX-512) prompts transpose keys
                        once for all queries of a group
int16.py                the same for q8_0 and q4_0: queries and weights rounded to i16, integer products; in vectors of 512 bits at
                        AVX-512. In prompts keys and values become i16 once for a group (kv_quants.py)
attention_partial       partials of chunks merged in order, where threads share chunks instead of heads
rotation.py             Hadamard rotation that spreads outliers before keys and values are rounded (QuaRot)
kv_forms.py, parts.py   how rows of keys and values are read; the layout of scores, and sums in registers

Blocks ahead are prefetched into the second-level cache, on Zen 5 into the first (1.17 times as fast after 16,384 tokens of Qwen3
0.6B; a second block ahead took 1.09 times as long): ../prefetch.py. No sum depends on threads or on the other queries.
"""
