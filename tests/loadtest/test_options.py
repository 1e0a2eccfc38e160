"""What can be chosen about a load test."""

from __future__ import annotations

import argparse

import pytest

from loadtest.options import Options
from tests.support.sources import ROOT


def parsed(*arguments: str) -> Options:
    parser = argparse.ArgumentParser()
    Options.add_to(parser)
    return Options.parsed(parser.parse_args(arguments))


def test_each_has_a_flag_a_default_and_a_reason() -> None:
    """Nothing given: the table's own numbers; and `--help` has a sentence for each."""
    assert parsed() == Options()
    assert parsed("--users", "7", "--steady-s", "0.5", "--strike", "kill") == Options(
        users=7, steady_s=0.5, strike="kill"
    )
    parser = argparse.ArgumentParser()
    Options.add_to(parser)
    assert "(default: 500)" in parser.format_help()


@pytest.mark.parametrize("wrong", [("--rate", "0"), ("--users", "-1"), ("--strikes", "-1"), ("--back-s", "nan")])
def test_a_number_that_makes_no_sense_is_named(wrong: tuple[str, str]) -> None:
    """At the door, with its flag."""
    with pytest.raises(ValueError, match=wrong[0]):
        parsed(*wrong)


def test_two_of_five_pages_share_a_user() -> None:
    """So that users with two tabs are in every run."""
    assert [Options().user_of(number) for number in (0, 3, 4, 5)] == ["load-0", "load-3", "load-3", "load-5"]


def test_the_readme_has_the_table() -> None:
    """Each flag, its default, and its unit and reason, as they are here."""
    assert Options.table() in (ROOT / "loadtest/README.md").read_text()
