"""A chat window in PySide6: a thread generates, and its signals bring the pieces to the window.

pip install PySide6
python examples/qt_chat.py model.gguf
"""

from __future__ import annotations

import sys
import threading

import edgellm

try:
    from PySide6 import QtCore, QtWidgets  # pyright: ignore[reportMissingImports]  # it need not be there
except ImportError:
    sys.exit("this example needs PySide6: pip install PySide6")


class ChatWindow(QtWidgets.QWidget):
    """Text above, a line to type below. Signals cross from thread to thread by themselves."""

    piece = QtCore.Signal(str)
    done = QtCore.Signal(str)
    ready = QtCore.Signal(object)

    def __init__(self, path: str) -> None:
        super().__init__(windowTitle="edgellm")
        self.messages: list[dict[str, str]] = []
        self.stream: edgellm.Stream | None = None
        self.model: edgellm.Model | None = None
        self.text = QtWidgets.QPlainTextEdit(readOnly=True)
        self.entry, self.stop = QtWidgets.QLineEdit(), QtWidgets.QPushButton("Stop", enabled=False)
        layout = QtWidgets.QGridLayout(self)
        layout.addWidget(self.text, 0, 0, 1, 2)
        layout.addWidget(self.entry, 1, 0)
        layout.addWidget(self.stop, 1, 1)
        self.entry.returnPressed.connect(self.send)
        self.stop.clicked.connect(self.cancel)
        self.piece.connect(self.text.insertPlainText)
        self.done.connect(self.finished)
        self.ready.connect(self.opened)
        threading.Thread(target=self.open, args=(path,), daemon=True).start()

    def open(self, path: str) -> None:
        """Load the model, beside the window."""
        try:
            model = edgellm.load(path)
            model.tokenizer.encode("")  # large vocabularies take a second, which the first question need not wait
            self.ready.emit(model)
        except edgellm.EdgeError as error:
            self.piece.emit(f"{error}\n")

    def opened(self, model: edgellm.Model) -> None:
        """The model is there."""
        self.model = model
        self.text.insertPlainText(f"{model.info.name} is ready\n")

    def send(self) -> None:
        """Ask what was typed."""
        question = self.entry.text().strip()
        if not question or self.model is None or self.stream is not None:
            return
        self.entry.clear()
        self.text.insertPlainText(f"\n> {question}\n")
        self.messages.append({"role": "user", "content": question})
        self.stream = self.model.chat(self.messages, stream=True, max_tokens=200)
        self.stop.setEnabled(True)
        threading.Thread(target=self.generate, args=(self.stream,), daemon=True).start()

    def generate(self, stream: edgellm.Stream) -> None:
        """In a thread of its own."""
        try:
            for event in stream.events():
                if event.kind == "text":
                    self.piece.emit(event.text)
            self.done.emit(stream.result.text)
        except edgellm.EdgeError as error:
            self.piece.emit(f"{error}\n")
            self.done.emit("")

    def finished(self, text: str) -> None:
        """The answer has ended."""
        self.messages.append({"role": "assistant", "content": text})
        self.stream = None
        self.stop.setEnabled(False)

    def cancel(self) -> None:
        """End the answer, without waiting for it."""
        if self.stream is not None:
            self.stream.cancel()

    def closeEvent(self, event: object) -> None:  # Qt's name
        """End the answer and free the model."""
        self.cancel()
        if self.model is not None:
            self.model.close()


if __name__ == "__main__":
    application = QtWidgets.QApplication(sys.argv)
    window = ChatWindow(sys.argv[1])
    window.show()
    sys.exit(application.exec())
