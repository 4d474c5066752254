//! Requests of a client before its messages: login, limits, channels, exchanges, queues with their
//! bindings, and consumers.

use amqp::field::{push_flag, push_number, push_text};
use amqp::method::{AUTO_DELETE, DURABLE, EXCLUSIVE, NO_ACK};
use amqp::{AmqpError, AmqpLimits, AmqpLogin, AmqpMethod, AmqpSession, RequiredLimits, Table};
use plan::{
    Acknowledge, Amqp, AmqpArgument, AmqpMechanism, AmqpValue, ExchangeType, PlannedQueue,
    QueueType, Reason, Subscription, Template,
};

use super::{AmqpSetup, exchange_and_key};
use crate::seam::cause::Broken;
use crate::seam::protocol::{Asked, At, Event, Polled};
use crate::seam::token::Token;

/// User name and password of a client without any: those of a RabbitMQ that is newly installed.
const GUEST: &str = "guest";

/// Options of a client of AMQP.
pub fn options<'a>(at: &At<'a, AmqpSetup>) -> Option<&'a Amqp> {
    let plan::PlannedProtocol::Amqp(options) = &at.population.protocol else { return None };
    Some(options)
}

/// Appends the login, if the server has its mechanism.
pub fn log_in(
    session: &mut AmqpSession<Token>,
    at: &At<'_, AmqpSetup>,
    mechanisms: &str,
    out: &mut Vec<u8>,
) -> Event<'static> {
    let Some(options) = options(at) else { return Event::Handled };
    let text = |template: &Option<Template>| {
        template.as_ref().map_or_else(|| GUEST.to_owned(), |own| own.text(at.n, 0))
    };
    let (mechanism, response) = match options.mechanism {
        AmqpMechanism::Plain => {
            let (username, password) = (&at.population.username, &at.population.password);
            ("PLAIN", format!("\0{}\0{}", text(username), text(password)))
        }
        AmqpMechanism::External => ("EXTERNAL", String::new()),
    };
    if !mechanisms.split(' ').any(|offered| offered == mechanism) {
        let text = format!("the peer offers the logins {mechanisms}, needed is {mechanism}");
        return Event::Broken(Broken { reason: Reason::ConnectRejected, text });
    }
    let name = options.connection_name.text(at.n, 0);
    let (mechanism, response) = (mechanism.as_bytes(), response.as_bytes());
    session.log_in(&AmqpLogin { mechanism, response, name: name.as_bytes() }, out);
    Event::Handled
}

/// Appends the limits of a client, and its virtual host.
pub fn tune(
    session: &mut AmqpSession<Token>,
    at: &At<'_, AmqpSetup>,
    offered: AmqpLimits,
    out: &mut Vec<u8>,
) -> Result<(), AmqpError> {
    let Some(options) = options(at) else { return Ok(()) };
    let virtual_host = options.virtual_host.text(at.n, 0);
    let required = RequiredLimits {
        channels: options.channels,
        heartbeat_s: at.population.keep_alive_s,
        virtual_host: virtual_host.as_bytes(),
    };
    session.tune(offered, &required, out)
}

/// Appends all that a client needs before its messages: channels, exchanges, queues, bindings and
/// consumers. Brokers work on channels side by side, so that each channel with queues declares the
/// exchanges first.
pub fn prepare(
    session: &mut AmqpSession<Token>,
    at: &At<'_, AmqpSetup>,
    out: &mut Vec<u8>,
) -> Polled {
    let Some(options) = options(at) else { return Polled::Nothing };
    let mut packets = 0;
    let mut request = |channel: u16, method: &AmqpMethod<'_>| {
        session.request(channel, method, out);
        packets += 1;
    };
    for channel in 1..=options.channels {
        request(channel, &AmqpMethod::ChannelOpen { reserved_1: b"" });
        if at.setup.confirms[usize::from(channel) - 1] {
            request(channel, &AmqpMethod::ConfirmSelect { flags: 0 });
        }
        let queues = options.queues.iter().zip(&at.population.subscriptions).enumerate();
        let mut queues =
            queues.filter(|(index, _)| options.channel_of(*index) + 1 == channel).peekable();
        if channel == 1 || queues.peek().is_some() {
            declare_exchanges(options, |method| request(channel, method));
        }
        let mut prefetch = 0;
        for (index, (queue, subscription)) in queues {
            if !queue.exists {
                bind(at.n, queue, subscription, |method| request(channel, method));
            }
            let is_limited = queue.acknowledge != Acknowledge::None && queue.prefetch != prefetch;
            if is_limited {
                prefetch = queue.prefetch;
                request(channel, &AmqpMethod::BasicQos { bytes: 0, count: prefetch, flags: 0 });
            }
            let (name, tag) = (queue.name.text(at.n, 0), index.to_string());
            request(
                channel,
                &AmqpMethod::BasicConsume {
                    reserved_1: 0,
                    queue: name.as_bytes(),
                    tag: tag.as_bytes(),
                    flags: if queue.acknowledge == Acknowledge::None { NO_ACK } else { 0 },
                    arguments: Table::default(),
                },
            );
        }
    }
    Polled::Sent(Asked { packets, awaits_answer: true, ..Asked::default() })
}

fn declare_exchanges(options: &Amqp, mut request: impl FnMut(&AmqpMethod<'_>)) {
    for exchange in &options.exchanges {
        let kind: &[u8] = match exchange.kind {
            ExchangeType::Direct => b"direct",
            ExchangeType::Fanout => b"fanout",
            ExchangeType::Topic => b"topic",
            ExchangeType::Headers => b"headers",
        };
        let arguments = fields(&exchange.arguments);
        request(&AmqpMethod::ExchangeDeclare {
            reserved_1: 0,
            exchange: exchange.name.as_bytes(),
            kind,
            flags: if exchange.durable { DURABLE } else { 0 },
            arguments: Table(&arguments),
        });
    }
}

/// Declares a queue, and binds the queue to its exchange: with each key of a range. The broker
/// binds each queue to the default exchange by itself.
fn bind(
    n: u64,
    queue: &PlannedQueue,
    subscription: &Subscription,
    mut request: impl FnMut(&AmqpMethod<'_>),
) {
    let mut arguments = fields(&queue.arguments);
    let kind = match queue.kind {
        QueueType::Classic => None,
        QueueType::Quorum => Some("quorum"),
        QueueType::Stream => Some("stream"),
    };
    if let Some(kind) = kind {
        push_text(b"x-queue-type", &mut arguments, |out| out.extend_from_slice(kind.as_bytes()));
    }
    let name = queue.name.text(n, 0);
    let flags =
        [(queue.durable, DURABLE), (queue.exclusive, EXCLUSIVE), (queue.auto_delete, AUTO_DELETE)];
    request(&AmqpMethod::QueueDeclare {
        reserved_1: 0,
        queue: name.as_bytes(),
        flags: flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum(),
        arguments: Table(&arguments),
    });
    for variant in 0..subscription.filter.variants() {
        let text = subscription.filter.text(n, variant);
        let shared = text.strip_prefix("$share/").and_then(|own| own.split_once('/'));
        let filter = shared.map_or(&*text, |(_, filter)| filter);
        match exchange_and_key(filter.as_bytes()) {
            // The empty name of a queue is that of the last one declared on the channel.
            Some((exchange, routing_key)) if !exchange.is_empty() => {
                request(&AmqpMethod::QueueBind {
                    reserved_1: 0,
                    queue: name.as_bytes(),
                    exchange,
                    routing_key,
                    flags: 0,
                    arguments: Table::default(),
                });
            }
            _ => {}
        }
    }
}

/// The consumer with this tag, which is its index; `None` if there is none.
#[inline]
pub fn queue_of(tag: &[u8], queues: usize) -> Option<usize> {
    let digit = |number: Option<usize>, &byte: &u8| {
        let digit = usize::from(byte.wrapping_sub(b'0'));
        number?.checked_mul(10)?.checked_add(digit).filter(|_| digit < 10)
    };
    let number = tag.iter().fold(Some(0), digit);
    number.filter(|number| *number < queues && !tag.is_empty())
}

fn fields(arguments: &[AmqpArgument]) -> Vec<u8> {
    let mut out = Vec::new();
    for AmqpArgument { name, value } in arguments {
        let name = name.as_bytes();
        match value {
            AmqpValue::Flag(flag) => push_flag(name, *flag, &mut out),
            AmqpValue::Number(number) => push_number(name, *number, &mut out),
            AmqpValue::Text(text) => {
                push_text(name, &mut out, |out| out.extend_from_slice(text.as_bytes()));
            }
        }
    }
    out
}
