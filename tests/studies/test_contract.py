"""Every registered study keeps the same promises."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from heedful import lab
from heedful.lab import report

STUDIES = [entry for name, entry in lab.studies().items() if not name.startswith("toy-")]
every = pytest.mark.parametrize("entry", STUDIES, ids=lambda entry: entry.name)


@every
def test_it_says_what_it_asks(entry):
    assert entry.question.endswith("?") and entry.question[0].isupper()
    assert len(entry.source) > 10
    assert set(entry.cost) == {"quick", "full"}
    assert entry.settings.__doc__ and not entry.settings.__doc__.startswith(entry.settings.__name__ + "(")
    assert entry.metrics and all(len(what) > 5 for what in entry.metrics.values())


@every
@pytest.mark.parametrize("profile", lab.PROFILES)
def test_variants_can_be_written_down_and_read_back(entry, profile):
    variants = entry.variants(profile)
    assert variants
    assert len({entry.key(variant) for variant in variants}) == len(variants)
    assert len({entry.label(variant) for variant in variants}) == len(variants)
    for variant in variants:
        again = entry.settings(**json.loads(json.dumps(asdict(variant))))
        assert entry.key(again) == entry.key(variant)


@every
def test_published_figures_belong_to_variants(entry):
    names = {field.name for field in fields(entry.settings)}
    assert set(entry.axes) <= names
    for key, figures in getattr(entry.settings, "published", {}).items():
        assert len(key) == len(entry.axes)
        checked = entry.checked(dict(zip(entry.axes, key, strict=True)))
        assert tuple(checked.values()) == key
        assert figures and all(isinstance(figure, lab.Figure) for figure in figures.values())


@every
def test_profiles_change_settings_that_exist(entry):
    names = {field.name for field in fields(entry.settings)}
    for profile in lab.PROFILES:
        changes = dict(getattr(entry.settings, profile, {}))
        for axis, values in changes.pop("axes", {}).items():
            assert axis in entry.axes
            assert [entry.checked({axis: value})[axis] for value in values] == list(values)
        assert set(changes) <= names


@every
def test_numbers_out_of_range_are_refused(entry):
    """Every number of a study says what it may be: 0 epochs are no epochs, and nan compares with nothing."""
    for name, hint in get_type_hints(entry.settings, include_extras=True).items():
        for part in (hint, *get_args(hint)) if get_origin(hint) is not Annotated else (hint,):
            assert part not in (int, float), f"{name} does not say what it may be: lab.Count, Rate or Share"
            if get_origin(part) is Annotated:
                span = get_args(part)[1]
                for value in ("nan", "inf", "-inf", span.least - 1, span.most + 1):
                    with pytest.raises(ValueError, match=rf"{name} is {value!r}; it takes a .*number"):
                        entry.checked({name: value})
                assert entry.checked({name: span.least}) == {name: span.least}


def _begun(entry, folder, finished, measured=None):
    """A full run that was interrupted once the variants for which `finished` is true were done."""
    store = lab.Store(folder)
    variants = entry.variants("full")
    run = store.begin(entry.name, "full", {}, [0], [(entry.key(each), asdict(each)) for each in variants])
    for (key, _), variant in zip(run.variants, variants, strict=True):
        if finished(variant):
            numbers = measured(variant) if measured else dict.fromkeys(entry.metrics, 0.0)
            store.done(store.claim(run, key, 0), numbers)
    return lab.Result(entry, run, store)


@every
def test_nothing_is_said_of_what_is_not_finished(entry, tmp_path):
    said = report.verdict(_begun(entry, tmp_path, lambda variant: False))
    assert said in ("incomplete", "no pair to compare; incomplete")


@every
def test_one_finished_variant_makes_a_whole_sentence(entry, tmp_path):
    first = entry.variants("full")[0]
    said = report.verdict(_begun(entry, tmp_path, lambda variant: variant == first))
    assert said and not re.search(r"[:,]\s*;|^;|;\s*;", said), said


def test_an_interrupted_run_does_not_say_that_other_nets_forget(tmp_path):
    memory = lab.find("memory")
    said = report.verdict(_begun(memory, tmp_path, lambda variant: variant.model == "rnn"))
    assert "rnn: not even 5" in said and "lstm" not in said and "transformer" not in said


def test_energy_before_training_is_not_told_as_that_of_what_was_trained(tmp_path):
    """Depth smooths random weights; training brings back a difference."""

    def measured(variant):
        deep = variant.layers == 32
        return {"energy": 0.3 * deep, "untrained": -3.0 * deep, "test": 50.0}

    said = report.verdict(_begun(lab.find("oversmoothing"), tmp_path, lambda variant: True, measured))
    assert "32 layers over that at 2: of random weights 0.001 without, 0.001 with the self term" in said
    assert "once trained 2 without, 2 with the self term" in said
