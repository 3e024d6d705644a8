"""The forms that answers and calls may have.

form                a schema, choices, a regular expression or a grammar, as a caller gives it
schema              JSON schemas of types and signatures; typed (values of these types), pydantic_schema, docstrings (descriptions
                    of parameters), schema_values (numbers and texts that llguidance would change)
grammar_vocabulary  the constraints of answers; call_grammars (of calls)
"""

from __future__ import annotations

FORMS = ("schema", "choices", "regex", "grammar")  # options that give an answer a form
