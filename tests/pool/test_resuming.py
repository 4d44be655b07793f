"""A run goes on where it was stopped, with what it was begun with, or says why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from demopool import InvalidInput, Unfinished
from demopool.datasets import journal, output, planning, pooling, units

from .small import content_of, expected_of, pooled, some_images


class _Stop(Exception):
    pass


def _stopped_after(
    monkeypatch: pytest.MonkeyPatch, folder: Path, count: int, **options: Any
) -> None:
    """A run that ends after so many units, without a word."""
    append, seen = journal.Journal.append, [0]

    def stop(self: journal.Journal, record: units.Record) -> None:
        if seen[0] == count:
            raise _Stop
        append(self, record)
        seen[0] += 1

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", stop)
        with pytest.raises(_Stop):
            pooled(folder, **options)


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_a_run_goes_on_where_it_was_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _stopped_after(monkeypatch, folder, 3, name=name)
    computed: list[int] = []
    compute = units.compute

    def counted(loaded: units.Loaded, *arguments: Any) -> Any:
        computed.append(loaded.unit.number)
        return compute(loaded, *arguments)

    monkeypatch.setattr("demopool.datasets.pipeline.compute", counted)
    result = pooled(folder, name=name)
    assert computed == [3, 4, 5]
    assert (result.images, result.computed) == (11, 5)
    assert "6 were there before" in result.sentence
    path = folder.parent / name
    found = np.load(path) if name == "out.npy" else zarr.open_array(path)[:]
    assert np.array_equal(found, expected_of(folder))


def test_half_a_line_of_the_journal_is_a_unit_that_is_not_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_after(monkeypatch, folder, 3)
    path = folder.parent / "out.npy.journal"
    path.write_bytes(path.read_bytes()[:-10])
    assert pooled(folder).computed == 7
    assert np.array_equal(np.load(folder.parent / "out.npy"), expected_of(folder))


def test_a_run_that_was_killed_before_its_last_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the file had its name, before the journal was gone."""
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "remove", _raise_stop_if_finished)
        with pytest.raises(_Stop):
            pooled(folder)
    assert pooled(folder).computed == 0
    assert np.array_equal(np.load(folder.parent / "out.npy"), expected_of(folder))
    assert not (folder.parent / "out.npy.journal").exists()


def _raise_stop_if_finished(self: journal.Journal) -> None:
    if self.finished:
        raise _Stop


def test_the_plan_is_that_of_the_first_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been measured, or become free, in the meantime."""
    _stopped_after(monkeypatch, folder, 1)
    monkeypatch.setattr(planning, "MAX_ROWS", 4096)
    monkeypatch.setattr(pooling, "make_plan", None)
    assert pooled(folder).computed == 9


def test_the_same_command_again_does_nothing(folder: Path) -> None:
    pooled(folder)
    before = os.stat(folder.parent / "out.npy").st_mtime_ns
    result = pooled(folder)
    assert result.computed == 0
    assert "is whole already: 11 images" in result.sentence
    assert os.stat(folder.parent / "out.npy").st_mtime_ns == before


@pytest.mark.parametrize("stopped", [True, False])
def test_other_settings_and_changed_files_are_not_gone_on_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    if stopped:
        _stopped_after(monkeypatch, folder, 2)
    else:
        pooled(folder)
    with pytest.raises(InvalidInput, match=r"begun with gamma=0.5, and this is gamma=0.25.*fresh"):
        pooled(folder, gamma=0.25)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "__version__", "99")
        with pytest.raises(InvalidInput, match="the code of demopool has changed"):
            pooled(folder)
    np.save(folder / "b.npy", some_images(1, 9)[0])
    with pytest.raises(InvalidInput, match=r"the input has changed\. --fresh"):
        pooled(folder)
    np.save(folder / "f.npy", some_images(1, 9)[0])
    with pytest.raises(InvalidInput, match=r"\(5 files then, 6 now\)"):
        pooled(folder)
    assert pooled(folder, gamma=0.25, fresh=True).computed == 12
    found = np.load(folder.parent / "out.npy")
    assert np.array_equal(found, expected_of(folder, gamma=0.25))


def test_a_strangers_file_is_not_overwritten(folder: Path) -> None:
    (folder.parent / "out.npy").write_text("mine")
    with pytest.raises(InvalidInput, match="does not say how it was made"):
        pooled(folder)
    assert content_of(folder) == b"mine"


def test_two_processes_do_not_write_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped_after(monkeypatch, folder, 1)
    held = journal.Journal(folder.parent / "out.npy")
    held.open()
    for fresh in (False, True):
        with pytest.raises(Unfinished, match="another process is writing"):
            pooled(folder, fresh=fresh)
    held.close()
    assert pooled(folder).computed == 9


def test_a_damaged_journal_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped_after(monkeypatch, folder, 1)
    (folder.parent / "out.npy.journal").write_text("{}\n")
    with pytest.raises(InvalidInput, match="journal is damaged or gone: --fresh"):
        pooled(folder)
    _stopped_after(monkeypatch, folder, 1, fresh=True)
    (folder.parent / "out.npy.partial").unlink()
    with pytest.raises(InvalidInput, match="partial is damaged or gone: --fresh"):
        pooled(folder)


def test_a_run_that_is_beginning_is_not_disturbed_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found nothing there; the second must not take the file of the first away."""
    create = output.Output.create

    def meanwhile(self: output.Output) -> None:
        monkeypatch.setattr(output.Output, "create", create)
        with pytest.raises(Unfinished, match="another process is writing"):
            pooled(folder)
        create(self)

    monkeypatch.setattr(output.Output, "create", meanwhile)
    assert pooled(folder).computed == 11


def test_a_run_that_was_killed_before_it_began(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_after(monkeypatch, folder, 1)
    path = folder.parent / "out.npy.journal"
    path.write_bytes(path.read_bytes()[:20])
    assert pooled(folder).computed == 11
    assert np.array_equal(np.load(folder.parent / "out.npy"), expected_of(folder))
