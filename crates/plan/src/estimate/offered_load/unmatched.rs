//! Publications that no subscriber receives and filters that no publication matches, from sampled
//! messages and clients of a plan.

use serde::{Deserialize, Serialize};

use super::{sampled, sampled_topics, set_active};
use crate::fan_out::FanOut;
use crate::fan_out::numbers::Numbers;
use crate::model::flows::Publication;
use crate::model::names::Names;
use crate::model::{Action, Plan, Population};
use crate::text::template::{Levels, Template};

/// Topics without subscriber, or filters without publication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmatched {
    /// Share of the sampled topics or filters, above 0 and up to 1.
    pub share: f64,
    /// One of them.
    pub example: String,
}

/// The unmatched topics and filters of one population.
pub struct OfPopulation {
    /// One for each publication.
    pub topics: Vec<Option<Unmatched>>,
    /// One for each subscription.
    pub filters: Vec<Option<Unmatched>>,
}

/// A template of topics that clients publish to.
struct Published {
    names: Names,
    /// `None` for levels with two variables, which can be almost anything.
    topic: Option<Levels>,
    /// Numbers of the clients.
    numbers: Numbers,
}

/// Finds everything that at most these active clients publish or subscribe to in vain.
pub fn find(plan: &Plan, most: &[u32], fan_out: &mut FanOut) -> Vec<OfPopulation> {
    set_active(fan_out, most);
    let publishing = publishing(plan);
    let publishes = publishing.iter().any(|&publishes| publishes);
    // Without any subscription, publishing is all that a plan wants.
    let subscribes = plan.populations.iter().any(|p| !p.subscriptions.is_empty());
    let published = published(plan, most, &publishing);
    let of = |(p, population): (usize, &Population)| {
        let has_levels = population.capabilities().names.grammar().is_some();
        let receives = publishes && has_levels && plan.bridges.is_empty() && most[p] > 0;
        let mut topics = vec![None; population.publications.len()];
        if publishing[p] && subscribes && most[p] > 0 {
            topics =
                (0..topics.len()).map(|i| unreceived(plan, (p, i), most[p], fan_out)).collect();
        }
        let silent = |filter: &Template| unpublished(population, filter, most[p], &published);
        let filters = population.subscriptions.iter();
        let filters = filters.map(|s| receives.then(|| silent(&s.filter)).flatten()).collect();
        OfPopulation { topics, filters }
    };
    plan.populations.iter().enumerate().map(of).collect()
}

/// For each population: `true` if it has publications and takes part in a publish stage.
fn publishing(plan: &Plan) -> Vec<bool> {
    let mut found = vec![false; plan.populations.len()];
    for stage in &plan.stages {
        if let Action::Publish { changes, .. } = &stage.action {
            let changed = changes.iter().map(|change| change.population);
            let chosen = stage.populations.iter().copied().chain(changed);
            chosen.for_each(|p| found[p] = !plan.populations[p].publications.is_empty());
        }
    }
    found
}

/// Everything that clients publish to names with levels, wills among it.
fn published(plan: &Plan, most: &[u32], publishing: &[bool]) -> Vec<Published> {
    let mut found = Vec::new();
    for (p, population) in plan.populations.iter().enumerate() {
        let names = population.capabilities().names;
        let Some(grammar) = names.grammar().filter(|_| most[p] > 0) else { continue };
        let topics = population.publications.iter().map(|each| &each.topic);
        // Answers come to the response topics of requests.
        let requests = population.publications.iter().filter(|each| each.request);
        let topics = topics.chain(requests.filter_map(Publication::response_topic));
        let topics = topics.filter(|_| publishing[p]);
        let will = population.will().map(|will| &will.topic);
        for topic in topics.chain(will) {
            let numbers = Numbers::range(population.first, u64::from(most[p]));
            let levels = topic.levels(grammar).ok();
            for &twin in names.twins() {
                let topic = levels.as_ref().map(|levels| levels.twin(twin));
                if topic != Some(None) {
                    let (topic, numbers) = (topic.flatten(), numbers.clone());
                    found.push(Published { names: twin, topic, numbers });
                }
            }
            found.push(Published { names, topic: levels, numbers });
        }
    }
    found
}

fn unreceived(
    plan: &Plan,
    (population, publication): (usize, usize),
    clients: u32,
    fan_out: &FanOut,
) -> Option<Unmatched> {
    let first = plan.populations[population].first;
    let published = &plan.populations[population].publications[publication];
    let topic = &published.topic;
    let mut counts = Vec::new();
    let mut is_lost = |(client, variant)| {
        let text = topic.text(first + u64::from(client), variant);
        fan_out.deliveries(&text, plan.publisher(population, client), &mut counts);
        counts.iter().all(|&count| count == 0).then_some(text)
    };
    summed_up(sampled_topics(clients, published).map(&mut is_lost))
}

fn unpublished(
    population: &Population,
    filter: &Template,
    clients: u32,
    published: &[Published],
) -> Option<Unmatched> {
    let names = population.capabilities().names;
    let is_silent = |(client, variant)| {
        let text = filter.text(population.first + u64::from(client), variant);
        let shared = text.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
        let wanted = shared.map_or(&*text, |(_, filter)| filter);
        // Topics that begin with a dollar sign are the broker's own.
        let is_meant = |p: &Published| p.names == names && p.is_meant(wanted);
        let silent = !wanted.starts_with('$') && !published.iter().any(is_meant);
        silent.then_some(text)
    };
    summed_up(sampled(clients, filter.variants()).map(is_silent))
}

impl Published {
    /// Returns `true` if a filter without variables matches a topic of some client.
    fn is_meant(&self, wanted: &str) -> bool {
        let Some(Levels { grammar, list }) = &self.topic else { return true };
        let (mut numbers, mut texts) = (self.numbers.clone(), grammar.levels(wanted));
        for level in list {
            match texts.next() {
                None => return false,
                Some(text) if text == grammar.rest => return numbers.count() > 0,
                Some(text) if text == grammar.one => {}
                Some(text) if numbers.narrow(level, text).is_none() => return false,
                Some(_) => {}
            }
        }
        let is_whole =
            texts.next().is_none_or(|text| text == grammar.rest && grammar.rest_min == 0);
        is_whole && numbers.count() > 0
    }
}

/// The share and the last of the texts that are found in vain; `None`: there is none.
fn summed_up(sampled: impl Iterator<Item = Option<String>>) -> Option<Unmatched> {
    let (mut count, mut found, mut example) = (0u32, 0u32, None);
    for text in sampled {
        count += 1;
        if text.is_some() {
            found += 1;
            example = text;
        }
    }
    example.map(|example| Unmatched { share: f64::from(found) / f64::from(count), example })
}
