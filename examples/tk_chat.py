"""A chat window in Tk: a thread generates, the window takes what it made thirty times a second, and Stop acts at once.

python examples/tk_chat.py model.gguf
"""

from __future__ import annotations

import queue
import sys
import threading
import tkinter
from tkinter import scrolledtext

import edgellm

POLL = 33  # milliseconds between two looks at what was generated


class ChatWindow:
    """Text above, a line to type below. Tk is touched by its own thread alone."""

    def __init__(self, root: tkinter.Tk, path: str) -> None:
        self.root, self.messages = root, list[dict[str, str]]()
        self.events: queue.Queue[tuple[str, str]] = queue.Queue()
        self.stream: edgellm.Stream | None = None
        self.model: edgellm.Model | None = None
        root.title("edgellm")
        self.text = scrolledtext.ScrolledText(root, wrap="word", state="disabled")
        self.text.pack(fill="both", expand=True)
        row = tkinter.Frame(root)
        row.pack(fill="x")
        self.entry = tkinter.Entry(row)
        self.entry.pack(side="left", fill="x", expand=True)
        self.entry.bind("<Return>", lambda event: self.send())
        self.stop = tkinter.Button(row, text="Stop", command=self.cancel, state="disabled")
        self.stop.pack(side="right")
        root.protocol("WM_DELETE_WINDOW", self.close)
        threading.Thread(target=self.open, args=(path,), daemon=True).start()
        self.poll()

    def open(self, path: str) -> None:
        """Load the model, beside the window."""
        try:
            model = edgellm.load(path)
            model.tokenizer.encode("")  # large vocabularies take a second, which the first question need not wait
            self.model = model
            self.events.put(("note", f"{model.info.name} is ready\n"))
        except edgellm.EdgeError as error:
            self.events.put(("note", f"{error}\n"))

    def send(self) -> None:
        """Ask what was typed."""
        question = self.entry.get().strip()
        if not question or self.model is None or self.stream is not None:
            return
        self.entry.delete(0, "end")
        self.show(f"\n> {question}\n")
        self.messages.append({"role": "user", "content": question})
        self.stream = self.model.chat(self.messages, stream=True, max_tokens=200)
        self.stop.config(state="normal")
        threading.Thread(target=self.generate, args=(self.stream,), daemon=True).start()

    def generate(self, stream: edgellm.Stream) -> None:
        """In a thread of its own: hand over what comes."""
        try:
            for event in stream.events():
                if event.kind == "text":
                    self.events.put(("text", event.text))
                elif event.kind == "evicted" and event.evicted is not None and event.evicted.messages:
                    self.events.put(("note", f"(the model no longer sees {len(event.evicted.messages)} older messages)\n"))
                elif event.kind == "done" and event.result is not None:
                    self.events.put(("done", event.result.text))
        except edgellm.EdgeError as error:
            self.events.put(("note", f"{error}\n"))
            self.events.put(("done", ""))

    def poll(self) -> None:
        """Show what was handed over."""
        while not self.events.empty():
            kind, text = self.events.get()
            if kind == "done":
                self.messages.append({"role": "assistant", "content": text})
                self.stream = None
                self.stop.config(state="disabled")
            else:
                self.show(text)
        self.root.after(POLL, self.poll)

    def show(self, text: str) -> None:
        """Append to the text."""
        self.text.config(state="normal")
        self.text.insert("end", text)
        self.text.config(state="disabled")
        self.text.see("end")

    def cancel(self) -> None:
        """End the answer, without waiting for it."""
        if self.stream is not None:
            self.stream.cancel()

    def close(self) -> None:
        """End the answer and free the model."""
        self.cancel()
        if self.model is not None:
            self.model.close()
        self.root.destroy()


if __name__ == "__main__":
    window = tkinter.Tk()
    ChatWindow(window, sys.argv[1])
    window.mainloop()
