"""What is promised of a model that lives for years, the test that shows it, and what `reliability.py` measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Promise(NamedTuple):
    """A promise, the test that would fail if it were broken, and the name of its figure, if there is one."""

    text: str
    test: str
    figure: str = ""


PROMISES = (
    Promise("growing moves no old score", "growth/test_new_rows.py::test_old_scores_stay_bit_for_bit", "kept"),
    Promise(
        "nor an old row or its optimizer state",
        "growth/test_new_rows.py::test_old_rows_and_optimizer_state_stay_bit_for_bit",
    ),
    Promise(
        "known rows move in proportion to what is new",
        "growth/test_recommender_growth.py::test_known_rows_move_in_proportion_to_what_is_new",
        "grown",
    ),
    Promise(
        "a refit that would move a value is refused",
        "growth/test_refit.py::test_a_fit_that_moves_values_is_refused_by_name",
    ),
    Promise(
        "weights of other vocabularies are refused",
        "growth/test_weights_and_vocabularies.py::test_weights_of_other_vocabularies_are_refused_though_all_shapes_agree",
    ),
    Promise(
        "a stranger is answered as training would",
        "serving/test_fold_in.py::test_training_the_strangers_row_alone_ends_there",
        "stranger",
    ),
    Promise(
        "a killed fit ends with the same bits",
        "training/test_resume.py::test_kill_9_at_any_moment_loses_nothing",
        "training",
    ),
    Promise(
        "a killed save leaves one whole model",
        "artifact/test_writers.py::test_a_writer_that_was_killed_leaves_a_whole_folder_and_the_next_one_clears_up",
        "saving",
    ),
    Promise(
        "two saves at once leave one whole model",
        "artifact/test_writers.py::test_two_processes_that_save_at_once_leave_one_whole_folder",
    ),
    Promise(
        "a reader finds the old model or the new one",
        "artifact/test_folder.py::test_readers_beside_a_writer_see_one_version_or_the_other",
    ),
    Promise(
        "a disk that fills leaves the old model, and nothing else",
        "artifact/test_writers.py::test_a_disk_that_fills_leaves_the_old_model",
    ),
    Promise("damage is refused, naming the file", "artifact/test_damage.py::test_any_flipped_bit_is_found", "damages"),
    Promise("nothing in a folder is executed", "artifact/test_damage.py::test_a_pickle_is_read_by_nobody"),
    Promise(
        "files made up to be believed are refused, or answer in bounds",
        "fuzz/test_fuzz_artifact.py::test_documents_with_other_values_in_them",
    ),
    Promise("older formats are read", "artifact/test_version_1.py::test_it_answers_as_it_did"),
    Promise(
        "a large vocabulary answers before its table is built",
        "vocabulary/test_lazy_index.py::test_few_and_many_keys_have_the_indices_of_an_eager_vocabulary",
        "opening",
    ),
)


def rows(figures: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Give a row per promise: what, measured how, shown by which test."""
    return [(one.text, figures.get(one.figure, ""), f"`tests/{one.test}`") for one in PROMISES]
