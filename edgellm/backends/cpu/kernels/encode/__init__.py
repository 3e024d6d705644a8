"""Rows of f32 quantised to block types, bit for bit as the codecs in formats/codecs do (`edgellm quantize`).

encode              entry: variants "TYPE" and "TYPE+importance"
encode_simple.py    types of 32 whose scale is that of the widest value: Q4_0 ... Q8_0 without importance
encode_groups.py    types whose scales are searched for: K types, IQ4; all types of 32 with importance. Sixteen groups at a time, a
                    lane each, then block after block is packed
scale_search.py     the searches of formats/codecs/_fit.py, operation for operation
lanes.py            sixteen f32 as one Numba value with operators
"""
