"""The commands of `edgellm`: a file each, named after the command, found by `cli/app.py`.

    chat run sessions               talk to a model; sessions lists, shows and exports saved chats
    fit pull import list path rm    choose, fetch, name and remove models
    show tokenize verify check-template doctor      look at a file, a text, a chat template, this machine
    bench                           speed: measuring (what llama-bench measures), batched (--parallel)
    embed rerank perplexity         vectors of lines, lines that answer a query; how well a model predicts a text
    convert imatrix quantize        make a GGUF file, or a smaller one

A command reads its options (`cli/options.py`), calls the library and prints; everything heavy is imported in its function.
"""
