"""Arithmetic on rows of f32, element by element or row by row; memory-bound, so one form for every ISA level.

elementwise     add, mul, scale, clamp, softcap, the activations; "glu_*": act(gate) * up
norm            RMS and layer norm of rows or of equal groups; sums.py fixes the order of additions
softmax         probabilities of a classifier's few labels
columns         columns picked of each head; select: the rows whose logits are wanted; pool: one row of a segment
merge           image encoders: neighbouring patches become one row; inject: an image's vectors in the place of its tokens' rows
neighbours      image encoders: convolutions of 3 x 3 patches, channel by channel, and means over images
places          image encoders: scores of a query's head for each row and column of patches (relative positions)
altup           Gemma 3n: mixed rows, rescaled rows, sparse activations

In a step of one token, short rows are computed by every thread for itself (`replicated` in ../../record.py), which saves a barrier.
"""
