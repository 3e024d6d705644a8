"""gemma4ua: the audio of Gemma 4 12B, which has no encoder: samples of 40 ms are projected at once."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder
from edgellm.ops.dense import matmul
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import features, merge_rows

SAMPLES = 640  # of a frame, in no file
EPS = 1e-6
PROMPT = (  # Google's
    "Transcribe the following speech segment in its original language. "
    "Follow these specific instructions for formatting the answer:\n"
    "* Only output the transcription, with no newlines.\n"
    "* When transcribing numbers, write the digits, i.e. write 1.7 and not one point seven, and write 3 instead of three."
)


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    def project(g: Builder) -> None:
        x = merge_rows(g, rms_norm(g, features(g, SAMPLES), None, EPS), 1)
        g.output("rows", matmul(g, x, "mm.a.input_projection", keys.n_out))

    return (Stage(project, layers=True),)


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("samples", SAMPLES, begin="<|audio>", end="<audio|>", prompt=PROMPT)
