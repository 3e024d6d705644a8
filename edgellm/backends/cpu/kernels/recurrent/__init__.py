"""Layers whose past is a state: tokens of a conversation follow each other, threads share columns or heads.

conv            causal convolution over the newest inputs (all hybrids)
ssm_scan        Mamba ("columns": every number of a state decays by itself) and Mamba 2 ("heads"); ssm_blocks.py: the latter's loops
delta_net       gated delta rule (Qwen 3.5, Qwen3-Next)
kda             Kimi Delta Attention: rows decay by themselves
token_shift     RWKV's mix with the row before
wkv6, wkv7      RWKV-6 and 7

Variants "wide" and "narrow" are blocks of 32 (RWKV: 16) or 8 columns, by what divides a head. Levels with sixteen float lanes take
two blocks or pairs of rows in one vector (vectors.py). decayed.py: states stand divided by a common factor, so that a token
multiplies nothing by its decay; exp2.py: 2^x for decays, half the work of the levels' exp. past_caches.py: single tokens of Mamba 2
store states past the caches (three quarters of the time).
"""
