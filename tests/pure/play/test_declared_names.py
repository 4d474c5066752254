"""Names that clients of AMQP declare, at a broker that takes connections and says nothing."""

from __future__ import annotations

import socket

from pubstorm.play.clean_start.declared import delete_names, look_at_names
from pubstorm.play.clean_start.observer import Deadline
from tests.kit.made import compiled

SCENARIO = """
target: amqp://127.0.0.1:{port}
populations: {{backend: {{clients: 1, subscriptions: [{{queue: jobs}}]}}}}
stages: [connect, disconnect]
"""


def test_a_broker_that_says_nothing_is_a_remark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        plan = compiled(SCENARIO.format(port=silent.getsockname()[1]))
        before = look_at_names(plan, 0, Deadline(0.0)).stale_state
        after = delete_names(plan, 0, None, Deadline(0.0))
    late = "virtual host /: the broker did not answer in time"
    assert [(each.when, each.what, each.text) for each in (*before, *after)] == [
        ("before", "unknown", late),
        ("after", "unknown", f"exchanges and queues of this run may be left: {late}"),
    ]
