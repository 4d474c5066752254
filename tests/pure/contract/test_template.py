"""Templates: what no case of `contract/golden/template.json` holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.template import Template, TemplateError


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
