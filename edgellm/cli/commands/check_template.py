"""`edgellm check-template`: what a model's chat template makes of the conversations that clients send."""

from __future__ import annotations

import dataclasses
import json

from edgellm.cli import options


def check_template(model: options.Model, json_: options.Json = False) -> None:
    """Try a model's chat template.

    Conversations as clients send them are rendered. Each is "ok" (the template takes it as it is), "rewritten" (edgellm
    brings it into a form that the template takes) or "refused", with the template's reason. The weights are not loaded.
    """
    from edgellm.catalogue import resolve
    from edgellm.chat import find_template
    from edgellm.checkpoints.opening import open_model
    from edgellm.cli.terminal.table import table, wrapped
    from edgellm.tokenizer import build_tokenizer
    from edgellm.tools.check_template import check_template as check

    path = resolve(model)
    with open_model(path) as gguf:
        template = find_template(gguf.metadata, build_tokenizer(gguf.metadata, file=gguf.path), file=str(path))
        found = list(check(template))
    if json_:
        print(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
        return
    print(table(("conversation", "template"), [(each.name, each.status) for each in found]))
    for each in found:
        if each.reason:
            print(wrapped(f"{each.name}: {each.reason}", 4))
