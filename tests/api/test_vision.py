"""Images: the rows of encoders against golds and the reference, preprocessing, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import in_turn
from PIL import Image as Pillow
from tiny_models import tiny_model
from tiny_projectors import KINDS, OUT, N, damaged, encoded, picture, projector_file, seeing

import edgellm
from edgellm.arch import load_graph, rope_axes
from edgellm.arch.vision import load_encoder, names
from edgellm.chat import images
from edgellm.cli.app import run
from edgellm.engine import state_store
from edgellm.errors import BadHParam, EdgeError, ImageError, ModelClosed, NoTokenizer, OptionError, ShapeMismatch, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.loading.projector import find_projector
from edgellm.ops._spec import Patches
from edgellm.passes.images import with_images
from edgellm.reference import Reference
from edgellm.tools.verify import verify
from edgellm.weights import WeightStore

Rows = npt.NDArray[np.float32]


def reference_rows(path: Path, pixels: images.Pixels) -> Rows:
    """The encoder's rows, of whose graphs the reference computes the values."""
    encoder = ImageEncoder(path, threads=1)
    with open_gguf(path) as gguf:
        weights = WeightStore(gguf)
        references = [Reference(graph, weights) for graph in load_encoder(gguf)[2]]

        def run(number: int, each: Sequence[Patches], *options: Any) -> list[Rows]:
            found = [references[number].encoded(one) for one in each]
            return [np.concatenate([one[name] for name in sorted(one)], axis=1) for one in found]

        encoder.run = run  # type: ignore[method-assign]
        rows = encoder.encode(pixels).rows
        if encoder.spec.begin_row:
            ends = weights[encoder.spec.begin_row], weights[encoder.spec.end_row]
            assert np.array_equal(rows[[0, -1]], np.concatenate([each.array().reshape(1, -1) for each in ends]))
    encoder.close()
    return rows


def error(a: Rows, b: Rows) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def test_rows_are_those_of_the_golds(vision_golds: tuple[ModuleType, list[dict[str, Any]]]) -> None:
    score, entries = vision_golds
    assert len(entries) >= 10
    for entry in entries:
        with edgellm.load(entry["path"], mmproj=entry["mmproj_path"]) as model:
            passed, errors = score.judge(entry, embd=model.embed_image(entry["image_path"]), bar=2e-6)
            assert passed, (entry["name"], errors)
            assert model.info.vision is not None and model.info.vision.width == entry["embd_width"]


def test_resized_bytes_are_those_of_the_golds(vision_golds: tuple[ModuleType, list[dict[str, Any]]]) -> None:
    for entry in vision_golds[1]:
        with open_gguf(entry["mmproj_path"]) as gguf:
            found = images.tiles(images.read(entry["image_path"]), load_encoder(gguf)[3]).images
        assert [list(image.shape[:2]) for image in found] == entry["prep"]["result"], entry["name"]
        if "resized_u8" in entry:
            assert all(np.array_equal(a, b) for a, b in zip(found, entry["resized_u8"], strict=True)), entry["name"]


def test_every_projector_type_is_tried_here() -> None:
    assert names() == sorted(KINDS)


@pytest.mark.parametrize(("kind", "weights"), in_turn(sorted(KINDS), ["F32", "F16"]))
def test_the_cpu_computes_what_the_reference_does(tmp_path: Path, kind: str, weights: str) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", kind, kind_of=weights)
    encoder = ImageEncoder(path, threads=2)
    for height, width in ((64, 64), (50, 190), (233, 90)):
        pixels = picture(height, width)
        assert error(encoder.encode(pixels).rows, reference_rows(path, pixels)) < 5e-6
    encoder.close()
    with pytest.raises(ModelClosed):
        encoder.encode(pixels)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_do_not_depend_on_threads_or_on_what_was_encoded_before(tmp_path: Path, kind: str) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", kind)
    one, two = ImageEncoder(path, threads=1), ImageEncoder(path, threads=2)
    first = one.encode(picture(70, 90)).rows
    two.encode(picture(150, 40))
    again = two.encode(picture(70, 90)).rows
    assert np.array_equal(first, again)


def test_a_model_finds_the_projector_beside_it(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT)
    with edgellm.load(model) as plain:
        assert plain.info.vision is None
        with pytest.raises(OptionError, match="takes no images"):
            plain.embed_image(picture(64, 64))
    projector_file(tmp_path / "mmproj-other-F32.gguf", "idefics3", projection_dim=OUT // 2)
    projector_file(tmp_path / "mmproj-another-F16.gguf", "idefics3", kind_of="F16")  # as wide, and named like another model
    small = projector_file(tmp_path / "mmproj-m-F16.gguf", "idefics3", kind_of="F16")
    projector_file(tmp_path / "mmproj-m-F32.gguf", "idefics3")
    assert find_projector(model, OUT, None) == small
    with edgellm.load(model) as seeing:
        assert seeing.info.vision is not None and seeing.info.vision.path == small
        assert seeing.embed_image(picture(64, 64)).shape == (80, OUT)
    with edgellm.load(model, mmproj="none") as blind:
        assert blind.info.vision is None
    other = tiny_model(tmp_path / "other.gguf", "llama", "F32", n_embd=2 * OUT)
    with pytest.raises(OptionError, match="rows of 64 values"):
        edgellm.load(other, mmproj=small)


def test_a_projector_that_cannot_be_used_does_not_stop_its_model(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT)
    projector_file(tmp_path / "mmproj.gguf", "idefics3", block_count=None)
    with edgellm.load(model) as loaded:
        assert loaded.info.vision is None and "block_count" in loaded.info.place
    with pytest.raises(BadHParam):
        edgellm.load(model, mmproj=tmp_path / "mmproj.gguf")


def test_most_rows_of_a_dynamic_image(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT)
    projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger")
    with edgellm.load(model) as loaded:
        assert len(loaded.embed_image(picture(200, 300))) == 54
        assert len(loaded.embed_image(picture(200, 300), image_tokens=20)) <= 20
        assert len(loaded.embed_image(edgellm.Image(picture(200, 300), tokens=20))) <= 20
        for wrong in (0, -1, 2.5, "many", True):
            with pytest.raises(OptionError, match="image_tokens"):
                loaded.embed_image(picture(64, 64), image_tokens=wrong)  # type: ignore[arg-type]  # that is the point


# --- files ------------------------------------------------------------------------------------------------------------
def test_show_and_verify_know_projectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", "idefics3")
    assert run(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "idefics3" in text and "tiles of 64 x 64 pixels, 16 tokens each" in text and "runs here      yes" in text
    assert run(["show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["projector"] == "idefics3"
    assert run(["show", str(path), "--graph"]) == 0
    assert "merge_rows" in capsys.readouterr().out
    assert all(finding.status in ("ok", "skipped") for finding in verify(path))
    with pytest.raises(Unsupported, match="is a projector"):
        edgellm.load(path)


def test_projector_types_that_are_not_supported_are_named(tmp_path: Path) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", "idefics3")
    path.write_bytes(path.read_bytes().replace(b"idefics3", b"idefics9", 1))
    with open_gguf(path) as gguf, pytest.raises(Unsupported, match="idefics9"):
        load_encoder(gguf)
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", "F32")) as gguf, pytest.raises(Unsupported, match="not a projector"):
        load_encoder(gguf)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("idefics3", {"patch_size": 0}),
        ("idefics3", {"patch_size": 1000}),
        ("idefics3", {"image_size": 60}),
        ("idefics3", {"preproc_image_size": 1 << 20}),
        ("idefics3", {"image_mean": [0.5, 0.5]}),
        ("idefics3", {"image_std": [0.5, 0.0, 0.5]}),
        ("idefics3", {"image_std": "half"}),
        ("idefics3", {"attention__head_count": 5}),
        ("idefics3", {"attention__layer_norm_epsilon": -1.0}),
        ("idefics3", {"projector__scale_factor": 3}),
        ("qwen3vl_merger", {"is_deepstack_layers": [True]}),
        ("qwen3vl_merger", {"attention__head_count": 16}),
        ("deepseekocr", {"sam__head_count": 5}),
        ("deepseekocr", {"sam__block_count": 0}),
        ("deepseekocr", {"window_size": None}),
        ("deepseekocr", {"preproc_min_tiles": 5}),
        ("deepseekocr2", {"attention__head_count": 32}),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, kind: str, keys: dict[str, Any]) -> None:
    with open_gguf(projector_file(tmp_path / "mmproj.gguf", kind, **keys)) as gguf, pytest.raises(BadHParam):
        load_encoder(gguf)


def test_positions_that_are_no_square(tmp_path: Path) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", "idefics3", embedding_length=16)
    with open_gguf(path) as gguf, pytest.raises(ShapeMismatch):
        load_encoder(gguf)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 60), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damaged_projector_files(tmp_path: Path, kind: str, seeds: range) -> None:
    """Typed errors, or rows that are numbers."""
    data, path, pixels, refused = (
        projector_file(tmp_path / "mmproj.gguf", kind).read_bytes(),
        tmp_path / "bad.gguf",
        picture(40, 90),
        0,
    )
    for seed in seeds:
        path.write_bytes(damaged(data, seed))
        try:
            encoder = ImageEncoder(path, threads=1)
        except EdgeError:
            refused += 1
            continue
        if seed % 8 < 4:
            try:
                assert np.isfinite(encoder.encode(pixels).rows).all()
            except EdgeError:
                refused += 1
        encoder.close()
    assert refused >= len(seeds) * 2 // 5


# --- prompts with images ----------------------------------------------------------------------------------------------
def test_logits_after_an_image_are_those_of_the_golds(vision_golds: tuple[ModuleType, list[dict[str, Any]]]) -> None:
    score, entries = vision_golds
    for entry in entries:
        with edgellm.load(entry["path"], mmproj=entry["mmproj_path"], kv_type="f32") as model:
            prompt = [entry["prompt"]["before"], edgellm.Image(entry["image_path"]), entry["prompt"]["after"]]
            ids, _ = model.prompt_of(prompt)
            assert np.array_equal(np.where(ids < 0, entry["image_token"], ids), entry["tokens"]), entry["name"]
            after = model.logits(prompt)[-score.after_image(entry) :]
            passed, errors = score.judge(entry, after=after, bar=5e-6)
            assert passed or errors["after"] < 5e-6, (entry["name"], errors)


@pytest.mark.parametrize("sinks", [0, 4])
def test_rows_of_gemma_3_images_see_each_other(tmp_path: Path, sinks: int) -> None:
    """Against the reference, in which tokens of an image see all of it, in sliding layers too."""
    projector = projector_file(tmp_path / "mmproj.gguf", "gemma3")
    path = tiny_model(tmp_path / "m.gguf", "gemma3", "F32", n_embd=OUT, tokenizer="spm")
    prompts = [
        [edgellm.Image(picture(64, 64)), "what", edgellm.Image(picture(64, 64, 1)), " is it?"],
        ["look at this picture here: ", edgellm.Image(picture(90, 64, 3)), "?"],
    ]
    with edgellm.load(path, mmproj=projector, kv_type="f32", sinks=sinks) as model, open_gguf(path) as gguf:
        reference = Reference(with_images(load_graph(gguf)[1], 0, ()), WeightStore(gguf))
        for prompt in prompts:
            ids, vectors = model.prompt_of(prompt)
            assert vectors is not None and vectors.given.images is not None
            wanted = reference.output("logits", np.maximum(ids, 0), given=vectors.given)
            causal = reference.output("logits", np.maximum(ids, 0), given=replace(vectors.given, images=None))
            assert error(causal, wanted) > 0.01
            assert error(model.logits(prompt), wanted) < 1e-5
            with model.engine.alone() as executable:
                executable.step_size.tokens = 16
            assert error(model.logits(prompt), wanted) < 1e-5
            first = model.generate(prompt, max_tokens=1, temperature=0).token_ids
            assert first[0] == int(wanted[-1].argmax())


def test_lines_of_an_image_turn_by_column_row_and_its_number(tmp_path: Path) -> None:
    """HunyuanOCR; against the reference, in pieces as well."""
    projector = projector_file(tmp_path / "mmproj.gguf", "hunyuanvl")
    path = tiny_model(tmp_path / "m.gguf", "hunyuan_vl", "F32", n_embd=OUT, tokenizer="bpe")
    prompt = ["see: ", edgellm.Image(picture(64, 32)), " and ", edgellm.Image(picture(32, 48, 1)), " end"]
    with edgellm.load(path, mmproj=projector, kv_type="f32", context=512) as model, open_gguf(path) as gguf:
        ids, vectors = model.prompt_of(prompt)
        assert vectors is not None and vectors.given.coordinates is not None and vectors.ahead == 0
        at = np.arange(len(ids))
        for number, (first, (rows, columns)) in enumerate(
            zip(np.flatnonzero(np.diff(ids >= 0))[::2] + 1, ((4, 2), (2, 3)), strict=True)
        ):
            inner = slice(first + 1, first + 1 + rows * (columns + 1))
            y, x = (each.ravel() for each in np.indices((rows, columns + 1)))
            assert (ids[first : inner.stop + 1] < 0).all() and ids[inner.stop + 1] >= 0
            assert np.array_equal(vectors.given.coordinates[inner], np.stack([at[inner], x, y, np.full_like(x, number)], axis=1))
        text = np.flatnonzero(ids >= 0)
        assert (vectors.given.coordinates[text] == text[:, None]).all()
        axes = rope_axes(gguf)
        assert set(axes) == {0, 1, 2, 3}
        wanted = Reference(with_images(load_graph(gguf)[1], 0, axes), WeightStore(gguf)).output(
            "logits", np.maximum(ids, 0), given=vectors.given
        )
        assert error(model.logits(prompt), wanted) < 1e-5
        with model.engine.alone() as executable:
            executable.step_size.tokens = executable.step_size._most = 16
        assert error(model.logits(prompt), wanted) < 1e-5


def test_a_prompt_with_images_is_cached_and_read_in_pieces(tmp_path: Path) -> None:
    prompt = ["look: ", edgellm.Image(picture(60, 200)), " and ", edgellm.Image(picture(64, 64, 2)), " what is it?"]
    with seeing(tmp_path) as model:
        first = model.generate(prompt, max_tokens=8, temperature=0)
        again = model.generate([*prompt, " tell"], max_tokens=1, temperature=0)
        assert again.stats.cached_tokens >= len(model.prompt_of(prompt)[0]) - 1
        other = model.generate(["look: ", edgellm.Image(picture(60, 200, 5)), " and"], max_tokens=1, temperature=0)
        assert other.stats.cached_tokens < 60, "the text before the picture, no row of it"
        rows = model.logits(prompt)
        with model.engine.alone() as executable:
            executable.step_size.tokens = executable.step_size._most = 16
        assert np.array_equal(model.logits(prompt), rows)
        assert np.array_equal(model.generate(prompt, max_tokens=8, temperature=0).token_ids, first.token_ids)


def test_two_conversations_with_different_images_share_steps(tmp_path: Path) -> None:
    prompts = [["see ", edgellm.Image(picture(64, 64, seed)), " now"] for seed in (1, 2)]
    with seeing(tmp_path, parallel=2) as model:
        alone = [model.generate(prompt, max_tokens=6, temperature=0).token_ids for prompt in prompts]
    with seeing(tmp_path, parallel=2) as model:
        streams = [model.stream(prompt, max_tokens=6, temperature=0) for prompt in prompts]
        threads = [threading.Thread(target=stream.drain) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [stream.result.token_ids for stream in streams if stream.result] == alone
    assert alone[0] != alone[1]


def test_a_chat_with_images_is_saved_and_resumed(tmp_path: Path) -> None:
    uri = "data:image/png;base64," + base64.b64encode(encoded(Pillow.fromarray(picture(64, 64)), "PNG")).decode()
    parts = [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "What is it?"}]
    messages: list[Any] = [{"role": "user", "content": parts}]
    with seeing(tmp_path) as model:
        session = model.session()
        answer = session.chat(messages, max_tokens=5, temperature=0)
        same = [{"type": "image", "image": picture(64, 64)}, parts[1]]
        assert model.chat([{"role": "user", "content": same}], max_tokens=5, temperature=0).token_ids == answer.token_ids
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "And now?"}]
        session.save(tmp_path / "talk")
        wanted = session.chat(messages, max_tokens=5, temperature=0).token_ids
    with seeing(tmp_path) as model:
        resumed = model.resume(tmp_path / "talk")
        found = resumed.chat(messages, max_tokens=5, temperature=0)
        assert found.token_ids == wanted and found.stats.cached_tokens > 80


def test_a_prompt_with_images_is_found_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the picture shows; another picture, or another projector, finds the text before it at most."""
    monkeypatch.setattr(state_store, "user_cache", lambda: tmp_path / "cache")
    before = "see and look at it well " * 40

    def answer(shown: npt.NDArray[np.uint8], cache: str = "1G") -> edgellm.Generation:
        with edgellm.load(tmp_path / "m.gguf", context=2048, prefix_cache=cache) as model:
            return model.generate([before, edgellm.Image(shown), " and tell"], max_tokens=4, temperature=0, ignore_eos=True)

    seeing(tmp_path).close()
    first, again = answer(picture(64, 64)), answer(picture(64, 64))
    assert first.stats.cached_tokens == 0 and again.stats.cached_tokens == first.stats.prompt_tokens - 1
    assert again.token_ids == first.token_ids
    other = answer(picture(64, 48))
    assert 0 < other.stats.cached_tokens < first.stats.prompt_tokens - 40
    assert other.token_ids == answer(picture(64, 48), "off").token_ids
    projector_file(tmp_path / "mmproj.gguf", "idefics3", seed=1)
    assert answer(picture(64, 64)).stats.cached_tokens == 0


def test_penalties_and_drafts_do_not_meet_rows_of_images(tmp_path: Path) -> None:
    with seeing(tmp_path) as model:
        prompt = ["see ", edgellm.Image(picture(64, 64)), " now"]
        model.generate(prompt, max_tokens=5, repeat_penalty=1.3, presence_penalty=0.5, dry_multiplier=0.8, seed=1, draft="ngram")


def test_run_shows_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115  # closed with the process
    with seeing(tmp_path) as model:
        wanted = model.generate([edgellm.Image(picture(64, 64)), "what"], max_tokens=4, temperature=0).token_ids
    (tmp_path / "p.png").write_bytes(encoded(Pillow.fromarray(picture(64, 64)), "PNG"))
    command = [
        "run",
        str(tmp_path / "m.gguf"),
        "what",
        "--image",
        str(tmp_path / "p.png"),
        "-n",
        "4",
        "--temp",
        "0",
        "--raw",
        "--context",
        "512",
        "--json",
    ]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == list(wanted)
    assert run([*command, "--mmproj", "none"]) == 2
    assert "takes no images" in capsys.readouterr().err


def test_chat_parts_without_an_image(tmp_path: Path) -> None:
    with seeing(tmp_path) as model:
        for part in ({"type": "image"}, {"type": "image_url", "image_url": {}}):
            with pytest.raises(OptionError, match="has no image"):
                model.chat([{"role": "user", "content": [part]}])
        with pytest.raises(ImageError, match="remote address"):
            model.chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}]}])
        with pytest.raises(OptionError, match="audio"):
            model.chat([{"role": "user", "content": [{"type": "input_audio", "data": ""}]}])


def test_ids_and_images_without_a_tokenizer(tmp_path: Path) -> None:
    """The tokens around an image are the caller's."""
    projector_file(tmp_path / "mmproj.gguf", "gemma3")
    tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT)
    with edgellm.load(tmp_path / "m.gguf", context=256) as model:
        shown = edgellm.Image(picture(64, 64))
        rows = len(model.embed_image(shown))
        assert model.generate([1, 5, shown, 7], max_tokens=1).stats.prompt_tokens == rows + 3
        assert len(model.logits([shown])) == rows
        with pytest.raises(NoTokenizer):
            model.generate(["What is this? ", shown])


def test_rows_of_several_layers_lie_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Granite Vision's."""
    keys, shapes = KINDS["mlp"]()
    both = keys | {"feature_layer": [1, 3]}, shapes | {"mm.0.weight": (40, 2 * N)}
    monkeypatch.setitem(KINDS, "mlp", lambda: both)
    path = projector_file(tmp_path / "mmproj.gguf", "mlp")
    encoder = ImageEncoder(path, threads=2)
    assert error(encoder.encode(picture(70, 90)).rows, reference_rows(path, picture(70, 90))) < 5e-6
    encoder.close()


@pytest.mark.parametrize("layers", [[0], [5], [1.5], ["a"], 2])
def test_layers_that_the_encoder_lacks(tmp_path: Path, layers: Any) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", "mlp", feature_layer=layers)
    with open_gguf(path) as gguf, pytest.raises(BadHParam, match="feature_layer"):
        load_encoder(gguf)
