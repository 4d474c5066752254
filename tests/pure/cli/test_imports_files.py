"""`pubstorm import` of files: test plans of JMeter, scenarios of HiveMQ Swarm, and hostile XML."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pubstorm import cli
from pubstorm.cli.imports import FILES, imported
from pubstorm.cli.imports.plans import DEPTH_MAX, ELEMENTS_MAX, XML_BYTES_MAX
from pubstorm.errors import UsageError
from tests.kit.imported import at, scenario_of

S = "net.xmeter.samplers"
LOOP = (
    '<elementProp name="ThreadGroup.main_controller" elementType="LoopController">{}</elementProp>'
)


def props(values: dict[str, str]) -> str:
    return "".join(
        f'<stringProp name="{name}">{value}</stringProp>' for name, value in values.items()
    )


def element(tag: str, values: dict[str, str] | None = None, below: str = "", **more: str) -> str:
    """An element of a plan and the tree below it."""
    name = more.get("testname", tag.rpartition(".")[2])
    enabled = more.get("enabled", "true")
    head = f'<{tag} testname="{name}" enabled="{enabled}">{more.get("inner", "")}'
    return f"{head}{props(values or {})}</{tag}><hashTree>{below}</hashTree>"


def connect(**values: str) -> str:
    return element(f"{S}.ConnectSampler", {f"mqtt.{name}": each for name, each in values.items()})


def publish(below: str = "", **values: str) -> str:
    keys = {f"mqtt.{name}": each for name, each in values.items()}
    return element(f"{S}.PubSampler", keys, below)


def timer(milliseconds: int) -> str:
    return element("ConstantTimer", {"ConstantTimer.delay": str(milliseconds)})


def forever(below: str) -> str:
    return element("LoopController", {"LoopController.loops": "-1"}, below)


def group(below: str, loops: int = 1, testname: str = "Pub Group", **values: str) -> str:
    inner = LOOP.format(props({"LoopController.loops": str(loops)}))
    keys = {"num_threads": "10", **values}
    named = {f"ThreadGroup.{name}": each for name, each in keys.items()}
    return element("ThreadGroup", named, below, testname=testname, inner=inner)


def plan(*groups: str, variables: dict[str, str] | None = None) -> str:
    arguments = "".join(
        f'<elementProp name="{name}" elementType="Argument">'
        f"{props({'Argument.name': name, 'Argument.value': value})}</elementProp>"
        for name, value in (variables or {}).items()
    )
    tree = element("TestPlan", inner=arguments, below="".join(groups))
    return f"<jmeterTestPlan><hashTree>{tree}</hashTree></jmeterTestPlan>"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.xml"


def read_jmeter(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return scenario_of("jmeter", str(file))


CLIENTS, FLOW = "populations.pub-group.", "populations.pub-group.publications.0."


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        ({}, "target", "mqtt://127.0.0.1:1883"),
        ({"server": "::1", "port": "99"}, "target", "mqtt://[::1]:99"),
        ({"protocol": "SSL"}, f"{CLIENTS}tls", {"verify": False}),
        ({"protocol": "WSS", "ws_path": "a"}, "target", "wss://127.0.0.1:1883/a"),
        ({"version": "3.1.1"}, f"{CLIENTS}version", "3.1.1"),
        ({"conn_keep_alive": "8"}, f"{CLIENTS}keep_alive", "8s"),
        ({"conn_timeout": "3"}, f"{CLIENTS}connect_timeout", "3s"),
        ({"conn_clean_session": "false"}, f"{CLIENTS}session", "persistent"),
        ({"reconn_attempt_max": "5"}, f"{CLIENTS}reconnect", None),
        ({"client_id_prefix": "dev_"}, f"{CLIENTS}client_id", "dev_{n}"),
        (
            {"client_id_prefix": "d${__threadNum}", "client_id_suffix": "false"},
            f"{CLIENTS}client_id",
            "d{n}",
        ),
        ({"user_name": "me", "password": "a{"}, f"{CLIENTS}password", "a{{"),
        ({"server": "${host}", "port": "${__P(port,77)}"}, "target", "mqtt://broker:77"),
    ],
)
def test_a_connect_sampler_is_a_population(
    file: Path, values: dict[str, str], path: str, value: object
) -> None:
    text = read_jmeter(file, plan(group(connect(**values)), variables={"host": "broker"}))
    assert at(text, path) == value


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        ({}, f"{FLOW}size", "1024B"),
        ({}, f"{FLOW}interval", "1s"),
        ({"message_type_fixed_length": "100", "add_timestamp": "true"}, f"{FLOW}size", "124B"),
        ({"message_type": "Hex string", "message_to_sent": "aabb"}, f"{FLOW}size", "2B"),
        ({"message_type": "String", "message_to_sent": "x"}, f"{FLOW}payload", "x"),
        (
            {"message_type": "String", "message_to_sent": "x", "add_timestamp": "true"},
            f"{FLOW}payload",
            "{time}ts_sep_flagx",
        ),
        (
            {"message_type": "String", "message_to_sent": "${__Random(1,6,)} ${__UUID()}"},
            f"{FLOW}payload",
            "{random 1..6} {hex 32}",
        ),
        ({"topic_name": "a/${__threadNum}"}, f"{FLOW}topic", "a/{n}"),
        ({"topic_name": "a/${__Random(1,6)}"}, f"{FLOW}order", "shuffled"),
        ({"qos_level": "1"}, f"{FLOW}window", 1),
        ({"retained_message": "true"}, f"{FLOW}retain", True),
    ],
)
def test_a_pub_sampler_is_a_publication(
    file: Path, values: dict[str, str], path: str, value: object
) -> None:
    below = connect() + forever(publish(timer(1000), **values))
    text = read_jmeter(file, plan(group(below)))
    assert at(text, path) == value


def test_a_sub_sampler_is_a_subscription_of_each_of_its_topics(file: Path) -> None:
    sub = element(f"{S}.SubSampler", {"mqtt.topic_name": "a/#, b", "mqtt.qos_level": "1"})
    text = read_jmeter(file, plan(group(connect() + sub)))
    assert at(text, "populations.pub-group.subscriptions") == [
        {"topic": "a/#", "qos": 1},
        {"topic": "b", "qos": 1},
    ]


def test_two_thread_groups_are_one_scenario(file: Path) -> None:
    pub = connect() + forever(publish(timer(500))) + element(f"{S}.DisConnectSampler")
    sub = connect() + element(f"{S}.SubSampler", {"mqtt.topic_name": "test_topic"})
    text = read_jmeter(
        file,
        plan(
            group(pub, ramp_time="5", scheduler="true", duration="20"),
            group(sub, testname="on", ramp_time="1"),
        ),
    )
    assert at(text, "stages") == [
        {"connect": {"populations": ["clients-on"], "over": "1s"}},
        {"connect": {"populations": ["pub-group"], "over": "5s"}},
        {"publish": "20s"},
        {"disconnect": {"populations": ["pub-group"]}},
    ]


def test_loops_within_loops_make_the_number(file: Path) -> None:
    inner = element("LoopController", {"LoopController.loops": "5"}, publish(timer(100)))
    text = read_jmeter(file, plan(group(connect() + inner, loops=4)))
    assert at(text, "stages.1.publish") == {"messages": "20/client"}


def test_a_throughput_timer_is_an_interval(file: Path) -> None:
    throughput = element("ConstantThroughputTimer", {"throughput": "120.0", "calcMode": "0"})
    text = read_jmeter(file, plan(group(connect() + forever(publish(throughput)))))
    assert at(text, f"{FLOW}interval") == "500ms"


def test_columns_of_a_csv_data_set_are_rows(file: Path) -> None:
    rows = element("CSVDataSet", {"filename": "d.csv", "variableNames": "serial,key"})
    below = rows + connect(user_name="${serial}") + forever(publish(topic_name="a/${serial}"))
    file.with_name("d.csv").write_text("serial,key\na,b\n", encoding="utf-8")
    file.write_text(plan(group(below)), encoding="utf-8")
    text = "\n".join(imported("jmeter", [str(file)]).lines())
    assert at(text, f"{CLIENTS}rows") == {"file": "d.csv", "repeat": True}
    assert at(text, f"{CLIENTS}username") == "{row.serial}"
    assert at(text, f"{FLOW}topic") == "a/{row.serial}"


def test_parts_of_a_plan_without_an_equal_are_comments(file: Path) -> None:
    below = (
        connect(keystore_file_path="a.jks", keystore_password="hidden", novelty="7")
        + element("HTTPSamplerProxy", testname="page")
        + element("IfController", below=publish(topic_name="${other}"))
        + element(f"{S}.SubSampler", enabled="false", testname="off")
        + element("ResultCollector")
    )
    text = read_jmeter(file, plan(group(below), element("kg.apc.Stepping", testname="steps")))
    for part in (
        'HTTPSamplerProxy "page"',
        'IfController "IfController"',
        'SubSampler "off": it is disabled',
        'ResultCollector "ResultCollector"',
        'kg.apc.Stepping "steps"',
        "${other}",
        "keystore_file_path",
        'ConnectSampler "ConnectSampler": mqtt.novelty has no equal',
    ):
        assert f"# without {part}" in text or part in text, part
    assert "hidden" not in text


@pytest.mark.parametrize(
    "text",
    [
        plan(),
        plan(group(publish())),
        plan(group(connect(version="4"))),
        plan(group(connect(server="a b"))),
        plan(group(connect(protocol="QUIC"))),
        plan(group(connect(), num_threads="${threads}")),
        plan(group(connect() + publish(qos_level="3"))),
    ],
)
def test_a_plan_without_a_scenario_is_an_error(file: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"^found "):
        read_jmeter(file, text)


def test_variables_that_refer_to_each_other_end(file: Path) -> None:
    bomb = {f"v{each}": f"${{v{each + 1}}}" * 100 for each in range(9)}
    with pytest.raises(UsageError, match="characters"):
        read_jmeter(file, plan(group(connect(server="${v0}")), variables=bomb))
    circle = {"a": "${b}", "b": "${a}"}
    with pytest.raises(UsageError, match="is a host"):
        read_jmeter(file, plan(group(connect(server="${a}")), variables=circle))


SWARM = """<scenario xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:x="y">
<brokers><broker id="b1"><address>h</address><port>1</port></broker>
<websocket-broker id="b2"><address>w</address><port>2</port><path>p</path></websocket-broker>
</brokers>
<clientGroups>
<clientGroup id="Cars"><clientIdPattern>car-[0-9]{4}</clientIdPattern><count>20</count>
<mqtt><version>5</version></mqtt></clientGroup>
<clientGroup id="backend"><clientIdPattern>b[0-9]{2}-[0-9]</clientIdPattern><count>20</count>
</clientGroup>
</clientGroups>
<topicGroups>
<topicGroup id="same"><topicNamePattern>t/[0-9]{2}/x</topicNamePattern><count>20</count>
</topicGroup>
<topicGroup id="few"><topicNamePattern>t/\\d{2}</topicNamePattern><count>5</count></topicGroup>
<topicGroup id="many"><topicNamePattern>t/[0-9]{3}</topicNamePattern><count>100</count></topicGroup>
</topicGroups>
<subscriptions>
<subscription id="wild"><topicGroup>same</topicGroup><wildCard>true</wildCard></subscription>
<subscription id="own"><topicGroup>same</topicGroup></subscription>
<subscription id="filter"><topicFilter>$share/g/t/#</topicFilter></subscription>
</subscriptions>
<stages>
<stage id="one">
<lifeCycle id="a" clientGroup="Cars"><rampUp duration="10s"/>
<connect broker="b1" keepAlive="30s" cleanStart="false" sessionExpiry="60s" autoReconnect="true"/>
</lifeCycle>
<lifeCycle id="b" clientGroup="backend"><delay duration="5s" spread="linear"/>
<connect broker="b2" tcpNoDelay="true"/><subscribe to="SUBSCRIPTION" qos="1"/></lifeCycle>
</stage>
<stage id="two">
<lifeCycle id="c" clientGroup="Cars">
<publish topicGroup="TOPICS" qos="1" count="6" rate="1/10s" message="hi" retain="true"/>
<disconnect/></lifeCycle>
</stage>
</stages>
</scenario>"""


def swarm(file: Path, subscription: str = "filter", topics: str = "same") -> str:
    text = SWARM.replace("SUBSCRIPTION", subscription).replace("TOPICS", topics)
    file.write_text(text, encoding="utf-8")
    return scenario_of("hivemq-swarm", str(file))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("target", ["mqtt://h:1", "ws://w:2/p"]),
        ("populations.cars.clients", 20),
        ("populations.cars.client_id", "car-{n}"),
        ("populations.backend.client_id", "b{n/10}-{n%10}"),
        ("populations.cars.version", "5"),
        ("populations.backend.version", "3.1.1"),
        ("populations.cars.keep_alive", "30s"),
        ("populations.cars.session", "persistent"),
        ("populations.cars.session_expiry", "60s"),
        ("populations.backend.reconnect", "never"),
        ("populations.cars.at", {"brokers": "target", "first": 0, "count": 1}),
        ("populations.backend.subscriptions.0", {"topic": "$share/g/t/#", "qos": 1}),
        ("populations.cars.publications.0.interval", "10s"),
        ("populations.cars.publications.0.payload", "hi"),
        ("populations.cars.publications.0.retain", True),
        ("stages.0", {"connect": {"populations": ["cars"], "over": "10s"}}),
        ("stages.1", {"connect": {"populations": ["backend"], "over": "5s"}}),
        ("stages.2", {"publish": "60s"}),
        ("stages.3", {"disconnect": {"populations": ["cars"]}}),
    ],
)
def test_a_scenario_of_swarm_has_equal_keys(file: Path, path: str, value: object) -> None:
    assert at(swarm(file), path) == value


@pytest.mark.parametrize(
    ("topics", "topic"), [("same", "t/{n}/x"), ("few", "t/{n%5}"), ("many", "t/{0..99}")]
)
def test_topics_of_a_group_are_shared_among_the_clients(
    file: Path, topics: str, topic: str
) -> None:
    assert at(swarm(file, topics=topics), "populations.cars.publications.0.topic") == topic


@pytest.mark.parametrize(("subscription", "topic"), [("wild", "t/+/x"), ("own", "t/{n}/x")])
def test_a_subscription_of_a_topic_group_is_a_filter(
    file: Path, subscription: str, topic: str
) -> None:
    found = at(swarm(file, subscription), "populations.backend.subscriptions.0.topic")
    assert found == topic


@pytest.mark.parametrize(
    ("rate", "key", "value"),
    [("1/1s", "interval", "1s"), ("2/s", "interval", "500ms"), ("5000/1s", "rate", "5000/s")],
)
def test_a_rate_of_swarm_is_an_interval_or_a_rate(
    file: Path, rate: str, key: str, value: str
) -> None:
    text = SWARM.replace("1/10s", rate).replace("SUBSCRIPTION", "own").replace("TOPICS", "same")
    file.write_text(text, encoding="utf-8")
    found = scenario_of("hivemq-swarm", str(file))
    assert at(found, f"populations.cars.publications.0.{key}") == value


def test_parts_of_swarm_without_an_equal_are_comments(file: Path) -> None:
    assert "# without tcpNoDelay of connect: a scenario has no equal" in swarm(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('clientGroup="Cars"', 'clientGroup="bikes"'),
        ("<count>20</count>", "<count>many</count>"),
        ('to="SUBSCRIPTION"', 'to="other"'),
        ('topicGroup="TOPICS"', 'topicGroup="other"'),
        ('rate="1/10s"', 'rate="often"'),
        ('qos="1" count', 'qos="3" count'),
        ('duration="10s"', 'duration="long"'),
        ("<version>5</version>", "<version>4</version>"),
        ("<address>h</address>", "<address>a b</address>"),
        ("<connect ", "<other "),
    ],
)
def test_a_scenario_of_swarm_without_a_scenario_is_an_error(file: Path, old: str, new: str) -> None:
    text = SWARM.replace(old, new).replace("SUBSCRIPTION", "own").replace("TOPICS", "same")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"^found "):
        scenario_of("hivemq-swarm", str(file))


ROOTS = {"jmeter": "jmeterTestPlan", "hivemq-swarm": "scenario"}
BOMB = """<!DOCTYPE {root} [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><{root}>&c;</{root}>"""
HOSTILE = {
    "bomb": (BOMB, "document type"),
    "file": (
        '<!DOCTYPE {root} [<!ENTITY a SYSTEM "file:///etc/passwd">]><{root}/>',
        "document type",
    ),
    "dtd": ('<!DOCTYPE {root} SYSTEM "http://localhost/x.dtd"><{root}/>', "document type"),
    "entity": ("<{root}>&a;</{root}>", "no XML"),
    "root": ("<html/>", "allowed is <"),
    "text": ("target: mqtt://h", "no XML"),
    "empty": ("", "no XML"),
    "half": ("<{root}>", "no XML"),
    "encoding": ('<?xml version="1.0" encoding="none"?><{root}/>', "no XML"),
    "deep": ("<{root}>" + "<a>" * (DEPTH_MAX + 1), "too many elements"),
    "many": ("<{root}>" + "<a/>" * (ELEMENTS_MAX + 1), "too many elements"),
}


@pytest.mark.parametrize("tool", ROOTS)
@pytest.mark.parametrize(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_xml_is_an_error_in_words(
    file: Path, tool: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text.format(root=ROOTS[tool]), encoding="utf-8")
    assert cli.main(["import", tool, str(file)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("error: found ")
    assert words in complaint
    assert re.search(r"aaaaaaaaaaaa|root:", complaint) is None


@pytest.mark.parametrize("tool", FILES)
def test_a_file_that_is_missing_or_too_large_is_an_error(
    file: Path, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with file.open("wb") as opened:
        opened.truncate(XML_BYTES_MAX + 1)
    for path in (str(file), str(file.with_name("none")), str(file.parent), "a\0b"):
        assert cli.main(["import", tool, path]) == 2
        assert capsys.readouterr().err.startswith("error: found ")
    assert cli.main(["import", tool, str(file), str(file)]) == 2


def test_a_file_without_one_of_its_parts_is_a_scenario_or_an_error(file: Path) -> None:
    below = connect(user_name="${serial}") + forever(publish(timer(100))) + element("CSVDataSet")
    sub = connect() + element(f"{S}.SubSampler", {"mqtt.topic_name": "a"})
    texts = {
        "jmeter": plan(group(below), group(sub), variables={"a": "b"}),
        "hivemq-swarm": SWARM.replace("SUBSCRIPTION", "own").replace("TOPICS", "same"),
    }
    for tool, text in texts.items():
        for number in range(1, sum(1 for _ in ElementTree.fromstring(text).iter())):
            root = ElementTree.fromstring(text)
            parent, child = [(each, below) for each in root.iter() for below in each][number - 1]
            parent.remove(child)
            file.write_bytes(ElementTree.tostring(root))
            with contextlib.suppress(UsageError):
                found = "\n".join(imported(tool, [str(file)]).lines())
                assert {"target", "populations", "stages"} <= set(at(found, "")), child.tag
