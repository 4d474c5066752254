"""Limits of a broker, found by trying. A few clients ask for more and more until the broker
refuses, and halve the interval then. A broker that closes connections, answers nothing or dies
ends a search; the limit keeps what was found until then."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pubstorm.result.limits import Limit, LimitBound, LimitName, Limits
from pubstorm.topology.raw_client import (
    ANSWER_S,
    MQTT_3_1,
    MQTT_3_1_1,
    MQTT_5,
    NO_VERSION,
    PUBACK,
    REFUSES,
    TEXT_BYTES_MAX,
    Peer,
    RawClient,
    RawConnect,
    RawMessage,
    RawPacket,
    RequestError,
    UnreachableError,
    connect,
    connect_packet,
    connected,
    named_code,
    publish_packet,
    variable_length,
)

PROBE_S = 60.0
"""Longest time of all searches: a broker that answers needs a few seconds."""
SEARCH_S = 3.0
"""Time after which a search of a number tries no further number."""
SYS_S = 2.0
"""Time for the first message below $SYS."""
RETAINED_S = 2.0
"""Time for a retained message to come."""
GROWTH = 4
"""Factor between two numbers, until the broker refuses one."""
PACKET_BYTES_MAX = 16 << 20
LEVELS_MAX = 32_000
SUBSCRIPTIONS_MAX = 10_000
SUBSCRIBED_AT_ONCE = 500
FOREVER_S = 0xFFFFFFFF
"""Session expiry interval of a session without an end."""

VERSIONS: Mapping[int, LimitName] = {
    MQTT_3_1: LimitName.MQTT_3_1,
    MQTT_3_1_1: LimitName.MQTT_3_1_1,
    MQTT_5: LimitName.MQTT_5,
}
GRANTED: Mapping[LimitName, tuple[int, bool | int | str]] = {
    LimitName.RECEIVE_MAXIMUM: (0x21, 0xFFFF),
    LimitName.TOPIC_ALIAS_MAXIMUM: (0x22, 0),
    LimitName.MAXIMUM_QOS: (0x24, 2),
    LimitName.RETAIN_AVAILABLE: (0x25, True),
    LimitName.MAXIMUM_PACKET_SIZE: (0x27, "unlimited"),
    LimitName.WILDCARDS_AVAILABLE: (0x28, True),
    LimitName.SHARED_AVAILABLE: (0x2A, True),
    LimitName.IDENTIFIERS_AVAILABLE: (0x29, True),
    LimitName.SESSION_EXPIRY: (0x11, "unlimited"),
    LimitName.SERVER_KEEP_ALIVE: (0x13, 0xFFFF),
}
"""Properties of CONNACK, and their meaning if they are absent."""
ASSIGNED_CLIENT_ID = 0x12
QOS = (LimitName.QOS_0, LimitName.QOS_1, LimitName.QOS_2)


async def probe(
    host: str,
    port: int,
    username: str | None,
    password: str | None,
    say: Callable[[str], None],
) -> Limits:
    """Returns the limits of the broker at an address, without TLS and WebSocket. `say` takes a line
    for each limit that was found. Nothing of the probe stays on the broker."""
    return await _Probe(Peer(host, port, username, password), say).play()


@dataclass(frozen=True)
class _Search:
    """A number to find."""

    name: LimitName
    low: int
    top: int
    top_bound: LimitBound
    """Bound of the limit if the broker takes the top."""
    top_reason: str
    """Reason why the search ends at the top."""
    trial: Callable[[int], Awaitable[None]]
    """Tries a number; raises RequestError if the broker does not take it."""
    shown: Callable[[int], int] = int
    """Value of the limit at a number."""


class _Probe:
    """The clients of a probe, and what they found."""

    def __init__(self, peer: Peer, say: Callable[[str], None]) -> None:
        self._peer, self._say = peer, say
        self._found: dict[LimitName, Limit] = {}
        tag = secrets.token_hex(4)
        self._client_id = f"pubstorm{tag}".encode()
        """Client identifier of the session without an end."""
        self._clients = 0
        self._prefix = f"pubstorm/{tag}".encode()
        self._version = MQTT_3_1
        self._is_retained = False
        """True if the broker may keep a message."""
        self._qos = 0
        """QoS of the trials: an acknowledgement has a reason."""
        self._packet_max: int | None = None
        """Largest packet if the broker refuses larger ones."""
        self._client: RawClient | None = None
        """The client of trials, until the broker ends its connection."""

    async def play(self) -> Limits:
        """Finds the limits one after the other, harmless ones first."""
        reason = ""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._find_versions()
                await self._find_granted()
                await self._find_qos()
                await self._find_retained()
                await self._find_sys_topics()
                await self._find_largest(self._packets())
                await self._find_largest(self._client_ids())
                await self._find_subscriptions()
                # Long and deep topics have ended some brokers.
                await self._find_largest(self._topics())
                await self._find_largest(self._levels())
        except UnreachableError as error:
            reason = str(error)
        except TimeoutError:
            reason = f"took more than {PROBE_S:g} s for the limits before"
        finally:
            is_there = await self._clean()
        for name in LimitName:
            if name not in self._found:
                self._add(name, None, f"not tried: the broker {reason}")
        limits = tuple(self._found[name] for name in LimitName)
        return Limits(limits=limits, interrupted=bool(reason) or not is_there)

    def _add(
        self,
        name: LimitName,
        value: bool | int | str | None,
        how: str,
        bound: LimitBound = "exact",
    ) -> None:
        bound = "not_found" if value is None else bound
        limit = self._found[name] = Limit(name=name, value=value, bound=bound, how=how)
        self._say(f"{name.words}: {limit.text} ({how})")

    async def _find_versions(self) -> None:
        refusal = ""
        for version, name in VERSIONS.items():
            try:
                async with connected(self._peer, RawConnect(self._new_id(), version)):
                    self._version = version
            except RequestError as error:
                refusal = str(error)
                is_no = error.kind == "closed" or error.code in NO_VERSION
                self._add(name, False if is_no else None, refusal)
            else:
                self._add(name, True, "the broker accepted CONNECT")
        if not any(self._found[name].value for name in VERSIONS.values()):
            raise UnreachableError(f"accepted no client: {refusal.removeprefix('the broker ')}")

    async def _find_granted(self) -> None:
        """Finds the limits in CONNACK of MQTT 5."""
        names = (*GRANTED, LimitName.ASSIGNED_CLIENT_ID)
        if self._version != MQTT_5:
            for name in names:
                self._add(name, None, "the broker has no MQTT 5")
            return
        try:
            client = await connect(
                self._peer, RawConnect(self._client_id, MQTT_5, 0xFFFF, FOREVER_S)
            )
        except RequestError as error:
            for name in names:
                self._add(name, None, str(error))
            return
        client.leave(session_expiry_s=0)
        for name, (identifier, default) in GRANTED.items():
            value = client.properties.get(identifier)
            if value is None or isinstance(value, bytes):
                self._add(name, default, "not in CONNACK, which means this value")
            elif name is LimitName.SESSION_EXPIRY and value == FOREVER_S:
                self._add(name, default, "in CONNACK")
            else:
                self._add(name, bool(value) if default is True else value, "in CONNACK")
        await self._find_assigned_id()

    async def _find_assigned_id(self) -> None:
        name = LimitName.ASSIGNED_CLIENT_ID
        try:
            async with connected(self._peer, RawConnect(b"", MQTT_5)) as client:
                is_assigned = ASSIGNED_CLIENT_ID in client.properties
        except RequestError as error:
            self._add(name, None if error.kind == "silent" else False, str(error))
        else:
            said = "in" if is_assigned else "not in"
            self._add(name, is_assigned, f"{said} CONNACK to a client without one")

    async def _find_qos(self) -> None:
        topic = self._prefix + b"/qos"
        for qos, name in enumerate(QOS):
            message = RawMessage(topic, b"q", qos)
            try:
                client = await self._connected()
                code = await self._subscribed(client, topic, qos)
                await client.publish(message)
                delivered = (await self._delivery(client, message)).qos
            except RequestError as error:
                self._add(name, None if error.kind == "silent" else False, str(error))
            else:
                is_whole = code == delivered == qos
                self._add(name, is_whole, f"granted as QoS {code}, delivered with QoS {delivered}")
            self._leave()
        self._qos = 1 if self._found[LimitName.QOS_1].value else 0

    async def _find_retained(self) -> None:
        message = self._retained_message(b"r")
        value: bool | None = False
        how = f"a later subscriber received nothing, twice in {RETAINED_S:g} s"
        try:
            client = await self._connected()
            self._is_retained = True
            await self._taken(client, message)
            # A broker may acknowledge a message before it keeps it.
            for _ in range(2):
                self._leave()
                client = await self._connected()
                await self._subscribed(client, message.topic)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETAINED_S):
                        value = (await self._delivery(client, message)).retain
                    said = "with" if value else "without"
                    how = f"a later subscriber received it {said} its flag"
                    break
        except RequestError as error:
            value, how = (None if error.kind == "silent" else False), str(error)
        self._leave()
        self._add(LimitName.RETAINED, value, how)

    async def _find_sys_topics(self) -> None:
        name = LimitName.SYS_TOPICS
        try:
            client = await self._connected()
            await self._subscribed(client, b"$SYS/#")
            async with asyncio.timeout(SYS_S):
                received = await client.until(lambda packet: packet.message is not None)
        except RequestError as error:
            self._add(name, None if error.kind == "silent" else False, str(error))
        except TimeoutError:
            self._add(name, None, f"the broker granted $SYS/# and sent nothing in {SYS_S:g} s")
        else:
            topic = received.message.topic if received.message else b""
            self._add(name, topic.startswith(b"$SYS/"), f"received {_shown(topic)}")
        self._leave()

    def _packets(self) -> _Search:
        """Returns the search of the largest packet. Its numbers are lengths of the payload, since
        no packet has every length."""
        topic = self._prefix + b"/packet"
        rest = len(publish_packet(RawMessage(topic, b"", self._qos), self._version, 1)) - 2

        def size(payload: int) -> int:
            return 1 + len(variable_length(rest + payload)) + rest + payload

        async def trial(payload: int) -> None:
            await self._delivered(topic, b"p" * payload)

        top = 2 * PACKET_BYTES_MAX - size(PACKET_BYTES_MAX)
        reason = "larger packets were not tried"
        return _Search(LimitName.LARGEST_PACKET, 2, top, "at_least", reason, trial, size)

    def _client_ids(self) -> _Search:
        def connect_of(number: int) -> RawConnect:
            return RawConnect(self._client_id.ljust(number, b"c"), self._version)

        async def trial(number: int) -> None:
            async with connected(self._peer, connect_of(number)):
                pass

        longest = connect_packet(connect_of(TEXT_BYTES_MAX), self._peer)
        name, low = LimitName.LONGEST_CLIENT_ID, len(self._client_id)
        return _Search(name, low, *self._text_top(longest), trial=trial)

    def _topics(self) -> _Search:
        def topic_of(number: int) -> bytes:
            return (self._prefix + b"/").ljust(number, b"t")

        async def trial(number: int) -> None:
            await self._delivered(topic_of(number), b"topic")

        message = RawMessage(topic_of(TEXT_BYTES_MAX), b"topic", self._qos)
        longest = publish_packet(message, self._version, 1)
        name, low = LimitName.LONGEST_TOPIC, len(topic_of(0)) + 1
        return _Search(name, low, *self._text_top(longest), trial=trial)

    def _text_top(self, longest: bytes) -> tuple[int, LimitBound, str]:
        """Returns the longest text to try, from the packet with the longest text of MQTT."""
        if self._packet_max is not None and self._packet_max < len(longest):
            top = TEXT_BYTES_MAX - (len(longest) - self._packet_max)
            return top, "at_least", "a longer one does not fit into the largest packet"
        return TEXT_BYTES_MAX, "exact", "MQTT allows no longer one"

    def _levels(self) -> _Search:
        """Returns the search of the deepest topic. Each level has one letter."""
        own = self._prefix.count(b"/") + 1

        async def trial(number: int) -> None:
            await self._delivered(self._prefix + b"/l" * (number - own), b"level")

        longest = self._found[LimitName.LONGEST_TOPIC].value
        possible = own
        if isinstance(longest, int):
            possible += (longest - len(self._prefix)) // 2
        top, reason = LEVELS_MAX, "deeper topics were not tried"
        if possible < top:
            top, reason = possible, "a deeper topic would be longer than the longest topic"
        return _Search(LimitName.DEEPEST_TOPIC, own + 1, top, "at_least", reason, trial=trial)

    async def _find_largest(self, search: _Search) -> None:
        """Finds the largest number that the broker takes."""
        found = _Bracket(search, good=0, bad=search.top + 1)
        until_s = _now_s() + SEARCH_S
        number = search.low if search.low <= search.top else 0
        try:
            while found.is_open and number:
                await self._try(found, number)
                if found.is_open and _now_s() > until_s:
                    found.end = f"the search ended after {SEARCH_S:g} s"
                number = found.next_number()
            if found.failure and not (found.end or (found.good and found.is_open)):
                # A connection can end for another reason than the number.
                await self._try(found, found.bad)
        except UnreachableError as error:
            found.end = f"then the broker {error}"
            raise
        except asyncio.CancelledError:
            found.end = f"the search of all limits ended after {PROBE_S:g} s"
            raise
        finally:
            self._add(search.name, found.value, found.how, found.bound)
            self._leave()
        if search.name is LimitName.LARGEST_PACKET and found.failure:
            self._packet_max = found.value

    async def _try(self, found: _Bracket, number: int) -> None:
        """Tries a number over a connection of its own: what the broker keeps of the trial before,
        such as the window of its filter, is no limit of this one."""
        self._leave()
        try:
            await found.search.trial(number)
        except RequestError as error:
            found.is_confirmed = number == found.bad and error.kind != "silent"
            found.bad, found.failure = number, str(error)
            if error.kind == "silent" and found.is_open:
                found.end = "smaller numbers were not tried"
        else:
            found.good = number
            if number == found.bad:
                found.end = "the broker took it in a second trial"

    async def _find_subscriptions(self) -> None:
        """Finds the most subscriptions: many at once until the broker ends a connection, and one
        at a time from there on."""
        name, until_s = LimitName.MOST_SUBSCRIPTIONS, _now_s() + SEARCH_S
        failure: RequestError | None = None
        counts = [SUBSCRIPTIONS_MAX]
        end = ""
        try:
            # The first client finds the last many, the second the number, and the third confirms.
            for _ in range(3):
                granted, failure = await self._subscriptions(counts[-1], until_s)
                counts.append(granted)
                if failure is None or failure.kind != "closed":
                    break
        except UnreachableError as error:
            end = f"; then the broker {error}"
            raise
        finally:
            most = max(counts[1:], default=0)
            if failure is not None:
                how = f"after {counts[-1]:,} {name.unit} {failure}{end}"
            else:
                is_top = most == SUBSCRIPTIONS_MAX
                how = "more were not tried" if is_top else f"the search ended after {SEARCH_S:g} s"
            is_exact = failure is not None and (
                failure.kind == "refused" or (len(counts) == 4 and counts[2] == counts[3])
            )
            self._add(name, most or None, how, "exact" if is_exact else "at_least")

    async def _subscriptions(
        self, together: int, until_s: float
    ) -> tuple[int, RequestError | None]:
        """Returns the number of filters that the broker granted to a new client, and its failure.
        The client sends many at once up to the number `together`, and then one at a time."""
        granted = 0
        try:
            client = await self._connected()
            while granted < SUBSCRIPTIONS_MAX and _now_s() < until_s:
                count = min(SUBSCRIBED_AT_ONCE, together - granted) if granted < together else 1
                numbers = range(granted, granted + count)
                codes = await client.subscribe([self._prefix + b"/s/%d" % n for n in numbers])
                granted += (accepted := _accepted(codes))
                if accepted < count:
                    text = f"answered SUBACK {named_code(codes[accepted])}"
                    return granted, RequestError("refused", text)
        except RequestError as error:
            return granted, error
        finally:
            self._leave()
        return granted, None

    async def _connected(self) -> RawClient:
        """Returns the client of trials, with a new connection if the last one ended."""
        if self._client is None:
            try:
                self._client = await connect(self._peer, RawConnect(self._new_id(), self._version))
            except RequestError as error:
                reason = str(error).removeprefix("the broker ")
                raise UnreachableError(f"{reason} when a client connected") from None
        return self._client

    def _new_id(self) -> bytes:
        """Returns an identifier with at most 23 bytes, as MQTT 3.1 asks for. A broker
        ends the session of an earlier client in its own time."""
        self._clients += 1
        return self._client_id + b"-%d" % self._clients

    def _leave(self) -> None:
        """Ends the connection of the client of trials."""
        if self._client is not None:
            self._client.leave()
            self._client = None

    async def _subscribed(self, client: RawClient, topic: bytes, qos: int = 0) -> int:
        """Returns the QoS that the broker grants; raises RequestError if it refuses."""
        code = (await client.subscribe([topic], qos))[0]
        if code >= REFUSES:
            raise RequestError("refused", f"answered SUBACK {named_code(code)}")
        return code

    async def _delivered(self, topic: bytes, payload: bytes) -> None:
        """Sends a message, and a short one as its end, which shows whether the broker dropped the
        first. Raises RequestError if the broker does not deliver both."""
        client = await self._connected()
        if topic not in client.filters:
            await self._subscribed(client, topic, self._qos)
        message = RawMessage(topic, payload, self._qos)
        end = RawMessage(topic, b"e", self._qos)
        await client.publish(message, end)
        if (await self._delivery(client, message, end)).payload == end.payload:
            raise RequestError("refused", "dropped the message")
        await self._delivery(client, end)

    async def _delivery(self, client: RawClient, *messages: RawMessage) -> RawMessage:
        """Returns the first delivery of one of these messages."""
        awaited = {(message.topic, message.payload) for message in messages}

        def is_delivery(packet: RawPacket) -> bool:
            message = packet.message
            return message is not None and (message.topic, message.payload) in awaited

        delivered = (await client.until(is_delivery)).message
        assert delivered is not None
        return delivered

    async def _taken(self, client: RawClient, message: RawMessage) -> None:
        """Sends a message, and returns when the broker has it."""
        await client.publish(message)
        if message.qos:
            await client.until(lambda packet: packet.kind == PUBACK)
        else:
            await client.ping()

    def _retained_message(self, payload: bytes) -> RawMessage:
        return RawMessage(self._prefix + b"/retained", payload, self._qos, retain=True)

    async def _clean(self) -> bool:
        """Removes the session and the retained message; returns False if the broker accepts no
        client any more."""
        self._leave()
        message = self._retained_message(b"")
        is_there = is_clean = False
        with suppress(RequestError, UnreachableError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                async with connected(self._peer, RawConnect(self._client_id, self._version)):
                    is_there = True
                if self._is_retained:
                    await self._taken(await self._connected(), message)
                is_clean = True
        limit = self._found.get(LimitName.RETAINED)
        if not is_clean and limit is not None and limit.value:
            stays = f"{limit.how}; it stays at topic {_shown(message.topic)}"
            self._found[limit.name] = limit.model_copy(update={"how": stays})
        self._leave()
        # The loop closes sockets in its next turn.
        await asyncio.sleep(0)
        return is_there


@dataclass
class _Bracket:
    """A number that the broker takes, and one that it refuses."""

    search: _Search
    good: int
    bad: int
    failure: str = ""
    """Sentence about `bad`; empty if the broker refused no number."""
    is_confirmed: bool = False
    """True if the broker refused `bad` twice."""
    end: str = ""
    """Reason why the search ends early."""

    @property
    def is_open(self) -> bool:
        """True if numbers are left to try."""
        return self.good + 1 < self.bad

    def next_number(self) -> int:
        """Returns the next number to try; 0 for none."""
        if self.end or not self.good:
            return 0
        if self.failure:
            return (self.good + self.bad) // 2
        return min(self.search.top, GROWTH * self.good)

    @property
    def value(self) -> int | None:
        """The value of the limit."""
        return self.search.shown(self.good) if self.good else None

    @property
    def bound(self) -> LimitBound:
        """The bound of the limit."""
        if self.is_open or (self.failure and not self.is_confirmed):
            return "at_least"
        return "exact" if self.failure else self.search.top_bound

    @property
    def how(self) -> str:
        """The end of the search in words."""
        name, refused = self.search.name, self.search.shown(self.bad)
        parts = [f"at {refused:,} {name.unit} {self.failure}"] if self.failure else []
        if self.end:
            parts.append(self.end)
        return "; ".join(parts or [self.search.top_reason])


def _accepted(codes: Sequence[int]) -> int:
    """Returns the number of filters before the first that the broker refuses."""
    return next((n for n, code in enumerate(codes) if code >= REFUSES), len(codes))


def _shown(topic: bytes) -> str:
    return topic.decode(errors="replace")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
