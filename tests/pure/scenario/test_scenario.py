"""Reading scenarios: every mistake is reported, with its line, and nothing else ever comes out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.quantities import KINDS
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.base import keys_of
from pubstorm.scenario.kinds import MqttClients
from pubstorm.scenario.model import Scenario as Root
from pubstorm.scenario.problems import shape_of
from tests.kit import mutation
from tests.pure.scenario.bases import SMALL, changed


def places(text: str, *overrides: str) -> list[str]:
    """Returns place and path of each problem."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml", overrides)
    return [f"{problem.place}: {problem.path}" for problem in caught.value.problems]


def bomb() -> Iterator[str]:
    yield "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"
    yield from (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))


def test_short_forms_mean_their_long_forms() -> None:
    short = parse_scenario(SMALL, "s.yaml")
    long = parse_scenario(
        SMALL.replace("- connect", "- connect: {timeout: 30s}")
        .replace("publish: 10s", "publish: {for: 10s}")
        .replace('["a/{n}"]', '[{topic: "a/{n}", qos: 0}]')
        .replace("rate: 1/s", "interval: 1s, size: {mean: 100B, spread: 0%}"),
        "s.yaml",
    )
    targets = planned_targets(short)
    assert compile_plan(short, targets, run_tag=1) == compile_plan(long, targets, run_tag=1)


def test_stages_default_to_connect_and_publish() -> None:
    text = changed(SMALL, "stages: null")
    assert [stage.name for stage in parse_scenario(text, "s.yaml").stages] == ["connect", "publish"]


def test_all_mistakes_of_a_file_are_reported_together_with_their_lines() -> None:
    text = """\
target: tcp://localhost
drain: 5
populations:
  device:
    clinets: 10
    keep_alive: 500ms
    publications:
      - topic: a/+/b
        rate: 10
      - {topic: "x/{m}", interval: 6m, rate: 1/s, qos: 3}
stages:
  - connect: {rate: 10kg}
  - publish: {for: 5s, populations: [devise]}
thresholds:
  - devic.lost == 0
  - device.lots == 0
"""
    assert places(text) == [
        "s.yaml:1: target",
        "s.yaml:2: drain",
        "s.yaml:4: populations.device.clients",
        "s.yaml:5: populations.device.clinets",
        "s.yaml:6: populations.device.keep_alive",
        "s.yaml:8: populations.device.publications.0.topic",
        "s.yaml:9: populations.device.publications.0.rate",
        "s.yaml:10: populations.device.publications.1",
        "s.yaml:10: populations.device.publications.1.interval",
        "s.yaml:10: populations.device.publications.1.qos",
        "s.yaml:10: populations.device.publications.1.topic",
        "s.yaml:12: stages.0.connect.rate",
        "s.yaml:13: stages.1.publish.populations.0",
        "s.yaml:15: thresholds.0",
        "s.yaml:16: thresholds.1",
    ]


def test_a_problem_of_an_override_is_at_the_override() -> None:
    assert places(SMALL, "drain=5") == ["--set drain=5: drain"]
    assert places("a: 1\n\tb: 2\n") == ["s.yaml:2: "]


@pytest.mark.parametrize("text", ["[" * 5000, "\n".join(bomb())])
def test_what_is_too_large_or_too_deep_is_refused(text: str) -> None:
    assert places(text) == ["s.yaml:1: "]


def test_words_of_old_yaml_are_text() -> None:
    text = SMALL.replace("clients: 10", "clients: 10\n    username: yes\n    password: 1:30")
    device = parse_scenario(text, "s.yaml").populations["device"]
    assert (device.username, device.password) == ("yes", "1:30")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_text("#" * (2**20 + 1))
    binary.write_bytes(b"a: 1\nb: \xff\n")
    cases = [
        (tmp_path / "none.yaml", "found no such file"),
        (tmp_path, "found a directory"),
        (large, "found more than 1 MiB"),
        (binary, "binary.yaml:2: found bytes that are not UTF-8"),
        (Path("a\0b"), "cannot be read"),
    ]
    for path, message in cases:
        with pytest.raises(ScenarioError, match=message):
            load_scenario(path)


def test_overrides_reach_every_kind_of_place() -> None:
    overrides = (
        "populations.device.clients=10k",
        "populations.device.publications.0.size.mean=1kB",
        "populations.device.will.topic=gone",
        "stages.0.connect.rate=5/s",
        "stages.1.publish.for=2s",
        "thresholds=[device.lost == 0]",
        "target=mqtt://other:1",
    )
    scenario = parse_scenario(SMALL, "s.yaml", overrides)
    device = scenario.populations["device"]
    assert isinstance(device, MqttClients)
    assert device.clients == 10_000
    assert device.publications[0].size.mean == 1000
    assert device.will is not None and device.will.topic == "gone"
    plan = compile_plan(scenario, scenario.target, run_tag=1)
    assert [stage.action.kind for stage in plan.stages] == ["connect", "publish"]
    assert str(scenario.target[0]) == "other:1"
    assert all(f"# with --set {override}\n" in scenario.source_text for override in overrides)


def test_a_target_from_the_command_line_takes_the_place_of_the_brokers() -> None:
    text = SMALL.replace("target: mqtt://localhost", "topology: {brokers: {b: {kind: embedded}}}")
    scenario = parse_scenario(text, "s.yaml", (), "mqtt://elsewhere")
    assert not scenario.topology.brokers
    assert str(scenario.target[0]) == "elsewhere:1883"


def test_the_name_is_that_of_the_file() -> None:
    assert parse_scenario(SMALL, "runs/10 devices!.yaml").name == "run-10-devices"


def scalars() -> st.SearchStrategy[Any]:
    written = [example for kind in KINDS.values() for example in kind.examples]
    words = [*written, "max", "never", "auto", "embedded", "connect", "mqtt://h", "a/{n}", "a/#"]
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(words),
    )


def values() -> st.SearchStrategy[Any]:
    parts = [Root, *_parts(Root)]
    keys = sorted({key for part in parts for key in keys_of(part)})
    names = st.sampled_from([*keys, "device", "0"])
    return st.recursive(
        scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=5)
        ),
        max_leaves=30,
    )


def _parts(part: Any) -> set[Any]:
    found: set[Any] = set()
    for key in keys_of(part):
        below = shape_of(part).below(key)
        while below.kind in {"names", "items"}:
            below = below.below(0)
        for inner in below.parts.values():
            found |= {inner} | _parts(inner)
    return found


def check(text: str) -> None:
    try:
        scenario = parse_scenario(text, "s.yaml")
    except ScenarioError as error:
        assert error.problems
        return
    assert isinstance(scenario, Scenario)
    compile_plan(scenario, planned_targets(scenario), run_tag=1)


@given(st.text())
def test_any_text_is_a_scenario_or_an_error(text: str) -> None:
    check(text)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(keys_of(Root)), values()))
@example({"fleet": {"on": []}})
@example({"topology": {"bridges": {"a": {"to": []}}}, "scale": 2, "search": {"vary": []}})
def test_any_tree_of_known_keys_is_a_scenario_or_an_error(tree: dict[str, Any]) -> None:
    check(yaml.safe_dump(tree))


@settings(max_examples=300)
@given(st.sampled_from(SMALL.split()), scalars().map(str), st.integers(0, len(SMALL)))
def test_a_scenario_with_a_word_changed_is_a_scenario_or_an_error(
    word: str, other: str, at: int
) -> None:
    check(SMALL[:at] + SMALL[at:].replace(word, other, 1))


@given(st.lists(st.sampled_from([*keys_of(Root), "device", "0", "7", ""])), scalars())
def test_any_override_is_taken_or_refused(path: list[str], value: object) -> None:
    try:
        parse_scenario(SMALL, "s.yaml", (f"{'.'.join(path)}={value}",))
    except ScenarioError as error:
        assert error.problems


def test_scenarios_with_mistakes_are_checked_in_words(tmp_path: Path) -> None:
    mutation.survive(0, 200, tmp_path)
