"""Templates: the same texts and the same refusals as in `crates/plan/src/template.rs`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.template import Template, TemplateError

U64_MAX = 2**64 - 1


@pytest.mark.parametrize(
    ("source", "n", "variant", "text"),
    [
        ("dev-{n}", 42, 0, "dev-42"),
        ("a/{n%10}/{n/10}", 42, 0, "a/2/4"),
        ("t_{1..20}", 0, 19, "t_20"),
        ("{{n}}", 7, 0, "{n}"),
        ("", 7, 0, ""),
        ("{n}", U64_MAX, 0, "18446744073709551615"),
        ("{n}{0..3}x", 0, 2, "02x"),
    ],
)
def test_variables_are_replaced(source: str, n: int, variant: int, text: str) -> None:
    assert Template.parse(source).text(n, variant) == text


@pytest.mark.parametrize(
    "source", ["{", "a}", "{}", "{m}", "{n%0}", "{né}", "{5..1}", "{a|}", "{0..65536}"]
)
def test_wrong_templates_are_refused(source: str) -> None:
    with pytest.raises(TemplateError):
        Template.parse(source)


def test_a_range_counts_both_ends() -> None:
    assert Template.parse("t_{1..20}").variants == 20
    assert Template.parse("t").variants == 1


def test_a_filter_level_holds_one_variable() -> None:
    assert len(Template.parse("a/{n}/x{1..3}y/#").levels()) == 4
    with pytest.raises(TemplateError, match=r"'\{n\}-\{n%2\}'"):
        Template.parse("a/{n}-{n%2}").levels()


@given(st.text(alphabet="{}n%/.0123a é"))
def test_any_text_is_a_template_or_refused(source: str) -> None:
    try:
        template = Template.parse(source)
    except TemplateError:
        return
    assert template.source == source
    assert isinstance(template.text(3), str)
