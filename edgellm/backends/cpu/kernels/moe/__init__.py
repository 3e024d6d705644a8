"""Mixtures of experts.

topk            gating ("softmax", "sigmoid", ...): the experts of each token and their weights
experts         "buckets": tokens sorted by expert; "rows": products of every slot; "sum": the slots' products, weighted and added
                in the order of experts. Each expert's product is a call of the kernel in ../matmul for its type
expert_rows     activations in the order of experts, quantised or as f32
slot_scale      parts of rows times the weight of their expert
gated_by        a shared expert's rows times the sigmoid of its gate

One token: threads share the rows of all its slots, there are no buckets. Several: they share each expert's rows, whose weights
are read once for all its tokens.
"""
