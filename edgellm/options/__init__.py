"""The table of options: every option of the library and the command line is one row.

    option        a row: name, flags, type, range, default, GGUF key, help; and the checks that follow from them
    sampling      the rows of the sampler, which are the fields of `SamplingOptions`
    generation    the rows of one answer: length, stop texts, drafts, structured output, thinking
    loading       the rows of `load`
    serving       the rows of `serve` alone
    tools         the rows of perplexity and imatrix
    table         all of them by name

The library checks values with them, `cli/options.py` makes the commands' parameters and /set of them, and `scripts/option_table.py`
writes docs/options.md. Nothing here imports NumPy.
"""
