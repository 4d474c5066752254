//! Checks of the options of AMQP clients: queues, channels, exchanges and keys that go together.

use super::{Acknowledge, Amqp, ExchangeType, PlannedQueue, QueueType};
use crate::error::{PlanError, require};
use crate::model::flows::Subscription;
use crate::model::names::Names;
use crate::model::protocol::PlannedProtocol;
use crate::model::{Plan, Population};
use crate::text::template::{Level, Levels, Part, Template};

/// Wildcards for many words in one key: the ways to match a name grow with each.
const RESTS_MAX: usize = 3;

/// Front of a filter of a queue that several clients share.
const SHARED: &str = "$share/";

/// Checks options and messages of a population: `path` is its place in the plan.
pub fn check(options: &Amqp, population: &Population, path: &str) -> Result<(), PlanError> {
    let own = format!("{path}.protocol");
    require(options.channels > 0, &format!("{own}.channels"), || "must be > 0".into())?;
    let (queues, subscriptions) = (options.queues.len(), population.subscriptions.len());
    require(queues == subscriptions, &format!("{own}.queues"), || {
        format!("found {queues}, needed is one for each of {subscriptions} subscriptions")
    })?;
    let publications = population.publications.len();
    for (name, flags) in [("mandatory", &options.mandatory), ("persistent", &options.persistent)] {
        require([0, publications].contains(&flags.len()), &format!("{own}.{name}"), || {
            format!("found {}, allowed are none, or one for each publication", flags.len())
        })?;
    }
    check_channels(options, population, &own)?;
    for (q, (queue, subscription)) in
        options.queues.iter().zip(&population.subscriptions).enumerate()
    {
        let at = format!("{own}.queues[{q}]");
        check_acknowledgements(queue, &at)?;
        let is_other = |other: &PlannedQueue| other.name != queue.name;
        let is_unique = queue.name.source().is_empty() || options.queues[..q].iter().all(is_other);
        require(is_unique, &format!("{at}.name"), || {
            format!("found '{}' again, allowed is one subscription a queue", queue.name.source())
        })?;
        require(
            !(queue.exists && queue.name.source().is_empty()),
            &format!("{at}.exists"),
            || "found a queue that exists without its name, needed are both".into(),
        )?;
        check_owner((options, queue), population, subscription, &at)?;
        let at = format!("{path}.subscriptions[{q}].filter");
        check_name(options, &subscription.filter, &at)?;
        check_binding(options, queue, subscription, &at)?;
    }
    for (p, publication) in population.publications.iter().enumerate() {
        let at = format!("{path}.publications[{p}]");
        check_name(options, &publication.topic, &format!("{at}.topic"))?;
        let has_names = publication.properties.iter().all(|header| header.key.is_some());
        require(has_names, &at, || "found a header without a name, needed is a key".into())?;
    }
    Ok(())
}

/// Checks that the subscriptions of a plan to one shared queue have the same filters: each member
/// receives by all bindings of the queue.
pub fn check_shared(plan: &Plan) -> Result<(), PlanError> {
    let shared = plan.populations.iter().enumerate().flat_map(|(p, population)| {
        let is_it = |own: &&Subscription| {
            matches!(population.protocol, PlannedProtocol::Amqp(_)) && population.is_shared(own)
        };
        population.subscriptions.iter().filter(is_it).map(move |own| (p, own.filter.source()))
    });
    let shared: Vec<(usize, &str)> = shared.collect();
    for (s, (p, filter)) in shared.iter().enumerate() {
        let is_other =
            |(_, other): &&(usize, &str)| queue_of(other) == queue_of(filter) && other != filter;
        let other = shared[..s].iter().find(is_other);
        require(other.is_none(), &format!("populations[{p}].subscriptions"), || {
            let other = other.map_or("", |(_, other)| other);
            format!("found '{filter}' and '{other}', allowed is one filter for a shared queue")
        })?;
    }
    Ok(())
}

/// Checks that the messages of a channel are confirmed or not, and that an acknowledgement of
/// several deliveries means those of equal queues.
fn check_channels(options: &Amqp, population: &Population, own: &str) -> Result<(), PlanError> {
    for channel in 0..options.channels {
        let is_here = |index: usize| options.channel_of(index) == channel;
        let publications = population.publications.iter().enumerate();
        let mut levels = publications.filter(|(index, _)| is_here(*index)).map(|(_, own)| own.qos);
        let first = levels.next();
        require(levels.all(|qos| Some(qos) == first), &format!("{own}.channels"), || {
            "found publications with and without confirms on one channel, needed are channels for \
             both"
                .into()
        })?;
        let queues = options.queues.iter().enumerate().filter(|(index, _)| is_here(*index));
        let kinds: Vec<Acknowledge> = queues.map(|(_, queue)| queue.acknowledge).collect();
        let is_multiple = |kind: &Acknowledge| matches!(kind, Acknowledge::Multiple { .. });
        let is_equal = kinds.iter().all(|kind| Some(kind) == kinds.first());
        require(is_equal || !kinds.iter().any(is_multiple), &format!("{own}.channels"), || {
            "found acknowledgements of several deliveries and others on one channel, needed are \
             channels for both"
                .into()
        })?;
    }
    Ok(())
}

fn check_acknowledgements(queue: &PlannedQueue, path: &str) -> Result<(), PlanError> {
    if let Acknowledge::Multiple { every } = queue.acknowledge {
        let fits = every > 0 && (queue.prefetch == 0 || every <= queue.prefetch.into());
        require(fits, &format!("{path}.acknowledge.every"), || {
            let most = queue.prefetch;
            format!("found {every}, allowed are 1 up to the prefetch, which is {most}")
        })?;
    }
    let most = if queue.acknowledge == Acknowledge::None { 0.0 } else { 1.0 };
    require((0.0..=most).contains(&queue.refused), &format!("{path}.refused"), || {
        format!("found {}, allowed are 0 to {most} with these acknowledgements", queue.refused)
    })
}

/// Checks the name of a queue and the clients that use the queue. Each consumer of a stream
/// receives all messages.
fn check_owner(
    (options, queue): (&Amqp, &PlannedQueue),
    population: &Population,
    subscription: &Subscription,
    path: &str,
) -> Result<(), PlanError> {
    let (name, filter) = (queue.name.source(), subscription.filter.source());
    let is_stream = queue.kind == QueueType::Stream;
    if population.is_shared(subscription) {
        let group = subscription.filter.group_and_filter().is_some();
        let is_named = filter.strip_prefix(SHARED).and_then(|rest| rest.strip_prefix(name));
        let is_named = group && is_named.is_some_and(|rest| rest.starts_with('/'));
        let fits = is_named && !name.is_empty() && !queue.exclusive && !is_stream;
        return require(fits, path, || {
            format!(
                "found the queue '{name}' for '{filter}', needed for a shared queue is its name \
                 in the filter, and that it is neither exclusive nor a stream"
            )
        });
    }
    let is_fixed = queue.name.is_fixed() && !options.virtual_host.has_number();
    let is_own = name.is_empty() || !is_fixed || population.clients <= 1 || is_stream;
    require(is_own, &format!("{path}.name"), || {
        format!("found '{name}' for several clients, needed is {SHARED}{name}/ in the filter")
    })
}

/// Checks the exchange and the key of a subscription.
fn check_binding(
    options: &Amqp,
    queue: &PlannedQueue,
    subscription: &Subscription,
    path: &str,
) -> Result<(), PlanError> {
    let (filter, grouped) = (&subscription.filter, subscription.filter.group_and_filter());
    let parts = grouped.as_ref().map_or(filter.parts(), |(_, parts)| parts);
    let grammar = Names::Keys.grammar();
    let levels = grammar.and_then(|grammar| Levels::new(grammar, parts).ok());
    // The check of templates reports a filter without levels.
    let Some(levels) = levels else { return Ok(()) };
    let (front, words) = levels.list.split_at(levels.list.len().min(2));
    let rests = words.iter().filter(|word| **word == Level::Rest).count();
    require(rests <= RESTS_MAX, path, || {
        format!("found {rests} times #, allowed are up to {RESTS_MAX}")
    })?;
    let name = grouped.as_ref().and_then(|(name, _)| name.variable());
    let is_common = |level: &Level| {
        level.variable().is_none_or(|own| own.variants().is_some() || Some(own) == name)
    };
    let fits = grouped.is_none() || front[1..].iter().chain(words).all(is_common);
    require(fits, path, || {
        let found = filter.source();
        format!("found '{found}', allowed is one key for all clients of a shared queue")
    })?;
    let Some(Level::Exact(exchange)) = front.get(1) else { return Ok(()) };
    let is_wild = words.iter().any(|word| matches!(word, Level::Any | Level::Rest));
    let is_queue =
        |n: u64| filter.text(n, 0).ends_with(&format!("//{}", queue.name.text(n, 0))) && !is_wild;
    let declared = options.exchanges.iter().find(|own| *own.name == **exchange);
    let (fits, allowed) = match (&**exchange, declared.map(|own| own.kind)) {
        ("", _) => (is_queue(1) && is_queue(2), "the name of the queue"),
        ("amq.direct", _) | (_, Some(ExchangeType::Direct)) => (!is_wild, "a key without * and #"),
        ("amq.fanout", _) | (_, Some(ExchangeType::Fanout)) => (words == [Level::Rest], "#"),
        _ => return Ok(()),
    };
    require(fits, path, || {
        let found = filter.source();
        format!("found '{found}', allowed at the exchange '{exchange}' is {allowed}")
    })
}

/// Checks that a name is the virtual host of the clients, an exchange and a key.
fn check_name(options: &Amqp, name: &Template, path: &str) -> Result<(), PlanError> {
    let slashes = name.parts().iter().map(|part| match part {
        Part::Literal(text) => text.matches('/').count(),
        Part::Variable(_) => 0,
    });
    let grouped = name.group_and_filter().map(|_| 2).unwrap_or_default();
    let host_of = |n: u64| {
        let text = name.text(n, 0);
        text.split('/').nth(grouped).unwrap_or_default().to_owned()
    };
    let is_host = |n: u64| {
        let (found, own) = (host_of(n), options.virtual_host.text(n, 0));
        found == own || found == "*" || found.is_empty() && own == "/"
    };
    let fits = slashes.sum::<usize>() == grouped + 2 && is_host(1) && is_host(2);
    require(fits, path, || {
        format!(
            "found '{}', needed is VIRTUAL_HOST/EXCHANGE/KEY, with nothing in front of the first \
             slash for the virtual host '/'",
            name.source()
        )
    })
}

/// Queue and virtual host of a shared subscription.
fn queue_of(filter: &str) -> Option<(&str, &str)> {
    let (queue, rest) = filter.strip_prefix(SHARED)?.split_once('/')?;
    Some((queue, rest.split_once('/')?.0))
}
