"""Two questions at a time under asyncio, while the event loop goes on ticking.

python examples/asyncio_chat.py model.gguf "Name three rivers." "Name three lakes."
"""

from __future__ import annotations

import asyncio
import sys

import edgellm


async def ask(model: edgellm.Model, number: int, question: str) -> None:
    """Print an answer when it is there."""
    async with await model.achat([{"role": "user", "content": question}], stream=True, max_tokens=60) as answer:
        text = "".join([piece async for piece in answer])
    stats = answer.result.stats
    print(f"{number}: {text.strip()}  ({stats.generated_tokens} tokens, {answer.result.stop_reason})")


async def tick(ticks: list[int]) -> None:
    """What else the program does meanwhile."""
    while True:
        ticks.append(1)
        await asyncio.sleep(0.02)


async def main(path: str, questions: list[str]) -> None:
    """Ask all at once."""
    ticks: list[int] = []
    ticking = asyncio.create_task(tick(ticks))
    with await asyncio.to_thread(edgellm.load, path, parallel=2) as model:
        await asyncio.gather(*(ask(model, k, question) for k, question in enumerate(questions, 1)))
    ticking.cancel()
    print(f"ticked {len(ticks)} times meanwhile")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:] or ["Name three rivers.", "Name three lakes."]))
