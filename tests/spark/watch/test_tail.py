"""Offsets of the ledger files: whatever happens to the files, each whole line is read once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spark.watch import tail
from spark.watch.tail import Offset, Stretch

MOST = 1 << 20


class Reader:
    """Checks the folder, and reads what was added since the last check."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self.most = folder, most
        self.offset: Offset = tail.origin()
        self.now = 0

    def look(self) -> list[Stretch]:
        self.now += 1
        after = tail.look([str(self.folder)], self.offset, self.now, self.most)
        found, self.offset = tail.stretches(self.offset, after), after
        return found

    def text(self) -> str:
        return "".join(Path(each.path).read_bytes()[each.start : each.end].decode() for each in self.look())


def test_appended_lines_are_read_once_and_a_torn_line_waits(tmp_path: Path) -> None:
    reader, ledger = Reader(tmp_path), tmp_path / "a-1-0.ledger.jsonl"
    assert reader.text() == ""
    ledger.write_text("one\ntwo\nthr")
    assert reader.text() == "one\ntwo\n"
    assert reader.text() == ""
    with ledger.open("a") as file:
        file.write("ee\nfour\n")
    assert reader.text() == "three\nfour\n"


def test_a_rotated_ledger_is_read_in_order(tmp_path: Path) -> None:
    reader = Reader(tmp_path, most=8)
    for k in range(11):
        (tmp_path / f"a-1-{k}.ledger.jsonl").write_text(f"part {k:02}\n")
    texts = [reader.text() for _ in range(11)]
    assert "".join(texts) == "".join(f"part {k:02}\n" for k in range(11))
    assert reader.offset["behind"] == 0


def test_bytes_beyond_a_batch_count_as_behind(tmp_path: Path) -> None:
    reader = Reader(tmp_path, most=10)
    (tmp_path / "a-1-0.ledger.jsonl").write_text("12345\n" * 4)
    assert reader.text() == "12345\n"
    assert reader.offset["behind"] == 18
    while reader.offset["behind"]:
        assert reader.text() == "12345\n"


def test_a_batch_is_read_again_exactly(tmp_path: Path) -> None:
    ledger = tmp_path / "a-1-0.ledger.jsonl"
    ledger.write_text("one\n")
    before = tail.look([str(tmp_path)], tail.origin(), 1, MOST)
    ledger.write_text("one\ntwo\n")
    after = tail.look([str(tmp_path)], before, 2, MOST)
    ledger.write_text("one\ntwo\nthree\n")
    assert tail.stretches(before, after) == [Stretch(str(ledger), 4, 8)]


def test_a_longer_copy_is_the_same_file_and_other_content_is_not(tmp_path: Path) -> None:
    """rsync replaces the old file by a new, longer one."""
    reader, ledger = Reader(tmp_path), tmp_path / "a-1-0.ledger.jsonl"
    head = "x" * 300 + "\n"
    ledger.write_text(head)
    assert reader.text() == head
    fresh = tmp_path / ".copy"
    fresh.write_text(head + "more\n")
    os.replace(fresh, ledger)
    assert reader.text() == "more\n"
    ledger.write_text("y" * 300 + "\nother\nother\nother\n")
    (stretch,) = reader.look()
    assert (stretch.start, stretch.replaced) == (0, True)


def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    reader, ledger = Reader(tmp_path), tmp_path / "a-1-0.ledger.jsonl"
    ledger.write_text("one\ntwo\n")
    reader.look()
    ledger.write_text("new\n")
    (stretch,) = reader.look()
    assert (stretch.start, stretch.end, stretch.replaced) == (0, 4, True)


def test_a_segment_compacted_after_it_was_read_is_not_read_again(tmp_path: Path) -> None:
    reader, ledger = Reader(tmp_path), tmp_path / "a-1-0.ledger.jsonl"
    ledger.write_text("one\n")
    (tmp_path / "a-1-1.ledger.jsonl").write_text("two\n")
    reader.look()
    reader.look()
    (tmp_path / "a-1-0.ledger.parquet").write_bytes(b"columns")
    assert reader.look() == []
    ledger.unlink()
    assert reader.look() == []


def test_a_segment_compacted_before_it_was_read_is_read_whole(tmp_path: Path) -> None:
    reader, ledger = Reader(tmp_path), tmp_path / "a-1-0.ledger.jsonl"
    ledger.write_text("one\n")
    reader.look()
    ledger.unlink()
    (tmp_path / "a-1-0.ledger.parquet").write_bytes(b"columns")
    (tmp_path / "b-1-0.ledger.jsonl.zst").write_bytes(b"frames")
    assert [(Path(s.path).name, s.end) for s in reader.look()] == [
        ("a-1-0.ledger.parquet", tail.WHOLE),
        ("b-1-0.ledger.jsonl.zst", tail.WHOLE),
    ]
    assert reader.look() == []


def test_other_and_hidden_files_are_skipped(tmp_path: Path) -> None:
    for name in ("notes.jsonl", ".a-1-0.ledger.jsonl", "_b-1-0.ledger.jsonl", "a-1-0.ledger.jsonl.new"):
        (tmp_path / name).write_text("line\n")
    assert Reader(tmp_path).look() == []


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(st.one_of(st.integers(0, 2), st.just("look")), min_size=1, max_size=40),
    cuts=st.data(), most=st.integers(20, 400),
)  # fmt: skip
def test_any_mix_of_writes_and_looks_reads_each_line_once_in_order(
    steps: list[int | str], cuts: st.DataObject, most: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        reader = Reader(Path(name), most)
        written = dict.fromkeys(range(3), "")
        read = dict(written)

        def take() -> None:
            for s in reader.look():
                k = int(Path(s.path).name[1])
                read[k] += Path(s.path).read_bytes()[s.start : s.end].decode()

        for number, step in enumerate(steps):
            if isinstance(step, str):
                take()
                continue
            piece = f"record {number}\n" * cuts.draw(st.integers(1, 4))
            piece = piece[: cuts.draw(st.integers(1, len(piece)))]
            written[step] += piece
            with open(Path(name) / f"w{step}-1-0.ledger.jsonl", "a") as file:
                file.write(piece)
        # If `most` is below BLOCK, a line longer than `most` is not read.
        lines = [line for text in written.values() for line in text.splitlines(keepends=True)]
        reader.most = max([most, *map(len, lines)])
        for _ in range(100):
            take()
        assert read == {k: text[: text.rfind("\n") + 1] for k, text in written.items()}
        assert reader.offset["behind"] == 0
