"""`pubstorm import emqtt-bench`: each option as the key that it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from pubstorm import cli
from pubstorm.cli.imports import import_
from pubstorm.cli.imports.emqtt_bench import OPTIONS
from pubstorm.errors import UsageError
from tests.kit.imported import at, scenario_of


def imported(*lines: str) -> str:
    return scenario_of("emqtt-bench", *lines)


def values(line: str) -> dict[str, Any]:
    found: dict[str, Any] = at(imported(line), "")
    return found


def population(line: str) -> dict[str, Any]:
    (found,) = values(line)["populations"].values()
    assert isinstance(found, dict)
    return found


def test_defaults_are_those_of_emqtt_bench() -> None:
    found = values("emqtt_bench pub -t bench/%i")
    assert found["target"] == "mqtt://localhost:1883"
    assert found["populations"]["pub"] == {
        "clients": 200,
        "first": 1,
        "version": "5",
        "keep_alive": "300s",
        "publications": [{"topic": "bench/{n}", "interval": "1s", "size": "256B", "qos": 0}],
    }
    assert found["stages"] == [{"connect": {"rate": "100/s"}}, {"publish": "30s"}]


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("-c 50", "clients", 50),
        ("--count=50", "clients", 50),
        ("-c50", "clients", 50),
        ("-n 1000", "first", 1001),
        ("-V 4", "version", "3.1.1"),
        ("-V 3", "version", "3.1"),
        ("-k 60", "keep_alive", "60s"),
        ("-C false", "session", "persistent"),
        ("-C false -x 60", "session_expiry", "60s"),
        ("-u user%i", "username", "user{n}"),
        ("-P 'a{b'", "password", "a{{b"),
        ("--prefix dev", "client_id", "dev_bench_conn_{n}"),
        ("--prefix dev --shortids", "client_id", "dev{n}"),
        ("-S", "tls", {"verify": False}),
        ("-S true --cacertfile ca.crt", "tls", {"ca": "ca.crt"}),
        (
            "-S --certfile c.crt --keyfile c.key --ssl-version tlsv1.3 --ciphers A,B",
            "tls",
            {
                "verify": False,
                "certificate": "c.crt",
                "key": "c.key",
                "min_version": "1.3",
                "max_version": "1.3",
                "ciphers": "A:B",
            },
        ),
    ],
)
def test_options_of_clients(options: str, key: str, value: object) -> None:
    assert population(f"emqtt_bench conn {options}")[key] == value


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("-I 10", "interval", "10ms"),
        ("-I 0", "rate", "max"),
        ("-s 16", "size", "16B"),
        ("-m 'a {b}'", "payload", "a {{b}}"),
        ("-q 2", "qos", 2),
        ("-q 1", "window", 1),
        ("-q 1 -F 20", "window", 20),
        ("-r true", "retain", True),
        ("-r", "retain", True),
        ("-t x/%u/%c -u me --prefix p", "topic", "x/me/p_bench_pub_{n}"),
    ],
)
def test_options_of_publications(options: str, key: str, value: object) -> None:
    (publication,) = population(f"pub -t t/%i {options}")["publications"]
    assert publication[key] == value


def test_an_infinite_window_is_the_default() -> None:
    (publication,) = population("pub -t t -q 1 -F 0")["publications"]
    assert "window" not in publication


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("-h a,b -p 1884", "target", ["mqtt://a:1884", "mqtt://b:1884"]),
        ("-h ::1,a", "target", ["mqtt://[::1]:1883", "mqtt://a:1883"]),
        ("--ws true -S -h a", "target", "wss://a:1883/mqtt"),
        ("--quic true -h a -p 14567", "target", "quic://a:14567"),
        ("--quic false -h a", "target", "mqtt://a:1883"),
        ("--ifaddr 127.0.0.1,127.0.0.2", "sources", ["127.0.0.1", "127.0.0.2"]),
        ("-R 500", "stages", [{"connect": {"rate": "500/s"}}, {"hold": "30s"}]),
        ("-i 4", "stages", [{"connect": {"rate": "250/s"}}, {"hold": "30s"}]),
        ("-i 0", "stages", ["connect", {"hold": "30s"}]),
    ],
)
def test_options_of_the_run(options: str, key: str, value: object) -> None:
    assert values(f"conn {options}")[key] == value


def test_quic_has_tls_and_no_websocket() -> None:
    assert population("conn --quic true --cacertfile ca.crt")["tls"] == {"ca": "ca.crt"}
    with pytest.raises(UsageError, match="quic without --ws"):
        imported("conn --quic true --ws true")


def test_a_limit_is_the_number_of_messages() -> None:
    found = values("pub -t t -c 100 -I 10 -L 10000")["stages"][1]
    assert found == {"publish": {"messages": 10000}}


def test_publishers_with_two_limits_last_as_long_as_both_take() -> None:
    lines = ("emqtt_bench pub -t t -c 10 -I 10 -L 1000", "emqtt_bench pub -t u -c 10 -I 10 -L 3000")
    assert at(imported(*lines), "stages")[-1] == {"publish": "3s"}


def test_several_topics_are_several_subscriptions() -> None:
    found = population("sub -t a/# -t b/+ -q 1")["subscriptions"]
    assert found == [{"topic": "a/#", "qos": 1}, {"topic": "b/+", "qos": 1}]


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.remark])
def test_an_option_without_an_equal_is_a_comment(name: str) -> None:
    option = OPTIONS[name]
    action = option.of[-1] if option.of else "conn"
    topic = "" if action == "conn" else "-t t"
    text = imported(f"emqtt_bench {action} {topic} --{name}{'' if option.is_flag else ' 7'}")
    assert f": {option.remark}" in text


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        ("-t t -s 31", True),
        ("-t t -s 32", False),
        ("-t t -m hello", False),
        ("-t t -m hello -V 4", True),
        ("-t t -V 4", False),
    ],
)
def test_messages_without_a_stamp_have_a_comment(options: str, is_said: bool) -> None:
    assert ("# without a stamp: " in imported(f"pub {options}")) == is_said


@pytest.mark.parametrize("options", ["-t bench/%%i", "-t t/%u -u me%%i"])
def test_a_doubled_percent_of_a_service_file_is_read_as_one(options: str) -> None:
    once = options.replace("%%", "%")
    doubled, single = values(f"pub {options}"), values(f"pub {once}")
    assert doubled["populations"] == single["populations"]
    written = options.split()[-1]
    text = imported(f"pub {options}")
    assert f"# {written} is read as {once.split()[-1]}: a service file doubles" in text
    assert "service file" not in imported(f"pub {once}")


def test_a_random_number_of_a_message_is_a_range_in_random_order() -> None:
    (publication,) = population("pub -t a/%rand_10/b")["publications"]
    assert (publication["topic"], publication["order"]) == ("a/{1..10}/b", "shuffled")


def test_a_random_number_of_a_client_is_one_of_as_many() -> None:
    text = imported("sub -t a/%rand_10 -u user%rand_5")
    assert at(text, "populations.sub.subscriptions.0.topic") == "a/{n%10}"
    assert at(text, "populations.sub.username") == "user{n%5}"
    two = imported("sub -t %rand_1/%rand_10")
    assert at(two, "populations.sub.subscriptions.0.topic") == "{n%1}/{n%10}"
    assert "# %rand_10 is a number from 0 to 9, the same for a client in each run" in text


@pytest.mark.parametrize("topic", ["a/%rand_0", "a/%rand_70000", "a/%rand_5/%rand_6", "%rand_x"])
def test_a_random_number_without_an_equal_is_an_error(topic: str) -> None:
    with pytest.raises(UsageError, match=r"%rand_|random"):
        imported(f"pub -t {topic}")


def test_two_command_lines_are_one_scenario_with_two_populations() -> None:
    text = imported(
        "emqtt_bench pub -h b -c 100 -R 50 -t bench/%i -L 1000 -I 100",
        "emqtt_bench sub -h a,b -c 20 -t bench/#",
    )
    assert at(text, "target") == ["mqtt://b:1883", "mqtt://a:1883", "mqtt://b:1883"]
    assert at(text, "populations.pub.at") == {"brokers": "target", "first": 0, "count": 1}
    assert at(text, "populations.sub.at") == {"brokers": "target", "first": 1, "count": 2}
    assert at(text, "stages") == [
        {"connect": {"populations": ["sub"], "rate": "100/s"}},
        {"connect": {"populations": ["pub"], "rate": "50/s"}},
        {"publish": {"messages": 1000}},
    ]


def test_lines_with_one_target_and_one_action_have_names_of_their_own() -> None:
    text = imported("pub -t a -I 10 -L 1000", "pub -t b --prefix x", "conn -c 5")
    assert list(at(text, "populations")) == ["pub", "pub2", "conn"]
    assert at(text, "target") == "mqtt://localhost:1883"
    assert at(text, "populations.pub.at") is None
    assert at(text, "stages.3") == {"publish": "30s"}
    assert "# pub alone would end after 50ms" in text


@pytest.mark.parametrize(
    "line",
    [
        "docker run --rm -e PW=hidden emqx/emqtt-bench:0.5 pub -t a",
        "sudo /usr/bin/emqtt_bench pub -t a",
        "emqtt_bench pub \\\n -t a",
        "emqtt_bench pub -t a &",
    ],
)
def test_words_before_the_program_and_of_the_shell_are_left_out(line: str) -> None:
    text = imported(line)
    assert at(text, "populations.pub.publications.0.topic") == "a"
    assert "hidden" not in text


def test_lines_of_a_shell_script_are_several_command_lines() -> None:
    text = imported("emqtt_bench sub -t a/# & emqtt_bench pub -t a/%i ; emqtt_bench conn")
    assert list(at(text, "populations")) == ["sub", "pub", "conn"]


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        ("-q 1", "window: 1    # closed loop: "),
        ("-q 1 -F 0", "interval: 1s    # open loop: "),
        ("-q 0", "interval: 1s    # open loop: "),
        ("-I 0", "rate: max    # closed loop: "),
        ("-s 16", "size: 16B    # without a stamp: "),
        ("-s 256", "size: 256B    # with a stamp: "),
    ],
)
def test_each_publication_names_its_loop_and_its_stamp(options: str, remark: str) -> None:
    assert remark in imported(f"pub -t t {options}")


def test_files_of_tls_without_tls_are_comments() -> None:
    text = imported("conn --cacertfile ca.crt")
    assert "# without --cacertfile ca.crt: -S turns TLS on" in text
    assert at(imported("conn --ssl-version tlsv1.2"), "target") == "mqtts://localhost:1883"


@pytest.mark.parametrize("option", ["-P hidden", "-Phidden", "--password=hidden"])
def test_a_password_is_not_repeated_in_the_comment(option: str) -> None:
    text = imported(f"conn -u me {option}")
    assert text.count("hidden") == 1
    assert "${env:NAME} keeps a secret out of this file" in text


@pytest.mark.parametrize("option", ["--pasword=hidden", "-Zhidden", "-P hidden%s"])
def test_no_message_names_a_password(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", "emqtt-bench", f"emqtt_bench conn {option}"]) == 2
    assert "hidden" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "line", "place"),
    [
        ("emqtt-bench", "emqtt_bench conn -p 0", "target"),
        ("mqttx", "mqttx pub -t a/# -m x", "populations.pub.publications.0.topic"),
        ("mosquitto", "mosquitto_sub -t a/#/b", "populations.sub.subscriptions.0.topic"),
    ],
)
def test_a_value_that_no_scenario_may_have_is_named_by_its_line(
    tool: str, line: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", tool, line]) == 2
    out, err = capsys.readouterr()
    number = int(err.removeprefix("error: stdout:").partition(":")[0])
    key = place.rpartition(".")[2]
    assert f"{key}: " in out.splitlines()[number - 1]
    assert f": {place}: found " in err


def test_the_command_line_is_one_word_or_several() -> None:
    runner = CliRunner()
    one = runner.invoke(import_, ["emqtt-bench", "emqtt_bench pub -t a/%i -q 1"])
    several = runner.invoke(
        import_, ["emqtt-bench", "--", "emqtt_bench", "pub", "-t", "a/%i", "-q", "1"]
    )
    assert (one.exit_code, one.stdout) == (0, several.stdout)
    assert one.stdout.startswith("# emqtt_bench pub -t a/%i -q 1\n")
